//! Opening the lanes of a migration from this host.

use std::net::SocketAddr;
use std::thread;

use drover_lanes::{Lane, Target};
use drover_session::LaneId;
use drover_types::{MigrationId, Path, PathId};
use drover_wire::limits::LANES_MAX;
use drover_wire::{Hello, Token, VersionRange, WELCOME_BYTES, Welcome};

use crate::limits::{HANDSHAKE_TIMEOUT, PROBES_AT_ONCE};

/// Which lanes to open, and with what they are let in.
#[derive(Debug, Clone)]
pub struct Order {
    /// The migration.
    pub migration: MigrationId,
    /// The destination's secret for it.
    pub token: Token,
    /// The port on which the destination accepts lanes.
    pub port: u16,
    /// The paths.
    pub paths: Vec<Path>,
    /// Lanes on each path.
    pub lanes_per_path: u16,
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
        let plan = |(lane, path): (usize, &Path)| LanePlan {
            lane: lane as LaneId,
            path: path.id,
            target: Target {
                interface: path.source.interface.clone(),
                local: path.source.address,
                remote: SocketAddr::new(path.destination.address, self.port),
            },
        };
        rounds
            .take(usize::from(LANES_MAX))
            .enumerate()
            .map(plan)
            .collect()
    }
}

/// Which of these targets accept a connection; each is closed again at once. Blocks for at most the
/// connect timeout per [`PROBES_AT_ONCE`] targets.
#[must_use]
pub fn probe(targets: &[Target]) -> Vec<bool> {
    let mut answers = Vec::with_capacity(targets.len());
    for batch in targets.chunks(PROBES_AT_ONCE) {
        thread::scope(|scope| {
            let attempt = |target| scope.spawn(move || Lane::connect(target).is_ok());
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
/// [`HANDSHAKE_TIMEOUT`].
#[must_use]
pub fn open_lanes(order: &Order) -> Opened {
    let mut opened = Opened::default();
    let plans = order.lanes();
    let results: Vec<Result<Lane, String>> = thread::scope(|scope| {
        let attempt = |plan| scope.spawn(move || open(order, plan));
        let attempts: Vec<_> = plans.iter().map(attempt).collect();
        let joined = attempts.into_iter().map(|attempt| attempt.join());
        joined
            .map(|done| done.unwrap_or_else(|_| Err("the attempt panicked".into())))
            .collect()
    });
    for (plan, result) in plans.into_iter().zip(results) {
        match result {
            Ok(lane) => opened.lanes.push((plan, lane)),
            Err(reason) => {
                let (lane, path) = (plan.lane, plan.path);
                opened.failures.push(LaneFailure { lane, path, reason });
            }
        }
    }
    opened
}

fn open(order: &Order, plan: &LanePlan) -> Result<Lane, String> {
    let lane = Lane::connect(&plan.target).map_err(|e| format!("{e}: {}", e.source))?;
    let peer = lane.peer();
    let hello = Hello {
        versions: VersionRange::SUPPORTED,
        migration: order.migration,
        token: order.token.clone(),
        lane: plan.lane,
        path: plan.path,
    };
    let mut answer = [0; WELCOME_BYTES];
    lane.set_receive_timeout(Some(HANDSHAKE_TIMEOUT))
        .and_then(|()| lane.send(&hello.encode(), b""))
        .and_then(|()| lane.receive(&mut answer))
        .and_then(|()| lane.set_receive_timeout(None))
        .map_err(|error| format!("{peer} did not answer as a relay does: {error}"))?;
    match Welcome::decode(&answer) {
        Ok(Welcome::Accepted(version)) if VersionRange::SUPPORTED.contains(version) => Ok(lane),
        Ok(Welcome::Accepted(version)) => Err(format!(
            "{peer} chose protocol version {version}, which was not offered"
        )),
        Ok(Welcome::Refused(code, theirs)) => Err(format!(
            "{peer} turned the lane away: {code} (it speaks version {theirs}, this agent {})",
            VersionRange::SUPPORTED
        )),
        Err(error) => Err(format!("{peer}: {error}")),
    }
}
