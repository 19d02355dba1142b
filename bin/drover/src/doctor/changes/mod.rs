//! `drover doctor plan`, `apply`, `undo`, `forget` and `changes`: what is to be changed on the agent's host, and what was.

mod conclude;
mod follow;
mod show;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use drover_api::{
    ChangePlanRequest, ChangePlanView, ChangeRequest, Client, UndoRequest, limits as api_limits,
};
use drover_types::ChangeId;
use serde_json::json;

pub use self::conclude::{Ordered, applied, not_begun};
use self::conclude::{forgotten, kept, not_undone, undone};
pub use self::follow::to_its_end;
use crate::cli::Agent;
use crate::command::{Outcome, client, encoded};
use crate::failure::{Failure, exit};
use crate::plan::{check_place, write_whole};

pub const PLAN_EXAMPLES: &str = "\
Examples:
  drover doctor plan                   what would be changed on this host, as a diff
  drover doctor plan -o tune.plan      the same, to be read, cut down, and applied
  drover doctor plan --bounce          also what may take a link away for some seconds
  drover doctor plan --lasting         also what makes it last beyond a restart

";

pub const PLAN_AFTER: &str = "\
Nothing is changed. Whole changes may be taken out of the file; it is good for this host as it
runs now, and until one of its settings is another one.";

pub const APPLY_EXAMPLES: &str = "\
Examples:
  drover doctor plan -o tune.plan
  drover doctor apply tune.plan
  drover doctor apply tune.plan --force    bounce links although the host has guests
  drover doctor plan --lasting -o tune.plan
  drover doctor apply tune.plan --persist  have it last beyond a restart as well

";

pub const APPLY_AFTER: &str = "\
What is there is looked at first: if anything is not as the plan says, nothing is done. Each
setting is written down before it is changed. Afterwards other hosts have to be reached over
every path on which they were before, within 20 s; otherwise all is taken back. That is done by
a process of its own on the host, which goes on whatever becomes of this command, the agent and
the network. What is set lasts until the host is restarted.

With --persist the files that the plan names are written after that, as it shows them: those of
whoever sets these settings when the host comes up. All is set and written, or nothing is,
whatever dies in the middle; `drover doctor undo` puts both back, after a restart as well. No
command is run for it, and no link followed: what is left to people, and what nobody keeps, is
told.

Exit code: 0 applied, 1 taken back by itself, 4 refused, 6 some settings had to be left alone, 7
the agent does not answer.";

pub const UNDO_EXAMPLES: &str = "\
Examples:
  drover doctor undo                   the newest that can be undone
  drover doctor undo 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a

";

pub const UNDO_AFTER: &str = "\
Every setting is as it was before, or nothing is done: what something else has changed since is
named. It is not tried afterwards whether other hosts are reached, as they were with these
settings before.

Exit code: 0 undone, 4 refused, 6 some settings had to be left alone, 7 the agent does not
answer.";

pub const FORGET_EXAMPLES: &str = "\
Examples:
  drover doctor changes                what is remembered
  drover doctor forget 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a

";

pub const FORGET_AFTER: &str = "\
Nothing is set: what the change has set, and the files that it has written, stay as they are, and
cannot be undone any more. The last 128 changes are remembered, and more where they can be undone
are not begun: those that are to stay can be forgotten. What cannot be undone is forgotten by
itself where there is no room, and then what later changes have set as well. Older changes that
have set some of the same are named: they cannot be undone either while that stays as it is.

Exit code: 0 forgotten, 4 refused, 7 the agent does not answer.";

pub const CHANGES_EXAMPLES: &str = "\
Examples:
  drover doctor changes                newest first
  drover doctor changes 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a
  drover doctor changes --json | jq '.changes[] | select(.can_be_undone) | .id'

";

#[derive(Debug, Subcommand)]
pub enum ChangeCommand {
    /// Say what would be changed on this host, as a diff, or write that to a file; nothing is changed
    #[command(before_help = PLAN_EXAMPLES, after_help = PLAN_AFTER)]
    Plan(PlanArgs),
    /// Do what a plan says, prove that other hosts reach this one as before, or take all back
    #[command(before_help = APPLY_EXAMPLES, after_help = APPLY_AFTER)]
    Apply {
        /// The plan
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also what may take a link away for some seconds, on a host that is not drained
        #[arg(long)]
        force: bool,
        /// Have it last beyond a restart: write the files that the plan names, which `plan --lasting` has made
        #[arg(long)]
        persist: bool,
    },
    /// Take back what was applied
    #[command(before_help = UNDO_EXAMPLES, after_help = UNDO_AFTER)]
    Undo {
        /// Which change; the newest that can be undone otherwise
        #[arg(value_name = "ID")]
        id: Option<ChangeId>,
        /// Also what may take a link away for some seconds, on a host that is not drained
        #[arg(long)]
        force: bool,
    },
    /// Forget a change, and leave what it has set as it is: it cannot be taken back any more
    #[command(before_help = FORGET_EXAMPLES, after_help = FORGET_AFTER)]
    Forget {
        /// Which change
        #[arg(value_name = "ID")]
        id: ChangeId,
    },
    /// List what was applied on this host, and what became of it; or show all of one change
    #[command(before_help = CHANGES_EXAMPLES)]
    Changes {
        /// Which change
        #[arg(value_name = "ID")]
        id: Option<ChangeId>,
    },
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Write the plan to a file; one that is there is not replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file
    #[arg(long, requires = "output")]
    force: bool,
    /// Also what may take a link away for some seconds
    #[arg(long)]
    bounce: bool,
    /// Also what makes it last beyond a restart: the files that `apply --persist` writes, and what is left to people
    #[arg(long)]
    lasting: bool,
}

