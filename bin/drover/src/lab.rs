//! `drover lab`: hosts, NICs and a guest on this machine, to see drover work and to compare it.

mod breaks;
mod faults;
mod fleet;
mod homecoming;
mod made_of;
mod show;
mod soak;
mod up;

use std::future::Future;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use drover_lab::compare::{self, Method, Plan};
use drover_lab::fault::{self, Fault};
use drover_lab::libvirt::Libvirt;
use drover_lab::operate::{self, Moved};
use drover_lab::settings::{DEFAULT_NAME, GuestSettings, LabName};
use drover_lab::{State, require};
use drover_types::MigrationId;
use made_of::{DiskArgs, GuestArgs, MadeOf};
use tokio::signal::unix::{SignalKind, signal};

use crate::recent;

/// Everything went well.
const OK: u8 = 0;
/// An error.
const FAILED: u8 = 1;
/// Ended by an interrupt.
const INTERRUPTED: u8 = 5;
/// A part went well.
const PARTIAL: u8 = 6;

mod examples {
    pub const LAB: &str = "\
Examples:
  drover lab demo                                 see it work; nothing is left behind
  drover lab up --rate 1gbit,500mbit,200mbit      three unequal NICs, left up to play with
  drover lab up --hosts 4 --guests 6              a small cluster to drain, resume and watch
  drover lab status                               what is up, and how the guests are
  drover lab migrate                              move the guest to the other host
  drover lab verify                               have every guest verify its memory
  drover lab harm 'cut nic=1'                     have a NIC fail, while it moves or before
  drover lab heal                                 every NIC as it was
  drover lab compare --repeats 5 --json out.json  against QEMU's own ways to move a guest
  drover lab faults --only cut --repeats 1        with NICs that fail, and what becomes of it
  drover lab breaks                               hosts badly set up, for the doctor to find
  drover lab soak --migrations 50                 again and again, while nothing may grow
  drover lab return --away 60                     away and back, to a host that kept its pages
  drover lab drain --repeats 3                    a whole host, emptied by drover and by scripts
  drover lab rounds --rounds 3                    four hosts, emptied in turn while things fail
  drover lab down                                 remove everything

";
    pub const HARM: &str = "\
Examples:
  drover lab harm 'cut nic=1'             packets vanish, the link stays up
  drover lab harm 'down nic=1'            the link is down on the guest's host
  drover lab harm 'rate nic=0 to=100mbit'
  drover lab harm --host c 'cut nic=1'    of that host, where there are several guests
  drover lab heal                         everything as it was

";
    pub const COMPARE: &str = "\
Examples:
  drover lab compare
  drover lab compare --methods multifd,drover --rate 1gbit,500mbit,200mbit --json unequal.json
  drover lab compare --rate none --dirty none --repeats 9
  drover lab compare --contents store --methods multifd-zstd,drover-multifd-zstd,drover
  drover lab compare --methods multifd,mptcp,drover --fault 'cut nic=0 at=50%'
  drover lab compare --methods multifd,drover-off --fault 'mtu nic=all to=1500 at=before'
  drover lab compare --libvirt installed --repeats 3    a domain, against virsh migrate
  drover lab compare --libvirt installed --disk 4GiB    with a disk that its host alone has

";
    pub const FAULTS: &str = "\
Examples:
  drover lab faults --list                               what happens in each scenario
  drover lab faults --only cut --only slow --repeats 1   two of them, once
  drover lab faults --repeats 5 --json faults.json       all of them, some 20 minutes

";
    pub const DRAIN: &str = "\
Examples:
  drover lab drain                                      4 hosts, 6 guests on the first, some 10 minutes
  drover lab drain --methods drover --repeats 1         drover alone, once
  drover lab drain --rate 400mbit --guests 4 --json drain.json
  drover lab drain --hosts 2 --methods drover --contents userland --alone   guests of one image, against one of them

";
    pub const ROUNDS: &str = "\
Examples:
  drover lab rounds                                     50 rounds, some hours
  drover lab rounds --rounds 3 --seed 7                 the same faults again with the same seed
  drover lab rounds --rounds 1 --guests 4 --content 16MiB

";
    pub const RETURN: &str = "\
Examples:
  drover lab return                                     away for ten minutes of light work, and back
  drover lab return --contents store --methods drover,drover-zstd --repeats 5
  drover lab return --away 60 --dirty 8MiB@4MiB --json return.json

";
    pub const SOAK: &str = "\
Examples:
  drover lab soak                                       300 moves, some 40 minutes
  drover lab soak --migrations 50 --seed 7              the same faults again with the same seed
  drover lab soak --memory 256MiB --content 64MiB       smaller, sooner

";
}

