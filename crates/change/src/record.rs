//! What a journal is made of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::order::PathTo;
use crate::sizes::PathSizes;

/// One line of a journal. On the disk before what it speaks of is done. A file that is written is a step, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "record",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Record {
    /// All was found as the plan says.
    Began {
        /// When.
        at: Timestamp,
        /// The boot id of the host.
        boot: String,
        /// Paths that work, and have to afterwards.
        paths: Vec<PathTo>,
        /// Those of them by which the other host's agent opens a connection to this one, and has to afterwards.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        opened: Vec<PathTo>,
        /// Of which it does not, or that is not known, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unopened: Vec<String>,
        /// Interfaces that settings are of and that have a carrier, and have to afterwards: not each is one of a path.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carriers: Vec<String>,
        /// Paths that migrations take, and the largest packets that cross them: what has to cross afterwards follows from that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sizes: Vec<PathSizes>,
        /// Of which other paths that is not known, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        untold: Vec<String>,
    },
    /// A step is done next; counted from 0 over all changes of the plan.
    AboutTo {
        /// Which.
        step: usize,
    },
    /// It was done, and is there.
    Done {
        /// Which.
        step: usize,
    },
    /// It is the kernel's own to set, and is as it was: the others are gone on with.
    PassedBy {
        /// Which.
        step: usize,
        /// Why.
        why: String,
    },
    /// Something else is there than there was and than was wanted.
    Differs {
        /// Which.
        step: usize,
        /// What is.
        found: String,
    },
    /// All that worked before does so again: files are written next, which count behind the steps.
    Proved,
    /// From here on all that was done is taken back.
    RollBack {
        /// Why.
        why: String,
    },
    /// Another process goes on with it, since the one before has died.
    TakenUp {
        /// When.
        at: Timestamp,
        /// The boot id of the host.
        boot: String,
    },
    /// Somebody wants it undone.
    UndoAsked {
        /// When.
        at: Timestamp,
    },
    /// It is as it was before.
    Undone {
        /// Which.
        step: usize,
    },
    /// It is neither as it was before nor as it was set, or cannot be set: it is left alone.
    Left {
        /// Which.
        step: usize,
        /// What is there, or why that is not known.
        found: String,
    },
    /// Those who read files while they run have read those again that were put back.
    Reread,
    /// Not all of them have, or go by them: files and settings are as before all the same.
    NotReread {
        /// Why, and what has them do so.
        why: String,
    },
    /// Nothing is done any more.
    Ended {
        /// When.
        at: Timestamp,
        /// What became of it.
        outcome: Outcome,
    },
}

/// What became of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outcome {
    /// Nothing was done.
    Refused {
        /// Why.
        why: String,
    },
    /// All is there.
    Applied {
        /// How many paths worked before, and work; none where none did, so that nothing is proved.
        proven: usize,
    },
    /// All that was done was taken back by itself.
    RolledBack {
        /// Why.
        why: String,
    },
    /// All was taken back as somebody wanted.
    Undone,
    /// The host was restarted, and what was set is gone with that.
    GoneWithRestart,
    /// Some steps were left alone, since something else had changed what they changed; or whoever reads a file that was put back goes on by
    /// something else.
    InDoubt {
        /// Why steps were taken back.
        why: String,
    },
}
