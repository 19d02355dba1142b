//! What a migration waits for, so that every wait is shown with a name and with what to do.

use crate::Time;
use crate::cause::Reason;

/// A wait, its beginning, and the last thing heard about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// For what.
    pub on: WaitingOn,
    /// Since when.
    pub since: Time,
    /// The last answer that was not the one hoped for.
    pub last: Option<Reason>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingOn {
    /// The journal's disk.
    Journal,
    /// The destination's QEMU, and the probes of the paths.
    DestinationToPrepare,
    /// Every lane of the session.
    Lanes,
    /// The destination's QEMU to listen.
    DestinationToListen,
    /// The source's QEMU to begin.
    HypervisorToBegin,
    /// The guest's memory to be carried.
    GuestMemory,
    /// The source's QEMU to give the migration up.
    HypervisorToCancel,
    /// Postcopy: the guest to leave its hypervisor, and the destination to have it.
    DestinationToArrive,
    /// Postcopy: the pages to follow the guest.
    PagesToFollow,
    /// The destination to say that the guest runs.
    DestinationToRun,
    /// The destination to say that it gave the guest up.
    DestinationToAbandon,
    /// The source's QEMU to end and its definition to leave.
    SourceToForget,
    /// The source's QEMU to end and its definition to be back.
    SourceToTakeBack,
    /// A hypervisor that was found again to answer.
    HypervisorToAnswer,
    /// The destination's own QEMU to start.
    HypervisorToStart,
    /// The source to open its lanes and ask for listening.
    SourceToConnect,
    /// The destination's own QEMU to listen.
    HypervisorToListen,
    /// The destination's QEMU to tell whether it has everything.
    HypervisorToSettle,
    /// The source's word whether the guest was handed off.
    SourceVerdict,
    /// The guest to run on the destination.
    GuestToResume,
    /// The definition to be written on the destination.
    GuestToBeAdopted,
    /// The destination's QEMU to end.
    HypervisorToEnd,
}

impl WaitingOn {
    /// A name for logs and for the API's field `waiting_on`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::DestinationToPrepare => "destination-to-prepare",
            Self::Lanes => "lanes",
            Self::DestinationToListen => "destination-to-listen",
            Self::HypervisorToBegin => "hypervisor-to-begin",
            Self::GuestMemory => "guest-memory",
            Self::HypervisorToCancel => "hypervisor-to-cancel",
            Self::DestinationToArrive => "destination-to-arrive",
            Self::PagesToFollow => "pages-to-follow",
            Self::DestinationToRun => "destination-to-run",
            Self::DestinationToAbandon => "destination-to-abandon",
            Self::SourceToForget => "source-to-forget",
            Self::SourceToTakeBack => "source-to-take-back",
            Self::HypervisorToAnswer => "hypervisor-to-answer",
            Self::HypervisorToStart => "hypervisor-to-start",
            Self::SourceToConnect => "source-to-connect",
            Self::HypervisorToListen => "hypervisor-to-listen",
            Self::HypervisorToSettle => "hypervisor-to-settle",
            Self::SourceVerdict => "source-verdict",
            Self::GuestToResume => "guest-to-resume",
            Self::GuestToBeAdopted => "guest-to-be-adopted",
            Self::HypervisorToEnd => "hypervisor-to-end",
        }
    }

    /// What an operator can do when this takes long; `None` where a deadline ends it.
    #[must_use]
    pub fn what_to_do(self) -> Option<&'static str> {
        Some(match self {
            Self::Journal => "free space in the agent's state directory, or make it writable",
            Self::GuestMemory => "cancel the migration, or lower the guest's load",
            Self::HypervisorToCancel | Self::HypervisorToAnswer => {
                "QEMU does not answer, and only it knows whether the guest has left: nothing is \
                 resumed or killed until it does. If it is beyond help, kill its process"
            }
            Self::DestinationToArrive => {
                "bring the destination's agent back, and the paths to it: the guest stands still at the \
                 source, and only the destination knows whether it can run there"
            }
            Self::PagesToFollow => {
                "bring the other host's agent back, and the paths between the hosts: the guest runs at the \
                 destination, and stands still there whenever it needs a page that has not followed"
            }
            Self::DestinationToRun => {
                "bring the destination's agent back: it has the guest and runs it when told. The \
                 copy on the source stays stopped, because both running would destroy its disks"
            }
            Self::SourceVerdict => {
                "bring the source's agent back: it knows whether the guest was handed off. Until \
                 then the guest stands still here"
            }
            Self::GuestToResume => "look at the reason: often a disk that is not reachable here",
            Self::GuestToBeAdopted => "make the directory of definitions writable",
            Self::SourceToForget | Self::SourceToTakeBack => {
                "make the directories of definitions and of state writable; QEMU is killed"
            }
            Self::HypervisorToEnd | Self::HypervisorToSettle => {
                "QEMU does not end: look at its host"
            }
            _ => return None,
        })
    }
}
