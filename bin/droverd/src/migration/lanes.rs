//! What a relay's report says of its lanes, paths and interfaces, as it is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::{
    ChannelView, DataPathKind, DataPathView, EventKind, LaneEncryption, LaneState, LaneView,
    MigrationRole, MigrationView, NicView, PathState, PathView, PlacementView, RelayView, TcpView,
    TrafficView,
};
use drover_carrier::Counters;
use drover_relay::{DataPath, ForgottenStats, LaneEnd, LaneHealth, LaneId, LaneReport, Report};
use drover_types::{ByteRate, Bytes, Path, PathEnd, PathId, Placement};

use super::expansion;
use super::latency;
use super::noticed::Noticed;
use super::outgoing::millis;
use super::reduction;
use super::snapshot::Snapshot;
use crate::limits;
use crate::metrics::{Metrics, Trouble};

/// Why a lane is suspected.
const SILENT: &str = "nothing came back for longer than usual";

/// Why a lane was closed in the middle.
const RETIRED: &str = "retired: its path carries as much without it";

/// Compares a relay's reports with those before them: each lane's rate, and what is new.
#[derive(Debug, Default)]
pub struct LaneWatch {
    last: Vec<(LaneId, u64)>,
    /// When that was, by the relay's clock.
    at: Option<Duration>,
    rates: Vec<(LaneId, ByteRate)>,
    noticed: Noticed,
    retransmits: Retransmits,
    /// What was counted already.
    counted: BTreeMap<String, Counted>,
    outages: u32,
    /// It was told how long processors slept.
    told_sleep: bool,
    /// What is sent at most, on a path and on all together.
    limits: BTreeMap<Option<PathId>, ByteRate>,
}

/// What an interface carried, and the trouble with lanes on it.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    traffic: TrafficView,
    trouble: Trouble,
}

/// Segments that TCP sent again. The kernel counts by connection, and forgets with it.
#[derive(Debug, Default)]
struct Retransmits {
    of_lanes: BTreeMap<LaneId, u32>,
    of_paths: BTreeMap<PathId, u64>,
}

impl Retransmits {
    fn count(&mut self, report: &Report) {
        let mut now = BTreeMap::new();
        for lane in &report.lanes {
            let Some(tcp) = lane.tcp else { continue };
            let before = self.of_lanes.get(&lane.stats.lane).copied().unwrap_or(0);
            let more = tcp.retransmits.saturating_sub(before);
            *self.of_paths.entry(lane.path).or_default() += u64::from(more);
            now.insert(lane.stats.lane, tcp.retransmits);
        }
        self.of_lanes = now;
    }

    fn on(&self, path: PathId) -> u64 {
        self.of_paths.get(&path).copied().unwrap_or(0)
    }
}

impl LaneWatch {
    /// Takes a report in, shows it and counts what is new.
    pub fn show(
        &mut self,
        snapshot: &mut Snapshot,
        paths: &[Path],
        (pid, counters): (u32, &Counters),
        metrics: &Metrics,
    ) {
        let report = &counters.relay;
        self.measure(counters.at, report);
        let role = snapshot.view.role;
        show_way(snapshot, report);
        if let Some(told) = &counters.latency {
            latency::show(snapshot, told, &mut self.told_sleep);
        }
        let seen = (counters.at, report);
        for kind in self.noticed.in_report(seen, paths, role) {
            snapshot.record(kind);
        }
        self.retransmits.count(report);
        self.fill(&mut snapshot.view, paths, report);
        snapshot.view.relay = Some(RelayView {
            pid,
            resident_bytes: Bytes(counters.usage.resident_bytes),
            cpu_ms: millis(counters.usage.cpu),
        });
        self.count(&snapshot.view, report, metrics);
    }

    /// Another relay carries on from here, and counts from zero: what the one before has carried stays counted. The
    /// limits that it is to hold as well.
    pub fn begin_anew(&mut self) -> Vec<(Option<PathId>, ByteRate)> {
        let limits = std::mem::take(&mut self.limits);
        *self = Self {
            limits: limits.clone(),
            ..Self::default()
        };
        limits.into_iter().collect()
    }

