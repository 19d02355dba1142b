//! One migration, seen from the host that the guest goes to. It obeys the source.
//!
//! The shell drives it exactly as it drives [`crate::source::Source`].
//!
//! # Invariant
//!
//! [`Action::ResumeGuest`] comes out only after the source has said that it handed off
//! ([`Input::RunRequested`], [`Verdict::HandedOff`](crate::Verdict::HandedOff)), and while that word
//! counts ([`limits::WORD_COUNTS`]). Once the guest has run [`Action::KillHypervisor`] never comes
//! out. A guest that has arrived is neither run nor killed
//! before the source has said which, or an operator has while the source did not answer
//! ([`Input::ResolveRequested`]). That is on disk before it is done, so that the source can be told.
//!
//! [`Action::Settle`] is safe because QEMU says `completed` before it tells the source over the
//! return path that it has everything (`process_incoming_migration_bh`): if it does not say so
//! once the session is closed, the source cannot have been told and cannot complete. So every
//! migration uses the return path.

mod arrived;
mod filling;
mod io;
mod phase;
mod recovery;
mod step;

pub use io::{Action, Ending, Input, Output};
pub use phase::{Filling, Phase};

use crate::cause::{Cause, Reason, Refused};
use crate::journal::{DestinationRecord, DestinationStep, JournalVersion, Migration};
use crate::limits;
use crate::observation::HandOffAnswer;
use crate::outbox::Outbox;
use crate::question::Question;
use crate::resolution::{Ambiguity, Resolution, Resolving};
use crate::source::earlier;
use crate::waiting::{Waiting, WaitingOn};
use crate::{Output as Generic, Time};

/// An input, or the phase's deadline.
pub(crate) enum Event {
    Input(Input),
    Deadline,
}

/// The destination's side of one migration.
#[derive(Debug, Clone)]
pub struct Destination {
    migration: Migration,
    phase: Phase,
    since: Time,
    deadline: Option<Time>,
    outbox: Outbox<Action, DestinationRecord>,
    /// What its record says of a guest that has run here, once that is on disk.
    runs: Option<HandOffAnswer>,
    /// An operator's decision in the source's place, once it is on disk.
    resolution: Option<Resolution>,
    resolving: Resolving,
    /// Until when the source's last word that it handed off counts; without one for ever, as it is an
    /// operator's.
    word_until: Option<Time>,
    /// The guest has run here, as its own record says.
    has_run: bool,
    /// It was told to run, and that was not answered.
    unanswered: bool,
    /// The last look that showed the guest here showed pages of it still at the source.
    pages_follow: bool,
    /// The hypervisor has ended.
    hypervisor_gone: bool,
    /// The session has failed, and no other was opened since.
    session_over: bool,
    /// There is a session that was opened anew, or found again: when pages were seen to follow last, or when that was.
    reopened: Option<Time>,
    /// The hypervisor has not gone on over it, as far as is known.
    waits_for_session: bool,
    /// Its definition was among this host's when the agent was started again.
    has_definition: bool,
    /// The last question to the source; in [`Phase::Filling`], when it was asked.
    question: Question,
    asked: Time,
    /// It answered last; and has not answered since.
    heard: Option<Time>,
    silent_since: Option<Time>,
    /// How long the session may be without a lane before it fails by itself.
    outage_limit: Time,
    last: Option<Reason>,
    journal_trouble: Option<Reason>,
}

impl Destination {
    /// Begins to take a guest in.
    #[must_use]
    pub fn new(migration: Migration, now: Time) -> Self {
        let mut destination = Self::at(migration, Phase::Starting, now);
        destination.record(DestinationStep::Incoming);
        destination.outbox.act(Action::StartHypervisor);
        destination.deadline = Some(now + limits::HYPERVISOR_START);
        destination
    }

    /// Has it bear an outage of this length while it waits for what comes over the lanes.
    #[must_use]
    pub fn with_outage_limit(mut self, limit: Time) -> Self {
        self.outage_limit = limit;
        self
    }

