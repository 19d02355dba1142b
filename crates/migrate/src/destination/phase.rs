//! The destination's phases; each owns what only it needs.

use crate::cause::Cause;
use crate::resolution::{LastQuestion, Resolution};
use crate::session::Session;
use crate::waiting::WaitingOn;

use super::Ending;

/// Where the destination's side of a migration stands.
///
/// ```text
/// Starting ─▶ Prepared ─▶ Opening ─▶ Receiving ─▶ Arrived ◀▶ Resuming ─▶ Adopting ─▶ (Filling ─▶) Running
///    │           │           │        │    ▲ │       │           └──────▶ Lost
///    │           │           │        │    │ ▼       │
///    │           │           │        │  Settling    │ kept
///    └───────────┴───────────┴────────┴──────┴───────┴─▶ Abandoning ─▶ Abandoned
/// Recovering ─▶ Receiving, Arrived, Adopting, Running, Lost, Abandoning
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// QEMU is being started.
    Starting,
    /// QEMU waits; the source is to open its lanes.
    Prepared,
    /// QEMU is to listen.
    Opening,
    /// The guest's state comes in.
    Receiving {
        /// Something of it was seen.
        begun: bool,
        /// The source has said already that it handed off.
        handed_off: bool,
    },
    /// The session is gone; QEMU tells whether it has everything.
    Settling {
        /// What ended the session.
        cause: Cause,
    },
    /// QEMU has everything and stands still. Only the source can say what is next, or an operator
    /// in its place.
    Arrived {
        /// How often it was asked.
        attempts: u32,
        /// The last time is not answered yet.
        asking: bool,
        /// What an operator wants.
        resolving: Option<(Resolution, LastQuestion)>,
    },
    /// Handed off: the guest is told to run.
    Resuming {
        /// The hypervisor has refused: the guest does not run.
        refused: bool,
    },
    /// The guest runs; its definition is to be written.
    Adopting,
    /// Postcopy: the guest runs, and pages of it are still at the source.
    Filling(Filling),
    /// QEMU is being ended.
    Abandoning {
        /// Why.
        cause: Cause,
        /// Its start was not answered yet; before that there may be nothing to end, and after
        /// it there is.
        starting: bool,
    },
    /// The agent was started again; the session and QEMU have to tell what became of them.
    Recovering {
        /// The session of before.
        session: Session,
    },
    /// Over.
    Ended(Ending),
}

/// How the wait for pages is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filling {
    /// The source is asked whether it still has them, and has not answered yet.
    pub asking: bool,
    /// It has none any more, or an operator said so: where this look shows that some are missing, they are
    /// lost.
    pub last_look: bool,
}

impl Phase {
    /// The phase's name, as the API and the CLI show it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Prepared => "prepared",
            Self::Opening => "opening",
            Self::Receiving { .. } => "receiving",
            Self::Settling { .. } => "settling",
            Self::Arrived { .. } => "arrived",
            Self::Resuming { .. } => "resuming",
            Self::Adopting => "adopting",
            Self::Filling(_) => "filling",
            Self::Abandoning { .. } => "abandoning",
            Self::Recovering { .. } => "recovering",
            Self::Ended(Ending::Running) => "running",
            Self::Ended(Ending::Abandoned(_)) => "abandoned",
            Self::Ended(Ending::Lost(_)) => "lost",
            Self::Ended(Ending::CutOff) => "cut-off",
        }
    }

    /// What it waits for; `None` when it is over.
    pub(crate) fn waiting_on(&self) -> Option<WaitingOn> {
        Some(match self {
            Self::Starting => WaitingOn::HypervisorToStart,
            Self::Prepared => WaitingOn::SourceToConnect,
            Self::Opening => WaitingOn::HypervisorToListen,
            Self::Receiving {
                handed_off: false, ..
            } => WaitingOn::GuestMemory,
            Self::Receiving {
                handed_off: true, ..
            } => WaitingOn::HypervisorToSettle,
            Self::Settling { .. } => WaitingOn::HypervisorToSettle,
            Self::Arrived { .. } => WaitingOn::SourceVerdict,
            Self::Resuming { .. } => WaitingOn::GuestToResume,
            Self::Adopting => WaitingOn::GuestToBeAdopted,
            Self::Filling(_) => WaitingOn::PagesToFollow,
            Self::Abandoning { .. } => WaitingOn::HypervisorToEnd,
            Self::Recovering { .. } => WaitingOn::HypervisorToAnswer,
            Self::Ended(_) => return None,
        })
    }
}
