//! QEMU's own ways to move a guest, each set as its documentation advises, and the one whose bytes relays of drover's carry.
//!
//! The hand-off is the safe one for all: the destination is started stopped, and runs only once
//! the source says that it completed and the destination that everything arrived.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use drover_hypervisor::qmp::Event;
use serde_json::{Value, json};

use super::method::{Method, Variant};
use super::relays::Relays;
use crate::host::Host;
use crate::lab::Lab;
use crate::limits;
use crate::meter::{Measured, Meter, QemuTotals};
use crate::monitor::{Monitor, migration_is, named};
use crate::network;
use crate::resident::{Keeper, Resident, start_qemu, wait_gone};
use crate::settings::LabSettings;

/// The port of the destination's QEMU, in its own namespace.
const PORT: u16 = 4444;

/// A key for a lab: it keeps nothing secret, and makes the cipher work.
const PSK: &str = "qemu:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// No limit: QEMU's own default of 128 MiB/s (10 Gbit/s in some versions) would hold it back.
const BANDWIDTH: u64 = 1 << 40;

/// How long the guest may stop, the same for every method; QEMU's default.
pub const DOWNTIME_LIMIT_MS: i64 = 300;

/// A move that neither went on nor ended.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing was carried for {} s and QEMU did not give up: {state}; {cancelled}",
    patience.as_secs()
)]
pub(super) struct Hangs {
    patience: Duration,
    state: String,
    cancelled: String,
}

/// How long a move of QEMU's is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A move that carries nothing for so long is cancelled; without, it is waited for.
    pub stalled: Option<Duration>,
    /// A move that has not ended after so long is given up; [`limits::MOVE`] at most.
    pub longest: Duration,
}

impl Patience {
    /// With whatever goes on, as long as any move may take.
    pub const ALL: Self = Self {
        stalled: None,
        longest: limits::MOVE,
    };
}

/// Moves a guest that the lab started to the other host.
///
/// # Errors
/// The move failed, or took longer than `patience` allows; the guest goes on on its source, or the lab must boot a new one.
pub async fn move_guest(
    lab: &Lab,
    guest: &mut Resident,
    method: Method,
    variant: Variant,
    patience: Patience,
) -> Result<Measured> {
    let destination = lab.host(1 - guest.host);
    let hosts = [&lab.host(guest.host), &destination];
    let channels = variant.channels.unwrap_or(0);
    let relays = method
        .is_relayed()
        .then(|| Relays::start(lab, hosts, channels));
    let mut relays = relays.transpose()?;
    let pids = relays.as_ref().map(Relays::pids);
    let meter = Meter::begin(lab.settings(), guest, pids).await?;
    let mut definition = guest.definition.clone();
    definition.machine = Some(concrete_machine(&guest.monitor, &definition.machine).await?);
    let [serial, _] = guest.sockets_on(&destination);
    let (mut child, monitor) = start_qemu(&destination, &definition, true).await?;
    let pid = child.id().context("QEMU ended at once")?;

    let moved = async {
        guest.console.attach(&serial, limits::QEMU_START).await?;
        let [to, at] = match &mut relays {
            Some(relays) => relays.open()?,
            None => [
                uri(lab, &destination, method)?,
                uri(lab, &destination, method)?,
            ],
        };
        for (side, end) in [(&monitor, "server"), (&guest.monitor, "client")] {
            prepare(side, lab.settings(), method, variant).await?;
            if method == Method::MultifdTls {
                secure(side, lab.folder(), end).await?;
            }
        }
        monitor
            .run("migrate-incoming", json!({ "uri": at }))
            .await?;
        guest.monitor.run("migrate", json!({ "uri": to })).await?;
        let hangs = hangs(&guest.monitor, patience.stalled);
        tokio::select! {
            handed_off = arrive(guest, meter.mark(), &monitor) => handed_off?,
            hangs = hangs => return Err(hangs.into()),
            error = overdue(&guest.monitor, patience.longest) => return Err(error),
        }
        let totals = totals(&guest.monitor).await?;
        meter
            .end(lab.settings(), guest, (&monitor, pid), totals)
            .await
    };
    let moved = moved.await;
    if let Some(relays) = relays {
        relays.end(moved.is_ok()).await?;
    }
    match moved {
        Ok(measured) => {
            leave(guest).await?;
            guest.monitor = monitor;
            guest.pid = pid;
            guest.host = destination.number;
            guest.keeper = Keeper::Lab(child);
            Ok(measured)
        }
        Err(error) => {
            child
                .kill()
                .await
                .context("cannot end the destination's QEMU")?;
            Err(error)
        }
    }
}

