//! Migrations in `drover status`: those under way with all that they carry, the last that ended, and
//! how many were refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drover_api::{
    ChannelView, IdleStateView, InterruptsView, LaneState, LaneView, MigrationPhase, MigrationRole,
    MigrationView, PathState, PathView, PlacementView, ReductionDecided, StatusView, Told,
};
use drover_types::{ByteRate, Bytes, Interface};
use jiff::Timestamp;

use super::{age, copied, followed, milliseconds, or_dash, row, table, time_left, word};
use crate::limits::{ENDED_SHOWN, LANES_SHOWN, NOTES_SHOWN};

/// Every migration under way, the last that ended, and the interfaces that carry.
pub fn of_status(status: &StatusView) -> String {
    let all = &status.migrations;
    if all.is_empty() {
        return "none\n".to_owned();
    }
    let under_way: Vec<_> = all.iter().filter(|v| !v.phase.has_ended()).collect();
    let ended = all.iter().filter(|v| v.phase.has_ended());
    // Whoever asked for one that was refused was told so at once, and nothing came of it.
    let (refused, ended): (Vec<_>, Vec<_>) =
        ended.partition(|v| v.phase == MigrationPhase::Refused);
    let shown: Vec<_> = under_way
        .iter()
        .chain(ended.iter().take(ENDED_SHOWN))
        .copied()
        .collect();
    let mut text = if shown.is_empty() {
        "none\n".to_owned()
    } else {
        rows(&shown)
    };
    for view in shown.iter().filter(|view| view.phase.has_ended()) {
        if let Some(done) = view.reduced_in_words() {
            let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{vm} from {source} to {destination}: {done}");
        }
    }
    if ended.len() > ENDED_SHOWN {
        let more = ended.len() - ENDED_SHOWN;
        let _ = writeln!(text, "and {more} more that ended: `drover history`");
    }
    if !refused.is_empty() {
        let count = refused.len();
        let _ = writeln!(
            text,
            "{count} refused, with nothing changed: `drover history`"
        );
    }
    let carrying: Vec<_> = under_way
        .into_iter()
        .filter(|v| !v.paths.is_empty())
        .collect();
    for view in &carrying {
        let _ = write!(text, "\n{}", detail(view));
    }
    if !carrying.is_empty() {
        let _ = write!(text, "\nNICs\n{}", nics(&carrying, &status.host.interfaces));
    }
    text
}

/// One row for each, and below them what is wrong and what to do.
pub fn rows(migrations: &[&MigrationView]) -> String {
    let now = Timestamp::now();
    let mut rows = vec![row(&[
        "GUEST",
        "FROM",
        "TO",
        "PHASE",
        "STARTED",
        "TOTAL",
        "DOWNTIME",
        "MOVED",
        "CROSSED",
        "ENCRYPTION",
        "ID",
    ])];
    for view in migrations {
        rows.push(vec![
            view.vm.to_string(),
            view.source.to_string(),
            view.destination.to_string(),
            phase(view),
            format!("{} ago", age(view.started_at, now)),
            or_dash(view.total_ms.map(milliseconds)),
            or_dash(view.downtime_ms.map(milliseconds)),
            or_dash(some(view.moved_bytes())),
            or_dash(some(view.crossed_bytes())),
            or_dash(view.encryption.map(|encryption| word(&encryption))),
            view.id.to_string(),
        ]);
    }
    let mut text = table(&rows);
    for view in migrations {
        doubt(&mut text, view);
        for more in [&view.cause, &view.next].into_iter().flatten() {
            let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
            let _ = writeln!(text, "{vm} from {source} to {destination}: {more}");
        }
    }
    text
}

/// The phase in one word. An arrival ends in `running`, which says nothing of what the guest does by now.
fn phase(view: &MigrationView) -> String {
    match view.phase {
        MigrationPhase::Running => word(&MigrationPhase::Completed),
        phase => word(&phase),
    }
}

