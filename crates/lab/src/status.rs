//! What a lab that is up is found to be.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use drover_api::{VmState, VmView};
use drover_types::{BitRate, VmName};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::guest::console::Console;
use crate::guest::definition::serial_socket;
use crate::guest::heartbeats::Heartbeats;
use crate::host::Host;
use crate::lab::{Lab, host_of};
use crate::network::{self, HOSTS};
use crate::settings::{GUEST, LabName, LabSettings, named};

/// How long a status waits for the guest's next heartbeat; it comes every 10 ms.
const LISTEN: Duration = Duration::from_secs(1);

/// One host of a lab, as `drover lab status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub host: String,
    /// Its network namespace.
    pub namespace: String,
    /// What gives a shell on it.
    #[serde(default)]
    pub shell: String,
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
    /// The guests.
    pub guests: Vec<GuestStatus>,
    /// The host on which the guest runs; none where there are several.
    pub guest_on: Option<String>,
    /// Pages that the guest has verified, and found bad, since it started; none where there are
    /// several.
    pub verified_pages: Option<u64>,
    /// Bad ones among them.
    pub bad_pages: Option<u64>,
}

/// One guest of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// Its name.
    pub name: VmName,
    /// The host on which it runs.
    pub on: Option<String>,
    /// Pages that it has verified since it started; none where it is silent.
    pub verified_pages: Option<u64>,
    /// Bad ones among them.
    pub bad_pages: Option<u64>,
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
    let names = named(GUEST, &state.guests)?;
    let guests = names.iter().map(|(guest, _)| look(name, guest, &hosts));
    let guests = join_all(guests).await;
    let only = guests.first().filter(|_| guests.len() == 1);
    Ok(Some(Status {
        lab: name.clone(),
        nics: state.lab.nics,
        mtu: state.lab.mtu,
        guest_on: only.and_then(|guest| guest.on.clone()),
        verified_pages: only.and_then(|guest| guest.verified_pages),
        bad_pages: only.and_then(|guest| guest.bad_pages),
        guests,
        hosts,
    }))
}

async fn host_status(host: &Host, lab: &LabSettings) -> HostStatus {
    let vms = drover_api::Client::unix(host.api_socket()).vms().await;
    HostStatus {
        host: host.name.clone(),
        namespace: host.namespace().to_owned(),
        shell: host.shell(),
        addresses: (0..lab.nics.len())
            .filter_map(|nic| network::address_of(lab, nic, host.number))
            .collect(),
        socket: host.api_socket(),
        log: host.log("droverd"),
        agent: vms.is_ok(),
        vms: vms.unwrap_or_default(),
    }
}

/// Whether this is that guest, and runs.
pub(crate) fn runs(vm: &VmView, guest: &VmName) -> bool {
    vm.name == guest.as_str() && vm.state == VmState::Running
}

async fn look(lab: &LabName, guest: &VmName, hosts: &[HostStatus]) -> GuestStatus {
    let here = |host: &HostStatus| host.vms.iter().any(|vm| runs(vm, guest));
    let on = hosts.iter().position(here);
    let beat = match on {
        Some(number) => listen(&host_of(lab, number), guest).await,
        None => None,
    };
    GuestStatus {
        name: guest.clone(),
        on: on.map(|number| HOSTS[number].to_owned()),
        verified_pages: beat.map(|(verified, _)| verified),
        bad_pages: beat.map(|(_, bad)| bad),
    }
}

/// Verified and bad pages, from the guest's next heartbeat.
async fn listen(host: &Host, guest: &VmName) -> Option<(u64, u64)> {
    let console = Console::default();
    let serial = host.socket(&serial_socket(guest));
    console.attach(&serial, LISTEN).await.ok()?;
    console.wait_sequence(1, LISTEN).await.ok()?;
    let last = console.heartbeats(Heartbeats::last)?;
    Some((last.heartbeat.verified, last.heartbeat.bad))
}
