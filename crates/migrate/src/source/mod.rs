//! One migration, seen from the host that the guest leaves. The source decides.
//!
//! ```text
//! let mut source = Source::new(migration, now);          // or Source::recover(record, now)
//! loop {
//!     loop {
//!         match source.poll(now()) {
//!             Output::Journal(record) => write and flush; source.handle(now(), Journaled),
//!             Output::Do(Action::Finish(outcome)) => return outcome,
//!             Output::Do(action) => begin it; its answer becomes an input later,
//!             Output::Wait(until) => break until,
//!         }
//!     }
//!     wait for the next answer, event or request, or until then; source.handle(now(), it)
//! }
//! ```
//!
//! # Invariant
//!
//! [`Action::TellDestinationToRun`] comes out only after the record [`SourceStep::HandedOff`] (in postcopy
//! [`SourceStep::PostcopyHandedOff`]) is on disk, and after that record [`Action::KeepGuest`] never comes out. Once it is written no
//! input leads back: an operator's [`Input::GiveUpRequested`] ends the source's copy, too, and only
//! after nothing that told the destination to run counts any more ([`limits::WORD_COUNTS`]).

mod decide;
mod decided;
mod io;
mod pages;
mod phase;
mod postcopy;
mod step;

pub use io::{Action, Input, Output};
pub use pages::{PageLink, Pages};
pub use phase::{HandOff, Phase, Switching, Why};

use crate::cause::{Cause, KeptGuest, Outcome, Reason, Refused};
use crate::journal::{JournalVersion, Migration, SourceRecord, SourceStep};
use crate::limits;
use crate::observation::Verdict;
use crate::outbox::Outbox;
use crate::question::Question;
use crate::resolution::{Ambiguity, Resolving};
use crate::session::Session;
use crate::waiting::{Waiting, WaitingOn};
use crate::{Output as Generic, Time};

/// An input, or the phase's deadline.
pub(crate) enum Event {
    Input(Input),
    Deadline,
}

/// The source's side of one migration.
#[derive(Debug, Clone)]
pub struct Source {
    migration: Migration,
    phase: Phase,
    since: Time,
    deadline: Option<Time>,
    outbox: Outbox<Action, SourceRecord>,
    verdict: Verdict,
    last: Option<Reason>,
    /// In the hand-off: the last question to the destination.
    question: Question,
    /// It answered last; and has not answered since.
    heard: Option<Time>,
    silent_since: Option<Time>,
    resolving: Resolving,
    /// The guest is to go on by postcopy.
    postcopy_asked: bool,
    /// The hypervisor was seen to have completed in this life of the agent: nothing of the guest is needed of it.
    completed: bool,
    /// What of it is still here once it was handed off by postcopy.
    pages: Option<Pages>,
    journal_trouble: Option<Reason>,
}

impl Source {
    /// Begins a migration of a guest that runs here.
    #[must_use]
    pub fn new(migration: Migration, now: Time) -> Self {
        let mut source = Self::at(migration, Phase::Preparing, now);
        source.record(SourceStep::Preparing);
        source.outbox.act(Action::PrepareDestination);
        source.deadline = Some(now + limits::PREPARE);
        source
    }

    /// Goes on after the agent was started again, from the last record on disk.
    #[must_use]
    pub fn recover(record: SourceRecord, now: Time) -> Self {
        let verdict = record.verdict();
        let mut source = Self::at(record.migration, Phase::Preparing, now);
        source.verdict = verdict;
        match record.step {
            step @ (SourceStep::Preparing
            | SourceStep::Transferring
            | SourceStep::PostcopyBegun) => {
                let phase = Phase::Recovering {
                    step,
                    session: Session::Unknown,
                    cancel: None,
                };
                source.enter(now, phase, Some(limits::OBSERVE_RETRY));
                source.outbox.act(Action::FindSession);
            }
            SourceStep::HandedOff => source.tell_to_run(now, false),
            SourceStep::PostcopyHandedOff => {
                source.pages_follow_over(now, Session::Unknown);
                source.tell_to_run(now, false);
            }
            SourceStep::RunsThere => source.leave(now, false),
            SourceStep::Serving => {
                source.pages_follow_over(now, Session::Unknown);
                source.serve(now);
            }
            SourceStep::CutOff { reason } => {
                source.leave_as(now, false, Outcome::CutOff { reason });
            }
            SourceStep::GivenUp { on } => source.take_back(now, on, false),
            SourceStep::Kept { outcome } => source.tell_to_abandon(now, outcome, true),
            SourceStep::Finished { outcome } => {
                source.enter(
                    now,
                    Phase::Ended {
                        outcome: outcome.clone(),
                    },
                    None,
                );
                source.outbox.act(Action::Finish(outcome));
            }
        }
        source
    }