/// Carries one of them out.
pub async fn run(agent: &Agent, command: ChangeCommand) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    match command {
        ChangeCommand::Plan(args) => plan(&client, args).await,
        ChangeCommand::Apply {
            file,
            force,
            persist,
        } => apply(&client, &file, force, persist).await,
        ChangeCommand::Undo { id, force } => undo(&client, id, force).await,
        ChangeCommand::Forget { id } => {
            let view = client.forget_change(id).await;
            forgotten(&view.map_err(Failure::of_changing)?)
        }
        ChangeCommand::Changes { id: None } => {
            let changes = client.changes().await.map_err(Failure::of_reading)?;
            Outcome::new(show::list(&changes), "changes", &changes)
        }
        ChangeCommand::Changes { id: Some(id) } => {
            let view = client.change(id).await.map_err(Failure::of_reading)?;
            Outcome::new(show::detail(&view), "change", &view)
        }
    }
}

async fn plan(client: &Client, args: PlanArgs) -> Result<Outcome, Failure> {
    if let Some(path) = &args.output {
        check_place(path, args.force)?;
    }
    let (bounce, lasting) = (args.bounce, args.lasting);
    let request = ChangePlanRequest { bounce, lasting };
    let planned = client.plan_changes(&request).await;
    let view = planned.map_err(Failure::of_reading)?;
    let text = show::planned(&view);
    let written = args.output.filter(|_| view.plan.is_some());
    let said = match &written {
        None => text,
        Some(path) => {
            write_whole(path, text.as_bytes(), args.force)?;
            show::written(&view, path)
        }
    };
    Outcome::of_parts(said, &parts(&view, written.as_deref())?)
}

fn parts(
    view: &ChangePlanView,
    file: Option<&Path>,
) -> Result<[(&'static str, serde_json::Value); 5], Failure> {
    Ok([
        ("plan", json!(view.plan)),
        ("left_out", encoded(&view.left_out)?),
        ("lasting", encoded(&view.lasting)?),
        ("not_kept", encoded(&view.not_kept)?),
        ("file", json!(file)),
    ])
}

async fn apply(
    client: &Client,
    file: &Path,
    force: bool,
    persist: bool,
) -> Result<Outcome, Failure> {
    let plan = read(file)?;
    let request = ChangeRequest {
        plan,
        force,
        persist,
    };
    let begun = client.apply_changes(&request).await;
    let begun = begun.map_err(|error| not_begun(error, Ordered::Doctor))?;
    let view = to_its_end(client, begun.id, Ordered::Doctor).await?;
    let said = applied(&view, Ordered::Doctor)?;
    let said = if persist { said + &kept(&view) } else { said };
    Outcome::new(said, "change", &view)
}

async fn undo(client: &Client, id: Option<ChangeId>, force: bool) -> Result<Outcome, Failure> {
    let id = match id {
        Some(id) => id,
        None => newest(client).await?,
    };
    let begun = client.undo_change(id, &UndoRequest { force }).await;
    let begun = begun.map_err(not_undone)?;
    undone(&to_its_end(client, begun.id, Ordered::Doctor).await?)
}

async fn newest(client: &Client) -> Result<ChangeId, Failure> {
    let changes = client.changes().await.map_err(Failure::of_reading)?;
    let can = changes.iter().find(|change| change.can_be_undone);
    can.map(|change| change.id).ok_or_else(|| {
        let message = "nothing that was applied on this host can be undone";
        Failure::new(exit::REFUSED, "not-undoable", message)
            .next("`drover doctor changes` shows what became of it")
    })
}

/// The text of a file with a plan. What it says is the agent's to judge.
fn read(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let most = api_limits::CHANGE_PLAN_BYTES as u64;
    let mut text = String::new();
    File::open(file)
        .and_then(|file| file.take(most + 1).read_to_string(&mut text))
        .map_err(|error| Failure::error(format!("cannot read the plan {shown}: {error}")))?;
    if text.len() as u64 <= most {
        return Ok(text);
    }
    let message = format!("{shown} is no plan: it has more than {} MiB", most >> 20);
    Err(Failure::new(exit::REFUSED, "change-plan-unusable", message)
        .next("`drover doctor plan -o FILE` writes one"))
}
