//! `drover lab drain` and `drover lab rounds`: several hosts with several guests.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use drover_lab::fleet::{self, Emptying, Plan, RoundsPlan};
use drover_lab::require;
use drover_lab::settings::{
    AgentSettings, Contents, Dirty, GuestSettings, LabName, LabSettings, nic_rates,
};
use drover_types::{Bytes, ReductionMode};

use super::{FAILED, INTERRUPTED, OK, check_folder, command, in_lab, print, say, write_json};

/// What the first of several guests has, where nothing else is said; others have more.
pub(super) const CONTENT: &str = "128MiB";
/// What the others' rates are multiples of.
pub(super) const DIRTY: &str = "8MiB@8MiB";
/// What each of several guests verifies a second: together little beside what is moved.
pub(super) const VERIFY: &str = "1MiB";

/// Hosts and guests.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// Hosts
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    hosts: u8,
    /// NICs of each host [default: as many as rates are given, or 2]
    #[arg(long)]
    nics: Option<usize>,
    /// Rate of each NIC: one for all, a list such as 1gbit,500mbit, or none
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// Largest packet on the NICs, in bytes
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Guests, of different sizes and differently busy, or of one image (--contents)
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32))]
    guests: u8,
    /// Content of the first guest that is filled and verified; others have 1 to 4 times as much, or the same (--contents)
    #[arg(long, default_value = CONTENT)]
    content: Bytes,
    /// What it is: mix, userland, store, python or compressed
    ///
    /// mix: pages as --mix says, of each guest its own but for --common. The others make guests of
    /// one image: all have as much, of the same files (userland, compressed) or of the same program
    /// with documents of its own (store, python), and rewrite --dirty, which is their own, alike.
    #[arg(long, value_name = "NAME", default_value_t)]
    contents: Contents,
    /// Shares of the kinds of content
    #[arg(
        long,
        default_value = "files=50,text=15,structures=15,zero=10,random=10"
    )]
    mix: String,
    /// Of 100 pages of content, those that all guests have, as guests of one image do
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    common: u8,
    /// What guests rewrite all the time: size@rate, of which they have 0 to 4 times as much (mix), or none
    #[arg(long, default_value = DIRTY)]
    dirty: Dirty,
    /// Bytes a second that each guest verifies while nobody asks for more
    #[arg(long, default_value = VERIFY)]
    verify: Bytes,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the agents reduce bytes: auto, off, pages, lz4, or zstd: with a level [default: as agents have it]
    #[arg(long)]
    reduction: Option<ReductionMode>,
    /// The memory of each host in which arriving guests share pages, or 0 [default: as agents have it]
    #[arg(long)]
    shared_pages: Option<Bytes>,
    /// The QEMU that runs the guests
    #[arg(long, default_value = "/usr/bin/qemu-system-x86_64")]
    qemu: PathBuf,
}

/// Options of `drover lab drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The lab's name
    #[arg(long, default_value = "drain")]
    name: LabName,
    /// The ways to empty a host
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "drover,multifd-in-turn,multifd-at-once,script"
    )]
    methods: Vec<Emptying>,
    /// How often each way
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Multifd channels for every way that has them
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: u8,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Before each time, move one of the guests alone with nothing shared, and tell the bytes of all as a part of so many of it
    #[arg(long)]
    alone: bool,
    /// Write every run to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

/// Options of `drover lab rounds`.
#[derive(Debug, Clone, Args)]
pub struct RoundsArgs {
    /// The lab's name
    #[arg(long, default_value = "rounds")]
    name: LabName,
    /// How many rounds: in each, every host is emptied and filled again twice
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Write every run to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

impl FleetArgs {
    fn lab(&self, name: &LabName) -> Result<LabSettings> {
        let lab = LabSettings {
            name: name.clone(),
            hosts: usize::from(self.hosts),
            nics: nic_rates(&self.rate, self.nics)?,
            addressing: Vec::new(),
            mtu: self.mtu,
            agents: AgentSettings {
                reduction: self.reduction,
                shared_pages: self.shared_pages,
                checkpoints: None,
            },
        };
        lab.check()?;
        Ok(lab)
    }

