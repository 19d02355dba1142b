//! What the lanes, paths and channels of migrations under way have carried, and how they are.

use drover_api::{ChannelView, LaneState, LaneView, MigrationRole, MigrationView, PathView};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::moment::{Number, number, word};
use super::role;
use crate::migration::near_interface;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnPath {
    vm: String,
    role: &'static str,
    path: u16,
    nic: String,
    peer_nic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathIs {
    vm: String,
    role: &'static str,
    path: u16,
    nic: String,
    peer_nic: String,
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNic {
    nic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnLane {
    vm: String,
    role: &'static str,
    path: u16,
    nic: String,
    lane: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneIs {
    vm: String,
    role: &'static str,
    path: u16,
    nic: String,
    lane: u32,
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfChannel {
    vm: String,
    role: &'static str,
    channel: u16,
}

/// Everything of these migrations.
pub(super) fn register(registry: &mut Registry, views: &[&MigrationView]) {
    of_paths(registry, views);
    states_of_paths(registry, views);
    of_nics(registry, views);
    states(registry, views);
    of_lanes(registry, views);
    of_channels(registry, views);
}

/// A name, what it is, and its value where there is one.
type Read<Of, Value> = (&'static str, &'static str, fn(&Of) -> Option<Value>);

const PATHS: [Read<PathView, f64>; 6] = [
    ("path_lanes", "Lanes that carry", |path| {
        let up = path.lanes.iter().filter(|lane| is_up(lane));
        u32::try_from(up.count()).ok().map(f64::from)
    }),
    (
        "path_rate_bytes_per_second",
        "Payload over the path, lately",
        |path| Some(number(path.traffic.rate.0)),
    ),
    (
        "path_limit_bytes_per_second",
        "The most payload that the source sends on the path",
        |path| path.limit.map(|limit| number(limit.0)),
    ),
    (
        "path_round_trip_seconds",
        "Longest round trip of its lanes",
        |path| {
            let trips = path.lanes.iter().filter(|lane| is_up(lane));
            let longest = trips.filter_map(|lane| lane.round_trip_us).max();
            longest.map(seconds)
        },
    ),
    (
        "path_in_flight_bytes",
        "Payload on its way on its lanes",
        |path| Some(number(path.lanes.iter().map(|l| l.in_flight_bytes.0).sum())),
    ),
    (
        "path_credit_bytes",
        "Payload that may be on its way on its lanes",
        |path| {
            let up = path.lanes.iter().filter(|lane| is_up(lane));
            Some(number(up.map(|lane| lane.credit_bytes.0).sum()))
        },
    ),
];

const PATH_COUNTS: [Read<PathView, u64>; 6] = [
    (
        "path_sent_bytes",
        "Payload sent for the first time",
        |path| Some(path.traffic.sent_bytes.0),
    ),
    ("path_resent_bytes", "Payload sent again", |path| {
        Some(path.traffic.resent_bytes.0)
    }),
    ("path_received_bytes", "Payload received", |path| {
        Some(path.traffic.received_bytes.0)
    }),
    (
        "path_protocol_bytes",
        "Headers, checkpoints and receipts sent",
        |path| Some(path.traffic.protocol_bytes.0),
    ),
    (
        "path_suspicions",
        "Times that one of its lanes was silent for longer than usual",
        |path| Some(path.suspicions),
    ),
    (
        "path_retransmitted_segments",
        "Segments that TCP sent again on its lanes",
        |path| Some(path.retransmits),
    ),
];

const LANES: [Read<LaneView, f64>; 5] = [
    (
        "lane_rate_bytes_per_second",
        "Payload over the lane, lately",
        |lane| Some(number(lane.traffic.rate.0)),
    ),
    (
        "lane_round_trip_seconds",
        "Smoothed time from handing a frame to the lane to the receipt",
        |lane| lane.round_trip_us.map(seconds),
    ),
    (
        "lane_tcp_round_trip_seconds",
        "Smoothed round trip of a segment, as the kernel knows it",
        |lane| lane.tcp.map(|tcp| seconds(tcp.round_trip_us)),
    ),
    (
        "lane_in_flight_bytes",
        "Payload on its way on the lane",
        |lane| Some(number(lane.in_flight_bytes.0)),
    ),
    (
        "lane_credit_bytes",
        "Payload that may be on its way on the lane",
        |lane| Some(number(lane.credit_bytes.0)),
    ),
];

const LANE_COUNTS: [Read<LaneView, u64>; 6] = [
    (
        "lane_sent_bytes",
        "Payload sent for the first time",
        |lane| Some(lane.traffic.sent_bytes.0),
    ),
    ("lane_resent_bytes", "Payload sent again", |lane| {
        Some(lane.traffic.resent_bytes.0)
    }),
    ("lane_received_bytes", "Payload received", |lane| {
        Some(lane.traffic.received_bytes.0)
    }),
    (
        "lane_protocol_bytes",
        "Headers, checkpoints and receipts sent",
        |lane| Some(lane.traffic.protocol_bytes.0),
    ),
    (
        "lane_retransmitted_segments",
        "Segments that TCP sent again",
        |lane| lane.tcp.map(|tcp| tcp.retransmits.into()),
    ),
    (
        "lane_suspicions",
        "Times that the lane was silent for longer than usual",
        |lane| Some(lane.suspicions.into()),
    ),
];

const CHANNELS: [Read<ChannelView, u64>; 4] = [
    ("channel_read_bytes", "Bytes read from QEMU", |channel| {
        Some(channel.read_bytes.0)
    }),
    (
        "channel_confirmed_bytes",
        "Of these, bytes that the other host's QEMU took",
        |channel| Some(channel.confirmed_bytes.0),
    ),
    (
        "channel_written_bytes",
        "Bytes written to QEMU",
        |channel| Some(channel.written_bytes.0),
    ),
    (
        "channel_resent_bytes",
        "Bytes given to a lane again because the one before was lost or late",
        |channel| Some(channel.resent_bytes.0),
    ),
];

fn seconds(us: u64) -> f64 {
    number(us) / 1e6
}

fn is_up(lane: &LaneView) -> bool {
    lane.state == LaneState::Up
}

/// Whether it has a connection.
fn is_open(lane: &LaneView) -> bool {
    matches!(lane.state, LaneState::Up | LaneState::Suspect)
}

fn paths<'a>(
    views: &[&'a MigrationView],
) -> impl Iterator<Item = (&'a MigrationView, &'a PathView)> {
    let of = |view: &'a MigrationView| view.paths.iter().map(move |path| (view, path));
    views.iter().copied().flat_map(of)
}

fn of_paths(registry: &mut Registry, views: &[&MigrationView]) {
    let paths = || paths(views);
    for (name, help, read) in PATHS {
        let family: Family<OnPath, Number> = Family::default();
        for (view, path) in paths() {
            if let Some(value) = read(path) {
                family.get_or_create(&on_path(view, path)).set(value);
            }
        }
        registry.register(name, help, family);
    }
    for (name, help, read) in PATH_COUNTS {
        let family: Family<OnPath, Counter> = Family::default();
        for (view, path) in paths() {
            let count = read(path).unwrap_or_default();
            family.get_or_create(&on_path(view, path)).inc_by(count);
        }
        registry.register(name, help, family);
    }
}

/// Where it is known, which is at the source.
fn states_of_paths(registry: &mut Registry, views: &[&MigrationView]) {
    let family: Family<PathIs, Gauge> = Family::default();
    for (view, path) in paths(views) {
        let Some(state) = path.state else { continue };
        let OnPath {
            vm,
            role,
            path,
            nic,
            peer_nic,
        } = on_path(view, path);
        let labels = PathIs {
            vm,
            role,
            path,
            nic,
            peer_nic,
            state: word(&state),
        };
        family.get_or_create(&labels).set(1);
    }
    registry.register("path_state", "Paths, each with its state: 1", family);
}

/// Of all migrations over an interface together.
fn of_nics(registry: &mut Registry, views: &[&MigrationView]) {
    let trips: Family<OfNic, Number> = Family::default();
    let credit: Family<OfNic, Number> = Family::default();
    for view in views {
        for nic in &view.nics {
            let labels = OfNic {
                nic: nic.interface.clone(),
            };
            credit
                .get_or_create(&labels)
                .inc_by(number(nic.credit_bytes.0));
            if let Some(trip) = nic.round_trip_us {
                let longest = trips.get_or_create(&labels);
                longest.set(seconds(trip).max(longest.get()));
            }
        }
    }
    registry.register(
        "nic_round_trip_seconds",
        "Longest round trip of the lanes over an interface",
        trips,
    );
    registry.register(
        "nic_credit_bytes",
        "Payload that may be on its way on the lanes over an interface",
        credit,
    );
}

fn lanes<'a>(views: &'a [&'a MigrationView]) -> impl Iterator<Item = (OnLane, &'a LaneView)> + 'a {
    views.iter().flat_map(|view| {
        view.paths.iter().flat_map(move |path| {
            let labels = move |lane: &LaneView| OnLane {
                vm: view.vm.to_string(),
                role: role(view.role),
                path: path.path.id.0,
                nic: near_interface(view.role, path).to_owned(),
                lane: lane.id,
            };
            path.lanes.iter().map(move |lane| (labels(lane), lane))
        })
    })
}

/// Of those that are gone, too, as long as they are shown.
fn states(registry: &mut Registry, views: &[&MigrationView]) {
    let family: Family<LaneIs, Gauge> = Family::default();
    for (labels, view) in lanes(views) {
        let OnLane {
            vm,
            role,
            path,
            nic,
            lane,
        } = labels;
        let labels = LaneIs {
            vm,
            role,
            path,
            nic,
            lane,
            state: word(&view.state),
        };
        family.get_or_create(&labels).set(1);
    }
    registry.register("lane_state", "Lanes, each with its state: 1", family);
}

fn of_lanes(registry: &mut Registry, views: &[&MigrationView]) {
    let open = || lanes(views).filter(|(_, lane)| is_open(lane));
    for (name, help, read) in LANES {
        let family: Family<OnLane, Number> = Family::default();
        for (labels, lane) in open() {
            if let Some(value) = read(lane) {
                family.get_or_create(&labels).set(value);
            }
        }
        registry.register(name, help, family);
    }
    for (name, help, read) in LANE_COUNTS {
        let family: Family<OnLane, Counter> = Family::default();
        for (labels, lane) in open() {
            if let Some(count) = read(lane) {
                family.get_or_create(&labels).inc_by(count);
            }
        }
        registry.register(name, help, family);
    }
}

fn of_channels(registry: &mut Registry, views: &[&MigrationView]) {
    for (name, help, read) in CHANNELS {
        let family: Family<OfChannel, Counter> = Family::default();
        for view in views {
            for channel in &view.channel_traffic {
                let labels = OfChannel {
                    vm: view.vm.to_string(),
                    role: role(view.role),
                    channel: channel.id,
                };
                let count = read(channel).unwrap_or_default();
                family.get_or_create(&labels).inc_by(count);
            }
        }
        registry.register(name, help, family);
    }
}

fn on_path(view: &MigrationView, path: &PathView) -> OnPath {
    let far = match view.role {
        MigrationRole::Source => &path.path.destination,
        MigrationRole::Destination => &path.path.source,
    };
    OnPath {
        vm: view.vm.to_string(),
        role: role(view.role),
        path: path.path.id.0,
        nic: near_interface(view.role, path).to_owned(),
        peer_nic: far.interface.clone(),
    }
}
