//! Answers as text for a person.

mod checkpoints;
mod history;
mod inventory;
mod libvirt;
mod limits;
pub mod migrations;
pub mod runs;

use std::fmt::Write as _;

use drover_api::{
    CordonView, DisksView, ExitKind, HostView, LaneEncryption, MigrationView, PeerView,
    PostcopyView, StatusView, VmState, VmView,
};
use drover_types::Interface;
use jiff::{Timestamp, Unit};
use serde::Serialize;

pub use checkpoints::checkpoints;
pub use history::{events, history};
pub use inventory::inventory;
pub use limits::limits;

/// The word that an enum is in JSON.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

/// Columns as wide as their widest cell, two blanks apart; the last one is not padded.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(crate) fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// How long ago: `8 s`, `5 min`, `3 h`, `12 d`.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now
        .since((Unit::Second, then))
        .map_or(0, |span| span.get_seconds());
    match seconds {
        ..120 => format!("{} s", seconds.max(0)),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// `drover vm list`
pub fn vms(vms: &[VmView]) -> String {
    if vms.is_empty() {
        return "no guests; define one: NAME.toml in /etc/drover/vms, or where droverd.toml says\n"
            .to_owned();
    }
    let now = Timestamp::now();
    let mut rows = vec![row(&[
        "NAME", "STATE", "SOURCE", "SINCE", "MEMORY", "VCPUS", "PID", "MACHINE",
    ])];
    for vm in vms {
        rows.push(vec![
            vm.name.clone(),
            word(&vm.state),
            word(&vm.source),
            or_dash(vm.since.map(|since| age(since, now))),
            or_dash(vm.memory),
            or_dash(vm.vcpus),
            or_dash(vm.pid),
            or_dash(vm.machine.clone()),
        ]);
    }
    let mut text = table(&rows);
    for vm in vms {
        if let Some(problem) = &vm.problem {
            let _ = writeln!(text, "{}: {problem}", vm.name);
        }
    }
    text
}

/// `drover vm show`
pub fn vm(vm: &VmView) -> String {
    let mut rows = vec![
        row(&["name", &vm.name]),
        row(&["state", &word(&vm.state)]),
        row(&["source", &word(&vm.source)]),
    ];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            rows.push(row(&[name, &value]));
        }
    };
    let now = Timestamp::now();
    add(
        "since",
        vm.since
            .map(|since| format!("{since:.0} ({})", age(since, now))),
    );
    add("id", vm.uuid.clone());
    add("memory", vm.memory.map(|memory| memory.to_string()));
    add("vcpus", vm.vcpus.map(|vcpus| vcpus.to_string()));
    add("machine", vm.machine.clone());
    add("qemu", vm.qemu_version.clone());
    add("process", vm.pid.map(|pid| pid.to_string()));
    add("migration", vm.migration.map(|id| id.to_string()));
    add(
        "definition",
        vm.definition
            .as_ref()
            .map(|path| path.display().to_string()),
    );
    add("problem", vm.problem.clone());
    for note in &vm.notes {
        add("note", Some(note.clone()));
    }
    if let Some(exit) = &vm.last_exit {
        let asked = if exit.expected { "" } else { ", unasked" };
        add(
            "last exit",
            Some(format!("{}{asked}, {:.0}", exit_words(exit.exit), exit.at)),
        );
        for line in &exit.stderr {
            add("", Some(line.clone()));
        }
    }
    table(&rows)
}

fn exit_words(exit: ExitKind) -> String {
    match exit {
        ExitKind::Status(status) => format!("status {status}"),
        ExitKind::Signal(signal) => format!("signal {signal}"),
        ExitKind::Unknown => "status not known".to_owned(),
    }
}

/// `drover host`
pub fn host(host: &HostView) -> String {
    let protocol = format!("{} to {}", host.protocol.min, host.protocol.max);
    let binaries: Vec<_> = host
        .qemu_binaries
        .iter()
        .map(|b| b.display().to_string())
        .collect();
    let memory = format!("{}, {} available", host.memory.total, host.memory.available);
    let rows = [
        row(&["host", host.host.as_str()]),
        row(&["version", &host.version]),
        row(&["api", &host.api_version.to_string()]),
        row(&["protocol", &protocol]),
        row(&["cpus", &host.cpus.to_string()]),
        row(&["memory", &memory]),
        row(&["qemu for peers", &binaries.join(" ")]),
        row(&["guests", &taken(host)]),
    ];
    let mut interfaces = vec![row(&[
        "INTERFACE",
        "STATE",
        "SPEED",
        "MTU",
        "QUEUES",
        "RDMA",
        "ADDRESSES",
    ])];
    interfaces.extend(host.interfaces.iter().map(interface));
    format!("{}\n{}", table(&rows), table(&interfaces))
}

/// Whether a host takes guests.
fn taken(host: &HostView) -> String {
    match &host.cordon {
        None => "are taken".to_owned(),
        Some(CordonView { since, reason }) => {
            let why = reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {why}"));
            format!("are not taken, CORDONED since {since:.0}{why}")
        }
    }
}

