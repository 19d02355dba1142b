//! What can go wrong, and what is known of the write that was asked for.

use std::fmt;
use std::time::Duration;

use crate::key::{Key, Name};
use crate::leadership::Generation;
use crate::transaction::{Expect, Revision};

/// Whether what was asked for may have been done although nobody said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was not done, and will not be.
    NotDone,
    /// It may have been done, or may be done yet. Read again before deciding anything. One that
    /// expected a revision or an entry's number cannot be done any more once another one was; one
    /// that expected anything can.
    Unknown,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotDone => "nothing was written",
            Self::Unknown => "whether it was written is not known: read again before deciding",
        })
    }
}

/// Who holds a name in the place of the one whose write was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// The newer generation.
    pub generation: Generation,
    /// Its holder.
    pub holder: Name,
}

/// Why the store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A document is not as the writer expected it. Nothing of the transaction was written.
    #[error("{key} is {}, and {expected} was expected: somebody else changed it, read it again", revision_of(.found))]
    Conflict {
        /// Which document.
        key: Key,
        /// What the writer expected.
        expected: Expect,
        /// Its revision; none when it does not exist.
        found: Option<Revision>,
    },
    /// The writer's leadership has ended. Nothing of the transaction was written.
    #[error("{generation} of {name} no longer counts: {}", who(.by))]
    Fenced {
        /// What was held.
        name: Name,
        /// The writer's generation.
        generation: Generation,
        /// Who holds it now; nobody if the lease lapsed, was given up or broken.
        by: Option<Successor>,
    },
    /// A journal has as many entries as it may have.
    #[error("journal {journal} is full with {limit} entries: prune it, or end its run")]
    JournalFull {
        /// Which journal.
        journal: Name,
        /// How many entries it may have.
        limit: u64,
    },
    /// Changes after this revision are no longer remembered: list again, and watch from there.
    #[error(
        "changes after {after} are forgotten, the store remembers those after {oldest}: list again"
    )]
    Lagged {
        /// From where changes were asked for.
        after: Revision,
        /// From where they can be had.
        oldest: Revision,
    },
    /// etcd has no majority of members that hear each other, or none answers.
    #[error("etcd has no quorum: no answer that counts within {:.1} s ({detail}); {outcome}", .waited.as_secs_f64())]
    NoQuorum {
        /// How long members were asked.
        waited: Duration,
        /// What is known of the write.
        outcome: Outcome,
        /// What each member last said.
        detail: String,
    },
    /// The embedded store's file is locked by another process, or its disk does not answer.
    #[error("the store {path} did not answer: {detail}; {outcome}")]
    Unavailable {
        /// Its file.
        path: String,
        /// What is known of the write.
        outcome: Outcome,
        /// Why not.
        detail: String,
    },
    /// etcd refuses for a reason that has nothing to do with what is stored. Nothing was written.
    #[error("etcd refuses: {detail}")]
    Rejected {
        /// Its words.
        detail: String,
    },
    /// No room is left where the store keeps its data. Nothing was written.
    #[error("the store has no room left: {detail}")]
    Full {
        /// Where, and what to do.
        detail: String,
    },
    /// What was asked for goes beyond a limit or makes no sense; nobody was asked.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The store's file cannot be used as it is.
    #[error("the store {path} cannot be used: {problem}")]
    Unusable {
        /// Its file.
        path: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// What is stored or answered there is not what this version writes or understands.
    #[error("{what} cannot be understood: {problem}")]
    Unreadable {
        /// Which document or answer.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// What goes beyond a limit or makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A name that could not be told from others, or is too long.
    #[error(
        "name {name:?} is not usable: 1 to {} characters of a-z, A-Z, 0-9, '.', '_' and '-', \
         beginning with a letter or digit",
        crate::limits::NAME
    )]
    Name {
        /// The name, cut.
        name: String,
    },
    /// A value is no JSON, or cannot be written as such.
    #[error("the value is no JSON: {problem}")]
    Json {
        /// Where, and what.
        problem: String,
    },
    /// More than a limit allows.
    #[error("{what}: {found}, and at most {most} are allowed")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How much it was.
        found: u64,
        /// How much may be.
        most: u64,
    },
    /// A transaction that writes one document twice.
    #[error("the transaction writes {key} twice")]
    Twice {
        /// Which document.
        key: Key,
    },
    /// A transaction without a write.
    #[error("the transaction writes nothing")]
    Empty,
    /// Entries are counted from 1.
    #[error("a journal's entries are counted from 1")]
    EntryZero,
    /// A lease that is too short or too long.
    #[error(
        "a lease of {:.1} s is not usable: whole seconds, {} to {}",
        .ttl.as_secs_f64(), crate::limits::LEASE_LEAST.as_secs(), crate::limits::LEASE_MOST.as_secs()
    )]
    Lease {
        /// The length that was asked for.
        ttl: Duration,
    },
    /// No address, too many, or one that is none.
    #[error("etcd's members cannot be used: {problem}")]
    Members {
        /// What is wrong.
        problem: String,
    },
}

fn revision_of(found: &Option<Revision>) -> String {
    found.map_or_else(
        || "not there".to_owned(),
        |revision| format!("at {revision}"),
    )
}

fn who(by: &Option<Successor>) -> String {
    by.as_ref().map_or_else(
        || "its lease has lapsed, or was given up or broken".to_owned(),
        |by| format!("{} holds it now, with {}", by.holder, by.generation),
    )
}
