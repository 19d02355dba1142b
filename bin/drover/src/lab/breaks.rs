//! `drover lab breaks`: what can be wrong with hosts, and whether the doctor finds it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use drover_lab::breaks::{self, Break, Broken, Plan};
use drover_lab::operate::Status;
use drover_lab::settings::{LabName, LabSettings};

use super::{FAILED, INTERRUPTED, OK, check_folder, command, in_lab, print, say, write_json};

/// Examples.
pub(super) const EXAMPLES: &str = "\
Examples:
  drover lab breaks --list                   what can be wrong, and the rule that finds it
  drover lab breaks                          all of it, on labs made for it, some two minutes
  drover lab breaks --only loss --only slot --repeats 5 --json breaks.json
  drover lab up --no-guest --break loss       to look for it yourself

";

/// Options of `drover lab breaks`.
#[derive(Debug, Clone, Args)]
pub struct BreaksArgs {
    /// The lab's name
    #[arg(long, default_value = "breaks")]
    name: LabName,
    /// How often each, and hosts with nothing wrong
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Only this; may be repeated
    #[arg(long, value_name = "NAME", value_parser = known)]
    only: Vec<&'static Break>,
    /// Show what can be wrong and end
    #[arg(long)]
    list: bool,
    /// Write every look and what it found to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

/// A name of the catalogue.
pub(super) fn known(name: &str) -> Result<&'static Break, String> {
    breaks::named(name).map_err(|error| error.to_string())
}

pub(super) async fn breaks(args: &BreaksArgs, json: bool) -> Result<u8> {
    if args.list {
        print!("{}", list());
        return Ok(OK);
    }
    let all = match &args.only[..] {
        [] => breaks::catalogue().collect(),
        only => only.to_vec(),
    };
    // Before a lab of an earlier command is replaced, which may be one that somebody left up.
    breaks::require(&all)?;
    check_folder(args.file.as_deref())?;
    let plan = Plan {
        name: args.name.clone(),
        only: args.only.iter().map(|one| one.name.to_owned()).collect(),
        repeats: usize::try_from(args.repeats)?,
        drover: this_program()?,
    };
    let command = command();
    let work = async { breaks::try_all(&plan, &all, &command, &mut say).await };
    let Some(tried) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &tried)?;
    print(json, &tried, || breaks::table(&tried))?;
    Ok(if tried.holds() { OK } else { FAILED })
}

fn list() -> String {
    let line = |broken: &Break| {
        let how = if broken.is_written() {
            "written"
        } else {
            "done"
        };
        let Break {
            name, rule, what, ..
        } = broken;
        format!("{name:<16} {how:<8} {rule:<18} {what}\n")
    };
    breaks::catalogue().map(line).collect()
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell where this program is")
}

/// Has all of it be wrong with a lab that was just made.
pub(super) async fn break_hosts(lab: &LabSettings, all: &[&Break]) -> Result<Option<Broken>> {
    if all.is_empty() {
        return Ok(None);
    }
    let broken = breaks::break_hosts(lab, all, &this_program()?).await?;
    for broken in all {
        say(&format!("{}: {}", broken.name, broken.what));
    }
    Ok(Some(broken))
}

/// What finds it.
pub(super) fn next_steps(status: &Status, broken: &Broken) -> String {
    let mut text = "\nThe doctor finds what is wrong:\n".to_owned();
    if broken.done
        && let Some(first) = status.hosts.first()
    {
        text += &format!(
            "  drover --socket {} doctor --all {}\n",
            first.socket.display(),
            broken.asks.join(" ")
        );
    }
    if let Some(captured) = &broken.captured {
        let folders = captured.folders.iter();
        let words: String = folders
            .map(|folder| format!(" --captured {}", folder.display()))
            .collect();
        text += &format!(
            "  drover doctor{words}    # written into what was captured: no namespace has it\n"
        );
    }
    text
}
