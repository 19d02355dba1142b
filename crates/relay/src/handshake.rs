//! Opening the lanes of a migration from this host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use drover_lanes::{Connection, Lane, Target};
use drover_session::LaneId;
use drover_types::{MigrationId, Path, PathId};
use drover_wire::Token;
use drover_wire::limits::LANES_MAX;

use crate::limits::{CONNECT_TIMEOUT, OPENING_GRACE, PROBES_AT_ONCE};
use crate::shared::spawn;
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
    /// Nobody refused it: an answer did not come in time.
    pub silent: bool,
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

/// Opens all lanes at once. When one is open the others have [`OPENING_GRACE`]: the destination
/// would take an open lane that nothing is heard on for a dead one. Those that are not open by then
/// are failures, to be dialled again; blocks for at most the connect timeout and
/// [`crate::limits::GREETING_PATIENCE`].
#[must_use]
pub fn open_lanes(order: &Order) -> Opened {
    let mut opened = Opened::default();
    let mut waiting: BTreeMap<LaneId, LanePlan> = BTreeMap::new();
    let (tell, answers) = channel();
    let order = Arc::new(order.clone());
    for plan in order.lanes() {
        let (order, tell, own) = (order.clone(), tell.clone(), plan.clone());
        let attempt = move || {
            let result = open_lane(&order, &own);
            // A lane that comes too late closes here.
            let _ = tell.send((own.lane, result));
        };
        match spawn("open", attempt) {
            Ok(()) => drop(waiting.insert(plan.lane, plan)),
            Err(error) => opened.failed(plan, &format!("no thread: {error}"), false),
        }
    }
    let mut until: Option<Instant> = None;
    while !waiting.is_empty() {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let answer = match left {
            Some(left) => answers.recv_timeout(left).ok(),
            None => answers.recv().ok(),
        };
        let Some((lane, result)) = answer else {
            break;
        };
        let Some(plan) = waiting.remove(&lane) else {
            continue;
        };
        match result {
            Ok(lane) => {
                opened.lanes.push((plan, lane));
                until.get_or_insert_with(|| Instant::now() + OPENING_GRACE);
            }
            Err(error) => {
                let silent = matches!(error, NotOpened::Silent(_));
                opened.failed(plan, &error.to_string(), silent);
            }
        }
    }
    for plan in waiting.into_values() {
        let (to, grace) = (plan.target.remote, OPENING_GRACE.as_millis());
        let reason = format!("{to} did not answer within {grace} ms of the first lane");
        opened.failed(plan, &reason, true);
    }
    opened.lanes.sort_by_key(|(plan, _)| plan.lane);
    opened.failures.sort_by_key(|failure| failure.lane);
    opened
}

impl Opened {
    fn failed(&mut self, plan: LanePlan, reason: &str, silent: bool) {
        self.failures.push(LaneFailure {
            lane: plan.lane,
            path: plan.path,
            reason: reason.to_owned(),
            silent,
        });
    }
}
