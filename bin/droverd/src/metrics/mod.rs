//! What the agent counts for Prometheus; docs/METRICS.md explains each.
//!
//! Counters are kept here and only grow. What is true at the moment, of migrations under way and
//! guests, is put together for each scrape from what is shown, so that nothing of a migration
//! stays when it has ended.
//!
//! # Invariant
//! Labels are bounded: hosts, interfaces, directions, words of closed lists, and names of guests
//! that migrate at the moment.

mod carried;
mod libvirt;
mod moment;
mod reduction;
mod runs;
mod server;

use std::fmt;
use std::time::Duration;

use drover_api::{ErrorCode, MigrationPhase, MigrationRole, MigrationView, TrafficView};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use moment::Moment;
pub use runs::{RunEnd, RunUnderWay};
pub use server::serve;

/// The media type of a scrape's answer.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Nic {
    nic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NicDirection {
    nic: String,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotLetIn {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotDone {
    caller: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    role: &'static str,
    outcome: &'static str,
}

/// How migrations end.
const ENDS: [(&str, &str); 8] = [
    ("source", "completed"),
    ("source", "failed"),
    ("source", "cancelled"),
    ("source", "refused"),
    ("source", "given-up"),
    ("destination", "completed"),
    ("destination", "failed"),
    ("destination", "abandoned"),
];

/// Trouble with the lanes on one interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Lanes that were lost.
    pub lost: u64,
    /// Times that one was silent for longer than usual.
    pub suspected: u64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
}

impl Trouble {
    /// What came since `before`.
    #[must_use]
    pub fn beyond(self, before: Self) -> Self {
        Self {
            lost: self.lost.saturating_sub(before.lost),
            suspected: self.suspected.saturating_sub(before.suspected),
            retransmits: self.retransmits.saturating_sub(before.retransmits),
        }
    }
}

/// Everything that only grows.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    payload: Family<NicDirection, Counter>,
    resent: Family<Nic, Counter>,
    protocol: Family<Nic, Counter>,
    lost: Family<Nic, Counter>,
    suspected: Family<Nic, Counter>,
    retransmitted: Family<Nic, Counter>,
    outages: Counter,
    refused_connections: Family<NotLetIn, Counter>,
    refused_requests: Family<NotDone, Counter>,
    ended: Family<Ended, Counter>,
    moved: Family<Ended, Counter>,
    duration: Family<Ended, Histogram, fn() -> Histogram>,
    downtime: Histogram,
    runs: runs::Runs,
}

/// From a tenth of a second to an hour.
fn durations() -> Histogram {
    Histogram::new([
        0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0,
    ])
}

