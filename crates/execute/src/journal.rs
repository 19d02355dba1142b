//! What a run writes down before it does it, and what it learned. Replayed, it is the run.

use std::collections::BTreeSet;

use drover_plan::plan::{Expected, Then};
use drover_plan::{Account, Digest, Request, Text};
use drover_types::{BitRate, Bytes, HostName, MigrationId, ParkId, RunId, VmName};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970, by the clock of whoever wrote them: to be shown, not to be reckoned with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

/// One entry of a run's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// The run was asked for.
    Began(Began),
    /// A host takes no guests now.
    Cordoned {
        /// The host.
        host: HostName,
        /// It took none before the run either.
        before: bool,
    },
    /// A host takes guests now.
    Uncordoned {
        /// The host.
        host: HostName,
    },
    /// A part of a round's plan; it counts when its [`Entry::Round`] is there. The first one begins the
    /// plan anew, where a coordinator ended in the middle of writing it.
    Part(Part),
    /// A round's plan is whole.
    Round {
        /// From 1.
        round: u32,
        /// Its parts.
        parts: u32,
        /// Migrations in the cluster at once.
        at_once: u32,
        /// What the plan expects to take.
        expected: Option<Expected>,
    },
    /// There is no plan for a round.
    NoPlan {
        /// From 1.
        round: u32,
        /// Why.
        why: Account,
    },
    /// A move is about to be ordered.
    Ordered {
        /// The move.
        number: u32,
        /// The id that its migration has.
        migration: MigrationId,
        /// When.
        at: UnixMillis,
    },
    /// A move that was not ordered is not to begin, by what has changed since it was planned.
    KeptBack {
        /// The move.
        number: u32,
        /// Why.
        why: Text,
        /// When.
        at: UnixMillis,
    },
    /// A move has ended.
    Ended {
        /// The move.
        number: u32,
        /// How.
        outcome: Outcome,
        /// When.
        at: UnixMillis,
    },
    /// A guest that cannot move is about to be parked.
    Parking(Parking),
    /// An order to park a guest is over.
    Parked {
        /// The order, from 1 in the run.
        number: u32,
        /// How.
        outcome: ParkOutcome,
        /// When.
        at: UnixMillis,
    },
    /// A guest that an earlier run parked is about to be run again.
    Unparking {
        /// Its place in [`Began::parked`], from 1.
        number: u32,
        /// The id of the order to run it: called back, it never begins.
        start: ParkId,
        /// When.
        at: UnixMillis,
    },
    /// A guest that an earlier run parked was run again, or was not.
    Unparked {
        /// Its place in [`Began::parked`], from 1.
        number: u32,
        /// How.
        outcome: UnparkOutcome,
        /// When.
        at: UnixMillis,
    },
    /// Moves of a round that have not begun will not.
    RoundEnded {
        /// From 1.
        round: u32,
    },
    /// An operator ends the run.
    CancelAsked(Cancel),
    /// The run is over.
    Finished {
        /// How.
        result: RunResult,
        /// Why not as wanted.
        why: Option<Account>,
        /// When.
        at: UnixMillis,
    },
}

/// What a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// Its id.
    pub run: RunId,
    /// What is wanted.
    pub request: Request,
    /// The seal of the one plan that may be carried out, in a single round, where the operator gave one.
    pub exactly: Option<Digest>,
    /// Guests that earlier runs parked on the host that is resumed, in the order in which they run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<ParkedGuest>,
    /// Who asked.
    pub by: Text,
    /// When.
    pub at: UnixMillis,
}

/// A part of a round's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// From 1.
    pub round: u32,
    /// Which part of the round's plan it is, from 1.
    pub part: u32,
    /// Moves, in the plan's order.
    pub moves: Vec<Move>,
    /// Guests that are not moved.
    pub left: Vec<Left>,
    /// What hosts that take part can do.
    pub hosts: Vec<HostPace>,
}

/// One move as a plan has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// From 1; see [`drover_plan::plan::Step::wave`].
    pub wave: u32,
    /// The guest.
    pub vm: VmName,
    /// Where it is.
    pub from: HostName,
    /// Where it goes.
    pub to: HostName,
    /// The memory that it takes.
    pub memory: Bytes,
    /// Its disks are copied with it, as its plan says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_disks: bool,
}