/// The commands of `drover lab`.
#[derive(Debug, Subcommand)]
#[command(before_help = examples::LAB)]
pub enum LabCommand {
    /// Make hosts with NICs, an agent on each and guests, and leave them up
    #[command(before_help = up::EXAMPLES)]
    Up(up::UpArgs),
    /// Show what is up
    Status(NameArg),
    /// Remove a lab and everything in it; right also when nothing is up
    Down(NameArg),
    /// Move the only guest of two hosts to the other with drover, and have it verify its memory
    Migrate(NameArg),
    /// Have every guest of a lab that is up verify its memory
    Verify(NameArg),
    /// Up, migrate, show, down; removes everything also when interrupted
    Demo(DemoArgs),
    /// Do something to NICs of a lab that is up, until `heal`
    #[command(before_help = examples::HARM)]
    Harm(HarmArgs),
    /// Make all NICs of a lab as they were
    Heal(NameArg),
    /// Move the same guest with QEMU's own methods and with drover, in turn, and compare
    #[command(before_help = examples::COMPARE)]
    Compare(CompareArgs),
    /// Have everything happen that a migration must survive, and judge what becomes of it
    #[command(before_help = examples::FAULTS)]
    Faults(faults::FaultsArgs),
    /// Set hosts up badly, each in another way, and have the doctor find it
    #[command(before_help = breaks::EXAMPLES)]
    Breaks(breaks::BreaksArgs),
    /// Move a guest to and fro with random faults, again and again, while nothing may grow
    #[command(before_help = examples::SOAK)]
    Soak(soak::SoakArgs),
    /// Move a guest away and back, after some time, to a host that kept its pages
    #[command(before_help = examples::RETURN, mut_arg("dirty", homecoming::light))]
    Return(homecoming::ReturnArgs),
    /// Empty a host with several guests by drover and as scripts do it, in turn, and compare
    #[command(before_help = examples::DRAIN)]
    Drain(fleet::DrainArgs),
    /// Empty and fill all hosts in turn while NICs, agents and the coordinator fail
    #[command(before_help = examples::ROUNDS)]
    Rounds(fleet::RoundsArgs),
}

/// Which lab.
#[derive(Debug, Clone, Args)]
pub struct NameArg {
    /// The lab's name; labs of different names run side by side
    #[arg(long, default_value = DEFAULT_NAME)]
    name: LabName,
}

/// A fault, or all that is wrong with it.
fn read_fault(text: &str) -> Result<Fault, String> {
    text.parse()
        .map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// Options of `drover lab harm`.
#[derive(Debug, Args)]
pub struct HarmArgs {
    /// In quotes: cut, down, rate, large, mtu, single or rename, nic=NUMBER or nic=all, and from=, to= or above=
    #[arg(value_name = "FAULT", value_parser = read_fault)]
    fault: Fault,
    /// The host whose NICs are meant, and that is the source [default: the only guest's]
    #[arg(long)]
    host: Option<String>,
    #[command(flatten)]
    name: NameArg,
}

/// The lab of a demonstration that was given no name: such a one is nobody else's.
const DEMO: &str = "demo";

/// Options of `drover lab demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// The lab's name
    #[arg(long, default_value = DEMO)]
    name: LabName,
    #[command(flatten)]
    made_of: MadeOf,
}

/// Options of `drover lab compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The lab's name
    #[arg(long, default_value = "compare")]
    name: LabName,
    #[command(flatten)]
    made_of: MadeOf,
    /// Move a domain of this libvirt: installed, a version that scripts/setup --for-tests unpacked, or the path of a folder
    #[arg(long, value_name = "LIBVIRT")]
    libvirt: Option<Libvirt>,
    #[command(flatten)]
    disk: DiskArgs,
    /// The methods to compare [default: tcp,multifd,multifd-zstd,mptcp,drover, of a domain
    /// virsh,virsh-parallel,virsh-parallel-zstd,drover, and with a disk of its own
    /// virsh-storage,virsh-storage-parallel,drover-disks]
    #[arg(long, value_delimiter = ',')]
    methods: Vec<Method>,
    /// How often each method moves the guest
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Multifd channels for every method that has them [default: the best of 2 to 4, tried first]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=16))]
    channels: Option<u8>,
    /// What goes wrong in every second move, such as "cut nic=0 at=50%"; may be repeated
    #[arg(long = "fault", value_name = "FAULT", value_parser = read_fault)]
    faults: Vec<Fault>,
    /// What is so in every move, with that or without: "single nic=all at=before", or mtu; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = read_fault)]
    always: Vec<Fault>,
    /// Give a move up after so long, and count it as failed [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    longest: Option<u64>,
    /// Write every run and the summary to this file as JSON
    #[arg(long = "json", value_name = "FILE", id = "json_file")]
    file: Option<PathBuf>,
}