/// From a millisecond to half a minute.
fn downtimes() -> Histogram {
    Histogram::new([
        0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0,
    ])
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut own = Self {
            registry: Registry::with_prefix("drover"),
            payload: Family::default(),
            resent: Family::default(),
            protocol: Family::default(),
            lost: Family::default(),
            suspected: Family::default(),
            retransmitted: Family::default(),
            outages: Counter::default(),
            refused_connections: Family::default(),
            refused_requests: Family::default(),
            ended: Family::default(),
            moved: Family::default(),
            duration: Family::new_with_constructor(durations as fn() -> Histogram),
            downtime: downtimes(),
            runs: runs::Runs::default(),
        };
        own.register();
        own.runs.register(&mut own.registry);
        // A counter that appears with its first event hides that event from `rate()`.
        for (role, outcome) in ENDS {
            let labels = Ended { role, outcome };
            drop(own.ended.get_or_create(&labels));
            drop(own.moved.get_or_create(&labels));
        }
        own
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "nic_payload_bytes",
            "Payload of migrations carried for the first time",
            self.payload.clone(),
        );
        registry.register(
            "nic_resent_bytes",
            "Payload sent again because a lane was lost or late",
            self.resent.clone(),
        );
        registry.register(
            "nic_protocol_bytes",
            "Headers, checkpoints and receipts sent",
            self.protocol.clone(),
        );
        registry.register("nic_lost_lanes", "Lanes lost", self.lost.clone());
        registry.register(
            "nic_suspected_lanes",
            "Times that a lane was silent for longer than usual",
            self.suspected.clone(),
        );
        registry.register(
            "nic_retransmitted_segments",
            "Segments of lanes that TCP sent again",
            self.retransmitted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections of other machines to the API that were not let in",
            self.refused_connections.clone(),
        );
        registry.register(
            "requests_refused",
            "Requests to the API that were not carried out",
            self.refused_requests.clone(),
        );
        registry.register(
            "session_outages",
            "Times that a session had no lane at all",
            self.outages.clone(),
        );
        registry.register(
            "migrations",
            "Migrations that have ended",
            self.ended.clone(),
        );
        registry.register(
            "migration_moved_bytes",
            "Bytes that QEMU sent or took in migrations that have ended",
            self.moved.clone(),
        );
        registry.register(
            "migration_duration_seconds",
            "From the request to the end of a migration",
            self.duration.clone(),
        );
        registry.register(
            "migration_downtime_seconds",
            "From a guest's stop on this host until it ran on the other",
            self.downtime.clone(),
        );
    }

    /// An interface carried this much more.
    pub fn carried(&self, nic: &str, more: &TrafficView) {
        let nic = || nic.to_owned();
        for (direction, bytes) in [("out", more.sent_bytes), ("in", more.received_bytes)] {
            let labels = NicDirection {
                nic: nic(),
                direction,
            };
            self.payload.get_or_create(&labels).inc_by(bytes.0);
        }
        let labels = Nic { nic: nic() };
        let (resent, protocol) = (more.resent_bytes.0, more.protocol_bytes.0);
        self.resent.get_or_create(&labels).inc_by(resent);
        self.protocol.get_or_create(&labels).inc_by(protocol);
    }

    /// There was this much more trouble with lanes on an interface.
    pub fn troubled(&self, nic: &str, more: Trouble) {
        let nic = Nic {
            nic: nic.to_owned(),
        };
        self.lost.get_or_create(&nic).inc_by(more.lost);
        self.suspected.get_or_create(&nic).inc_by(more.suspected);
        let segments = self.retransmitted.get_or_create(&nic);
        segments.inc_by(more.retransmits);
    }

    /// A connection of another machine was not let in. `reason` is of a closed list.
    pub fn connection_refused(&self, reason: &'static str) {
        let labels = NotLetIn { reason };
        self.refused_connections.get_or_create(&labels).inc();
    }

    /// A request was not carried out. `caller` is of a closed list.
    pub fn request_refused(&self, caller: &'static str, code: ErrorCode) {
        let code = code.as_str();
        let labels = NotDone { caller, code };
        self.refused_requests.get_or_create(&labels).inc();
    }

    /// A session had no lane this many times more.
    pub fn outages(&self, more: u64) {
        self.outages.inc_by(more);
    }

    /// A migration has ended.
    pub fn ended(&self, view: &MigrationView) {
        let labels = Ended {
            role: role(view.role),
            outcome: outcome(view.phase),
        };
        self.ended.get_or_create(&labels).inc();
        let moved = view.moved_bytes();
        self.moved.get_or_create(&labels).inc_by(moved.0);
        if let Some(end) = view.ended_at {
            let lasted = end.duration_since(view.started_at).as_secs_f64().max(0.0);
            self.duration.get_or_create(&labels).observe(lasted);
        }
        if let Some(ms) = view.downtime_ms {
            self.downtime
                .observe(Duration::from_millis(ms).as_secs_f64());
        }
    }

    /// This host wrote down that a run has ended.
    pub fn run_ended(&self, run: &RunEnd) {
        self.runs.ended(run);
    }

    /// Everything, with what is true at the moment, as Prometheus reads it.
    ///
    /// # Errors
    /// Never in practice: it is written to memory.
    pub fn text(&self, moment: &Moment) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.registry)?;
        text::encode_registry(&mut out, &moment.registry())?;
        text::encode_eof(&mut out)?;
        Ok(out)
    }
}

fn role(role: MigrationRole) -> &'static str {
    match role {
        MigrationRole::Source => "source",
        MigrationRole::Destination => "destination",
    }
}

/// The word for how a migration ended; the same for both sides where both may say so.
fn outcome(phase: MigrationPhase) -> &'static str {
    match phase {
        MigrationPhase::Completed | MigrationPhase::Running => "completed",
        MigrationPhase::Cancelled => "cancelled",
        MigrationPhase::Refused => "refused",
        MigrationPhase::Abandoned => "abandoned",
        MigrationPhase::GivenUp => "given-up",
        MigrationPhase::CutOff => "cut-off",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests;
