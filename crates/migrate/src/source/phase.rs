//! The source's phases; each owns what only it needs.

use crate::cause::{CancelledBy, Cause, GivenUpOn, KeptGuest, Outcome, Reason};
use crate::journal::SourceStep;
use crate::resolution::LastQuestion;
use crate::session::Session;
use crate::waiting::WaitingOn;

/// Where the source's side of a migration stands.
///
/// ```text
/// Preparing ─▶ Connecting ─▶ Starting ─▶ Transferring ─▶ HandingOff ─▶ Leaving ─▶ Completed
///     │            │            │             │  ▲          │  └─▶ Lost
///     │            │            │             │  │          └─▶ TakingBack ─▶ GivenUp
///     │            │            │             ├──┼─▶ Switching ─▶ HandingOff ─▶ Serving ─▶ Leaving
///     │            │            │             ▼  │ completed in spite of it
///     │            │            │         Cancelling ─▶ HandingOff
///     └────────────┴────────────┴─────────────┴─▶ Abandoning ─▶ Ended
/// Recovering ─▶ Transferring, Switching, HandingOff, Leaving, Cancelling, Abandoning
/// Abandoning, TakingBack ─▶ Leaving, if the destination runs it by an operator's word
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The destination starts its QEMU, paths are probed.
    Preparing,
    /// Lanes are being opened.
    Connecting {
        /// multifd channels to use then.
        channels: u8,
    },
    /// The destination's QEMU is to listen.
    Starting {
        /// multifd channels to use then.
        channels: u8,
    },
    /// The hypervisor carries the guest's state.
    Transferring {
        /// It has accepted the command; before, nothing that is seen of it counts.
        accepted: bool,
        /// What is seen is of this migration, surely: [`LOOK_AGE`](crate::limits::LOOK_AGE) has
        /// passed. A look that was under way when the command was accepted may still show the
        /// end of an earlier one.
        believed: bool,
    },
    /// The hypervisor is to give the migration up; it may still complete it.
    Cancelling {
        /// Why.
        why: Why,
        /// It is not known yet whether the command was accepted.
        unanswered: bool,
        /// As in [`Phase::Transferring`].
        believed: bool,
    },
    /// Postcopy was begun: the guest stops here, and its devices are on their way.
    Switching(Switching),
    /// Decided: only the destination runs the guest. It is told until it answers.
    HandingOff(HandOff),
    /// Postcopy: the guest runs there, and the hypervisor here has to go on until every page has followed.
    Serving {
        /// The last question to the destination is not answered yet: it is asked while nothing carries the
        /// pages.
        asking: bool,
    },
    /// Given up by an operator: the copy here is quit, and the definition comes back.
    TakingBack {
        /// Where it was given up.
        on: GivenUpOn,
        /// The source's QEMU has ended.
        hypervisor_gone: bool,
        /// The definition is back.
        returned: bool,
    },
    /// The guest runs there; the copy here is quit and forgotten.
    Leaving {
        /// The source's QEMU has ended.
        hypervisor_gone: bool,
        /// The definition has left.
        forgotten: bool,
        /// How it is going to end.
        outcome: Outcome,
    },
    /// Decided: the guest stays. The destination is told, a bounded number of times.
    Abandoning {
        /// How it is going to end.
        outcome: Outcome,
        /// How often the destination was told.
        attempts: u32,
    },
    /// The agent was started again; the session and the hypervisor have to tell what became of
    /// them.
    Recovering {
        /// The last record.
        step: SourceStep,
        /// The session of before.
        session: Session,
        /// Somebody wants the guest to stay, as soon as it is known what there is to cancel.
        cancel: Option<CancelledBy>,
    },
    /// Over.
    Ended {
        /// How.
        outcome: Outcome,
    },
}

/// How far the hand-off is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOff {
    /// How often the destination was told.
    pub attempts: u32,
    /// The source's QEMU has ended.
    pub hypervisor_gone: bool,
    /// The last question is not answered yet.
    pub asking: bool,
    /// An operator wants to give the guest up.
    pub giving_up: Option<LastQuestion>,
}

/// How far postcopy's switch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switching {
    /// The guest has left its hypervisor for good.
    pub left: bool,
    /// The destination can run it.
    pub arrived: bool,
    /// The session has failed.
    pub broken: bool,
    /// The destination has given it up, so.
    pub gone: Option<Reason>,
}

/// Why the hypervisor is to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked.
    Cancelled(CancelledBy),
    /// Something failed.
    Failed(Cause),
}

impl Why {
    /// How a migration ends that is given up for this.
    pub(crate) fn outcome(self, guest: KeptGuest) -> Outcome {
        match self {
            Self::Cancelled(by) => Outcome::Cancelled { by, guest },
            Self::Failed(cause) => Outcome::Failed { cause, guest },
        }
    }
}

impl Phase {
    /// The phase's name, as the API and the CLI show it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Connecting { .. } => "connecting",
            Self::Starting { .. } => "starting",
            Self::Transferring { .. } => "transferring",
            Self::Cancelling { .. } => "cancelling",
            Self::Switching(_) => "switching",
            Self::HandingOff(_) => "handing-off",
            Self::Serving { .. } => "serving",
            Self::TakingBack { .. } => "taking-back",
            Self::Leaving { .. } => "leaving",
            Self::Abandoning { .. } => "abandoning",
            Self::Recovering { .. } => "recovering",
            Self::Ended { outcome } => match outcome {
                Outcome::Completed => "completed",
                Outcome::Refused { .. } => "refused",
                Outcome::Cancelled { .. } => "cancelled",
                Outcome::Failed { .. } => "failed",
                Outcome::Lost { .. } => "lost",
                Outcome::CutOff { .. } => "cut-off",
                Outcome::GivenUp { .. } => "given-up",
            },
        }
    }

    /// What it waits for; `None` when it is over.
    pub(crate) fn waiting_on(&self) -> Option<WaitingOn> {
        Some(match self {
            Self::Preparing => WaitingOn::DestinationToPrepare,
            Self::Connecting { .. } => WaitingOn::Lanes,
            Self::Starting { .. } => WaitingOn::DestinationToListen,
            Self::Transferring {
                accepted: false, ..
            } => WaitingOn::HypervisorToBegin,
            Self::Transferring { accepted: true, .. } => WaitingOn::GuestMemory,
            Self::Cancelling { .. } => WaitingOn::HypervisorToCancel,
            Self::Switching(_) => WaitingOn::DestinationToArrive,
            Self::HandingOff(_) => WaitingOn::DestinationToRun,
            Self::Serving { .. } => WaitingOn::PagesToFollow,
            Self::TakingBack { .. } => WaitingOn::SourceToTakeBack,
            Self::Leaving { .. } => WaitingOn::SourceToForget,
            Self::Abandoning { .. } => WaitingOn::DestinationToAbandon,
            Self::Recovering { .. } => WaitingOn::HypervisorToAnswer,
            Self::Ended { .. } => return None,
        })
    }
}
