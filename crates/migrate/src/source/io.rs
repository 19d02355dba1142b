//! What goes into the source's machine and what comes out of it.

use drover_types::Path;

use crate::cause::{CancelledBy, Outcome, Reason};
use crate::observation::{HandOffAnswer, Observation};
use crate::question::Question;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The destination has started its QEMU, and these paths answered their probes.
    DestinationReady {
        /// From [`crate::paths::choose`]; none fails the migration.
        paths: Vec<Path>,
        /// From [`crate::channels`].
        channels: u8,
    },
    /// The destination refused the last request.
    DestinationRefused {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The destination did not answer the last request.
    DestinationUnreachable {
        /// The request may have reached it. False only where no connection came about.
        sent: bool,
        /// What the connection ended with.
        reason: Reason,
    },
    /// Every lane is open at both ends.
    LanesUp,
    /// The destination's QEMU listens.
    DestinationListens,
    /// The session of before carries still ([`Action::FindSession`]).
    SessionLives,
    /// The session ended, or there is none; the relay has closed its sockets to QEMU.
    SessionFailed {
        /// What the relay gave as a reason.
        reason: Reason,
    },
    /// The hypervisor accepted `migrate`, or it is not known whether it did.
    MigrationStarted,
    /// The hypervisor refused `migrate` or a setting before it: nothing was begun.
    MigrationRefused {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// A look at the hypervisor, taken after [`Input::MigrationStarted`] or in recovery.
    Hypervisor(Observation),
    /// A look at the hypervisor, begun when it was asked for.
    LookedAgain {
        /// Which was asked for.
        attempt: Question,
        /// What was seen.
        seen: Observation,
    },
    /// The hypervisor process has ended, certainly (pidfd, or pid and start time).
    HypervisorGone {
        /// Exit status or signal, and its last words.
        reason: Reason,
    },
    /// The destination's agent says that it gave this guest up.
    DestinationGone {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The guest is to go on at the destination, and its pages to follow: only of a migration whose
    /// hypervisors were both told that this may come.
    PostcopyRequested,
    /// The hypervisor refused to begin postcopy; its guest may stand still for it.
    PostcopyRefused {
        /// What it gave as a reason.
        reason: Reason,
    },
    /// The destination says that it has all that the guest needs to run there; in postcopy its devices.
    DestinationArrived,
    /// The session is open again, and the destination's hypervisor waits for the source's.
    SessionReopened {
        /// Which was asked for.
        attempt: Question,
    },
    /// The hypervisor refused to go on over it.
    ResumeRefused {
        /// Which was asked for.
        attempt: Question,
        /// What it gave as a reason.
        reason: Reason,
    },
    /// It could not be opened again, or the hypervisor could not be told to go on over it.
    ReopenFailed {
        /// Which was asked for.
        attempt: Question,
        /// Why.
        reason: Reason,
    },
    /// The hypervisor goes on, or it is not known whether it does.
    MigrationResumed {
        /// Over which session.
        attempt: Question,
    },
    /// The destination answered [`Action::TellDestinationToRun`] or [`Action::AskDestination`], or
    /// is there and gave no answer that can be used.
    HandOffAnswered {
        /// Which of them.
        question: Question,
        /// What it says.
        answer: HandOffAnswer,
    },
    /// Nobody answered: there was no connection, or silence on it.
    HandOffUnreachable {
        /// Which of them.
        question: Question,
        /// What the connection ended with.
        reason: Reason,
    },
    /// An operator gives the guest up, and states that the destination does not run it.
    GiveUpRequested,
    /// The destination runs the guest by an operator's word, in place of the source's.
    DestinationRuns,
    /// The destination answered [`Action::AbandonDestination`]: nothing is left there.
    DestinationAbandoned,
    /// The destination did not answer [`Action::AbandonDestination`].
    AbandonUnreachable {
        /// What the connection ended with.
        reason: Reason,
    },
    /// The definition is out of the agent's directory, by [`Action::ForgetGuest`].
    GuestForgotten,
    /// The definition is in the agent's directory again, by [`Action::ReturnGuest`].
    GuestReturned,
    /// [`Action::QuitSource`], [`Action::ForgetGuest`] or [`Action::ReturnGuest`] did not succeed.
    LeaveFailed {
        /// Why.
        reason: Reason,
    },
    /// Somebody wants the guest to stay.
    CancelRequested {
        /// Who.
        by: CancelledBy,
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
            Self::DestinationReady { .. } => "destination-ready",
            Self::DestinationRefused { .. } => "destination-refused",
            Self::DestinationUnreachable { .. } => "destination-unreachable",
            Self::LanesUp => "lanes-up",
            Self::DestinationListens => "destination-listens",
            Self::SessionLives => "session-lives",
            Self::SessionFailed { .. } => "session-failed",
            Self::MigrationStarted => "migration-started",
            Self::MigrationRefused { .. } => "migration-refused",
            Self::Hypervisor(_) => "hypervisor",
            Self::LookedAgain { .. } => "looked-again",
            Self::HypervisorGone { .. } => "hypervisor-gone",
            Self::DestinationGone { .. } => "destination-gone",
            Self::PostcopyRequested => "postcopy-requested",
            Self::PostcopyRefused { .. } => "postcopy-refused",
            Self::DestinationArrived => "destination-arrived",
            Self::SessionReopened { .. } => "session-reopened",
            Self::ResumeRefused { .. } => "resume-refused",
            Self::ReopenFailed { .. } => "reopen-failed",
            Self::MigrationResumed { .. } => "migration-resumed",
            Self::HandOffAnswered { .. } => "hand-off-answered",
            Self::HandOffUnreachable { .. } => "hand-off-unreachable",
            Self::GiveUpRequested => "give-up-requested",
            Self::DestinationRuns => "destination-runs",
            Self::DestinationAbandoned => "destination-abandoned",
            Self::AbandonUnreachable { .. } => "abandon-unreachable",
            Self::GuestForgotten => "guest-forgotten",
            Self::GuestReturned => "guest-returned",
            Self::LeaveFailed { .. } => "leave-failed",
            Self::CancelRequested { .. } => "cancel-requested",
            Self::Journaled => "journaled",
            Self::JournalFailed { .. } => "journal-failed",
        }
    }
}

/// What the shell does. Each that can be answered names the inputs that answer it; an answer
/// that never comes is bounded by the phase's deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send the definition to the destination, take its offer, probe the candidates, choose
    /// paths and channels. Answers: `DestinationReady`, `DestinationRefused`,
    /// `DestinationUnreachable`.
    PrepareDestination,
    /// Start the relay and open its lanes. Answers: `LanesUp`, `SessionFailed`.
    OpenLanes {
        /// On these paths.
        paths: Vec<Path>,
    },
    /// After a restart of the agent: take the session up again that its predecessor left. No look
    /// at the hypervisor is begun before the answer. Answers: `SessionLives`, `SessionFailed`.
    FindSession,
    /// Have the destination's QEMU listen. Answers: `DestinationListens`, `DestinationRefused`,
    /// `DestinationUnreachable`.
    TellDestinationToListen,
    /// Set capabilities and parameters, then `migrate`. Answers: `MigrationStarted`,
    /// `MigrationRefused`. From `MigrationStarted` on the hypervisor is observed at each of its
    /// events and at least twice a second.
    StartMigration {
        /// multifd channels.
        channels: u8,
    },
    /// `stop`, and only then `migrate-start-postcopy`; idempotent. A hypervisor whose guest ran until then runs
    /// it again by itself where it fails, at the very end of postcopy, too. Answer: `PostcopyRefused`, else
    /// what is observed: from now on more often, until the guest has left.
    StartPostcopy,
    /// Postcopy's connection is broken: close what is left of the session, have the destination do the
    /// same, open a new one, and have the destination's hypervisor listen (`migrate-recover`). Answers:
    /// `SessionReopened`, `ReopenFailed`.
    ReopenSession {
        /// The answer's number.
        attempt: Question,
    },
    /// `migrate` with `resume`. Answers: `MigrationResumed`, `ResumeRefused`, `ReopenFailed`.
    ResumeMigration {
        /// The answer's number.
        attempt: Question,
    },
    /// `migrate_cancel`. No answer but what is observed.
    CancelMigration,
    /// `yank` of the migration, on the out-of-band monitor. No answer but what is observed.
    Yank,
    /// Look at the hypervisor now. Answers: `Hypervisor`, `HypervisorGone`.
    Observe,
    /// Look at the hypervisor now: what was seen last may be from before the session that carries. Answers:
    /// `LookedAgain`, `HypervisorGone`.
    LookAgain {
        /// The answer's number.
        attempt: Question,
    },
    /// Have the destination run the guest; idempotent. Whatever it answers, the definition is
    /// moved to the departed ones before the answer is handed in, so that no end of this
    /// migration leaves two hosts with a definition. Answers: `HandOffAnswered`,
    /// `HandOffUnreachable`.
    TellDestinationToRun {
        /// The answer's number.
        question: Question,
    },
    /// Ask the destination how far it is, without telling it anything. Answers:
    /// `HandOffAnswered`, `HandOffUnreachable`; `DestinationArrived` before the first of them where it
    /// says so.
    AskDestination {
        /// The answer's number.
        question: Question,
    },
    /// Have the destination give the guest up; idempotent. Answers: `DestinationAbandoned`,
    /// `AbandonUnreachable`, `DestinationRuns`.
    AbandonDestination,
    /// Close the session, its lanes and its sockets to QEMU. No answer.
    CloseSession,
    /// See to it that the guest runs: wait until QEMU has left `finish-migrate`, and `cont` it
    /// if it is `paused`. Never in `postmigrate`. No answer.
    KeepGuest,
    /// `quit`, and SIGKILL if it does not follow: the copy must not run again. Answers:
    /// `HypervisorGone`, `LeaveFailed`.
    QuitSource,
    /// See to it that the definition is among the departed ones; idempotent. Answers: `GuestForgotten`, `LeaveFailed`.
    ForgetGuest,
    /// See to it that the definition is in the agent's directory again; idempotent. Answers:
    /// `GuestReturned`, `LeaveFailed`.
    ReturnGuest,
    /// The migration has ended; nothing comes after this.
    Finish(Outcome),
}

/// What comes out of [`super::Source::poll`].
pub type Output = crate::Output<Action, crate::SourceRecord>;