/// Where the destination's QEMU listens and the source's connects to, over the fastest NIC.
fn uri(lab: &Lab, destination: &Host, method: Method) -> Result<String> {
    let nic = lab.settings().fastest();
    let address = network::address_of(lab.settings(), nic, destination.number)
        .with_context(|| format!("NIC {nic} has no address that QEMU could be told"))?;
    let address = SocketAddr::new(address, PORT);
    let mptcp = if method.is_mptcp() { ",mptcp=on" } else { "" };
    Ok(format!("tcp:{address}{mptcp}"))
}

/// A destination of another version must not take `q35` for its own newest.
pub(crate) async fn concrete_machine(
    monitor: &Monitor,
    defined: &Option<String>,
) -> Result<String> {
    let told = monitor
        .run("qom-get", json!({"path": "/machine", "property": "type"}))
        .await?;
    let concrete = told.as_str().and_then(|name| name.strip_suffix("-machine"));
    let defined = defined.as_deref().unwrap_or("q35");
    let options = defined
        .split_once(',')
        .map(|(_, options)| format!(",{options}"));
    Ok(format!(
        "{}{}",
        concrete.unwrap_or(defined),
        options.unwrap_or_default()
    ))
}

/// Sets one end of a move.
pub(crate) async fn prepare(
    side: &Monitor,
    lab: &LabSettings,
    method: Method,
    variant: Variant,
) -> Result<()> {
    side.set_capabilities(&["events", "return-path"]).await?;
    let mut parameters = json!({
        "max-bandwidth": BANDWIDTH,
        "downtime-limit": DOWNTIME_LIMIT_MS,
        "tls-creds": "",
    });
    if let Some(channels) = variant.channels {
        side.set_capabilities(&["multifd"]).await?;
        parameters["multifd-channels"] = json!(channels);
        let zstd = method.is_compressed_by_qemu();
        parameters["multifd-compression"] = json!(if zstd { "zstd" } else { "none" });
    } else {
        let off = json!([{"capability": "multifd", "state": false}]);
        side.run("migrate-set-capabilities", json!({ "capabilities": off }))
            .await?;
    }
    side.run("migrate-set-parameters", parameters).await?;
    tell_bandwidth(side, lab, method).await
}

/// Has one end encrypt with a key that both have: nothing but the cipher costs anything then.
async fn secure(side: &Monitor, lab: &Path, end: &str) -> Result<()> {
    let folder = lab.join("psk");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join("keys.psk");
    std::fs::write(&file, PSK).with_context(|| format!("cannot write {}", file.display()))?;
    let id = format!("tls-{end}");
    // A QEMU that has come and goes again has been both ends.
    let known = side.run("qom-list", json!({"path": "/objects"})).await?;
    let known = known.as_array().into_iter().flatten();
    if !known.clone().any(|object| object["name"] == id.as_str()) {
        let object = json!({
            "qom-type": "tls-creds-psk", "id": id, "endpoint": end, "dir": folder,
        });
        side.run("object-add", object).await?;
    }
    side.run("migrate-set-parameters", json!({"tls-creds": id}))
        .await
        .map(drop)
}

/// Tells QEMU what the lines carry, so that it ends the rounds at the right time. Versions before
/// 8.2 do not have the parameter.
async fn tell_bandwidth(side: &Monitor, lab: &LabSettings, method: Method) -> Result<()> {
    let line = if method.uses_all_nics() {
        lab.total_rate()
    } else {
        lab.nics[lab.fastest()]
    };
    if knows_bandwidth(side).await? {
        let bytes = line.map_or(0, |line| line.0 / 8);
        let parameters = json!({"avail-switchover-bandwidth": bytes});
        side.run("migrate-set-parameters", parameters).await?;
    }
    Ok(())
}

/// Whether this QEMU can be told what the lines carry.
pub(super) async fn knows_bandwidth(side: &Monitor) -> Result<bool> {
    let known = side.run("query-migrate-parameters", Value::Null).await?;
    Ok(known.get("avail-switchover-bandwidth").is_some())
}

