//! `drover drain`, `resume`, `maintenance` and `rebalance`, which have the coordinator carry something out and follow
//! it, and `drover run`, which shows it.
//!
//! Decides nothing about guests: a run goes on, and ends the same, whether somebody follows it or not.

pub mod args;
mod conclude;
mod events;
mod follow;
pub mod live;
mod plan_file;
mod screen;
#[cfg(test)]
pub mod tests;

use drover_api::{
    CancelRunRequest, Client, ClientError, PlanRequest, RunRequest, RunView, RunningMoves,
};
use drover_plan::request::Avoid;
use drover_plan::{Request, text};
use drover_types::RunId;

use crate::cli::Agent;
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::interrupts::Interrupts;
use crate::{plan, show};
use args::{CancelArgs, DrainArgs, MaintenanceCommand, RebalanceArgs, ResumeArgs, RunArgs};
use follow::Follower;

/// `drover drain …`
pub async fn drain(agent: &Agent, what: DrainArgs, json: bool) -> Result<Outcome, Failure> {
    let mut wanted = match &what.plan {
        Some(path) => {
            let plan = plan_file::read(path)?;
            let mut wanted = RunRequest::of(plan.request.clone());
            wanted.plan = Some(plan);
            wanted
        }
        None => RunRequest::of(Request::Drain {
            hosts: what.hosts.into_iter().collect(),
            avoid: Avoid::new(),
            with_disks: what.with_disks,
        }),
    };
    if what.dry_run {
        let request = PlanRequest {
            request: wanted.request,
        };
        return plan::show(agent, &request, what.output.as_deref(), what.force).await;
    }
    wanted.by = who(agent);
    carry_out(agent, &wanted, what.detach, json).await
}

/// `drover resume …`
pub async fn resume(agent: &Agent, what: ResumeArgs, json: bool) -> Result<Outcome, Failure> {
    let wanted = RunRequest {
        fail_back: what.fail_back,
        by: who(agent),
        ..RunRequest::of(Request::Resume {
            host: what.host,
            homes: Vec::new(),
            avoid: Avoid::new(),
            with_disks: what.with_disks,
        })
    };
    carry_out(agent, &wanted, what.detach, json).await
}

/// `drover maintenance …`
pub async fn maintenance(
    agent: &Agent,
    command: MaintenanceCommand,
    json: bool,
) -> Result<Outcome, Failure> {
    match command {
        MaintenanceCommand::On {
            host,
            dry_run,
            with_disks,
            detach,
        } => {
            let what = DrainArgs {
                hosts: vec![host],
                dry_run,
                output: None,
                force: false,
                plan: None,
                with_disks,
                detach,
            };
            drain(agent, what, json).await
        }
        MaintenanceCommand::Off {
            host,
            with_disks,
            detach,
        } => {
            let what = ResumeArgs {
                host,
                fail_back: true,
                with_disks,
                detach,
            };
            resume(agent, what, json).await
        }
    }
}

/// `drover rebalance …`
pub async fn rebalance(agent: &Agent, what: RebalanceArgs, json: bool) -> Result<Outcome, Failure> {
    let request = Request::Rebalance {
        min_gain: what.min_gain,
        most_moves: what.most,
        avoid: Avoid::new(),
        with_disks: what.with_disks,
    };
    if what.dry_run {
        return plan::show(agent, &PlanRequest { request }, None, false).await;
    }
    let wanted = RunRequest {
        by: who(agent),
        ..RunRequest::of(request)
    };
    carry_out(agent, &wanted, what.detach, json).await
}

/// `drover run …`
pub async fn run(agent: &Agent, what: RunArgs, json: bool) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    if what.follow {
        let interrupts = Interrupts::new()?;
        let id = match what.id {
            Some(id) => id,
            None => under_way(&client).await?,
        };
        let view = client.run(id).await.map_err(Failure::of_changing)?;
        return Follower::new(client, interrupts, json).follow(view).await;
    }
    let Some(id) = what.id else {
        let views = client.runs().await.map_err(Failure::of_reading)?;
        return Outcome::new(show::runs::list(&views), "runs", &views);
    };
    let view = client.run(id).await.map_err(Failure::of_reading)?;
    Outcome::new(show::runs::one(&view), "run", &view)
}

/// `drover cancel --run …`
pub async fn cancel(agent: &Agent, what: &CancelArgs) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let id = match what.run.flatten() {
        Some(id) => id,
        None => under_way(&client).await?,
    };
    let how = CancelRunRequest {
        running: if what.let_finish {
            RunningMoves::Finish
        } else {
            RunningMoves::Cancel
        },
        uncordon: what.uncordon,
        by: None,
    };
    let asked = client.cancel_run(id, &how).await;
    let view = asked.map_err(Failure::of_changing)?;
    let running = match how.running {
        RunningMoves::Cancel => "those under way are cancelled",
        RunningMoves::Finish => "those under way come to their end",
    };
    let said = format!(
        "{} is being cancelled: no further move begins, {running}; `drover run {id}` shows it\n",
        text::request(&view.request),
    );
    Outcome::new(said, "run", &view)
}

async fn carry_out(
    agent: &Agent,
    wanted: &RunRequest,
    detach: bool,
    json: bool,
) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let mut interrupts = Interrupts::new()?;
    let asked = interrupts.unless(client.start_run(wanted)).await;
    let view = asked.ok_or_else(not_awaited)?.map_err(not_begun)?;
    if detach {
        return Outcome::new(begun(&view), "run", &view);
    }
    Follower::new(client, interrupts, json).follow(view).await
}

fn begun(view: &RunView) -> String {
    format!(
        "{} has begun, carried out by {}; `drover run {}` shows it, `drover cancel --run` ends it\n",
        text::request(&view.request),
        view.coordinator,
        view.id,
    )
}

fn not_awaited() -> Failure {
    let message = "the agent was asked and its answer not awaited: the run may have begun";
    Failure::new(exit::PARTIAL, "not-followed", message)
        .next("`drover run` shows whether it has, `drover cancel --run` ends it")
}

fn not_begun(error: ClientError) -> Failure {
    let unknown = matches!(
        error,
        ClientError::Timeout { .. } | ClientError::Lost { .. }
    );
    let failure = Failure::of_changing(error);
    if unknown {
        failure.next("it may have begun all the same: `drover run` shows whether it has")
    } else {
        failure
    }
}

/// The run that is under way; there is one at most.
async fn under_way(client: &Client) -> Result<RunId, Failure> {
    let views = client.runs().await.map_err(Failure::of_changing)?;
    let open = views.iter().find(|view| !view.phase.has_ended());
    open.map(|view| view.id).ok_or_else(|| {
        Failure::new(exit::REFUSED, "no-such-run", "no run is under way")
            .next("`drover run` shows those that were")
    })
}

/// Who asks, as this host knows. From elsewhere the certificate says it better.
fn who(agent: &Agent) -> Option<String> {
    if agent.agent.is_some() {
        return None;
    }
    let names = ["SUDO_USER", "USER", "LOGNAME"];
    let mut known = names.iter().filter_map(|name| std::env::var(name).ok());
    known.find(|name| RunRequest::is_usable_name(name))
}