    /// What is sent on a path, or on all together, is limited from now on.
    pub fn limited(&mut self, path: Option<PathId>, rate: Option<ByteRate>) {
        match rate {
            Some(rate) => self.limits.insert(path, rate),
            None => self.limits.remove(&path),
        };
    }

    fn count(&mut self, view: &MigrationView, report: &Report, metrics: &Metrics) {
        for nic in &view.nics {
            let mut now = Counted {
                traffic: nic.traffic,
                ..Counted::default()
            };
            let here = |path: &&PathView| near_interface(view.role, path) == nic.interface;
            for path in view.paths.iter().filter(here) {
                now.trouble.lost += lost_lanes(report, path.path.id);
                now.trouble.suspected += path.suspicions;
            }
            now.trouble.retransmits = nic.retransmits;
            let before = self.counted.insert(nic.interface.clone(), now);
            let before = before.unwrap_or_default();
            metrics.carried(&nic.interface, &now.traffic.beyond(&before.traffic));
            metrics.troubled(&nic.interface, now.trouble.beyond(before.trouble));
        }
        metrics.outages(u64::from(view.outages.saturating_sub(self.outages)));
        self.outages = view.outages;
    }

    /// Reports that follow each other at once are not compared.
    fn measure(&mut self, now: Duration, report: &Report) {
        let elapsed = self.at.map(|at| now.saturating_sub(at));
        if elapsed.is_some_and(|elapsed| elapsed < limits::RATE_SPAN) {
            return;
        }
        let carried = |lane: &LaneReport| {
            let stats = &lane.stats;
            (stats.lane, stats.receipted_bytes.max(stats.received_bytes))
        };
        let current: Vec<(LaneId, u64)> = report.lanes.iter().map(carried).collect();
        if let Some(elapsed) = elapsed {
            let before = |lane: LaneId| found(&self.last, lane).unwrap_or(0);
            let rate = |&(lane, bytes): &(LaneId, u64)| {
                let moved = Bytes(bytes.saturating_sub(before(lane)));
                (lane, ByteRate::of(moved, elapsed))
            };
            self.rates = current.iter().map(rate).collect();
        }
        (self.last, self.at) = (current, Some(now));
    }

    fn fill(&self, view: &mut MigrationView, paths: &[Path], report: &Report) {
        let role = view.role;
        let path_view = |path: &Path| {
            let lanes = report.lanes.iter().filter(|lane| lane.path == path.id);
            let mut lanes: Vec<_> = lanes.map(|lane| self.lane_view(lane)).collect();
            let forgotten = report.session.forgotten.iter();
            let forgotten: Vec<_> = forgotten.filter(|sum| sum.path == path.id).collect();
            let before = forgotten.iter().map(|sum| carried_before(sum));
            let traffic = before.chain([TrafficView::of(&lanes)]).sum();
            let suspected = forgotten.iter().map(|sum| sum.suspicions);
            let suspicions = lanes
                .iter()
                .map(|lane| lane.suspicions.into())
                .chain(suspected)
                .sum();
            forget_old(&mut lanes);
            let dialled = report.paths.iter().find(|dialled| dialled.path == path.id);
            PathView {
                path: path.clone(),
                traffic,
                suspicions,
                retransmits: self.retransmits.on(path.id),
                lanes,
                limit: self.limits.get(&Some(path.id)).copied(),
                state: dialled.map(|dialled| path_state(dialled.state)),
                cause: dialled.and_then(|dialled| dialled.cause.clone()),
                attempts: dialled.map_or(0, |dialled| dialled.attempts),
                segment_bytes: dialled.and_then(|dialled| dialled.segment),
                placement: Some(placement(role, path, report)),
            }
        };
        view.paths = paths.iter().map(path_view).collect();
        sum_up(view);
        let session = &report.session;
        let channel = |stats: &drover_relay::ChannelStats| ChannelView {
            id: stats.channel,
            read_bytes: Bytes(stats.read_bytes),
            confirmed_bytes: Bytes(stats.confirmed_bytes),
            written_bytes: Bytes(stats.written_bytes),
            resent_bytes: Bytes(stats.resent_bytes),
        };
        view.channel_traffic = session.channels.iter().map(channel).collect();
        view.hedged_chunks = session.hedged_chunks;
        view.duplicate_chunks = session.duplicate_chunks;
        view.outages = session.outages;
        view.bulk_goodput = report.bulk;
        view.limit = self.limits.get(&None).copied();
    }