/// What is compared where nothing is said.
const METHODS: [Method; 5] = [
    Method::Tcp,
    Method::Multifd,
    Method::MultifdZstd,
    Method::Mptcp,
    Method::Drover,
];

/// The same of a domain of libvirt's.
const OF_DOMAINS: [Method; 4] = [
    Method::Virsh,
    Method::VirshParallel,
    Method::VirshParallelZstd,
    Method::Drover,
];

/// The same of one with a disk of its own.
const OF_DISKS: [Method; 3] = [
    Method::VirshStorage,
    Method::VirshStorageParallel,
    Method::DroverDisks,
];

impl CompareArgs {
    fn methods(&self) -> Vec<Method> {
        match (self.methods.as_slice(), &self.libvirt) {
            ([], None) => METHODS.into(),
            ([], Some(_)) if self.disk.settings().is_some() => OF_DISKS.into(),
            ([], Some(_)) => OF_DOMAINS.into(),
            (given, _) => given.to_vec(),
        }
    }

    fn guest(&self) -> Result<GuestSettings> {
        let guest = GuestSettings {
            disk: self.disk.settings(),
            ..self.made_of.guest.settings()?
        };
        guest.probe()?;
        Ok(guest)
    }
}

impl LabCommand {
    /// Runs it; the exit code of the program.
    ///
    /// # Errors
    /// What went wrong, for the operator.
    pub async fn run(self, json: bool) -> Result<u8> {
        match self {
            Self::Up(args) => up::up(&args, json).await,
            Self::Status(args) => status(&args.name, json).await,
            Self::Down(args) => down(&args.name, json).await,
            Self::Migrate(args) => migrate(&args.name, json).await,
            Self::Verify(args) => verify(&args.name, json).await,
            Self::Demo(args) => demo(&args, json).await,
            Self::Harm(args) => harm(&args, json).await,
            Self::Heal(name) => heal(&name.name, json).await,
            Self::Compare(args) => compare_methods(&args, json).await,
            Self::Faults(args) => faults::faults(&args, json).await,
            Self::Breaks(args) => breaks::breaks(&args, json).await,
            Self::Soak(args) => soak::soak(&args, json).await,
            Self::Return(args) => homecoming::returns(&args, json).await,
            Self::Drain(args) => fleet::drain(&args, json).await,
            Self::Rounds(args) => fleet::rounds(&args, json).await,
        }
    }
}

async fn status(name: &LabName, json: bool) -> Result<u8> {
    let status = operate::status(name).await?;
    print(json, &status, || match &status {
        Some(status) => show::status(status),
        None => {
            let option = name.option();
            format!("no lab named {name} is up; `drover lab up{option}` makes one\n")
        }
    })?;
    Ok(OK)
}

/// Removes a lab, also from the clusters that this user has used; whether there was anything to remove.
async fn remove(name: &LabName) -> Result<bool> {
    let removed = operate::down(name).await?;
    if let Some(note) = recent::forget_within(&operate::folder(name)) {
        say(&note);
    }
    Ok(removed)
}

async fn down(name: &LabName, json: bool) -> Result<u8> {
    require::check(Path::new("/bin/sh"))?;
    let removed = remove(name).await?;
    let words = if removed { "removed" } else { "nothing was up" };
    let answer = serde_json::json!({ "lab": name, "removed": removed });
    print(json, &answer, || format!("lab {name}: {words}\n"))?;
    Ok(OK)
}

async fn migrate(name: &LabName, json: bool) -> Result<u8> {
    let moved = follow(name).await?;
    print(json, &moved, || show::moved(&moved))?;
    Ok(OK)
}

async fn verify(name: &LabName, json: bool) -> Result<u8> {
    let whole = operate::verify(name, &mut |guest| say(&show::whole(guest))).await?;
    let (guests, pages) = (
        whole.len(),
        whole.iter().map(|guest| guest.pages).sum::<u64>(),
    );
    let answer = serde_json::json!({ "lab": name, "guests": whole });
    print(json, &answer, || {
        format!("lab {name}: {guests} guests verified {pages} pages, none bad\n")
    })?;
    Ok(OK)
}

async fn harm(args: &HarmArgs, json: bool) -> Result<u8> {
    let (HarmArgs { fault, .. }, name) = (args, &args.name.name);
    fault::harm_now(name, fault, args.host.as_deref()).await?;
    let answer = serde_json::json!({ "lab": name, "fault": fault });
    let option = name.option();
    print(json, &answer, || {
        format!("lab {name}: {fault}; `drover lab heal{option}` takes it back\n")
    })?;
    Ok(OK)
}

