//! Opening the lanes of a migration from this host.

use std::net::SocketAddr;
use std::thread;

use drover_lanes::{Connection, Lane, Target};
use drover_session::LaneId;
use drover_types::{MigrationId, Path, PathId};
use drover_wire::Token;
use drover_wire::limits::LANES_MAX;

use crate::limits::{CONNECT_TIMEOUT, PROBES_AT_ONCE};
use crate::{Security, open_lane};

/// Which lanes to open, and with what they are let in.
#[derive(Debug, Clone)]
pub struct Order {
    /// The migration.
    pub migration: MigrationId,
    /// The destination's secret for it.
    pub token: Token,
    /// How the lanes are protected, as both agents agreed on.
    pub security: Security,
    /// The port on which the destination accepts lanes.
    pub port: u16,
    /// The paths.
    pub paths: Vec<Path>,
    /// Lanes on each path to begin with.
    pub lanes_per_path: u16,
    /// Lanes that a path may get while more carry more; no more than to begin with: none are tried.
    pub lanes_most: u16,
}

/// One lane to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePlan {
    /// Its number.
    pub lane: LaneId,
    /// Its path.
    pub path: PathId,
    /// Its ends.
    pub target: Target,
}

/// A lane that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFailure {
    /// Its number.
    pub lane: LaneId,
    /// Its path.
    pub path: PathId,
    /// Why, for the operator.
    pub reason: String,
}

/// Why a lane could not be opened; each with the reason, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// No connection came about, so nobody heard of the lane's number.
    #[error("{0}")]
    Unreachable(String),
    /// A connection, and then no answer in time.
    #[error("{0}")]
    Silent(String),
    /// What is there turned the lane away, or is no relay.
    #[error("{0}")]
    TurnedAway(String),
}

/// What came of opening lanes.
#[derive(Debug, Default)]
pub struct Opened {
    /// Lanes that the destination took.
    pub lanes: Vec<(LanePlan, Lane)>,
    /// Lanes that could not be opened.
    pub failures: Vec<LaneFailure>,
}

impl Order {
    /// The lanes in the order in which they are numbered: the first of each path, then the second,
    /// so that whatever is opened first uses every path; at most [`LANES_MAX`].
    #[must_use]
    pub fn lanes(&self) -> Vec<LanePlan> {
        let rounds = (0..self.lanes_per_path).flat_map(|_| self.paths.iter());
        let plan = |(lane, path): (usize, &Path)| self.plan(lane as LaneId, path);
        rounds
            .take(usize::from(LANES_MAX))
            .enumerate()
            .map(plan)
            .collect()
    }

    /// A lane on a path of this session.
    #[must_use]
    pub fn plan(&self, lane: LaneId, path: &Path) -> LanePlan {
        LanePlan {
            lane,
            path: path.id,
            target: Target {
                interface: path.source.interface.clone(),
                local: path.source.address,
                remote: SocketAddr::new(path.destination.address, self.port),
                segment: None,
                patience: CONNECT_TIMEOUT,
            },
        }
    }
}

/// Which of these targets accept a connection; each is closed again at once. Blocks for at most the
/// connect timeout per [`PROBES_AT_ONCE`] targets.
#[must_use]
pub fn probe(targets: &[Target]) -> Vec<bool> {
    let mut answers = Vec::with_capacity(targets.len());
    for batch in targets.chunks(PROBES_AT_ONCE) {
        thread::scope(|scope| {
            let attempt = |target| scope.spawn(move || Connection::connect(target).is_ok());
            let attempts: Vec<_> = batch.iter().map(attempt).collect();
            answers.extend(
                attempts
                    .into_iter()
                    .map(|attempt| attempt.join().unwrap_or(false)),
            );
        });
    }
    answers
}

/// Opens all lanes at once and waits for all of them; blocks for at most the connect timeout and
/// [`crate::limits::HANDSHAKE_TIMEOUT`].
#[must_use]
pub fn open_lanes(order: &Order) -> Opened {
    let mut opened = Opened::default();
    let plans = order.lanes();
    let results: Vec<Result<Lane, NotOpened>> = thread::scope(|scope| {
        let attempt = |plan| scope.spawn(move || open_lane(order, plan));
        let attempts: Vec<_> = plans.iter().map(attempt).collect();
        let panicked = || NotOpened::TurnedAway("the attempt panicked".into());
        let joined = attempts.into_iter().map(|attempt| attempt.join());
        joined
            .map(|done| done.unwrap_or_else(|_| Err(panicked())))
            .collect()
    });
    for (plan, result) in plans.into_iter().zip(results) {
        match result {
            Ok(lane) => opened.lanes.push((plan, lane)),
            Err(error) => {
                let (lane, path, reason) = (plan.lane, plan.path, error.to_string());
                opened.failures.push(LaneFailure { lane, path, reason });
            }
        }
    }
    opened
}