    fn guests(&self) -> Result<Vec<GuestSettings>> {
        if self.contents == Contents::Idle {
            bail!("several guests have memory as their contents take it, so that none is idle");
        }
        let first = GuestSettings {
            qemu: self.qemu.clone(),
            machine: "q35".to_owned(),
            memory: GuestSettings::memory_for(self.content),
            vcpus: 1,
            content: self.content,
            contents: self.contents,
            mix: self.mix.clone(),
            common: self.common,
            dirty: self.dirty,
            touch: 512,
            verify: self.verify,
            seed: self.seed,
            disk: None,
        };
        let count = usize::from(self.guests);
        let guests = match self.contents {
            Contents::Mix => fleet::variety(&first, count),
            _ => fleet::of_one_image(&first, count),
        };
        for guest in &guests {
            guest.probe()?;
        }
        Ok(guests)
    }
}

impl DrainArgs {
    fn plan(&self) -> Result<Plan> {
        Ok(Plan {
            lab: self.fleet.lab(&self.name)?,
            guests: self.fleet.guests()?,
            methods: self.methods.clone(),
            channels: self.channels,
            repeats: usize::try_from(self.repeats)?,
            alone: self.alone,
        })
    }
}

pub(super) async fn drain(args: &DrainArgs, json: bool) -> Result<u8> {
    require::check(&args.fleet.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = args.plan()?;
    let (command, mut tell) = (command(), say);
    let work = fleet::drains(&plan, &command, &mut tell);
    let Some(drains) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &drains)?;
    print(json, &drains, || fleet::table(&drains))?;
    Ok(OK)
}

pub(super) async fn rounds(args: &RoundsArgs, json: bool) -> Result<u8> {
    require::check(&args.fleet.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = RoundsPlan {
        lab: args.fleet.lab(&args.name)?,
        guests: args.fleet.guests()?,
        rounds: usize::try_from(args.rounds)?,
        seed: args.fleet.seed,
    };
    let (command, mut tell) = (command(), say);
    let work = fleet::rounds(&plan, &command, &mut tell);
    let Some(rounds) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &rounds)?;
    print(json, &rounds, || fleet::rounds_table(&rounds))?;
    Ok(if rounds.holds() { OK } else { FAILED })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DrainArgs,
    }

    fn plan(options: &str) -> Result<Plan> {
        let words = ["drain"].into_iter().chain(options.split_whitespace());
        Line::try_parse_from(words).unwrap().args.plan()
    }

    #[test]
    fn guests_of_one_image_differ_in_what_follows_from_their_seeds_alone() {
        let guests = plan("--contents userland --content 96MiB").unwrap().guests;
        assert_eq!(guests.len(), 6);
        for (guest, seed) in guests.iter().zip(1..) {
            assert_eq!(guest.seed, seed);
            assert_eq!(
                (guest.contents, guest.content),
                (Contents::Userland, Bytes(96 << 20))
            );
            assert_eq!(
                GuestSettings {
                    seed: 1,
                    ..guest.clone()
                },
                guests[0]
            );
        }
        let sizes = plan("").unwrap().guests;
        assert!(sizes.iter().any(|guest| guest.content != sizes[0].content));
        let refused = plan("--contents idle").unwrap_err().to_string();
        assert!(refused.contains("none is idle"), "{refused}");
    }

    #[tokio::test]
    async fn one_guest_alone_is_measured_only_where_that_says_something_of_all() {
        for (options, why) in [
            ("--alone", "of different sizes: give --contents"),
            (
                "--alone --contents userland --methods script",
                "name drover in --methods",
            ),
        ] {
            let drains = fleet::drains(&plan(options).unwrap(), "a test", &mut |_| {}).await;
            let refused = drains.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
