//! What the commands of `drover lab` do with a lab that stays up between them.

use anyhow::{Context, Result, bail};
use drover_api::{MigrationView, VmDefinition};
use drover_types::{BitRate, VmName};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::compare::{DroverFacts, Method, Say, move_by_drover};
use crate::guest::Image;
use crate::guest::console::Console;
use crate::guest::definition::serial_socket;
use crate::lab::{Lab, State};
use crate::libvirt::{self, Libvirt};
use crate::meter::Measured;
use crate::network::{self, HOSTS};
use crate::resident::Resident;
use crate::settings::{GUEST, GuestSettings, LabName, LabSettings, Named, named};
use crate::status::runs;
pub use crate::status::{GuestStatus, HostStatus, Status, status};
use crate::unite::start_united;
use crate::{fleet, limits, require};

/// What to say when a lab is wanted that is not there.
pub(crate) fn none_up(name: &LabName) -> String {
    let option = name.option();
    format!("no lab named {name} is up; `drover lab up{option}` makes one")
}

/// One move of a lab's guest by drover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The guest.
    pub guest: VmName,
    /// The host that it left.
    pub from: String,
    /// The host that it went to.
    pub to: String,
    /// What was measured from outside.
    #[serde(flatten)]
    pub measured: Measured,
    /// What the agents say.
    pub drover: DroverFacts,
    /// Pages that the guest verified after the move, all of them.
    pub verified_pages: u64,
    /// The guest verified every page and its heartbeat never went back. Always true: a move that
    /// is not verified is an error.
    pub verified: bool,
}

/// A guest that was asked to verify its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Whole {
    /// The guest.
    pub guest: VmName,
    /// The host on which it runs.
    pub on: String,
    /// Pages that it verified, all that it has. None was bad: that would be an error.
    pub pages: u64,
}

/// Makes a lab with an agent on each host and guests at home on the hosts in turn, and leaves it up. With a `libvirt` each
/// host has one of its own, which its agent sees.
///
/// # Errors
/// One of that name is up, the libvirt is not there, guests do not fit this machine's memory, or a part of it cannot be made;
/// nothing is left behind then.
pub async fn up(state: State, libvirt: Option<&Libvirt>, say: Say<'_>) -> Result<Status> {
    let name = state.lab.name.clone();
    if Lab::peek(&name)?.is_some() {
        let option = name.option();
        bail!("lab {name} is up already; `drover lab down{option}` removes it");
    }
    if let Some(guest) = state.guests.first() {
        require::check_guest(&guest.qemu).await?;
    }
    libvirt.map_or(Ok(()), Libvirt::check)?;
    require::check_memory(&state.lab, &state.guests)?;
    require::check_contents(&state.guests)?;
    match build(state, libvirt, say).await {
        Ok(()) => status(&name).await?.context("the lab vanished"),
        Err(error) => {
            // The error that led here is the one to tell.
            let _ = Lab::remove_named(&name).await;
            Err(error)
        }
    }
}

async fn build(state: State, libvirt: Option<&Libvirt>, say: Say<'_>) -> Result<()> {
    say(&hosts_in_words(&state.lab));
    let lab = Lab::create(state).await?;
    if let Some(libvirt) = libvirt {
        lab.start_libvirt(libvirt).await?;
        let version = libvirt::version(&lab.host(0)).await?;
        say(&format!("libvirt {version} on each"));
    }
    let agents = start_united(&lab).await?;
    say("an agent on each, in one cluster");
    let guests = &lab.state().guests;
    let booting = match guests.as_slice() {
        [] => return Ok(()),
        [one] => format!("the guest: {}, {}", one.memory, one.contents_in_words()),
        several => several_in_words(&lab, several)?,
    };
    let whose = if guests.len() == 1 {
        "guest's"
    } else {
        "guests'"
    };
    say(&format!("the {whose} kernel and programs"));
    let image = Image::build(lab.folder(), guests).await?;
    say(&format!("booting {booting}"));
    fleet::boot_to_stay(&lab, &image, &agents).await
}

fn hosts_in_words(lab: &LabSettings) -> String {
    let nics: Vec<_> = lab.nics.iter().map(|rate| show_rate(*rate)).collect();
    let (nics, mtu) = (nics.join(" + "), lab.mtu);
    match lab.host_names() {
        [one, other] => format!("hosts {one} and {other}, connected by {nics} (MTU {mtu})"),
        all => format!(
            "hosts {}, each with {nics} (MTU {mtu}), joined by a switch",
            all.join(", ")
        ),
    }
}

fn several_in_words(lab: &Lab, guests: &[GuestSettings]) -> Result<String> {
    let one = |(number, (name, guest)): (usize, Named)| {
        let home = HOSTS[lab.settings().home_of(number)];
        format!("{name} on {home} ({})", guest.memory)
    };
    let all = named(GUEST, guests)?.into_iter().enumerate().map(one);
    Ok(all.collect::<Vec<_>>().join(", "))
}