    fn at(migration: Migration, phase: Phase, now: Time) -> Self {
        Self {
            migration,
            phase,
            since: now,
            deadline: None,
            outbox: Outbox::new(),
            runs: None,
            resolution: None,
            resolving: Resolving::No,
            word_until: None,
            has_run: false,
            unanswered: false,
            pages_follow: false,
            hypervisor_gone: false,
            session_over: false,
            reopened: None,
            waits_for_session: false,
            has_definition: false,
            question: Question::default(),
            asked: Time::ZERO,
            heard: None,
            silent_since: None,
            outage_limit: Time::ZERO,
            last: None,
            journal_trouble: None,
        }
    }

    /// Takes in what happened. Afterwards [`Destination::poll`] until it says `Wait`.
    ///
    /// # Errors
    ///
    /// [`Refused`] when the input changes nothing: an abandon that comes too late, or an answer
    /// to a question that is no longer open.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<(), Refused> {
        match input {
            Input::Journaled => {
                let record = self
                    .outbox
                    .journaled()
                    .ok_or_else(|| self.unexpected("journaled"))?;
                self.journal_trouble = None;
                self.runs = record.runs().or(self.runs.take());
                self.resolution = record.resolution();
                Ok(())
            }
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
        match self.outbox.next(now) {
            Some(output) => output,
            None => Generic::Wait(earlier(self.deadline, self.outbox.again_at())),
        }
    }

    /// What the source is answered that says `run`. Never ahead of the disk.
    #[must_use]
    pub fn hand_off_answer(&self) -> HandOffAnswer {
        if let Some(runs) = &self.runs {
            return runs.clone();
        }
        match &self.phase {
            _ if self.resolution == Some(Resolution::Discard) => HandOffAnswer::Discarded,
            Phase::Abandoning { cause, .. } | Phase::Ended(Ending::Abandoned(cause)) => {
                HandOffAnswer::Gone {
                    reason: Reason::from(cause.to_string()),
                }
            }
            Phase::Ended(Ending::Lost(reason)) => HandOffAnswer::Gone {
                reason: reason.clone(),
            },
            phase => HandOffAnswer::Pending {
                reason: match &self.last {
                    Some(last) => Reason::from(format!("{}: {last}", phase.name())),
                    None => Reason::from(phase.name()),
                },
            },
        }
    }

    /// What an operator decided here in the source's place, where it still counts. Never ahead of
    /// the disk.
    #[must_use]
    pub fn resolution(&self) -> Option<Resolution> {
        let runs = matches!(
            self.phase,
            Phase::Resuming { .. }
                | Phase::Adopting
                | Phase::Filling(_)
                | Phase::Ended(Ending::Running)
        );
        self.resolution
            .filter(|resolution| *resolution != Resolution::RunHere || runs)
    }

    /// What became of an operator's last wish to decide.
    #[must_use]
    pub fn resolving(&self) -> &Resolving {
        &self.resolving
    }

    /// The guest has arrived, or waits for pages, and the source does not answer.
    #[must_use]
    pub fn ambiguity(&self) -> Option<Ambiguity> {
        let depends = matches!(self.phase, Phase::Arrived { .. } | Phase::Filling(_));
        Some(Ambiguity {
            since: self.silent_since.filter(|_| depends)?,
            heard: self.heard,
            last: self.last.clone(),
        })
    }

    /// The last question to the source for its verdict.
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

