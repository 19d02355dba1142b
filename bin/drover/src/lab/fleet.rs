//! `drover lab drain` and `drover lab rounds`: several hosts with several guests.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use drover_lab::fleet::{self, Emptying, Plan, RoundsPlan};
use drover_lab::require;
use drover_lab::settings::{
    AgentSettings, Contents, Dirty, GuestSettings, LabName, LabSettings, nic_rates,
};
use drover_types::{Bytes, ReductionMode};

use super::{FAILED, INTERRUPTED, OK, check_folder, print, remove, say, uninterrupted, write_json};

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
    /// Guests, of different sizes and differently busy
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32))]
    guests: u8,
    /// Content of the first guest that is filled and verified; others have 1 to 4 times as much
    #[arg(long, default_value = CONTENT)]
    content: Bytes,
    /// Shares of the kinds of content
    #[arg(
        long,
        default_value = "files=50,text=15,structures=15,zero=10,random=10"
    )]
    mix: String,
    /// Of 100 pages of content, those that all guests have, as guests of one image do
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    common: u8,
    /// What guests rewrite all the time: size@rate, of which they have 0 to 4 times as much, or none
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

    fn guests(&self) -> Vec<GuestSettings> {
        let first = GuestSettings {
            qemu: self.qemu.clone(),
            machine: "q35".to_owned(),
            memory: GuestSettings::memory_for(self.content),
            vcpus: 1,
            content: self.content,
            contents: Contents::Mix,
            mix: self.mix.clone(),
            common: self.common,
            dirty: self.dirty,
            touch: 512,
            verify: self.verify,
            seed: self.seed,
        };
        fleet::variety(&first, usize::from(self.guests))
    }
}

pub(super) async fn drain(args: &DrainArgs, json: bool) -> Result<u8> {
    require::check(&args.fleet.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = Plan {
        lab: args.fleet.lab(&args.name)?,
        guests: args.fleet.guests(),
        methods: args.methods.clone(),
        channels: args.channels,
        repeats: usize::try_from(args.repeats)?,
    };
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
        guests: args.fleet.guests(),
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

fn command() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// Runs `work`, which removes its lab unless it failed or was interrupted; `None` when it was.
async fn in_lab<T>(name: &LabName, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let done = uninterrupted(work).await;
    remove(name).await.context("the lab was not removed")?;
    let done = done?;
    if done.is_none() {
        say("interrupted; everything was removed");
    }
    Ok(done)
}
