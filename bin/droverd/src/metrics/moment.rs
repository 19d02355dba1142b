//! What is true at the moment of a scrape.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use drover_api::{
    LimitScope, LimitView, MemoryView, MigrationRole, MigrationView, VmState, VmView,
};
use drover_relay::Cause;
use drover_types::{Bytes, HostName};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use serde::Serialize;

use super::runs::{self, RunUnderWay};
use super::{carried, libvirt, reduction, role};
use crate::libvirt::Seen;

pub(super) type Number = Gauge<f64, AtomicU64>;

/// What a scrape shows beside the counters.
#[derive(Debug)]
pub struct Moment {
    /// This host.
    pub host: HostName,
    /// Its memory, where the kernel told it.
    pub memory: Option<MemoryView>,
    /// The end of its certificate, in a cluster.
    pub certificate: Option<SystemTime>,
    /// The agent's own guests.
    pub guests: Vec<VmView>,
    /// Its libvirt.
    pub libvirt: Seen,
    /// Migrations; those that have ended are passed over.
    pub migrations: Vec<MigrationView>,
    /// Limits on what they may carry.
    pub limits: Vec<LimitView>,
    /// Connections to the port for lanes that became none.
    pub lanes_refused: BTreeMap<Cause, u64>,
    /// Memory that pages take which arriving guests share.
    pub shared_pages: Bytes,
    /// What checkpoints take of the disk.
    pub checkpoints: Bytes,
    /// The run that this host carries out.
    pub run: Option<RunUnderWay>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Guests {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Moving {
    pub(super) vm: String,
    pub(super) role: &'static str,
    pub(super) peer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    vm: String,
    role: &'static str,
    peer: String,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Protected {
    vm: String,
    role: &'static str,
    peer: String,
    encryption: &'static str,
    verify: &'static str,
    data_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNic {
    nic: String,
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
        let shared: Number = Gauge::default();
        shared.set(number(self.shared_pages.0));
        registry.register(
            "shared_pages_bytes",
            "Memory of pages that arriving guests share",
            shared,
        );
        let checkpoints: Number = Gauge::default();
        checkpoints.set(number(self.checkpoints.0));
        registry.register(
            "checkpoints_bytes",
            "Disk space of pages that are kept of guests which left",
            checkpoints,
        );
        self.guests(&mut registry);
        libvirt::register(&mut registry, &self.libvirt);
        self.limits(&mut registry);
        self.lanes_refused(&mut registry);
        runs::under_way(&mut registry, self.run);
        let under_way: Vec<_> = self
            .migrations
            .iter()
            .filter(|view| !view.phase.has_ended())
            .collect();
        phases(&mut registry, &under_way);
        of_migrations(&mut registry, &under_way);
        protections(&mut registry, &under_way);
        reduction::register(&mut registry, &under_way);
        relays(&mut registry, &under_way);
        carried::register(&mut registry, &under_way);
        registry
    }

    fn limits(&self, registry: &mut Registry) {
        let nics: Family<OfNic, Number> = Family::default();
        for limit in &self.limits {
            let Some(rate) = limit.bits_per_second else {
                continue;
            };
            let bytes = number(rate.0) / 8.0;
            match &limit.scope {
                LimitScope::Host => {
                    let host: Number = Gauge::default();
                    host.set(bytes);
                    registry.register(
                        "host_limit_bytes_per_second",
                        "The most payload in each direction, over all interfaces together",
                        host,
                    );
                }
                LimitScope::Nic { nic } => {
                    let labels = OfNic { nic: nic.clone() };
                    nics.get_or_create(&labels).set(bytes);
                }
                // Shown with the migration.
                LimitScope::Migration { .. } => {}
            }
        }
        registry.register(
            "nic_limit_bytes_per_second",
            "The most payload in each direction over an interface",
            nics,
        );
    }

    fn lanes_refused(&self, registry: &mut Registry) {
        let family: Family<Reason, Counter> = Family::default();
        // A scrape before the first refusal tells that there was none.
        for cause in Cause::ALL {
            let count = self.lanes_refused.get(&cause).copied().unwrap_or_default();
            let reason = cause.word();
            family.get_or_create(&Reason { reason }).inc_by(count);
        }
        registry.register(
            "lanes_refused",
            "Connections to the port for lanes that became none",
            family,
        );
    }

    fn guests(&self, registry: &mut Registry) {
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        // Zero is worth telling of the states that matter, so that an alarm sees it.
        for state in [VmState::Running, VmState::Failed, VmState::Unreachable] {
            counts.insert(word(&state), 0);
        }
        for guest in &self.guests {
            *counts.entry(word(&guest.state)).or_default() += 1;
        }
        let family: Family<Guests, Gauge> = Family::default();
        for (state, count) in counts {
            family.get_or_create(&Guests { state }).set(count);
        }
        registry.register("guests", "Guests of this host", family);
    }
}

/// As it is in JSON.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes beyond 2^53 are nobody's")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

pub(super) fn labels(view: &MigrationView) -> Moving {
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

const OF_MIGRATIONS: [(&str, &str, OfMigration); 12] = [
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
    (
        "migration_throttled_ratio",
        "Part of its time that the guest stands still so that the migration ends",
        |view| {
            view.throttle_percent
                .map(|percent| f64::from(percent) / 100.0)
        },
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
        "migration_limit_bytes_per_second",
        "The most payload that the source sends on all paths together",
        |view| view.limit.map(|limit| number(limit.0)),
    ),
    (
        "migration_hedged_chunks",
        "Chunks sent on a second lane because the first was late",
        |view| Some(number(view.hedged_chunks)),
    ),
    (
        "migration_cpu_latency_seconds",
        "The longest that this host's processors may take to wake while it is carried",
        |view| {
            let held = view.cpu_latency.as_ref()?.held_us?;
            Some(f64::from(held) / 1_000_000.0)
        },
    ),
    (
        "migration_moved_interrupts",
        "Interrupts of this host's NICs that are taken near these while it is carried, and were not before",
        |view| {
            let moved = view.interrupts.iter().map(|nic| number(nic.moved));
            moved.reduce(|all, moved| all + moved)
        },
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
    for (name, help, count) in COUNTS_OF_MIGRATIONS {
        let family: Family<Moving, Counter> = Family::default();
        for view in views {
            family.get_or_create(&labels(view)).inc_by(count(view));
        }
        registry.register(name, help, family);
    }
}

type CountOfMigration = fn(&MigrationView) -> u64;

const COUNTS_OF_MIGRATIONS: [(&str, &str, CountOfMigration); 4] = [
    (
        "migration_sent_bytes",
        "Payload sent for the first time",
        |view| view.traffic.sent_bytes.0,
    ),
    ("migration_resent_bytes", "Payload sent again", |view| {
        view.traffic.resent_bytes.0
    }),
    ("migration_received_bytes", "Payload received", |view| {
        view.traffic.received_bytes.0
    }),
    (
        "migration_protocol_bytes",
        "Headers, checkpoints and receipts sent",
        |view| view.traffic.protocol_bytes.0,
    ),
];

fn protections(registry: &mut Registry, views: &[&MigrationView]) {
    let family: Family<Protected, Gauge> = Family::default();
    for view in views {
        let (Some(encryption), Some(data_path)) = (view.encryption, &view.data_path) else {
            continue;
        };
        let Moving { vm, role, peer } = labels(view);
        let labels = Protected {
            vm,
            role,
            peer,
            encryption: encryption.as_str(),
            verify: if view.verify { "on" } else { "off" },
            data_path: word(&data_path.kind),
        };
        family.get_or_create(&labels).set(1);
    }
    registry.register(
        "migration_protection",
        "What protects lanes, and the bytes' way through the relay: 1",
        family,
    );
}

fn relays(registry: &mut Registry, views: &[&MigrationView]) {
    let memory: Family<Moving, Number> = Family::default();
    let cpu: Family<Moving, Counter<f64, AtomicU64>> = Family::default();
    for view in views {
        if let Some(relay) = view.relay {
            let labels = labels(view);
            let resident = number(relay.resident_bytes.0);
            memory.get_or_create(&labels).set(resident);
            cpu.get_or_create(&labels)
                .inc_by(number(relay.cpu_ms) / 1000.0);
        }
    }
    registry.register(
        "relay_resident_bytes",
        "Memory in RAM of the process that carries it",
        memory,
    );
    registry.register(
        "relay_cpu_seconds",
        "CPU time of the process that carries it",
        cpu,
    );
}
