//! `drover lab return`: a guest that comes back to a host that kept its pages.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, Args};
use drover_lab::compare::Method;
use drover_lab::homecoming::{self, Plan};
use drover_lab::require;
use drover_lab::settings::{AgentSettings, LabName, LabSettings};
use drover_types::Bytes;

use super::{
    FAILED, INTERRUPTED, MadeOf, OK, check_folder, command, in_lab, print, say, write_json,
};

/// What a guest does that works lightly: 256 pages a second, in 8 MiB of its memory.
const LIGHT: &str = "8MiB@1MiB";

/// What it rewrites, as `drover lab return` has it where nothing is said.
pub(super) fn light(dirty: Arg) -> Arg {
    dirty.help(format!(
        "What the guest rewrites all the time: size@rate (bytes a second), size@max, or none \
         [default: {LIGHT}]"
    ))
}

/// Options of `drover lab return`.
#[derive(Debug, Clone, Args)]
pub struct ReturnArgs {
    /// The lab's name
    #[arg(long, default_value = "return")]
    name: LabName,
    #[command(flatten)]
    made_of: MadeOf,
    /// The ways to reduce bytes: drover, drover-pages, drover-lz4, drover-zstd
    #[arg(long, value_delimiter = ',', default_value = "drover", value_parser = keeping_pages)]
    methods: Vec<Method>,
    /// How often each moves the guest away and back
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Seconds that the guest is away; what it does meanwhile is --dirty
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    away: u64,
    /// Disk space of each host for the pages [default: three times the guest's memory]
    #[arg(long, value_name = "SIZE")]
    checkpoints: Option<Bytes>,
    /// Write every trip to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

/// A way with which a host keeps pages of the guest, or why there are none to return to.
fn keeping_pages(text: &str) -> Result<Method, String> {
    let method = text.parse::<Method>();
    let method = method.map_err(|error| format!("{error:#}"))?;
    if method.encryption().is_none() {
        let why = "drover's agents do not move guests with it, and they alone keep pages of guests that left";
        return Err(why.to_owned());
    }
    if method == Method::DroverOff {
        return Err("it describes no pages, so that no host keeps any for a return".to_owned());
    }
    Ok(method)
}

impl ReturnArgs {
    fn plan(&self) -> Result<Plan> {
        let guest = self.made_of.guest.settings_with(LIGHT)?;
        let lab = self.made_of.lab(&self.name, 2)?;
        let room = self.checkpoints.unwrap_or(Bytes(3 * guest.memory.0));
        let agents = AgentSettings {
            checkpoints: Some(room),
            ..lab.agents
        };
        Ok(Plan {
            lab: LabSettings { agents, ..lab },
            guest,
            methods: self.methods.clone(),
            repeats: usize::try_from(self.repeats)?,
            away_s: self.away,
        })
    }
}

pub(super) async fn returns(args: &ReturnArgs, json: bool) -> Result<u8> {
    require::check(&args.made_of.guest.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = args.plan()?;
    let command = command();
    let work = async { homecoming::returns(&plan, &command, &mut say).await };
    let Some(returned) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &returned)?;
    print(json, &returned, || homecoming::table(&returned))?;
    Ok(if returned.holds() { OK } else { FAILED })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ReturnArgs,
    }

    #[test]
    fn a_guest_that_returns_works_lightly_and_its_hosts_keep_its_pages() {
        let plan = |options: &str| {
            let words = ["return"].into_iter().chain(options.split_whitespace());
            Line::try_parse_from(words).unwrap().args.plan().unwrap()
        };
        let usual = plan("");
        assert_eq!(usual.guest.dirty, LIGHT.parse().unwrap());
        assert_eq!(usual.lab.agents.checkpoints, Some(Bytes(3 << 30)));
        assert_eq!(plan("--dirty none").guest.dirty, "none".parse().unwrap());
    }

    #[test]
    fn a_method_with_which_no_host_keeps_pages_is_wrong_usage_and_says_why() {
        for (methods, why) in [
            ("drover,drover-off", "describes no pages"),
            ("multifd", "they alone keep pages"),
            ("drover-multifd-zstd", "they alone keep pages"),
            ("nothing", "is no method"),
        ] {
            let refused = Line::try_parse_from(["return", "--methods", methods]).unwrap_err();
            assert_eq!(refused.exit_code(), 2);
            let said = refused.to_string();
            assert!(said.contains(why) && said.contains("--methods"), "{said}");
        }
    }
}