fn show_rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(
        || "an unlimited NIC".to_owned(),
        |rate| format!("a NIC of {rate}"),
    )
}

/// Moves the guest of a lab that is up to the other host, by drover's agents, and has it verified.
///
/// # Errors
/// No lab, one of more than two hosts or more than one guest, no guest in it, the move failed, or the
/// guest found its memory damaged.
pub async fn migrate(
    name: &LabName,
    watch: &mut (dyn FnMut(&MigrationView) + Send),
) -> Result<Moved> {
    let lab = Lab::open(name)?.with_context(|| none_up(name))?;
    check_pair(lab.state())?;
    let mut agents = Vec::new();
    for host in lab.hosts() {
        agents.push(Agent::find(host).await?);
    }
    let mut guest = find_guest(name, &agents).await?;
    let from = guest.host;
    let moved = move_by_drover(&lab, &mut guest, &agents, Method::Drover, watch);
    let (measured, views) = moved.await?;
    let verified = guest
        .console
        .verify()
        .await
        .context("the move ended, but")?;
    Ok(Moved {
        guest: guest.definition.name.clone(),
        from: HOSTS[from].to_owned(),
        to: HOSTS[guest.host].to_owned(),
        measured,
        drover: DroverFacts::of(&views),
        verified_pages: verified.pages,
        verified: true,
    })
}

/// Only in a lab of two hosts with one guest it is clear what moves, and where to.
fn check_pair(state: &State) -> Result<()> {
    let (hosts, guests) = (state.lab.hosts, state.guests.len());
    if hosts == 2 && guests <= 1 {
        return Ok(());
    }
    let option = state.lab.name.option();
    bail!(
        "`drover lab migrate` moves the only guest of two hosts, and lab {} has {guests} guests on \
         {hosts} hosts: `drover migrate GUEST --to HOST` with the --socket of the guest's host moves \
         one (`drover lab status{option}` shows both), `drover lab verify{option}` then has all \
         verify their memory",
        state.lab.name
    )
}

/// Has every guest of a lab that is up verify every page, one after another; each is told to `seen`.
///
/// # Errors
/// No lab, no guest in it, or the first guest that runs nowhere or is not whole.
pub async fn verify(name: &LabName, seen: &mut (dyn FnMut(&Whole) + Send)) -> Result<Vec<Whole>> {
    let lab = Lab::open(name)?.with_context(|| none_up(name))?;
    let status = status(name).await?.with_context(|| none_up(name))?;
    if status.guests.is_empty() {
        bail!("lab {name} was made without a guest");
    }
    let mut all = Vec::new();
    for GuestStatus {
        name: guest, on, ..
    } in status.guests
    {
        let option = name.option();
        let on = on.with_context(|| {
            format!("guest {guest} runs on no host; `drover lab status{option}` shows them")
        })?;
        let pages = verify_one(&lab, &guest, &on).await;
        let pages = pages.with_context(|| format!("guest {guest} on host {on}"))?;
        let whole = Whole { guest, on, pages };
        seen(&whole);
        all.push(whole);
    }
    Ok(all)
}

async fn verify_one(lab: &Lab, guest: &VmName, on: &str) -> Result<u64> {
    let host = lab.hosts().into_iter().find(|host| host.name == on);
    let host = host.context("there is no such host")?;
    let console = Console::default();
    let serial = host.socket(&serial_socket(guest));
    console.attach(&serial, limits::QEMU_START).await?;
    console.wait_ready().await?;
    Ok(console.verify().await?.pages)
}

async fn find_guest(name: &LabName, agents: &[Agent]) -> Result<Resident> {
    let guest: VmName = GUEST.parse()?;
    for agent in agents {
        let vms = agent.client.vms().await?;
        let Some(vm) = vms.iter().find(|vm| runs(vm, &guest)) else {
            continue;
        };
        let pid = vm.pid.context("the agent tells no process of the guest")?;
        let file = agent.host.definition_of(&guest);
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let definition: VmDefinition =
            toml::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
        return Resident::find(&agent.host, definition, pid).await;
    }
    bail!(
        "the lab's guest runs on neither host; `drover lab status{}` shows both",
        name.option()
    )
}

/// The folder of the lab of this name, which is removed with it.
#[must_use]
pub fn folder(name: &LabName) -> std::path::PathBuf {
    crate::lab::folder_of(name)
}

/// Removes the lab of this name; whether there was anything to remove.
///
/// # Errors
/// It is in use, or a process of it does not end.
pub async fn down(name: &LabName) -> Result<bool> {
    let there = Lab::peek(name).map_or(true, |state| state.is_some())
        || !network::namespaces(name).await?.is_empty();
    Lab::remove_named(name).await?;
    Ok(there)
}
