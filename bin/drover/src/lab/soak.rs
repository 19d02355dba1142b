//! `drover lab soak`: moves again and again, while nothing may grow.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use drover_lab::require;
use drover_lab::soak::{self, FEWEST, Plan};

use drover_lab::settings::LabName;

use super::{
    FAILED, INTERRUPTED, MadeOf, OK, check_folder, command, in_lab, print, say, write_json,
};

/// Options of `drover lab soak`.
#[derive(Debug, Clone, Args)]
pub struct SoakArgs {
    /// The lab's name
    #[arg(long, default_value = "soak")]
    name: LabName,
    /// How many moves
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(FEWEST as i64..=100_000))]
    migrations: u32,
    #[command(flatten)]
    made_of: MadeOf,
    /// Write every round to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

pub(super) async fn soak(args: &SoakArgs, json: bool) -> Result<u8> {
    require::check(&args.made_of.guest.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = Plan {
        lab: args.made_of.lab(&args.name, 2)?,
        guest: args.made_of.guest.settings()?,
        migrations: usize::try_from(args.migrations)?,
    };
    let command = command();
    let work = async { soak::soak(&plan, &command, &mut say).await };
    let Some(soaked) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &soaked)?;
    print(json, &soaked, || soak::table(&soaked))?;
    Ok(if soaked.holds() { OK } else { FAILED })
}