    fn lane_view(&self, lane: &LaneReport) -> LaneView {
        let stats = &lane.stats;
        let (state, ended_reason) = match (&lane.ended, stats.health) {
            (None, LaneHealth::Suspect) => (LaneState::Suspect, Some(SILENT.to_owned())),
            (None, _) => (LaneState::Up, None),
            (Some(LaneEnd::Closed), LaneHealth::Retired) => {
                (LaneState::Ended, Some(RETIRED.to_owned()))
            }
            (Some(LaneEnd::Closed), _) => (LaneState::Ended, None),
            (Some(LaneEnd::Lost(reason)), _) => (LaneState::Lost, Some(reason.clone())),
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).ok();
        LaneView {
            id: stats.lane,
            state,
            traffic: TrafficView {
                sent_bytes: Bytes(stats.sent_bytes),
                resent_bytes: Bytes(stats.resent_bytes),
                protocol_bytes: Bytes(stats.protocol_bytes),
                received_bytes: Bytes(stats.received_bytes),
                rate: found(&self.rates, stats.lane).unwrap_or_default(),
            },
            round_trip_us: stats.round_trip.and_then(micros),
            busy_rate: stats.rate.map(ByteRate),
            in_flight_bytes: Bytes(stats.in_flight_bytes),
            credit_bytes: Bytes(stats.credit_bytes),
            suspicions: stats.suspicions,
            tcp: lane.tcp.map(|facts| TcpView {
                round_trip_us: micros(facts.round_trip).unwrap_or(u64::MAX),
                retransmits: facts.retransmits,
                delivery_rate: ByteRate(facts.delivery_rate),
                congestion_window: facts.congestion_window,
                segment_bytes: facts.segment_bytes,
            }),
            ended_reason,
        }
    }
}

/// The bytes' way through the relay, and what protects them on the lanes once there is one.
fn show_way(snapshot: &mut Snapshot, report: &Report) {
    let data_path = data_path(&report.data_path);
    if snapshot.view.data_path.as_ref() != Some(&data_path) {
        snapshot.view.data_path = Some(data_path.clone());
        snapshot.record(EventKind::DataPathChosen { data_path });
    }
    if let (Some(view), Some(reduced)) = (&mut snapshot.view.reduction, &report.reduced) {
        reduction::show(view, reduced);
    }
    if let Some(expanded) = &report.expanded {
        snapshot.view.expansion = Some(expansion::expansion(expanded));
    }
    if let Some(stored) = &report.stored {
        snapshot.view.shared_pages = Some(reduction::shared(stored));
    }
    let MigrationView {
        encryption, verify, ..
    } = snapshot.view;
    if let Some(encryption) = encryption.filter(|_| !report.lanes.is_empty()) {
        let in_memory = matches!(report.data_path, DataPath::Copy { .. });
        let checksums = verify || encryption == LaneEncryption::Off && in_memory;
        snapshot.record(EventKind::LanesProtected {
            encryption,
            checksums,
        });
    }
}

fn data_path(report: &DataPath) -> DataPathView {
    match report.clone() {
        DataPath::Splice { except, reduced } => DataPathView {
            kind: DataPathKind::Splice,
            fallback: except.is_some(),
            why: except.or_else(|| reduced.then(|| "but for what is reduced".to_owned())),
        },
        DataPath::Copy { why, fallback } => DataPathView {
            kind: DataPathKind::Copy,
            why: Some(why),
            fallback,
        },
    }
}