    fn at(migration: Migration, phase: Phase, now: Time) -> Self {
        Self {
            migration,
            phase,
            since: now,
            deadline: None,
            outbox: Outbox::new(),
            verdict: Verdict::Undecided,
            last: None,
            question: Question::default(),
            heard: None,
            silent_since: None,
            resolving: Resolving::No,
            postcopy_asked: false,
            completed: false,
            pages: None,
            journal_trouble: None,
        }
    }

    /// Takes in what happened. Afterwards [`Source::poll`] until it says `Wait`.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the input changes nothing: a cancel that comes too late, or an answer to
    /// a question that is no longer open.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Refused> {
        match input {
            Input::Journaled => self.journaled(),
            Input::JournalFailed { reason } => {
                if !self.outbox.journal_failed(now) {
                    return Err(self.unexpected("journal-failed"));
                }
                self.journal_trouble = Some(reason);
                Ok(())
            }
            other => self.step(now, Event::Input(other)),
        }
    }

    /// The next thing to do. Passing a deadline counts as an input of its own.
    pub fn poll(&mut self, now: Time) -> Output {
        if self.deadline.is_some_and(|at| at <= now) {
            self.deadline = None;
            // A phase with a deadline has an arm for it; without one nothing would change.
            let _ = self.step(now, Event::Deadline);
        }
        if self.pages_until().is_some_and(|at| at <= now) {
            self.pages_waited(now);
            self.attend(now);
        }
        match self.outbox.next(now) {
            Some(output) => output,
            None => {
                let until = earlier(self.deadline, self.pages_until());
                Generic::Wait(earlier(until, self.outbox.again_at()))
            }
        }
    }

    /// What a destination that asks is told. Never ahead of the disk, and nothing while an operator's
    /// wish to give the guest up is open: it must not run a guest that is about to be given up.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.phase {
            Phase::HandingOff(HandOff {
                giving_up: Some(_), ..
            }) => Verdict::Undecided,
            // Given up, which the disk does not have yet.
            Phase::TakingBack { .. } if self.verdict == Verdict::HandedOff => Verdict::Undecided,
            Phase::Serving { .. } if self.sends_no_more() => Verdict::CutOff,
            _ => self.verdict,
        }
    }

    /// That only the destination may run it is on disk: the definition can leave.
    #[must_use]
    pub fn has_handed_off(&self) -> bool {
        self.verdict == Verdict::HandedOff
    }

    /// The destination may run the guest or not, and does not answer.
    #[must_use]
    pub fn ambiguity(&self) -> Option<Ambiguity> {
        let depends = match &self.phase {
            Phase::HandingOff(_) | Phase::Serving { .. } => true,
            Phase::Switching(switching) => switching.left,
            _ => false,
        };
        Some(Ambiguity {
            since: self.silent_since.filter(|_| depends)?,
            heard: self.heard,
            last: self.last.clone(),
        })
    }

    /// What became of an operator's wish to give the guest up.
    #[must_use]
    pub fn resolving(&self) -> &Resolving {
        &self.resolving
    }

    /// The last question to the destination, in the hand-off or before it.
    #[must_use]
    pub fn question(&self) -> Question {
        self.question
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Which migration this is.
    #[must_use]
    pub fn migration(&self) -> &Migration {
        &self.migration
    }

    /// What it waits for; `None` when it is over.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting> {
        if let Some(since) = self.outbox.unsafe_since() {
            let last = self.journal_trouble.clone();
            return Some(Waiting {
                on: WaitingOn::Journal,
                since,
                last,
            });
        }
        let on = self.phase.waiting_on()?;
        Some(Waiting {
            on,
            since: self.since,
            last: self.last.clone(),
        })
    }

    fn journaled(&mut self) -> Result<(), Refused> {
        let record = self
            .outbox
            .journaled()
            .ok_or_else(|| self.unexpected("journaled"))?;
        self.journal_trouble = None;
        self.verdict = record.verdict();
        Ok(())
    }

    fn unexpected(&self, input: &'static str) -> Refused {
        if matches!(self.phase, Phase::Ended { .. }) {
            return Refused::Over;
        }
        Refused::Unexpected {
            phase: self.phase.name(),
            input,
        }
    }

    fn enter(&mut self, now: Time, phase: Phase, bound: Option<Time>) {
        if phase.name() != self.phase.name() {
            self.since = now;
            self.last = None;
        }
        self.phase = phase;
        self.deadline = bound.map(|bound| now + bound);
    }

    fn record(&mut self, step: SourceStep) {
        let migration = self.migration.clone();
        self.outbox.record(SourceRecord {
            version: JournalVersion,
            migration,
            step,
        });
    }

    /// The hypervisor has completed: from here the guest belongs to the destination.
    fn hand_off(&mut self, now: Time) {
        self.completed = true;
        self.record(SourceStep::HandedOff);
        self.tell_to_run(now, false);
    }

    fn tell_to_run(&mut self, now: Time, hypervisor_gone: bool) {
        let hand_off = HandOff {
            attempts: 1,
            hypervisor_gone,
            asking: true,
            giving_up: None,
        };
        let bound = Some(limits::HAND_OFF_ANSWER);
        self.enter(now, Phase::HandingOff(hand_off), bound);
        let question = self.next_question();
        self.outbox.act(Action::TellDestinationToRun { question });
    }

    fn next_question(&mut self) -> Question {
        self.question = self.question.next();
        self.question
    }

    /// It runs there, and nothing is needed of here.
    fn leave(&mut self, now: Time, hypervisor_gone: bool) {
        self.leave_as(now, hypervisor_gone, Outcome::Completed);
    }

    fn leave_as(&mut self, now: Time, hypervisor_gone: bool, outcome: Outcome) {
        self.pages = None;
        let phase = Phase::Leaving {
            hypervisor_gone,
            forgotten: false,
            outcome,
        };
        self.enter(now, phase, Some(limits::LEAVE_RETRY));
        self.outbox.act(Action::CloseSession);
        if !hypervisor_gone {
            self.outbox.act(Action::QuitSource);
        }
        self.outbox.act(Action::ForgetGuest);
    }

    /// The guest stays here, and nothing of it is to stay at the destination.
    fn keep(&mut self, now: Time, outcome: Outcome, migration_begun: bool) {
        if !migration_begun {
            self.outbox.withdraw_actions();
        }
        self.record(SourceStep::Kept {
            outcome: outcome.clone(),
        });
        self.tell_to_abandon(now, outcome, migration_begun);
    }

    fn tell_to_abandon(&mut self, now: Time, outcome: Outcome, migration_begun: bool) {
        if migration_begun && guest_of(&outcome) == KeptGuest::Runs {
            self.outbox.act(Action::KeepGuest);
        }
        self.outbox.act(Action::CloseSession);
        self.outbox.act(Action::AbandonDestination);
        let phase = Phase::Abandoning {
            outcome,
            attempts: 1,
        };
        self.enter(now, phase, Some(limits::ABANDON_ANSWER));
    }

    /// Has the hypervisor give up; only it can tell whether that was still possible.
    fn give_up(&mut self, now: Time, why: Why, accepted: bool, believed: bool) {
        if self.withdraw_start() {
            return self.keep(now, why.outcome(KeptGuest::Runs), false);
        }
        let session_is_of_use = matches!(why, Why::Cancelled(_));
        if accepted {
            self.stop_migration(!session_is_of_use);
        }
        if !session_is_of_use {
            self.outbox.act(Action::CloseSession);
        }
        // Until the command is answered an observation could be older than it.
        let bound = match (accepted, believed) {
            (false, _) => limits::MIGRATE_ANSWER,
            (true, false) => limits::LOOK_AGE,
            (true, true) => limits::CANCEL_RETRY,
        };
        let phase = Phase::Cancelling {
            why,
            unanswered: !accepted,
            believed,
        };
        self.enter(now, phase, Some(bound));
    }

    /// Takes the command to migrate back if it still waits for the journal: then nothing was begun,
    /// and nothing is to begin once the journal can be written.
    fn withdraw_start(&mut self) -> bool {
        self.outbox
            .withdraw_actions_and_find(|action| matches!(action, Action::StartMigration { .. }))
    }

    fn stop_migration(&mut self, by_force: bool) {
        if by_force {
            self.outbox.act(Action::Yank);
        }
        self.outbox.act(Action::CancelMigration);
        self.outbox.act(Action::Observe);
    }

    fn end(&mut self, now: Time, outcome: Outcome) {
        self.pages = None;
        self.record(SourceStep::Finished {
            outcome: outcome.clone(),
        });
        self.outbox.act(Action::Finish(outcome.clone()));
        self.enter(now, Phase::Ended { outcome }, None);
    }
}

fn guest_of(outcome: &Outcome) -> KeptGuest {
    match outcome {
        Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. } => *guest,
        Outcome::Refused { .. } => KeptGuest::Runs,
        Outcome::Completed
        | Outcome::Lost { .. }
        | Outcome::CutOff { .. }
        | Outcome::GivenUp { .. } => KeptGuest::Stopped,
    }
}

fn failed(cause: Cause, guest: KeptGuest) -> Outcome {
    Outcome::Failed { cause, guest }
}

pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
