//! What goes into the destination's machine and what comes out of it.

use crate::Time;
use crate::cause::{Cause, Reason};
use crate::observation::{Observation, Verdict};
use crate::question::Question;
use crate::resolution::Resolution;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// QEMU runs with `-S -incoming defer` and answers.
    HypervisorStarted,
    /// QEMU could not be started; nothing of it is left.
    StartFailed {
        /// Why, with its last words.
        reason: Reason,
    },
    /// The source's lanes are up and it wants QEMU to listen (`POST /incoming/{id}/start`).
    ListenRequested,
    /// QEMU listens on the relay's socket.
    Listening,
    /// QEMU could not listen.
    ListenFailed {
        /// Why.
        reason: Reason,
    },
    /// A look at the hypervisor.
    Hypervisor(Observation),
    /// The answer to [`Action::Settle`]: a look taken after the session was closed.
    Settled(Observation),
    /// The hypervisor process has ended, certainly.
    HypervisorGone {
        /// Exit status or signal, and its last words.
        reason: Reason,
    },
    /// The session of before carries still ([`Action::FindSession`]).
    SessionLives,
    /// The session ended before QEMU had everything, or there is none.
    SessionFailed {
        /// What the relay gave as a reason.
        reason: Reason,
    },
    /// The source has opened a session anew, and QEMU listens for it.
    SessionReopened,
    /// The source keeps the guest (`POST /incoming/{id}/abandon`).
    AbandonRequested,
    /// The source has handed the guest off (`POST /incoming/{id}/run`).
    RunRequested {
        /// Since the connection that says so was accepted: it can be no older.
        age: Time,
    },
    /// The source answered [`Action::AskVerdict`].
    VerdictAnswered {
        /// Which of them.
        question: Question,
        /// What it decided.
        verdict: Verdict,
    },
    /// The source is there, and does not tell its verdict.
    VerdictRefused {
        /// Which of them.
        question: Question,
        /// Why.
        reason: Reason,
    },
    /// Nobody answered: there was no connection, or silence on it; or the source does not know the
    /// migration any more and has nothing of the guest.
    VerdictUnreachable {
        /// Which of them.
        question: Question,
        /// What the connection ended with.
        reason: Reason,
    },
    /// An operator decides in the source's place, and states that this is safe.
    ResolveRequested(Resolution),
    /// `cont` succeeded.
    GuestResumed,
    /// `cont` failed.
    ResumeFailed {
        /// It was refused. If not, the guest may run yet.
        refused: bool,
        /// Why.
        reason: Reason,
    },
    /// The definition is in the agent's directory.
    GuestAdopted,
    /// The definition could not be written.
    AdoptFailed {
        /// Why.
        reason: Reason,
    },
    /// The record that was handed out is on disk.
    Journaled,
    /// The record that was handed out could not be written.
    JournalFailed {
        /// Why.
        reason: Reason,
    },
}

impl Input {
    /// The input's name, as the table of phases shows it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::HypervisorStarted => "hypervisor-started",
            Self::StartFailed { .. } => "start-failed",
            Self::ListenRequested => "listen-requested",
            Self::Listening => "listening",
            Self::ListenFailed { .. } => "listen-failed",
            Self::Hypervisor(_) => "hypervisor",
            Self::Settled(_) => "settled",
            Self::HypervisorGone { .. } => "hypervisor-gone",
            Self::SessionLives => "session-lives",
            Self::SessionFailed { .. } => "session-failed",
            Self::SessionReopened => "session-reopened",
            Self::AbandonRequested => "abandon-requested",
            Self::RunRequested { .. } => "run-requested",
            Self::VerdictAnswered { .. } => "verdict-answered",
            Self::VerdictRefused { .. } => "verdict-refused",
            Self::VerdictUnreachable { .. } => "verdict-unreachable",
            Self::ResolveRequested(_) => "resolve-requested",
            Self::GuestResumed => "guest-resumed",
            Self::ResumeFailed { .. } => "resume-failed",
            Self::GuestAdopted => "guest-adopted",
            Self::AdoptFailed { .. } => "adopt-failed",
            Self::Journaled => "journaled",
            Self::JournalFailed { .. } => "journal-failed",
        }
    }
}

/// What the shell does. Each that can be answered names the inputs that answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start QEMU with `-S -incoming defer`. Always answered, also after the guest was given up
    /// meanwhile: `HypervisorStarted`, `StartFailed`.
    StartHypervisor,
    /// Set capabilities and parameters, then `migrate-incoming` on the relay's socket. Answers:
    /// `Listening`, `ListenFailed`. From `Listening` on the hypervisor is observed at each of
    /// its events and at least twice a second.
    Listen,
    /// After a restart of the agent: take the session up again that its predecessor left. Answers:
    /// `SessionLives`, `SessionFailed`.
    FindSession,
    /// Look at the hypervisor now. Answers: `Hypervisor`, `HypervisorGone`.
    Observe,
    /// Close the session and its sockets to QEMU, and only then look at QEMU. Answers:
    /// `Settled`, `HypervisorGone`.
    Settle,
    /// Ask the source (`GET /migrations/{id}/verdict`). Answers: `VerdictAnswered`,
    /// `VerdictRefused`, `VerdictUnreachable`.
    AskVerdict {
        /// The answer's number.
        question: Question,
    },
    /// `cont`; idempotent. Answers: `GuestResumed`, `ResumeFailed`.
    ResumeGuest,
    /// Write the definition to the agent's directory; idempotent. Answers: `GuestAdopted`,
    /// `AdoptFailed`.
    AdoptGuest,
    /// SIGKILL to QEMU. Answer: `HypervisorGone`, also when there is none.
    KillHypervisor,
    /// Close the session and its sockets to QEMU. No answer.
    CloseSession,
    /// Remove everything that was made for the incoming guest, but a definition that
    /// [`Action::AdoptGuest`] has written: the source's has left by then, or will.
    /// Idempotent. No answer.
    RemoveRuntime,
    /// The migration has ended here; nothing comes after this.
    Finish(Ending),
}

/// How a migration ended on the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest runs here.
    Running,
    /// It was given up before the hand-off; nothing is left here.
    Abandoned(Cause),
    /// It had arrived, and its hypervisor ended before the guest ran.
    Lost(Reason),
    /// It ran, and pages of it were lost with the source's hypervisor. Its own is left as it is, for a
    /// person to end.
    CutOff,
}

/// What comes out of [`super::Destination::poll`].
pub type Output = crate::Output<Action, crate::DestinationRecord>;
