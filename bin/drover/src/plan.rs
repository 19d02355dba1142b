//! `drover plan …`

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use drover_api::{PlanRequest, PlanView};
use drover_plan::request::Avoid;
use drover_plan::{Request, text};
use drover_types::HostName;
use serde_json::json;

use crate::cli::Agent;
use crate::command::{Outcome, client};
use crate::failure::Failure;

/// Of `drover plan` and what is below it.
pub const EXAMPLES: &str = "\
Examples:
  drover plan drain a                  where each guest of host a would go, and why
  drover plan drain a b -o plan.json   of two hosts at once, and keep the plan
  drover plan drain a --json | jq '.plan.steps[] | {vm, to}'

";

const DRAIN_AFTER: &str = "\
Nothing is changed: a plan is made from what all hosts say of themselves now, and shown.
`drover drain` makes one and carries it out, `drover drain --plan FILE` exactly the one in a file.
The exit code is 4 when there is no plan, and the message says why.";

#[derive(Debug, Subcommand)]
pub enum PlanCommand {
    /// Show how hosts would be emptied: which guest goes where, and why; nothing is changed
    #[command(after_help = DRAIN_AFTER)]
    Drain(Drain),
}

/// Options of `drover plan drain`.
#[derive(Debug, Clone, Args)]
pub struct Drain {
    /// The hosts to empty
    #[arg(value_name = "HOST", required = true)]
    hosts: Vec<HostName>,
    /// Write the plan to a file as well, as JSON; a file that is there is not replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file
    #[arg(long, requires = "output")]
    force: bool,
    /// Copy disks that only their own host has along with libvirt's domains, which stay otherwise
    #[arg(long)]
    with_disks: bool,
}

/// `drover plan …`
pub async fn run(agent: &Agent, PlanCommand::Drain(what): PlanCommand) -> Result<Outcome, Failure> {
    let request = PlanRequest {
        request: Request::Drain {
            hosts: what.hosts.into_iter().collect(),
            avoid: Avoid::new(),
            with_disks: what.with_disks,
        },
    };
    show(agent, &request, what.output.as_deref(), what.force).await
}

/// Asks for a plan, shows it, and writes it to `output`, over a file only with `force`.
pub async fn show(
    agent: &Agent,
    request: &PlanRequest,
    output: Option<&Path>,
    force: bool,
) -> Result<Outcome, Failure> {
    if let Some(path) = output {
        check_place(path, force)?;
    }
    let planned = client(agent)?.plan(request).await;
    let view = planned.map_err(Failure::of_changing)?;
    let mut said = shown(&view);
    if let Some(path) = output {
        let mut text = serde_json::to_vec_pretty(&view.plan)
            .map_err(|error| Failure::error(error.to_string()))?;
        text.push(b'\n');
        write_whole(path, &text, force)?;
        // Writing to a String cannot fail.
        let _ = writeln!(said, "The plan is in {}.", path.display());
    }
    Outcome::of_parts(
        said,
        &[("plan", json!(view.plan)), ("notes", json!(view.notes))],
    )
}

fn shown(view: &PlanView) -> String {
    let mut said = text::plan(&view.plan);
    for note in &view.notes {
        let _ = writeln!(said, "note: {note}");
    }
    said + "Nothing was changed.\n"
}

/// Whether a file can be written there, as far as that is known before there is something to write.
///
/// # Errors
/// There is one, which is to be replaced only with `replace`.
pub fn check_place(path: &Path, replace: bool) -> Result<(), Failure> {
    if !replace && path.exists() {
        return Err(not_written(path, &ErrorKind::AlreadyExists.into()));
    }
    Ok(())
}

/// Writes a file beside its place and gives it its name when it is whole.
///
/// # Errors
/// It cannot be written, or there is one that is not to be replaced.
pub fn write_whole(path: &Path, text: &[u8], replace: bool) -> Result<(), Failure> {
    written(path, text, replace).map_err(|error| not_written(path, &error))
}

fn written(path: &Path, text: &[u8], replace: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = Path::new(&beside);
    let written = File::create_new(beside).and_then(|mut file| {
        file.write_all(text)?;
        file.sync_all()?;
        // A link is refused where something of that name has come meanwhile.
        if replace {
            fs::rename(beside, path)
        } else {
            fs::hard_link(beside, path)
        }
    });
    // Ours, and of no use any more; after a rename it is not there.
    let _ = fs::remove_file(beside);
    written
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::error(format!("{path} is there already"))
            .next("choose another file, or replace it with --force"),
        _ => Failure::error(format!("cannot write {path}: {error}"))
            .next("name a file in a directory that can be written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> PlanView {
        let bytes = |all: u64| json!({"least": all, "expected": all, "most": all});
        let plan = json!({
            "format": 1, "inputs": "0".repeat(64), "request": {"kind": "drain", "hosts": ["a"]},
            "cordon": ["a"], "uncordon": [], "steps": [], "stays": [], "unmoved": [],
            "expected": {"bytes": bytes(0), "ms": bytes(0), "bound_ms": 0, "longest_downtime_ms": bytes(0)},
            "afterwards": {"hosts": [], "losses": {"of": "host", "can_lose": 1, "kept": true,
                "too_much": null, "bound_to_their_host": 0}},
            "seal": "0".repeat(64)
        });
        PlanView {
            plan: serde_json::from_value(plan).unwrap(),
            notes: vec!["b is left out, with its guests: no answer".to_owned()],
        }
    }

    #[test]
    fn a_plan_is_shown_with_its_notes_and_that_nothing_was_changed() {
        insta::assert_snapshot!(shown(&view()), @r"
        Drain a: nothing to move (plan 00000000)
        First, a is cordoned: it takes no more guests.

        Afterwards:
          The cluster can lose any host.
        note: b is left out, with its guests: no answer
        Nothing was changed.
        ");
    }

    #[test]
    fn a_file_is_written_whole_and_never_over_a_file_unless_that_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        written(&path, b"one", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        fs::write(&path, "precious").unwrap();
        let refused = written(&path, b"two", false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        written(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing beside it"
        );
        let nowhere = directory.path().join("no/plan.json");
        assert!(written(&nowhere, b"one", false).is_err());
    }
}