/// A guest that a run leaves where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The guest.
    pub vm: VmName,
    /// Where it is.
    pub host: HostName,
    /// Why.
    pub why: Text,
    /// What becomes of it.
    pub then: Then,
}

/// How many migrations a host takes part in at once, and what its lines carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPace {
    /// The host.
    pub host: HostName,
    /// Migrations to it at once.
    pub inbound: u32,
    /// Migrations from it at once.
    pub outbound: u32,
    /// What its NICs for migrations carry together, by what they say.
    pub line: BitRate,
}

/// How a move ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// The destination has the guest, and the source has it no more.
    Moved {
        /// What an operator should know of it.
        note: Option<Text>,
    },
    /// The guest is where it was.
    Failed {
        /// Why.
        why: Text,
        /// What that says of another try.
        blame: Blame,
    },
    /// The run was cancelled, and the guest is where it was.
    Cancelled,
    /// Somebody has to look where the guest is.
    Unknown {
        /// What is known.
        why: Text,
    },
}

/// What a failure says of another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// Not there again.
    Destination,
    /// It may work a moment later, there as well.
    Moment,
    /// The guest is not tried again: it cannot be moved, or somebody does not want it.
    Guest,
}

/// How a guest is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParkHow {
    /// It is shut down.
    Stop,
    /// Its state is saved to its host's disk.
    Suspend,
}

impl ParkHow {
    /// What a plan wants of a guest that cannot move; none where that is left in memory.
    #[must_use]
    pub fn of(then: Then) -> Option<Self> {
        match then {
            Then::Stopped => Some(Self::Stop),
            Then::Suspended => Some(Self::Suspend),
            Then::Blocks | Then::RunsOn | Then::NotHome => None,
        }
    }
}

/// An order to park a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parking {
    /// From 1 in the run.
    pub number: u32,
    /// Its id: an agent that knows it carries it out once.
    pub park: ParkId,
    /// The guest.
    pub vm: VmName,
    /// Its host.
    pub host: HostName,
    /// How.
    pub how: ParkHow,
    /// Why it does not move.
    pub why: Text,
    /// When.
    pub at: UnixMillis,
}

/// A guest that a run parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedGuest {
    /// The order that parked it.
    pub park: ParkId,
    /// The guest.
    pub vm: VmName,
    /// How.
    pub how: ParkHow,
}

/// How an order to park a guest ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ParkOutcome {
    /// It is parked.
    Parked,
    /// It was left as it was.
    Kept {
        /// Why.
        why: Text,
    },
    /// The run was cancelled before its agent had heard of it.
    Cancelled,
    /// Somebody has to look whether it runs.
    Unknown {
        /// What is known.
        why: Text,
    },
}

/// What became of a guest that was to run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum UnparkOutcome {
    /// It runs.
    Runs,
    /// It is parked still.
    Failed {
        /// Why.
        why: Text,
    },
    /// There is nothing to be done: somebody has started, stopped or moved it since.
    Settled {
        /// What is known.
        why: Text,
    },
}

/// How an operator ends a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// What happens to moves that are under way.
    pub running: Running,
    /// Whether hosts that were cordoned for the run take guests again.
    pub uncordon: bool,
    /// Who asked.
    pub by: Text,
    /// When.
    pub at: UnixMillis,
}

/// What a cancel does to moves that are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Running {
    /// They are cancelled, as long as that can be done; the guests stay.
    Cancel,
    /// They are finished.
    Finish,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunResult {
    /// As wanted.
    Completed,
    /// Some guests are not where they should be.
    Partial,
    /// There was no plan; nothing was moved.
    Refused,
    /// An operator ended it.
    Cancelled,
}

/// The hosts that a request is about to empty.
pub(crate) fn drained(request: &Request) -> BTreeSet<HostName> {
    match request {
        Request::Drain { hosts, .. } => hosts.clone(),
        Request::Resume { .. } | Request::Rebalance { .. } => BTreeSet::new(),
    }
}
