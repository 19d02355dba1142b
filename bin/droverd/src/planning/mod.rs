//! Plans of the whole cluster, made by whichever agent is asked.
//!
//! ```text
//!   members ─ GET /v1/inventory, side by side ─▶ gather ─▶ preflight ─▶ drover_plan::plan ─▶ plan, notes
//!                                                              └ POST /v1/domains/needs, where there are domains of libvirt's
//! ```
//!
//! Between two requests it keeps what members said last, for when one does not answer. It changes nothing, and decides neither what moves where, which is
//! `drover-plan`'s, nor what a host says of itself.

mod gather;
mod last_said;
mod preflight;

use drover_api::{ClusterInventoryView, ErrorCode, MemberLeftOut, PlanRequest, PlanView, Refusal};
use drover_plan::{Digest, Inventory, Plan, Request, Text, text};
use jiff::Timestamp;
use tokio::time::Instant;

#[cfg(test)]
pub use self::gather::tests;
use self::gather::{Answer, Gathered};
pub use self::last_said::{HostThen, LastSaid, Said};
use crate::agent::Context;
use crate::inventory::{self, DisksAs, DomainsAs, Wanted};
use crate::limits::INVENTORY;

/// A plan, and what it was made of.
pub struct Made {
    pub plan: Plan,
    pub inventory: Inventory,
    /// What was assumed, and who is left out.
    pub notes: Vec<String>,
}

/// Makes a plan, to be shown.
///
/// # Errors
/// As for [`make`].
pub async fn plan(context: &Context, request: PlanRequest) -> Result<PlanView, Refusal> {
    let Made { plan, notes, .. } = make(context, request.request).await?;
    Ok(PlanView { plan, notes })
}

/// What all members say now, which is remembered.
///
/// # Errors
/// The facts of this host cannot be read.
pub async fn look(context: &Context) -> Result<Inventory, Refusal> {
    let gathered = gather(context, DisksAs::Staying).await;
    gathered.map(|gathered| gathered.inventory)
}

/// The whole cluster, as its members tell of it.
///
/// # Errors
/// The facts of this host cannot be read.
pub async fn inventory(context: &Context) -> Result<ClusterInventoryView, Refusal> {
    let Gathered {
        mut inventory,
        notes,
        left_out,
        domains: _,
    } = gather_all(context, DisksAs::Staying).await?;
    inventory.sort();
    let left_out = left_out.into_iter().map(|(host, left)| MemberLeftOut {
        host,
        why: left.why,
    });
    Ok(ClusterInventoryView {
        inventory,
        left_out: left_out.collect(),
        notes,
    })
}

/// Makes a plan.
///
/// # Errors
/// There is none that keeps to the policy, or a host that it is about does not tell its facts.
pub async fn make(context: &Context, request: Request) -> Result<Made, Refusal> {
    let (inventory, notes) = facts_for(context, &request).await?;
    let policy = context.config.policy.clone();
    let planned = tokio::task::spawn_blocking(move || {
        let planned = drover_plan::plan(&inventory, &policy, &request);
        (planned, inventory)
    });
    let (planned, inventory) = planned.await.map_err(|error| {
        let message = format!("the agent failed at planning: {error}");
        Refusal::new(ErrorCode::Internal, message).next("its log tells more")
    })?;
    match planned {
        Ok(plan) => Ok(Made {
            plan,
            inventory,
            notes,
        }),
        Err(refusal) => Err(Refusal {
            next: refusal.next().map(str::to_owned),
            details: serde_json::to_value(&refusal).ok().map(Box::new),
            ..no_plan(&text::refusal(&refusal, &inventory), &notes)
        }),
    }
}

/// A plan that was made before, if the cluster is still as it was then.
///
/// # Errors
/// It is not, or the plan was changed; and a host that it is about does not tell its facts.
pub async fn verified(context: &Context, plan: Plan) -> Result<Made, Refusal> {
    let (inventory, notes) = facts_for(context, &plan.request).await?;
    match plan.verify(&inventory, &context.config.policy) {
        Ok(()) => Ok(Made {
            plan,
            inventory,
            notes,
        }),
        Err(problem) => Err(outdated(&problem.to_string())),
    }
}

