//! What the commands of `drover lab` do with a lab that stays up between them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use drover_api::{MigrationView, VmDefinition, VmState, VmView};
use drover_types::{BitRate, VmName};
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::compare::{DroverFacts, Say, move_by_drover};
use crate::guest::Image;
use crate::guest::console::Console;
use crate::guest::definition::serial_socket;
use crate::host::Host;
use crate::lab::{Lab, State};
use crate::meter::Measured;
use crate::network::{self, HOSTS};
use crate::resident::{Boot, Resident};
use crate::settings::{LabName, LabSettings};
use crate::unite::start_united;
use crate::{host_of, require};

/// What to say when a lab is wanted that is not there.
pub(crate) fn none_up(name: &LabName) -> String {
    let option = name.option();
    format!("no lab named {name} is up; `drover lab up{option}` makes one")
}

/// The name of the guest in a lab that is up.
pub const GUEST: &str = "guest";

/// How long a status waits for the guest's next heartbeat; it comes every 10 ms.
const LISTEN: Duration = Duration::from_secs(1);

/// One host of a lab, as `drover lab status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub host: String,
    /// Its network namespace.
    pub namespace: String,
    /// Its NICs' addresses.
    pub addresses: Vec<IpAddr>,
    /// The agent's socket, for `drover --socket`.
    pub socket: PathBuf,
    /// What the agent writes.
    pub log: PathBuf,
    /// Whether the agent answers.
    pub agent: bool,
    /// The guests that the agent knows.
    pub vms: Vec<VmView>,
}

/// A lab that is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub lab: LabName,
    /// Every NIC's rate.
    pub nics: Vec<Option<BitRate>>,
    /// The largest packet on them.
    pub mtu: u32,
    /// The hosts.
    pub hosts: Vec<HostStatus>,
    /// The host on which the guest runs.
    pub guest_on: Option<String>,
    /// Pages that the guest has verified, and found bad, since it started.
    pub verified_pages: Option<u64>,
    /// Bad ones among them.
    pub bad_pages: Option<u64>,
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

/// Makes a lab with agents on both hosts and the guest on the first, and leaves it up.
///
/// # Errors
/// One of that name is up, guests do not fit this machine's memory, or a part of it cannot be made;
/// nothing is left behind then.
pub async fn up(state: State, say: Say<'_>) -> Result<Status> {
    let name = state.lab.name.clone();
    if Lab::peek(&name)?.is_some() {
        let option = name.option();
        bail!("lab {name} is up already; `drover lab down{option}` removes it");
    }
    for guest in &state.guests {
        require::check_guest(&guest.qemu).await?;
    }
    require::check_memory(&state.lab, &state.guests)?;
    match build(state, say).await {
        Ok(()) => status(&name).await?.context("the lab vanished"),
        Err(error) => {
            // The error that led here is the one to tell.
            let _ = Lab::remove_named(&name).await;
            Err(error)
        }
    }
}

async fn build(state: State, say: Say<'_>) -> Result<()> {
    let nics: Vec<_> = state.lab.nics.iter().map(|rate| show_rate(*rate)).collect();
    say(&format!(
        "hosts a and b, connected by {} (MTU {})",
        nics.join(" + "),
        state.lab.mtu
    ));
    let lab = Lab::create(state).await?;
    let agents = start_united(&lab).await?;
    say("an agent on each, in one cluster");
    let (Some(settings), Some(first)) = (lab.state().guests.first(), agents.first()) else {
        return Ok(());
    };
    say("the guest's kernel and programs");
    let image = Image::build(lab.folder()).await?;
    say(&format!(
        "booting the guest: {}, {} of content",
        settings.memory, settings.content
    ));
    let name: VmName = GUEST.parse()?;
    let boot = Boot {
        lab: &lab,
        host: 0,
        name,
        settings,
        image: &image,
    };
    boot.by_agent(first).await.map(drop)
}

fn show_rate(rate: Option<BitRate>) -> String {
    rate.map_or_else(
        || "an unlimited NIC".to_owned(),
        |rate| format!("a NIC of {rate}"),
    )
}

/// What is up under this name; `None` when nothing is.
///
/// # Errors
/// Its state cannot be read.
pub async fn status(name: &LabName) -> Result<Option<Status>> {
    let Some(state) = Lab::peek(name)? else {
        return Ok(None);
    };
    let mut hosts = Vec::new();
    for number in 0..state.lab.hosts {
        hosts.push(host_status(&host_of(name, number), &state.lab).await);
    }
    let runs = |host: &HostStatus| host.vms.iter().any(is_running_guest);
    let guest_on = hosts.iter().position(runs);
    let beat = match guest_on {
        Some(number) => listen(&host_of(name, number)).await,
        None => None,
    };
    Ok(Some(Status {
        lab: name.clone(),
        nics: state.lab.nics,
        mtu: state.lab.mtu,
        guest_on: guest_on.map(|number| HOSTS[number].to_owned()),
        verified_pages: beat.map(|(verified, _)| verified),
        bad_pages: beat.map(|(_, bad)| bad),
        hosts,
    }))
}

async fn host_status(host: &Host, lab: &LabSettings) -> HostStatus {
    let vms = drover_api::Client::unix(host.api_socket()).vms().await;
    HostStatus {
        host: host.name.clone(),
        namespace: host.namespace().to_owned(),
        addresses: (0..lab.nics.len())
            .filter_map(|nic| network::address_of(lab, nic, host.number))
            .collect(),
        socket: host.api_socket(),
        log: host.log("droverd"),
        agent: vms.is_ok(),
        vms: vms.unwrap_or_default(),
    }
}

fn is_running_guest(vm: &VmView) -> bool {
    vm.name == GUEST && vm.state == VmState::Running
}

/// Verified and bad pages, from the guest's next heartbeat.
async fn listen(host: &Host) -> Option<(u64, u64)> {
    let console = Console::default();
    let serial = host.socket(&serial_socket(&GUEST.parse().ok()?));
    console.attach(&serial, LISTEN).await.ok()?;
    console.wait_sequence(1, LISTEN).await.ok()?;
    let last = console.heartbeats(crate::guest::heartbeats::Heartbeats::last)?;
    Some((last.heartbeat.verified, last.heartbeat.bad))
}

/// Moves the guest of a lab that is up to the other host, by drover's agents, and has it verified.
///
/// # Errors
/// No lab, no guest in it, the move failed, or the guest found its memory damaged.
pub async fn migrate(
    name: &LabName,
    watch: &mut (dyn FnMut(&MigrationView) + Send),
) -> Result<Moved> {
    let lab = Lab::open(name)?.with_context(|| none_up(name))?;
    let mut agents = Vec::new();
    for host in lab.hosts() {
        agents.push(Agent::find(host).await?);
    }
    let mut guest = find_guest(name, &agents).await?;
    let from = guest.host;
    let (measured, view) = move_by_drover(&lab, &mut guest, &agents, watch).await?;
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
        drover: DroverFacts::of(&view),
        verified_pages: verified.pages,
        verified: true,
    })
}

async fn find_guest(name: &LabName, agents: &[Agent]) -> Result<Resident> {
    for agent in agents {
        let vms = agent.client.vms().await?;
        let Some(vm) = vms.iter().find(|vm| is_running_guest(vm)) else {
            continue;
        };
        let pid = vm.pid.context("the agent tells no process of the guest")?;
        let file = agent.host.definitions().join(format!("{GUEST}.toml"));
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