/// What is not known of it, with the commands that resolve it; what was decided and not heard yet.
fn doubt(text: &mut String, view: &MigrationView) {
    let now = Timestamp::now();
    let (vm, source, destination) = (&view.vm, &view.source, &view.destination);
    let mut add = |line: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{vm} from {source} to {destination}: {line}");
    };
    let other = match view.role {
        MigrationRole::Source => destination,
        MigrationRole::Destination => source,
    };
    if let Some(doubt) = &view.ambiguity {
        let heard = doubt.heard_at;
        let heard = heard.map_or_else(String::new, |at| format!(", heard {} ago", age(at, now)));
        add(format!(
            "IN DOUBT {}: {other} has not answered for {}{heard}",
            doubt.unknown,
            age(doubt.since, now)
        ));
        for command in &doubt.commands {
            add(format!("if {other} cannot come back: `{command}`"));
        }
    }
    let open = view.resolution.as_ref();
    if let Some(decided) = open.filter(|decided| decided.told != Told::Confirmed) {
        let last = decided.last.as_deref();
        let last = last.map_or_else(String::new, |last| format!(" ({last})"));
        add(format!(
            "{other} has not confirmed yet that it heard of `{}`{last}",
            word(&decided.resolution)
        ));
    }
}

/// What is not nothing.
fn some(bytes: Bytes) -> Option<Bytes> {
    (bytes > Bytes(0)).then_some(bytes)
}

/// Everything that is known of what one carries.
pub fn detail(view: &MigrationView) -> String {
    let mut text = format!("{} from {} to {}", view.vm, view.source, view.destination);
    let mut add = |part: String| {
        let _ = write!(text, ", {part}");
    };
    if view.round > 0 {
        add(format!("round {}", view.round));
    }
    if view.bytes.total > Bytes(0) {
        add(format!(
            "{} of {} left",
            view.bytes.remaining, view.bytes.total
        ));
    }
    if let Some(dirty) = view.dirty_rate.filter(|rate| *rate > ByteRate(0)) {
        add(format!("dirty {dirty}"));
    }
    if let Some(percent) = view.throttle_percent {
        add(format!("guest slowed by {percent} %"));
    }
    if let Some(left) = time_left(view) {
        add(left);
    }
    if let Some(disks) = &view.disks {
        add(copied(disks));
    }
    if let Some(postcopy) = &view.postcopy {
        add(followed(postcopy));
    }
    text.push('\n');
    let _ = writeln!(text, "  {}", counted(view));
    if let Some(data_path) = &view.data_path {
        let verify = if view.verify { "; verify: on" } else { "" };
        let _ = writeln!(text, "  data path: {data_path}{verify}");
    }
    if let Some(latency) = &view.cpu_latency {
        let _ = writeln!(text, "  CPU latency: {latency}{}", slept(view));
    }
    if !view.interrupts.is_empty() {
        let interrupts = InterruptsView::list(&view.interrupts);
        let _ = writeln!(text, "  interrupts: {interrupts}");
    }
    if let Some(reduction) = &view.reduction {
        let _ = writeln!(text, "  reduction: {reduction}");
        let _ = writeln!(text, "    {}", reduction.times);
        if !reduction.codecs.is_empty() {
            let codecs: Vec<_> = reduction.codecs.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "    codecs: {}", codecs.join(", "));
        }
        for verdict in reduction.decided.iter().flat_map(ReductionDecided::beside) {
            let _ = writeln!(text, "    {verdict}");
        }
    }
    if let Some(expansion) = &view.expansion {
        let _ = writeln!(text, "  expansion: {expansion}");
        let _ = writeln!(text, "    {}", expansion.times);
    }
    if let Some(shared) = &view.shared_pages {
        let _ = writeln!(text, "  shared pages: {shared}");
    }
    let channels = channels(view);
    if !channels.is_empty() {
        let _ = writeln!(text, "  channels: {channels}");
    }
    for line in table(&paths(view)).lines() {
        let _ = writeln!(text, "  {line}");
    }
    notes(&mut text, view);
    text
}