    fn unexpected(&self, input: &'static str) -> Refused {
        if matches!(self.phase, Phase::Ended(_)) {
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

    fn record(&mut self, step: DestinationStep) {
        let migration = self.migration.clone();
        self.outbox.record(DestinationRecord {
            version: JournalVersion,
            migration,
            step,
        });
    }

    /// QEMU has everything. The verdict comes by itself where the source is well; it is asked
    /// for after a pause. In postcopy the source hears by the question that the guest is here.
    fn arrive(&mut self, now: Time) {
        if self.pages_follow {
            return self.ask(now, 0, None);
        }
        let phase = Phase::Arrived {
            attempts: 0,
            asking: false,
            resolving: None,
        };
        self.enter(now, phase, Some(limits::VERDICT_RETRY));
    }

    fn resume(&mut self, now: Time) {
        self.outbox.act(Action::ResumeGuest);
        let phase = Phase::Resuming { refused: false };
        self.enter(now, phase, Some(limits::RESUME_ANSWER));
    }

    /// The source says that it handed off, and has said so no longer ago.
    fn hear_word(&mut self, now: Time, age: Time) {
        let until = now + limits::WORD_COUNTS.saturating_sub(age);
        self.word_until = Some(self.word_until.map_or(until, |known| known.max(until)));
        self.hear(now);
    }

    /// The source is there.
    fn hear(&mut self, now: Time) {
        self.silent_since = None;
        self.heard = Some(now);
    }

    fn word_counts(&self, now: Time) -> bool {
        self.word_until.is_none_or(|until| now <= until)
    }

    /// Only what the source says now lets a guest run that could not so far.
    fn resume_again(&mut self, now: Time, refused: bool) {
        if self.pages_follow && !refused {
            self.adopt_unanswered(now);
        } else if self.word_counts(now) {
            self.resume(now);
        } else if refused {
            self.arrive(now);
        } else {
            // It was told once, and may do it yet.
            self.outbox.act(Action::Observe);
            self.deadline = Some(now + limits::RESUME_ANSWER);
        }
    }

    /// The guest runs. The definition comes after it, because the guest stood still until now.
    fn adopt(&mut self, now: Time) {
        self.outbox.act(Action::AdoptGuest);
        self.enter(now, Phase::Adopting, Some(limits::ADOPT_RETRY));
    }

    /// Its hypervisor may hang on a page that never comes, and answers nothing then: it is this host's from
    /// here on as one that runs and stands still for a page.
    fn adopt_unanswered(&mut self, now: Time) {
        self.unanswered = true;
        self.adopt(now);
    }

    /// The definition is written: whose the guest is can be told.
    fn adopted(&mut self, now: Time) {
        let resolved = self.resolution == Some(Resolution::RunHere);
        let unanswered = self.unanswered;
        if (self.pages_follow || unanswered) && !self.hypervisor_gone {
            self.record(DestinationStep::Filling { unanswered });
            return self.fill(now);
        }
        self.run(now, resolved);
    }

    /// The guest runs here, and needs nothing of the source.
    fn run(&mut self, now: Time, resolved: bool) {
        self.record(DestinationStep::Running { resolved });
        self.outbox.act(Action::CloseSession);
        self.finish(now, Ending::Running);
    }

    fn abandon(&mut self, now: Time, cause: Cause) {
        let withdrawn = self
            .outbox
            .withdraw_actions_and_find(|action| *action == Action::StartHypervisor);
        let starting = self.phase == Phase::Starting && !withdrawn;
        self.outbox.act(Action::CloseSession);
        let bound = if starting {
            limits::HYPERVISOR_START
        } else {
            self.outbox.act(Action::KillHypervisor);
            limits::ADOPT_RETRY
        };
        self.enter(now, Phase::Abandoning { cause, starting }, Some(bound));
    }

    fn abandoned(&mut self, now: Time, cause: Cause) {
        self.outbox.withdraw_actions();
        self.outbox.act(Action::CloseSession);
        self.outbox.act(Action::RemoveRuntime);
        self.record(DestinationStep::Abandoned {
            cause: cause.clone(),
        });
        self.finish(now, Ending::Abandoned(cause));
    }

    fn lose(&mut self, now: Time, reason: Reason) {
        self.outbox.act(Action::CloseSession);
        self.outbox.act(Action::RemoveRuntime);
        self.record(DestinationStep::Lost {
            reason: reason.clone(),
        });
        self.finish(now, Ending::Lost(reason));
    }

    fn finish(&mut self, now: Time, ending: Ending) {
        self.outbox.act(Action::Finish(ending.clone()));
        self.enter(now, Phase::Ended(ending), None);
    }
}