/// What a path carried on lanes that are no longer told one by one.
fn carried_before(sum: &ForgottenStats) -> TrafficView {
    TrafficView {
        sent_bytes: Bytes(sum.sent_bytes),
        resent_bytes: Bytes(sum.resent_bytes),
        protocol_bytes: Bytes(sum.protocol_bytes),
        received_bytes: Bytes(sum.received_bytes),
        rate: ByteRate(0),
    }
}

/// All that a path has lost so far.
fn lost_lanes(report: &Report, path: PathId) -> u64 {
    let last = report.lanes.iter().filter(|lane| lane.path == path);
    let last = last.filter(|lane| matches!(lane.ended, Some(LaneEnd::Lost(_))));
    let before = report.session.forgotten.iter();
    let before = before.filter(|sum| sum.path == path);
    last.map(|_| 1)
        .chain(before.map(|sum| sum.lost_lanes))
        .sum()
}

/// Lanes that flap are many in the end: of those that are gone only the last are shown.
fn forget_old(lanes: &mut Vec<LaneView>) {
    let gone = |lane: &LaneView| !matches!(lane.state, LaneState::Up | LaneState::Suspect);
    let all = lanes.iter().filter(|lane| gone(lane)).count();
    let mut surplus = all.saturating_sub(limits::GONE_LANES);
    lanes.retain(|lane| {
        let forgotten = gone(lane) && surplus > 0;
        surplus -= usize::from(forgotten);
        !forgotten
    });
}

fn path_state(state: drover_relay::PathState) -> PathState {
    match state {
        drover_relay::PathState::Up => PathState::Up,
        drover_relay::PathState::Dialling => PathState::Dialling,
        drover_relay::PathState::NoLink => PathState::NoLink,
        drover_relay::PathState::GivenUp => PathState::GivenUp,
    }
}

fn found<T: Copy>(list: &[(LaneId, T)], lane: LaneId) -> Option<T> {
    let found = list.iter().find(|(id, _)| *id == lane);
    found.map(|(_, value)| *value)
}

/// This host's end of a path.
fn near_end(role: MigrationRole, path: &Path) -> &PathEnd {
    match role {
        MigrationRole::Source => &path.source,
        MigrationRole::Destination => &path.destination,
    }
}

/// This host's interface of a path.
pub fn near_interface(role: MigrationRole, path: &PathView) -> &str {
    &near_end(role, &path.path).interface
}

/// Where the threads of a path's lanes run on this host.
fn placement(role: MigrationRole, path: &Path, report: &Report) -> PlacementView {
    let address = near_end(role, path).address;
    let mut nics = report.nics.iter();
    match nics.find(|nic| nic.addresses.contains(&address)) {
        Some(nic) => (&nic.placement).into(),
        None => (&Placement::anywhere("its relay was told nothing of it")).into(),
    }
}

/// The sums over paths and interfaces.
fn sum_up(view: &mut MigrationView) {
    view.traffic = view.paths.iter().map(|path| path.traffic).sum();
    let role = view.role;
    let near = |path: &PathView| near_interface(role, path).to_owned();
    let mut names: Vec<String> = view.paths.iter().map(near).collect();
    names.sort();
    names.dedup();
    let nic = |interface: String| {
        let own = || view.paths.iter().filter(|path| near(path) == interface);
        let up = || {
            let lanes = own().flat_map(|path| &path.lanes);
            lanes.filter(|lane| lane.state == LaneState::Up)
        };
        NicView {
            traffic: own().map(|path| path.traffic).sum(),
            lanes_up: up().map(|_| 1).sum(),
            round_trip_us: up().filter_map(|lane| lane.round_trip_us).max(),
            credit_bytes: Bytes(up().map(|lane| lane.credit_bytes.0).sum()),
            retransmits: own().map(|path| path.retransmits).sum(),
            placement: own().find_map(|path| path.placement.clone()),
            interface,
        }
    };
    view.nics = names.into_iter().map(nic).collect();
}