/// Effective, resent and protocol bytes apart.
fn counted(view: &MigrationView) -> String {
    let traffic = &view.traffic;
    let mut text = format!(
        "payload {} sent, {} resent, {} received; protocol {}",
        traffic.sent_bytes, traffic.resent_bytes, traffic.received_bytes, traffic.protocol_bytes
    );
    for (count, what) in [
        (view.hedged_chunks, "late chunks sent twice"),
        (view.duplicate_chunks, "chunks received twice"),
        (view.outages.into(), "outages"),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text
}

/// `; slept C1 (2 us) 3.5 s, C6 (133 us) 0.0 s`, all processors together.
fn slept(view: &MigrationView) -> String {
    if view.idle_states.is_empty() {
        return String::new();
    }
    format!("; slept {}", IdleStateView::list(&view.idle_states))
}

/// `main 1 MiB, 4 more 150 MiB to 160 MiB`
fn channels(view: &MigrationView) -> String {
    let carried = |channel: &ChannelView| channel.read_bytes.max(channel.written_bytes);
    let Some((main, others)) = view.channel_traffic.split_first() else {
        return String::new();
    };
    let mut text = format!("main {}", carried(main));
    let least = others.iter().map(carried).min();
    let most = others.iter().map(carried).max();
    if let (Some(least), Some(most)) = (least, most) {
        let _ = write!(text, ", {} multifd {least} to {most}", others.len());
    }
    text
}

/// A row for each path, and below it one for each lane while there are few.
fn paths(view: &MigrationView) -> Vec<Vec<String>> {
    let received = view.role == MigrationRole::Destination;
    let carried = if received { "RECEIVED" } else { "SENT" };
    let mut rows = vec![row(&[
        "PATH",
        "STATE",
        "RATE",
        carried,
        "RESENT",
        "PROTOCOL",
        "ROUND TRIP",
        "IN FLIGHT",
        "CREDIT",
        "SUSPECTED",
        "RETRANSMITS",
        "CAUSE",
    ])];
    let all: usize = view.paths.iter().map(|path| path.lanes.len()).sum();
    for path in &view.paths {
        rows.push(path_row(path, received));
        // Of many lanes those are shown that are not as they should be.
        let shown = |lane: &&LaneView| all <= LANES_SHOWN || lane.state != LaneState::Up;
        let lanes = path.lanes.iter().filter(shown).take(LANES_SHOWN);
        rows.extend(lanes.map(|lane| lane_row(lane, received)));
    }
    rows
}

fn path_row(view: &PathView, received: bool) -> Vec<String> {
    let (path, traffic) = (&view.path, &view.traffic);
    let up = view.lanes.iter().filter(|l| l.state == LaneState::Up);
    let state = match view.state {
        None | Some(PathState::Up) => format!("{} of {} up", up.count(), view.lanes.len()),
        Some(state) => word(&state),
    };
    let carried = if received {
        traffic.received_bytes
    } else {
        traffic.sent_bytes
    };
    let trips = view.lanes.iter().filter(|l| l.state == LaneState::Up);
    let slowest = trips.filter_map(|lane| lane.round_trip_us).max();
    let sum = |of: fn(&LaneView) -> u64| view.lanes.iter().map(of).sum::<u64>();
    vec![
        format!(
            "{} {} > {}",
            path.id, path.source.interface, path.destination.interface
        ),
        state,
        traffic.rate.to_string(),
        carried.to_string(),
        traffic.resent_bytes.to_string(),
        traffic.protocol_bytes.to_string(),
        or_dash(slowest.map(micros)),
        Bytes(sum(|lane| lane.in_flight_bytes.0)).to_string(),
        Bytes(sum(|lane| lane.credit_bytes.0)).to_string(),
        view.suspicions.to_string(),
        view.retransmits.to_string(),
        view.cause.clone().unwrap_or_default(),
    ]
}

fn lane_row(lane: &LaneView, received: bool) -> Vec<String> {
    let carried = if received {
        lane.traffic.received_bytes
    } else {
        lane.traffic.sent_bytes
    };
    vec![
        format!("  lane {}", lane.id),
        word(&lane.state),
        lane.traffic.rate.to_string(),
        carried.to_string(),
        lane.traffic.resent_bytes.to_string(),
        lane.traffic.protocol_bytes.to_string(),
        or_dash(lane.round_trip_us.map(micros)),
        lane.in_flight_bytes.to_string(),
        lane.credit_bytes.to_string(),
        lane.suspicions.to_string(),
        or_dash(lane.tcp.map(|tcp| tcp.retransmits.to_string())),
        lane.ended_reason.clone().unwrap_or_default(),
    ]
}

/// The last notes.
fn notes(text: &mut String, view: &MigrationView) {
    let from = view.notes.len().saturating_sub(NOTES_SHOWN);
    if from > 0 {
        let id = view.id;
        let _ = writeln!(text, "  {from} notes more: `drover history {id}`");
    }
    for note in &view.notes[from..] {
        let _ = writeln!(text, "  note: {note}");
    }
}

/// What each interface of this host carries for all migrations.
fn nics(migrations: &[&MigrationView], interfaces: &[Interface]) -> String {
    #[derive(Default)]
    struct Use<'a> {
        out: ByteRate,
        inward: ByteRate,
        sent: Bytes,
        resent: Bytes,
        protocol: Bytes,
        received: Bytes,
        lanes: u32,
        round_trip: Option<u64>,
        credit: Bytes,
        retransmits: u64,
        migrations: u32,
        placement: Option<&'a PlacementView>,
    }
    let mut uses: BTreeMap<&str, Use<'_>> = BTreeMap::new();
    for view in migrations {
        for nic in &view.nics {
            let entry = uses.entry(&nic.interface).or_default();
            let rate = match view.role {
                MigrationRole::Source => &mut entry.out,
                MigrationRole::Destination => &mut entry.inward,
            };
            rate.0 += nic.traffic.rate.0;
            entry.sent.0 += nic.traffic.sent_bytes.0;
            entry.resent.0 += nic.traffic.resent_bytes.0;
            entry.protocol.0 += nic.traffic.protocol_bytes.0;
            entry.received.0 += nic.traffic.received_bytes.0;
            entry.lanes += nic.lanes_up;
            entry.round_trip = entry.round_trip.max(nic.round_trip_us);
            entry.credit.0 += nic.credit_bytes.0;
            entry.retransmits += nic.retransmits;
            entry.migrations += 1;
            entry.placement = nic.placement.as_ref().or(entry.placement);
        }
    }
    let mut rows = vec![row(&[
        "NIC",
        "LINK",
        "OUT",
        "IN",
        "SENT",
        "RESENT",
        "PROTOCOL",
        "RECEIVED",
        "LANES UP",
        "ROUND TRIP",
        "CREDIT",
        "RETRANSMITS",
        "MIGRATIONS",
        "THREADS",
    ])];
    for (name, used) in uses {
        let link = interfaces.iter().find(|interface| interface.name == name);
        rows.push(vec![
            name.to_owned(),
            or_dash(link.and_then(|link| link.speed)),
            used.out.to_string(),
            used.inward.to_string(),
            used.sent.to_string(),
            used.resent.to_string(),
            used.protocol.to_string(),
            used.received.to_string(),
            used.lanes.to_string(),
            or_dash(used.round_trip.map(micros)),
            used.credit.to_string(),
            used.retransmits.to_string(),
            used.migrations.to_string(),
            or_dash(used.placement),
        ]);
    }
    table(&rows)
}

/// `250 us`, `1.2 ms`, `80 ms`
fn micros(us: u64) -> String {
    match us {
        ..1000 => format!("{us} us"),
        1000..10_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => milliseconds(us / 1000),
    }
}

#[cfg(test)]
mod tests;
