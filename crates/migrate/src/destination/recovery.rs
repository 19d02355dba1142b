//! A destination whose agent was started again: what of the guest is here by then.

use super::{Action, Destination, Ending, Phase};
use crate::Time;
use crate::cause::{Cause, Reason};
use crate::journal::{DestinationRecord, DestinationStep};
use crate::limits;
use crate::observation::{GuestSeen, MigrationSeen, Observation};
use crate::resolution::Resolution;
use crate::session::Session;

impl Destination {
    /// Tells it, after a restart, that the guest has run here: it is this host's whatever it does now.
    #[must_use]
    pub fn with_guest_that_has_run(mut self, has_run: bool) -> Self {
        self.has_run = has_run;
        self
    }

    /// Tells it, after a restart, whether the guest's definition is among this host's. There was none when
    /// the guest was let in; one that is there although only an operator's word to run it is on disk
    /// was written by [`Action::AdoptGuest`]: the guest has run here.
    #[must_use]
    pub fn with_definition(mut self, has_definition: bool) -> Self {
        self.has_definition = has_definition;
        self
    }

    /// Goes on after the agent was started again, from the last record on disk.
    #[must_use]
    pub fn recover(record: DestinationRecord, now: Time) -> Self {
        let session = Session::Unknown;
        let resolution = record.resolution();
        let runs = record.runs();
        let mut destination = Self::at(record.migration, Phase::Recovering { session }, now);
        destination.runs = runs;
        destination.resolution = resolution;
        let ending = match record.step {
            // The operator's word was for then: by now the source may be back.
            DestinationStep::Incoming | DestinationStep::RunHere => {
                destination.outbox.act(Action::FindSession);
                destination.deadline = Some(now + limits::OBSERVE_RETRY);
                return destination;
            }
            // A hypervisor that waits for a page may answer nothing until the source's has sent it.
            DestinationStep::Filling { unanswered } => {
                destination.pages_follow = true;
                destination.unanswered = unanswered;
                // None was heard by this agent.
                destination.word_until = Some(Time::ZERO);
                destination.outbox.act(Action::FindSession);
                destination.fill(now);
                return destination;
            }
            DestinationStep::Discarding => {
                destination.discard(now);
                return destination;
            }
            DestinationStep::Running { .. } => Ending::Running,
            DestinationStep::Abandoned { cause } => Ending::Abandoned(cause),
            DestinationStep::Lost { reason } => Ending::Lost(reason),
            DestinationStep::CutOff => Ending::CutOff,
        };
        destination.phase = Phase::Ended(ending.clone());
        destination.outbox.act(Action::Finish(ending));
        destination
    }

    /// The guest has run here, and its definition is here: by its own record, or by an operator's word, where
    /// what a host that loses power forgets is only that this was done.
    fn was_adopted(&self) -> bool {
        self.has_definition && (self.has_run || self.resolution == Some(Resolution::RunHere))
    }

    /// The guest is this host's, certainly, whatever its hypervisor does by now.
    pub(super) fn is_certainly_here(&self) -> bool {
        self.has_run || self.was_adopted()
    }

    /// There is no hypervisor any more.
    pub(super) fn recovered_without_guest(&mut self, now: Time, reason: Reason) {
        if self.was_adopted() {
            self.ran_here(now);
        } else if self.has_run || self.resolution == Some(Resolution::RunHere) {
            // It has run, or may have for a moment.
            self.lose(now, reason);
        } else {
            self.abandoned(now, Cause::HypervisorGone { reason });
        }
    }

    /// It was this host's, and has ended. This host may start it again, so the other one has to hear whose it
    /// is.
    pub(super) fn ran_here(&mut self, now: Time) {
        self.outbox.act(Action::CloseSession);
        self.outbox.act(Action::RemoveRuntime);
        let resolved = self.resolution == Some(Resolution::RunHere);
        self.record(DestinationStep::Running { resolved });
        self.finish(now, Ending::Running);
    }

    pub(super) fn recover_with(&mut self, now: Time, session: Session) {
        let phase = Phase::Recovering { session };
        self.enter(now, phase, Some(limits::OBSERVE_RETRY));
    }

    /// Nothing carries any more: what QEMU is from now on, it stays.
    pub(super) fn settle_anew(&mut self, now: Time) {
        self.outbox.act(Action::Settle);
        self.recover_with(now, Session::Gone);
    }

    pub(super) fn recovered(&mut self, now: Time, seen: &Observation, session: Session) {
        if self.has_arrived(now, seen) {
            return;
        }
        match (&seen.migration, session) {
            (MigrationSeen::Active | MigrationSeen::Postcopy { .. }, Session::Lives) => {
                let phase = Phase::Receiving {
                    begun: true,
                    handed_off: false,
                };
                self.enter(now, phase, None);
            }
            // Whether the source was told of this session, or QEMU to listen, is not known.
            (_, Session::Lives) => self.settle_anew(now),
            // What was seen before the session was closed does not count, unless it is final.
            (_, Session::Unknown | Session::Gone) => {}
        }
    }

    /// What is final, whatever becomes of the session.
    pub(super) fn has_arrived(&mut self, now: Time, seen: &Observation) -> bool {
        match (&seen.migration, seen.guest) {
            // Only an agent that knew of the hand-off has it run.
            (_, GuestSeen::Running) => self.adopt(now),
            // The order to run it may have been lost: that was not written down before whose it is.
            (_, GuestSeen::Paused) if self.has_run => {
                self.adopt_unanswered(now);
            }
            // It may stand still for any reason of its own.
            _ if self.has_run => self.adopt(now),
            _ if seen.has_arrived() => self.arrive(now),
            _ => return false,
        }
        true
    }
}