/// What is left of lanes when their session is closed.
pub fn end_lanes(view: &mut MigrationView) {
    for path in &mut view.paths {
        for lane in &mut path.lanes {
            lane.traffic.rate = ByteRate(0);
            lane.in_flight_bytes = Bytes(0);
            if matches!(lane.state, LaneState::Up | LaneState::Suspect) {
                lane.state = LaneState::Ended;
            }
        }
        path.traffic.rate = ByteRate(0);
    }
    for nic in &mut view.nics {
        nic.traffic.rate = ByteRate(0);
    }
    view.traffic.rate = ByteRate(0);
    view.rate = ByteRate(0);
}

#[cfg(test)]
mod tests {
    use drover_migrate::Migration;
    use drover_relay::{LaneEnds, LaneStats, Stats};
    use drover_types::{MigrationId, PathEnd};

    use super::*;

    fn lane(number: LaneId) -> LaneReport {
        let address = "10.0.0.1:7471".parse().unwrap();
        LaneReport {
            path: PathId(0),
            stats: LaneStats {
                lane: number,
                health: LaneHealth::Lost,
                sent_bytes: 1000,
                suspicions: 1,
                ..LaneStats::default()
            },
            ends: LaneEnds {
                local: address,
                peer: address,
            },
            tcp: None,
            ended: Some(LaneEnd::Lost("reset".into())),
        }
    }

    fn counters(lanes: Vec<LaneReport>, forgotten: Vec<ForgottenStats>) -> Counters {
        Counters {
            at: Duration::ZERO,
            relay: Report {
                lanes,
                paths: Vec::new(),
                nics: Vec::new(),
                session: Stats {
                    forgotten,
                    ..Stats::default()
                },
                data_path: DataPath::Splice {
                    except: None,
                    reduced: false,
                },
                reduced: None,
                expanded: None,
                stored: None,
                bulk: None,
            },
            encryption: None,
            usage: drover_carrier::Usage::default(),
            latency: None,
        }
    }

    fn shown(watch: &mut LaneWatch, counters: &Counters, metrics: &Metrics) -> MigrationView {
        let migration = Migration {
            id: MigrationId::from_bytes([1; 16]),
            vm: "web".parse().unwrap(),
            source: "a".parse().unwrap(),
            destination: "b".parse().unwrap(),
        };
        let end = |name: &str| PathEnd {
            interface: name.into(),
            address: "10.0.0.1".parse().unwrap(),
        };
        let path = Path {
            id: PathId(0),
            source: end("eth0"),
            destination: end("eth0"),
            rate: None,
            mtu: 1500,
        };
        let mut snapshot = Snapshot::new(&migration, MigrationRole::Source);
        watch.show(&mut snapshot, &[path], (1, counters), metrics);
        snapshot.view
    }

    #[test]
    fn what_a_path_carried_does_not_become_less_when_its_lanes_are_forgotten() {
        let (mut watch, metrics) = (LaneWatch::default(), Metrics::new());
        let all = counters((0..10).map(lane).collect(), Vec::new());
        let before = shown(&mut watch, &all, &metrics);
        let sum = ForgottenStats {
            path: PathId(0),
            lost_lanes: 4,
            sent_bytes: 4000,
            suspicions: 4,
            ..ForgottenStats::default()
        };
        let fewer = counters((4..10).map(lane).collect(), vec![sum]);
        let after = shown(&mut watch, &fewer, &metrics);
        for view in [before, after] {
            assert_eq!(view.traffic.sent_bytes, Bytes(10_000));
            assert_eq!(view.nics[0].traffic.sent_bytes, Bytes(10_000));
            assert_eq!(view.paths[0].suspicions, 10);
        }
        assert_eq!(lost_lanes(&fewer.relay, PathId(0)), 10);
    }
}