async fn heal(name: &LabName, json: bool) -> Result<u8> {
    fault::heal_all(name).await?;
    let answer = serde_json::json!({ "lab": name, "healed": true });
    print(json, &answer, || {
        format!("lab {name}: every NIC is as it was made\n")
    })?;
    Ok(OK)
}

async fn follow(name: &LabName) -> Result<Moved> {
    let mut shown: Option<(MigrationId, String)> = None;
    let mut watch = |view: &drover_api::MigrationView| {
        let phase = serde_json::to_value(view.phase).ok();
        let phase = phase
            .as_ref()
            .and_then(|phase| phase.as_str())
            .unwrap_or("?")
            .to_owned();
        if shown.as_ref().is_none_or(|(_, before)| *before != phase) {
            say(&format!(
                "{phase}, round {}, {} sent",
                view.round, view.bytes.transferred
            ));
            shown = Some((view.id, phase));
        }
    };
    operate::migrate(name, &mut watch).await
}

async fn demo(args: &DemoArgs, json: bool) -> Result<u8> {
    require::check(&args.made_of.guest.qemu)?;
    let state = State {
        lab: args.made_of.lab(&args.name, 2)?,
        guests: args.made_of.guest.many(1)?,
    };
    let is_own = args.name.to_string() == DEMO;
    if !is_own && operate::status(&args.name).await?.is_some() {
        let (name, option) = (&args.name, args.name.option());
        bail!("lab {name} is up already; `drover lab down{option}` removes it");
    }
    // What an earlier demonstration left behind, had it been killed.
    remove(&args.name).await?;
    let work = async {
        operate::up(state, None, &mut say).await?;
        say("moving the guest from a to b");
        follow(&args.name).await
    };
    let Some(moved) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    print(json, &moved, || show::moved(&moved))?;
    say("everything was removed; `drover lab up` makes a lab that stays");
    Ok(OK)
}

async fn compare_methods(args: &CompareArgs, json: bool) -> Result<u8> {
    // Before anything is made, and before a lab of that name that is up is removed.
    let guest = args.guest()?;
    compare::check_methods(args.libvirt.as_ref(), guest.disk.as_ref(), &args.methods())?;
    require::check(&args.made_of.guest.qemu)?;
    check_folder(args.file.as_deref())?;
    let plan = Plan {
        lab: args.made_of.lab(&args.name, 2)?,
        guest,
        libvirt: args.libvirt.clone(),
        methods: args.methods(),
        repeats: usize::try_from(args.repeats)?,
        calibrate: args.channels.is_none(),
        channels: args.channels,
        always: args.always.clone(),
        faults: args.faults.clone(),
        longest_s: args.longest,
    };
    let command = command();
    let work = async { compare::compare(&plan, &command, &mut say).await };
    let Some(comparison) = in_lab(&args.name, work).await? else {
        return Ok(INTERRUPTED);
    };
    write_json(args.file.as_deref(), &comparison)?;
    print(json, &comparison, || compare::table(&comparison))?;
    Ok(match comparison.good() {
        [0, _] => FAILED,
        [good, all] if good == all => OK,
        _ => PARTIAL,
    })
}

/// A file that cannot be written is found out before anything is measured.
fn check_folder(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        anyhow::bail!("cannot write {}: no such folder", file.display());
    }
    Ok(())
}

fn write_json<T: serde::Serialize>(file: Option<&Path>, value: &T) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    say(&format!("wrote {}", file.display()));
    Ok(())
}

/// This one, as whoever typed it.
fn command() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// Runs `work`, and removes its lab, which stays where that failed or was interrupted; `None` when it was.
async fn in_lab<T>(name: &LabName, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let done = uninterrupted(work).await;
    let removed = remove(name).await.context("the lab was not removed");
    match (&done, removed) {
        // The error that led here is the one to tell.
        (Err(_), Err(left)) => say(&format!("{left:#}")),
        (_, removed) => {
            removed?;
        }
    }
    let done = done?;
    if done.is_none() {
        say("interrupted; everything was removed");
    }
    Ok(done)
}

/// Runs `work` to its end; `None` when an interrupt or SIGTERM came before.
async fn uninterrupted<T>(work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for interrupts")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
    tokio::select! {
        result = work => result.map(Some),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
        _ = hangup.recv() => Ok(None),
    }
}

async fn interrupted(name: &LabName) -> Result<u8> {
    remove(name).await?;
    say("interrupted; everything was removed");
    Ok(INTERRUPTED)
}

/// Progress, for a person: beside the result, not in it.
fn say(text: &str) {
    let mark = if std::io::stderr().is_terminal() {
        "\u{2022}"
    } else {
        "lab:"
    };
    eprintln!("{mark} {text}");
}

fn print<T: serde::Serialize>(json: bool, value: &T, text: impl FnOnce() -> String) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        print!("{}", text());
    }
    Ok(())
}
