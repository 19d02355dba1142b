//! What an agent writes to its disk of a migration, so that its next start knows what it may do.
//!
//! A record is the whole truth of its moment: the last one counts, earlier ones are history.

use drover_types::{HostName, MigrationId, VmName};
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, GivenUpOn, Outcome, Reason};
use crate::observation::{HandOffAnswer, Verdict};
use crate::resolution::Resolution;

/// The version of the records below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct JournalVersion;

/// The number that [`JournalVersion`] is written as.
const VERSION: u16 = 1;

/// A record of another version of this program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "journal record has version {found}, this agent reads version {VERSION}: \
     start the agent that wrote it, let the migration end, then change versions"
)]
pub struct UnknownJournalVersion {
    found: u16,
}

impl TryFrom<u16> for JournalVersion {
    type Error = UnknownJournalVersion;
    fn try_from(found: u16) -> Result<Self, UnknownJournalVersion> {
        if found == VERSION {
            Ok(Self)
        } else {
            Err(UnknownJournalVersion { found })
        }
    }
}

impl From<JournalVersion> for u16 {
    fn from(_: JournalVersion) -> u16 {
        VERSION
    }
}

/// Which guest moves from where to where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Its id on both hosts.
    pub id: MigrationId,
    /// The guest.
    pub vm: VmName,
    /// The host that it leaves.
    pub source: HostName,
    /// The host that it goes to.
    pub destination: HostName,
}

/// How far the source has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum SourceStep {
    /// The hypervisor was not told to migrate yet.
    Preparing,
    /// The hypervisor may have been told to migrate. Only it knows how that went.
    Transferring,
    /// As before, and the hypervisor may have been told to begin postcopy: it can no longer be cancelled.
    PostcopyBegun,
    /// The hypervisor has completed: only the destination may run the guest.
    HandedOff,
    /// Postcopy: only the destination may run the guest, and pages of it are still here.
    PostcopyHandedOff,
    /// The destination has said that the guest runs there; the source's copy can go.
    RunsThere,
    /// Postcopy: the destination has said that the guest runs there. The source's hypervisor has to go on
    /// until every page has followed.
    Serving,
    /// Postcopy: pages that had not followed are lost.
    CutOff {
        /// How.
        reason: Reason,
    },
    /// An operator gave the guest up after the hand-off: the source's copy is to be ended, its
    /// definition to be returned.
    GivenUp {
        /// Where.
        on: GivenUpOn,
    },
    /// The guest stays; the destination is to be told.
    Kept {
        /// How the migration is going to end.
        outcome: Outcome,
    },
    /// Nothing is left to do.
    Finished {
        /// How it ended.
        outcome: Outcome,
    },
}

/// One record of the source's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The version of this form.
    pub version: JournalVersion,
    /// Which migration.
    pub migration: Migration,
    /// How far it has come.
    #[serde(flatten)]
    pub step: SourceStep,
}

impl SourceRecord {
    /// What a destination that asks is told once this record is on disk.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.step {
            SourceStep::Preparing | SourceStep::Transferring | SourceStep::PostcopyBegun => {
                Verdict::Undecided
            }
            SourceStep::HandedOff
            | SourceStep::PostcopyHandedOff
            | SourceStep::RunsThere
            | SourceStep::Serving => Verdict::HandedOff,
            SourceStep::CutOff { .. } => Verdict::CutOff,
            SourceStep::GivenUp { .. } => Verdict::Kept,
            SourceStep::Kept { outcome } | SourceStep::Finished { outcome } => match outcome {
                Outcome::Completed | Outcome::Lost { .. } => Verdict::HandedOff,
                Outcome::CutOff { .. } => Verdict::CutOff,
                Outcome::Refused { .. }
                | Outcome::Cancelled { .. }
                | Outcome::Failed { .. }
                | Outcome::GivenUp { .. } => Verdict::Kept,
            },
        }
    }

    /// What an operator decided here in the destination's place.
    #[must_use]
    pub fn resolution(&self) -> Option<Resolution> {
        let on = match &self.step {
            SourceStep::GivenUp { on } => on,
            SourceStep::Finished {
                outcome: Outcome::GivenUp { on },
            } => on,
            _ => return None,
        };
        (*on == GivenUpOn::Source).then_some(Resolution::GiveUp)
    }
}

/// How far the destination has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum DestinationStep {
    /// A hypervisor may have been started for it; it may have arrived.
    Incoming,
    /// As before, and an operator decided in the source's place that it runs here.
    RunHere,
    /// An operator decided in the source's place that it is given up: its hypervisor is to end.
    Discarding,
    /// The guest runs here, and pages of it are still at the source.
    Filling {
        /// It was told to run, and whether it does is not known: its hypervisor may hang on one of the pages.
        #[serde(default)]
        unanswered: bool,
    },
    /// The guest runs here.
    Running {
        /// By an operator's word in the source's place.
        #[serde(default)]
        resolved: bool,
    },
    /// It was given up before the hand-off; nothing is left of it here.
    Abandoned {
        /// Why.
        cause: Cause,
    },
    /// It had arrived, and its hypervisor ended before the guest ran.
    Lost {
        /// Why.
        reason: Reason,
    },
    /// It ran here, and pages of it were lost with the source's hypervisor.
    CutOff,
}

/// One record of the destination's journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationRecord {
    /// The version of this form.
    pub version: JournalVersion,
    /// Which migration.
    pub migration: Migration,
    /// How far it has come.
    #[serde(flatten)]
    pub step: DestinationStep,
}

impl DestinationRecord {
    /// What the source is told of a guest that has run here.
    #[must_use]
    pub fn runs(&self) -> Option<HandOffAnswer> {
        match &self.step {
            DestinationStep::Running { .. } => Some(HandOffAnswer::Running),
            DestinationStep::Filling { .. } => Some(HandOffAnswer::Filling),
            DestinationStep::CutOff => Some(HandOffAnswer::CutOff),
            _ => None,
        }
    }

    /// What an operator decided here in the source's place.
    #[must_use]
    pub fn resolution(&self) -> Option<Resolution> {
        match &self.step {
            DestinationStep::RunHere | DestinationStep::Running { resolved: true } => {
                Some(Resolution::RunHere)
            }
            DestinationStep::Discarding
            | DestinationStep::Abandoned {
                cause: Cause::Discarded,
            } => Some(Resolution::Discard),
            _ => None,
        }
    }
}