async fn arrive(guest: &Resident, mark: usize, destination: &Monitor) -> Result<()> {
    hand_off(&guest.monitor, mark, destination).await?;
    guest
        .console
        .wait_heartbeat(limits::FIRST_HEARTBEAT)
        .await?;
    guest
        .console
        .wait_sequence(3, limits::FIRST_HEARTBEAT)
        .await
}

/// Has the destination run the guest when both ends say that everything has arrived, and waits until
/// it does.
pub(crate) async fn hand_off(source: &Monitor, mark: usize, destination: &Monitor) -> Result<()> {
    let completed = migration_is("completed");
    source
        .wait(mark, limits::MOVE, "completed migration", &completed)
        .await?;
    destination
        .wait(0, limits::MOVE, "arrived migration", &completed)
        .await?;
    destination.run("cont", Value::Null).await?;
    destination
        .wait(0, limits::QEMU_START, "resume", named("RESUME"))
        .await
        .map(drop)
}

/// Ends when the source's QEMU has carried nothing for so long, and was asked to give up; never
/// without patience.
pub(super) async fn hangs(source: &Monitor, patience: Option<Duration>) -> Hangs {
    let Some(patience) = patience else {
        return std::future::pending().await;
    };
    let (mut last, mut since) = (None, Instant::now());
    while since.elapsed() < patience {
        tokio::time::sleep(limits::STALL_LOOK).await;
        // A QEMU that does not answer does not go on either.
        let told = source.run("query-migrate", Value::Null).await.ok();
        let now = told.map(|told| (told["status"].clone(), told["ram"]["transferred"].clone()));
        if now.is_some() && now != last {
            (last, since) = (now, Instant::now());
        }
    }
    let state = match last {
        Some((status, sent)) => format!("status {status} after {sent} bytes"),
        None => "it did not answer".to_owned(),
    };
    Hangs {
        patience,
        state,
        cancelled: cancel(source).await,
    }
}

/// Ends after so long, and says how far the move has come.
pub(super) async fn overdue(source: &Monitor, longest: Duration) -> anyhow::Error {
    tokio::time::sleep(longest).await;
    match totals(source).await {
        Ok(told) => not_ended(longest, told.payload_bytes, told.rounds),
        Err(error) => error.context(format!("not ended after {} s", longest.as_secs())),
    }
}

/// What is said of a move that was given up.
pub(super) fn not_ended(longest: Duration, bytes: u64, rounds: u64) -> anyhow::Error {
    anyhow!(
        "not ended after {} s, with {} MiB sent in {rounds} rounds",
        longest.as_secs(),
        bytes >> 20
    )
}

/// What becomes of an operator's cancel.
async fn cancel(source: &Monitor) -> String {
    let mark = source.mark();
    if let Err(error) = source.run("migrate_cancel", Value::Null).await {
        return format!("migrate_cancel was not answered: {error:#}");
    }
    let ended = |event: &Event| {
        ["cancelled", "failed"]
            .iter()
            .any(|s| migration_is(s)(event))
    };
    let begun = Instant::now();
    match tokio::time::timeout(limits::CANCEL, source.events().wait(mark, ended)).await {
        Ok(Some(_)) => format!("cancelled within {} ms", begun.elapsed().as_millis()),
        Ok(None) => "QEMU ended when it was cancelled".to_owned(),
        Err(_) => format!("cancelled in vain for {} s", limits::CANCEL.as_secs()),
    }
}

async fn totals(source: &Monitor) -> Result<QemuTotals> {
    let told = source.run("query-migrate", Value::Null).await?;
    let number = |name: &str| told["ram"][name].as_u64().unwrap_or(0);
    Ok(QemuTotals {
        payload_bytes: number("transferred"),
        rounds: number("dirty-sync-count"),
    })
}

/// Ends the source's copy, which must never run again.
async fn leave(guest: &mut Resident) -> Result<()> {
    // QEMU may end before it answers.
    let _ = guest.monitor.run("quit", Value::Null).await;
    match &mut guest.keeper {
        Keeper::Lab(child) => {
            let ended = tokio::time::timeout(limits::KILL, child.wait()).await;
            ended
                .context("the source's QEMU does not end")?
                .context("cannot watch QEMU")?;
            Ok(())
        }
        Keeper::Agent | Keeper::Libvirt => wait_gone(guest.pid, limits::KILL).await,
    }
}
