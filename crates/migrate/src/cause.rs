//! Why a migration ended as it did, in words that travel and can be stored.

use serde::{Deserialize, Serialize};

use crate::Time;
use crate::limits::{REASON_CHARS, WORD_COUNTS};

/// What somebody else gave as a reason, cut to [`REASON_CHARS`] characters on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Reason(String);

impl Reason {
    /// The reason as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        Self(text.trim().chars().take(REASON_CHARS).map(plain).collect())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        reason.0
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What ended a migration before its hand-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// The destination's agent did not answer.
    #[error("the destination's agent was not reachable: {reason}")]
    DestinationUnreachable {
        /// What the connection ended with.
        reason: Reason,
    },
    /// The destination refused a later step than the first.
    #[error("the destination could not go on: {reason}")]
    DestinationFailed {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The destination has no such guest any more.
    #[error("the destination gave the guest up: {reason}")]
    DestinationGone {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// A step took longer than its bound.
    #[error("{step} took longer than {seconds} s")]
    Deadline {
        /// The step, named.
        step: String,
        /// Its bound.
        seconds: u64,
    },
    /// No pair of interfaces reaches each other.
    #[error("no interface of this host reaches one of the destination")]
    NoPath,
    /// The session that carries the guest's state ended.
    #[error("the session between the hosts failed: {reason}")]
    SessionFailed {
        /// What the relay gave as a reason.
        reason: Reason,
    },
    /// The hypervisor refused to begin.
    #[error("the hypervisor refused to migrate: {reason}")]
    HypervisorRefused {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The hypervisor gave the migration up.
    #[error("the hypervisor failed the migration: {reason}")]
    HypervisorFailed {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The hypervisor process ended.
    #[error("the hypervisor ended: {reason}")]
    HypervisorGone {
        /// Exit status or signal, and its last words.
        reason: Reason,
    },
    /// Somebody cancelled it at the hypervisor, past the agent.
    #[error("the migration was cancelled at the hypervisor, not by this agent")]
    CancelledElsewhere,
    /// The agent ended meanwhile, and the session with it.
    #[error("the agent was started again while the migration ran")]
    AgentRestarted,
    /// The source said that it keeps the guest.
    #[error("the source keeps the guest")]
    SourceKept,
    /// An operator gave the arrived guest up, in the source's place.
    #[error("the operator gave the arrived guest up")]
    Discarded,
}

/// Who asked for a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CancelledBy {
    /// The operator, through the API.
    Operator,
    /// The agent, because it was told to stop.
    AgentStopping,
    /// The agent, because memory was not copied by the deadline.
    Deadline,
}

/// What became of the source's copy in a migration that was not handed off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeptGuest {
    /// It goes on running at the source.
    Runs,
    /// It is stopped at the source, and the agent leaves it so.
    Stopped,
    /// Its hypervisor is gone: it crashed or was shut down.
    Gone,
}

/// How a migration ended, seen from the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest runs on the destination; the source has forgotten it.
    Completed,
    /// The destination refused before anything was changed; the guest runs on the source.
    Refused {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// Cancelled before the hand-off.
    Cancelled {
        /// Who asked for it.
        by: CancelledBy,
        /// What became of the guest.
        guest: KeptGuest,
    },
    /// Failed before the hand-off.
    Failed {
        /// Why.
        cause: Cause,
        /// What became of the guest.
        guest: KeptGuest,
    },
    /// Handed off, and then lost by the destination before it ran. The source's copy stands
    /// still with its memory intact; no agent runs it.
    Lost {
        /// What the destination gave as a reason.
        reason: Reason,
    },
    /// Handed off by postcopy, and pages of the guest that had not followed are lost: it cannot go on at the
    /// destination. Its disks are as after a crash of its host.
    CutOff {
        /// How they were lost.
        reason: Reason,
    },
    /// Handed off, and then given up by an operator. The source's copy has ended, its definition is
    /// back: the guest can be started there anew.
    GivenUp {
        /// Where the operator gave it up.
        on: GivenUpOn,
    },
}

/// Where an operator gave a guest up that was handed off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GivenUpOn {
    /// On the source, while the destination did not answer.
    Source,
    /// On the destination, which has discarded its copy and says so.
    Destination,
}

/// An input that changes nothing, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A cancel or an abandon after the hand-off.
    #[error("too late: the guest was handed to the destination, only the destination may run it")]
    TooLate,
    /// The guest runs here: what the other host says cannot end it.
    #[error("the guest runs on the source")]
    RunsHere,
    /// The word that the guest was handed off was held up on its way: the source may have decided
    /// otherwise since.
    #[error("that the guest was handed off was said up to {} s ago, and counts for {} s: it has to \
             be said again", age.as_secs(), WORD_COUNTS.as_secs())]
    TooOld {
        /// How old it may be.
        age: Time,
    },
    /// Postcopy: the guest cannot run without what is still at the source.
    #[error(
        "pages of the guest are still on the source, and it cannot go on here without them: bring the \
         source's agent back, or discard the guest"
    )]
    PagesMissing,
    /// The migration has ended.
    #[error("the migration has ended already")]
    Over,
    /// A late answer, or one to a question that was not asked. Harmless; worth a debug line.
    #[error("{input} changes nothing in phase {phase}")]
    Unexpected {
        /// The phase it came in.
        phase: &'static str,
        /// The input's name.
        input: &'static str,
    },
}