/// A plan that is not applied.
pub fn outdated(why: &str) -> Refusal {
    Refusal::new(ErrorCode::PlanOutdated, why)
        .next("make it anew with `drover drain --dry-run -o FILE`")
}

/// The whole cluster, if the hosts that a request is about are in it.
async fn facts_for(
    context: &Context,
    request: &Request,
) -> Result<(Inventory, Vec<String>), Refusal> {
    let as_disks = match request.with_disks() {
        true => DisksAs::Copied,
        false => DisksAs::Staying,
    };
    let Gathered {
        inventory,
        notes,
        left_out,
        domains: _,
    } = gather_all(context, as_disks).await?;
    if let Some((host, left)) = left_out.iter().find(|(host, _)| request.is_about(host)) {
        let message = format!("No plan: {host} cannot be planned with: {}", left.why);
        let refusal = if left.answered {
            no_plan(&message, &[])
        } else {
            Refusal::new(ErrorCode::PeerUnreachable, message)
        };
        return Err(refusal.next(format!(
            "see to {host} first: `drover status` shows which hosts answer"
        )));
    }
    Ok((inventory, notes))
}

/// What was assumed may be why there is no plan.
fn no_plan(text: &str, notes: &[String]) -> Refusal {
    let notes: String = notes
        .iter()
        .map(|note| format!("\n  note: {note}"))
        .collect();
    let message = format!("{}{notes}", text.trim_end());
    Refusal::new(ErrorCode::NoPlan, message)
}

/// Asks all members for what they have, and then for what domains of the others need.
async fn gather_all(context: &Context, as_disks: DisksAs) -> Result<Gathered, Refusal> {
    let mut gathered = gather(context, as_disks).await?;
    preflight::ask(context, &mut gathered).await;
    Ok(gathered)
}

/// Asks all members, this host included.
async fn gather(context: &Context, as_disks: DisksAs) -> Result<Gathered, Refusal> {
    let own = async {
        let host = context.config.host.clone();
        let wanted = Wanted {
            domains: DomainsAs::ById,
            disks: as_disks,
        };
        let view = tokio::time::timeout(INVENTORY, inventory::view(context, wanted)).await;
        let late = |_| {
            let seconds = INVENTORY.as_secs();
            let message = format!("the facts of {host} were not read within {seconds} s");
            Refusal::new(ErrorCode::Timeout, message)
                .next("the agent's log tells what it waits for; then try again")
        };
        let view = view.map_err(late)??;
        Ok::<_, Refusal>((host, Ok(view), Instant::now()))
    };
    let peers = &context.peers;
    let others = async {
        match as_disks {
            DisksAs::Copied => {
                let asked = peers.ask_all(async |client| client.inventory_with_disks().await);
                asked.await
            }
            DisksAs::Staying => {
                let asked = peers.ask_all(async |client| client.inventory().await);
                asked.await
            }
        }
    };
    let (own, others) = tokio::join!(own, others);
    let now = Instant::now();
    let aged = |(host, told, at): (_, Result<_, Refusal>, Instant)| Answer {
        host,
        // Another agent's words, to be shown on a terminal.
        told: told.map_err(|refusal| Text::from(refusal.message).to_string()),
        age_seconds: (now - at).as_secs(),
    };
    let answers = std::iter::once(own?).chain(others).map(aged);
    let policy = Digest::of_policy(&context.config.policy);
    let mut gathered = gather::merge(answers.collect(), policy);
    let at = Timestamp::now();
    let mut said = context.last_said.lock();
    said.learn(&gathered.inventory, &gathered.not_heard(), at);
    gathered.complete(&said, at);
    drop(said);
    Ok(gathered)
}
