//! What is true at the moment of a scrape.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use drover_api::{
    LaneState, LaneView, MemoryView, MigrationRole, MigrationView, PathView, VmState, VmView,
};
use drover_types::HostName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::role;

type Number = Gauge<f64, AtomicU64>;

/// What a scrape shows beside the counters.
#[derive(Debug)]
pub struct Moment {
    /// This host.
    pub host: HostName,
    /// Its memory, where the kernel told it.
    pub memory: Option<MemoryView>,
    /// The end of its certificate, in a cluster.
    pub certificate: Option<SystemTime>,
    /// Its guests.
    pub guests: Vec<VmView>,
    /// Migrations; those that have ended are passed over.
    pub migrations: Vec<MigrationView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Guests {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Moving {
    vm: String,
    role: &'static str,
    peer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    vm: String,
    role: &'static str,
    peer: String,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnPath {
    vm: String,
    role: &'static str,
    path: u16,
    nic: String,
    peer_nic: String,
}

impl Moment {
    /// As metrics.
    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("drover");
        registry.register(
            "agent",
            "The agent",
            Info::new([
                ("host", self.host.to_string()),
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ]),
        );
        if let Some(memory) = self.memory {
            let available: Number = Gauge::default();
            available.set(number(memory.available.0));
            registry.register(
                "host_memory_available_bytes",
                "Memory that can be used without swapping",
                available,
            );
        }
        let end = self
            .certificate
            .and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
        if let Some(end) = end {
            let until: Number = Gauge::default();
            until.set(number(end.as_secs()));
            registry.register(
                "certificate_end_timestamp_seconds",
                "Until when this host's certificate is good",
                until,
            );
        }
        self.guests(&mut registry);
        let under_way: Vec<_> = self
            .migrations
            .iter()
            .filter(|view| !view.phase.has_ended())
            .collect();
        phases(&mut registry, &under_way);
        of_migrations(&mut registry, &under_way);
        of_paths(&mut registry, &under_way);
        registry
    }

    fn guests(&self, registry: &mut Registry) {
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        // Zero is worth telling of the states that matter, so that an alarm sees it.
        for state in [VmState::Running, VmState::Failed, VmState::Unreachable] {
            counts.insert(word(state), 0);
        }
        for guest in &self.guests {
            *counts.entry(word(guest.state)).or_default() += 1;
        }
        let family: Family<Guests, Gauge> = Family::default();
        for (state, count) in counts {
            family.get_or_create(&Guests { state }).set(count);
        }
        registry.register("guests", "Guests of this host", family);
    }
}

fn word(state: VmState) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes beyond 2^53 are nobody's")]
fn number(value: u64) -> f64 {
    value as f64
}

fn labels(view: &MigrationView) -> Moving {
    let peer = match view.role {
        MigrationRole::Source => &view.destination,
        MigrationRole::Destination => &view.source,
    };
    Moving {
        vm: view.vm.to_string(),
        role: role(view.role),
        peer: peer.to_string(),
    }
}

fn phases(registry: &mut Registry, views: &[&MigrationView]) {
    let family: Family<Phase, Gauge> = Family::default();
    for view in views {
        let Moving { vm, role, peer } = labels(view);
        let phase = view.phase.as_str();
        let labels = Phase {
            vm,
            role,
            peer,
            phase,
        };
        family.get_or_create(&labels).set(1);
    }
    registry.register("migration_phase", "Migrations under way: 1", family);
}

type OfMigration = fn(&MigrationView) -> Option<f64>;

const OF_MIGRATIONS: [(&str, &str, OfMigration); 8] = [
    (
        "migration_memory_bytes",
        "Memory of the guest, devices' included",
        |view| Some(number(view.bytes.total.0)),
    ),
    (
        "migration_transferred_bytes",
        "Bytes that QEMU has sent or taken",
        |view| Some(number(view.bytes.transferred.0)),
    ),
    (
        "migration_remaining_bytes",
        "Bytes left in this round",
        |view| Some(number(view.bytes.remaining.0)),
    ),
    (
        "migration_rate_bytes_per_second",
        "Payload over all lanes, lately",
        |view| Some(number(view.traffic.rate.0)),
    ),
    (
        "migration_dirty_bytes_per_second",
        "Memory that the guest rewrites",
        |view| view.dirty_rate.map(|rate| number(rate.0)),
    ),
    ("migration_round", "Round of QEMU's precopy", |view| {
        Some(number(view.round))
    }),
    (
        "migration_time_left_seconds",
        "Estimate of the time until the guest runs on the destination",
        |view| view.time_left_ms.map(|ms| number(ms) / 1000.0),
    ),
    (
        "migration_hedged_chunks",
        "Chunks sent on a second lane because the first was late",
        |view| Some(number(view.hedged_chunks)),
    ),
];

fn of_migrations(registry: &mut Registry, views: &[&MigrationView]) {
    for (name, help, value) in OF_MIGRATIONS {
        let family: Family<Moving, Number> = Family::default();
        for view in views {
            if let Some(value) = value(view) {
                family.get_or_create(&labels(view)).set(value);
            }
        }
        registry.register(name, help, family);
    }
}

type OfPath = fn(&PathView) -> Option<f64>;

const OF_PATHS: [(&str, &str, OfPath); 5] = [
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
        "path_round_trip_seconds",
        "Longest round trip of its lanes",
        |path| {
            let trips = path.lanes.iter().filter(|lane| is_up(lane));
            let longest = trips.filter_map(|lane| lane.round_trip_us).max();
            longest.map(|us| number(us) / 1e6)
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

fn is_up(lane: &LaneView) -> bool {
    lane.state == LaneState::Up
}

fn of_paths(registry: &mut Registry, views: &[&MigrationView]) {
    for (name, help, value) in OF_PATHS {
        let family: Family<OnPath, Number> = Family::default();
        for view in views {
            for path in &view.paths {
                if let Some(value) = value(path) {
                    family.get_or_create(&on_path(view, path)).set(value);
                }
            }
        }
        registry.register(name, help, family);
    }
}

fn on_path(view: &MigrationView, path: &PathView) -> OnPath {
    let (source, destination) = (&path.path.source, &path.path.destination);
    let (near, far) = match view.role {
        MigrationRole::Source => (source, destination),
        MigrationRole::Destination => (destination, source),
    };
    OnPath {
        vm: view.vm.to_string(),
        role: role(view.role),
        path: path.path.id.0,
        nic: near.interface.clone(),
        peer_nic: far.interface.clone(),
    }
}
