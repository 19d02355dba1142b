//! `drover lab faults`: what a migration has to survive, made to happen.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use drover_lab::require;
use drover_lab::scenario::{self, CATALOGUE, Plan};
use drover_lab::settings::LabName;

use super::{
    FAILED, GuestArgs, INTERRUPTED, OK, check_folder, command, in_lab, print, say, write_json,
};

/// Options of `drover lab faults`.
#[derive(Debug, Clone, Args)]
pub struct FaultsArgs {
    /// The lab's name
    #[arg(long, default_value = "faults")]
    name: LabName,
    /// How often each scenario, and the moves without a fault that they are held against
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Only this scenario; may be repeated
    #[arg(long, value_name = "NAME", value_parser = known)]
    only: Vec<String>,
    /// Show the scenarios and end
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    guest: GuestArgs,
    /// Write every run and the verdicts to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

/// The name of a scenario: another one is refused before a lab of an earlier command is replaced.
fn known(name: &str) -> Result<String, String> {
    let name = name.to_owned();
    let chosen = scenario::chosen(std::slice::from_ref(&name));
    chosen.map_err(|error| error.to_string())?;
    Ok(name)
}

pub(super) async fn faults(args: &FaultsArgs, json: bool) -> Result<u8> {
    if args.list {
        for scenario in CATALOGUE {
            println!("{:<16} {}", scenario.name, scenario.what);
        }
        return Ok(OK);
    }
    require::check(&args.guest.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = Plan {
        name: args.name.clone(),
        guest: args.guest.settings()?,
        only: args.only.clone(),
        repeats: usize::try_from(args.repeats)?,
    };
    let command = command();
    let work = async { scenario::show(&plan, &command, &mut say).await };
    let Some(shown) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &shown)?;
    print(json, &shown, || scenario::table(&shown))?;
    Ok(if shown.holds() { OK } else { FAILED })
}
