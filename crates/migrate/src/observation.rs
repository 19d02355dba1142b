//! What is seen of a hypervisor, and what the agents answer each other about the hand-off.

use serde::{Deserialize, Serialize};

use crate::cause::Reason;

/// A hypervisor's own word on its migration (QEMU: `query-migrate`, the event `MIGRATION`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationSeen {
    /// There is none: QEMU gives no status, or `none`.
    None,
    /// Under way: `setup`, `active`, `pre-switchover`, `device`, `cancelling`, `wait-unplug` and
    /// every status that is not known.
    Active,
    /// Postcopy, `postcopy-active`, and while it goes on after its connection broke: the guest has stopped
    /// at the source, its pages follow it.
    Postcopy {
        /// Pages have gone out since: the source's hypervisor will not run its guest again by itself.
        /// It may before, where it fails to send the guest's devices.
        pages: bool,
    },
    /// Postcopy whose connection is broken: `postcopy-paused`.
    PostcopyPaused,
    /// `completed`.
    Completed,
    /// `failed`.
    Failed {
        /// QEMU's `error-desc`, or what the shell knows better.
        reason: Reason,
    },
    /// `cancelled`.
    Cancelled,
}

/// A hypervisor's own word on its guest (QEMU: `query-status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSeen {
    /// `running`.
    Running,
    /// `paused` and `prelaunch`.
    Paused,
    /// `inmigrate`: an incoming migration has not ended.
    InMigrate,
    /// `finish-migrate`: stopped for the switchover.
    FinishMigrate,
    /// `postmigrate`: it has left; or its migration has failed, and it was paused before (QEMU before 8.2).
    PostMigrate,
    /// Anything else: `shutdown`, `io-error`, `internal-error` and so on.
    Other,
}

/// One look at a hypervisor.
///
/// The shell reads `migration` first and `guest` after it. A QEMU that received its guest
/// earlier keeps saying `completed` of that; only the run state read *after* tells it from a
/// completed outgoing migration (QEMU `qmp_query_migrate`, `migration_completion`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The migration, read first.
    pub migration: MigrationSeen,
    /// The guest, read after it.
    pub guest: GuestSeen,
}

/// What an observation means for an outgoing migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutgoingSeen {
    /// It goes on.
    UnderWay,
    /// Postcopy: the guest has left for good, and pages are still here.
    Left {
        /// They can follow it.
        connected: bool,
    },
    /// It has completed: the guest has left.
    Completed,
    /// It has failed: the guest stays.
    Failed { reason: Reason },
    /// It was cancelled: the guest stays.
    Cancelled,
    /// There is none: nothing was begun, or what is seen is an earlier incoming one.
    NotThere,
}

impl Observation {
    /// Reads this as the state of an outgoing migration.
    pub(crate) fn outgoing(&self) -> OutgoingSeen {
        match (&self.migration, self.guest) {
            (MigrationSeen::Completed | MigrationSeen::None, GuestSeen::PostMigrate)
            | (MigrationSeen::Completed, GuestSeen::FinishMigrate) => OutgoingSeen::Completed,
            // It ended between the two questions; how is to be asked again.
            (_, GuestSeen::PostMigrate) if !self.has_failed() => OutgoingSeen::UnderWay,
            (MigrationSeen::Completed | MigrationSeen::None, _) => OutgoingSeen::NotThere,
            (MigrationSeen::Postcopy { pages: true }, _) => OutgoingSeen::Left { connected: true },
            (MigrationSeen::PostcopyPaused, _) => OutgoingSeen::Left { connected: false },
            (MigrationSeen::Postcopy { pages: false }, _) => OutgoingSeen::UnderWay,
            (MigrationSeen::Failed { reason }, _) => OutgoingSeen::Failed {
                reason: reason.clone(),
            },
            (MigrationSeen::Cancelled, _) => OutgoingSeen::Cancelled,
            (MigrationSeen::Active, _) => OutgoingSeen::UnderWay,
        }
    }

    /// It has ended, and its guest stays.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(
            self.migration,
            MigrationSeen::Failed { .. } | MigrationSeen::Cancelled
        )
    }

    /// Reads this as the state of an incoming migration: the guest can run here. In postcopy its devices
    /// are here, which is when it leaves `inmigrate`.
    pub(crate) fn has_arrived(&self) -> bool {
        match self.migration {
            MigrationSeen::Completed => true,
            MigrationSeen::Postcopy { .. } | MigrationSeen::PostcopyPaused => {
                self.guest != GuestSeen::InMigrate
            }
            _ => false,
        }
    }

    /// Pages of the guest follow over a session.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.migration, MigrationSeen::Postcopy { .. })
    }

    /// Pages of the guest are on the other host.
    pub(crate) fn pages_follow(&self) -> bool {
        matches!(
            self.migration,
            MigrationSeen::Postcopy { .. } | MigrationSeen::PostcopyPaused
        )
    }
}

/// The source's word on who may run the guest. Told only when it is on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not decided yet: the migration is under way.
    Undecided,
    /// Only the destination may run it.
    HandedOff,
    /// Only the source may run it.
    Kept,
    /// Only the destination may, where it has run; but no page comes from the source any more.
    CutOff,
}

/// The destination's answer to being told to run the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum HandOffAnswer {
    /// It runs there, which is on the destination's disk, and needs nothing of the source.
    Running,
    /// Postcopy: it runs there, which is on the destination's disk, and may need pages of the source. Or it was
    /// told to, and its hypervisor hangs on one of them.
    Filling,
    /// Postcopy: it ran there, and pages of it are lost.
    CutOff,
    /// It will run; ask again.
    Pending {
        /// What it waits for.
        reason: Reason,
    },
    /// It is not there any more and will not run.
    Gone {
        /// Why.
        reason: Reason,
    },
    /// It is not there any more and will not run: an operator gave it up there, for good.
    Discarded,
}