fn interface(interface: &Interface) -> Vec<String> {
    let addresses: Vec<_> = interface
        .addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    vec![
        interface.name.clone(),
        if interface.up { "up" } else { "down" }.to_owned(),
        or_dash(interface.speed),
        interface.mtu.to_string(),
        format!("{}/{}", interface.tx_queues, interface.rx_queues),
        or_dash(interface.rdma.clone()),
        addresses.join(" "),
    ]
}

/// `drover status`
pub fn status(status: &StatusView) -> String {
    let host = &status.host;
    let running = status
        .vms
        .iter()
        .filter(|vm| vm.state == VmState::Running)
        .count();
    let mut text = format!(
        "host {}, droverd {}, {} available of {}, {running} of {} guests running\n",
        host.host,
        host.version,
        host.memory.available,
        host.memory.total,
        status.vms.len(),
    );
    if host.cordon.is_some() {
        let _ = writeln!(text, "guests {}", taken(host));
    }
    if let Some(why) = &status.checkpoints_away {
        let _ = writeln!(text, "checkpoints are neither kept nor used for now: {why}");
    }
    if let Some(line) = status.libvirt.as_ref().and_then(libvirt::line) {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "\nGuests\n{}", vms(&status.vms));
    let _ = write!(text, "\nMigrations\n{}", migrations::of_status(status));
    if !status.limits.is_empty() {
        let _ = write!(text, "\nLimits\n{}", limits(&status.limits));
    }
    let _ = write!(text, "\nPeers\n{}", peers(&status.peers));
    text
}

fn peers(peers: &[PeerView]) -> String {
    if peers.is_empty() {
        return "none; `drover cluster init` or `drover cluster join` to move guests\n".to_owned();
    }
    let mut rows = vec![row(&["HOST", "STATE", "VERSION", "ADDRESSES"])];
    for peer in peers {
        let addresses: Vec<_> = peer.api.iter().map(ToString::to_string).collect();
        rows.push(vec![
            peer.host.to_string(),
            if peer.reachable {
                "reachable"
            } else {
                "UNREACHABLE"
            }
            .to_owned(),
            or_dash(peer.version.clone()),
            addresses.join(" "),
        ]);
    }
    let mut text = table(&rows);
    for peer in peers {
        if let Some(problem) = &peer.problem {
            let _ = writeln!(text, "{}: {problem}", peer.host);
        }
    }
    text
}

/// How long a migration will take, with the range of that: `3.1 s left (2.8 s to 4 s)`.
pub fn time_left(view: &MigrationView) -> Option<String> {
    let left = milliseconds(view.time_left_ms?);
    let range = match (view.time_left_least_ms, view.time_left_most_ms) {
        (None, _) => String::new(),
        (Some(least), Some(most)) => {
            format!(" ({} to {})", milliseconds(least), milliseconds(most))
        }
        (Some(least), None) => format!(" ({} or more)", milliseconds(least)),
    };
    Some(format!("{left} left{range}"))
}

/// `85 ms`, `3.2 s`, `2 min 5 s`
pub fn milliseconds(ms: u64) -> String {
    match ms {
        ..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// How far disks are that are copied with a guest.
pub fn copied(disks: &DisksView) -> String {
    format!("disks {} of {}", disks.copied, disks.total)
}

/// What went after a guest that had gone on before it.
pub fn followed(postcopy: &PostcopyView) -> String {
    let PostcopyView {
        bytes,
        requests,
        reopened,
    } = postcopy;
    let mut text = format!("{bytes} followed it, stood still {requests} times for some of that");
    if *reopened > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ", session opened anew {reopened} times");
    }
    text
}

/// The last line of a migration that succeeded.
pub fn moved(view: &MigrationView) -> String {
    let mut text = format!("guest {} runs on {}", view.vm, view.destination);
    let mut add = |part: String| text.push_str(&part);
    if let Some(total) = view.total_ms {
        add(format!("; moved in {}", milliseconds(total)));
    }
    if let Some(downtime) = view.downtime_ms {
        add(format!(", stopped for {}", milliseconds(downtime)));
    }
    let (moved, crossed) = (view.moved_bytes(), view.crossed_bytes());
    add(format!(", {moved} sent"));
    if view.reduction.is_some() {
        add(format!(", for which {crossed} crossed"));
    }
    if let Some(disks) = &view.disks {
        add(format!("; disks of {}", disks.total));
    }
    if let Some(postcopy) = &view.postcopy {
        add(format!("; {}", followed(postcopy)));
    }
    if !view.paths.is_empty() {
        let s = if view.paths.len() == 1 { "" } else { "s" };
        add(format!(" over {} path{s}", view.paths.len()));
    }
    if let Some(goodput) = view.bulk_goodput {
        add(format!(" at {goodput}"));
    }
    match view.encryption {
        Some(LaneEncryption::Off) => add(", not encrypted".to_owned()),
        Some(encryption) => add(format!(", encrypted by {}", word(&encryption))),
        None => {}
    }
    text.push('\n');
    if let Some(done) = view.reduced_in_words() {
        let _ = writeln!(text, "  {done}");
    }
    for note in &view.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

#[cfg(test)]
mod tests;
