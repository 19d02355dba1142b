//! The destination's table: what each input does in each phase. The table is printed, whole, in
//! `tests/snapshots/`.

use super::{Action, Destination, Ending, Event, Input, Phase};
use crate::Time;
use crate::cause::{Cause, Refused};
use crate::limits;
use crate::observation::{GuestSeen, MigrationSeen, Observation};
use crate::session::Session;

impl Destination {
    #[allow(
        clippy::too_many_lines,
        reason = "one match is the table; its arms are one call each"
    )]
    pub(super) fn step(&mut self, now: Time, event: Event) -> Result<(), Refused> {
        use Event::Deadline;
        use Event::Input as On;
        self.note(now, &event);
        match (self.phase.clone(), event) {
            (_, On(Input::RunRequested { age })) if age > limits::WORD_COUNTS => {
                return Err(Refused::TooOld { age });
            }

            // Getting ready. The source's wish to abandon, and every failure, end it.
            (Phase::Starting, On(Input::HypervisorStarted)) => {
                self.enter(now, Phase::Prepared, Some(limits::PREPARED));
            }
            (Phase::Starting, On(Input::StartFailed { reason })) => {
                self.abandoned(now, Cause::HypervisorRefused { reason });
            }
            (Phase::Starting, Deadline) => {
                self.late(now, "starting the hypervisor", limits::HYPERVISOR_START);
            }
            (Phase::Prepared, On(Input::ListenRequested)) => {
                self.outbox.act(Action::Listen);
                self.enter(now, Phase::Opening, Some(limits::LISTEN));
            }
            (Phase::Prepared, Deadline) => {
                self.late(now, "the source's opening of its lanes", limits::PREPARED);
            }
            (Phase::Opening, On(Input::Listening)) => {
                let phase = Phase::Receiving {
                    begun: false,
                    handed_off: false,
                };
                self.enter(now, phase, Some(limits::FIRST_BYTES + self.outage_limit));
            }
            (Phase::Opening | Phase::Receiving { .. }, On(Input::ListenRequested)) => {
                // The source asked twice; the answer to the first is on its way.
            }
            (Phase::Opening, On(Input::ListenFailed { reason })) => {
                self.abandon(now, Cause::HypervisorRefused { reason });
            }
            (Phase::Opening, Deadline) => {
                self.late(now, "making the hypervisor listen", limits::LISTEN);
            }
            (Phase::Starting | Phase::Prepared | Phase::Opening, On(Input::AbandonRequested)) => {
                self.abandon(now, Cause::SourceKept)
            }
            (
                Phase::Starting | Phase::Prepared | Phase::Opening,
                On(Input::SessionFailed { reason }),
            ) => self.abandon(now, Cause::SessionFailed { reason }),
            (Phase::Starting, On(Input::HypervisorGone { reason })) => {
                self.abandon(now, Cause::HypervisorGone { reason });
            }
            (Phase::Prepared | Phase::Opening, On(Input::HypervisorGone { reason })) => {
                self.abandoned(now, Cause::HypervisorGone { reason });
            }
            (Phase::Starting | Phase::Prepared | Phase::Opening, On(Input::Hypervisor(_))) => {}

            // The guest's state comes in.
            (Phase::Receiving { handed_off, .. }, On(Input::Hypervisor(seen))) => {
                self.received(now, seen, handed_off);
            }
            (Phase::Receiving { begun, .. }, On(Input::RunRequested { age })) => {
                self.hear_word(now, age);
                let phase = Phase::Receiving {
                    begun,
                    handed_off: true,
                };
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
                self.outbox.act(Action::Observe);
            }
            (
                Phase::Receiving {
                    handed_off: true, ..
                },
                Deadline,
            ) => {
                let phase = Phase::Receiving {
                    begun: true,
                    handed_off: true,
                };
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
                self.outbox.act(Action::Observe);
            }
            (
                Phase::Receiving {
                    handed_off: true, ..
                },
                On(Input::SessionFailed { .. }),
            ) => {
                // The source would not have handed off if QEMU did not have everything.
            }
            (
                Phase::Receiving {
                    handed_off: true, ..
                },
                On(Input::HypervisorGone { reason }),
            ) => self.lose(now, reason),
            (
                Phase::Receiving {
                    handed_off: true, ..
                },
                On(Input::AbandonRequested),
            ) => {
                return Err(Refused::TooLate);
            }
            (
                Phase::Receiving {
                    handed_off: false, ..
                },
                On(Input::SessionFailed { reason }),
            ) => self.settle(now, Cause::SessionFailed { reason }),
            (
                Phase::Receiving {
                    begun: false,
                    handed_off: false,
                },
                Deadline,
            ) => {
                let bound = limits::FIRST_BYTES + self.outage_limit;
                let cause = deadline("the first of the guest's state", bound);
                self.settle(now, cause);
            }
            (Phase::Receiving { .. }, On(Input::AbandonRequested)) => {
                self.abandon(now, Cause::SourceKept);
            }
            (Phase::Receiving { .. }, On(Input::HypervisorGone { reason })) => {
                self.abandoned(now, Cause::HypervisorGone { reason });
            }
            (Phase::Settling { cause }, On(Input::HypervisorGone { .. })) => {
                // It ends because its session did: that is the cause.
                self.abandoned(now, cause);
            }

            // The session is gone. What is seen before it was closed does not count, unless it
            // is final.
            (Phase::Settling { cause }, On(Input::Settled(seen))) => {
                self.settled(now, &seen, cause);
            }
            (Phase::Settling { .. }, On(Input::Hypervisor(seen))) => {
                if seen.has_arrived() {
                    self.arrive(now);
                }
            }
            (phase @ Phase::Settling { .. }, Deadline) => {
                self.outbox.act(Action::Settle);
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
            }
            (Phase::Settling { .. }, On(Input::RunRequested { age })) => {
                self.hear_word(now, age);
                let phase = Phase::Receiving {
                    begun: true,
                    handed_off: true,
                };
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
                self.outbox.act(Action::Observe);
            }
            (Phase::Settling { .. }, On(Input::AbandonRequested)) => {
                self.abandon(now, Cause::SourceKept);
            }

            // Everything is here.
            (phase @ Phase::Arrived { .. }, event) => {
                return self.step_arrived(now, phase, event);
            }
            (Phase::Resuming { .. }, On(Input::HypervisorGone { reason })) => {
                self.lose(now, reason);
            }

            // Handed off. Only a guest that was refused to run goes back.
            (Phase::Resuming { .. }, On(Input::GuestResumed)) => self.adopt(now),
            (Phase::Resuming { .. }, On(Input::Hypervisor(seen))) => {
                if seen.guest == GuestSeen::Running {
                    self.adopt(now);
                }
            }
            (Phase::Resuming { .. }, On(Input::ResumeFailed { refused, reason })) => {
                if self.pages_follow && !refused {
                    self.adopt_unanswered(now);
                    self.last = Some(reason);
                    return Ok(());
                }
                self.last = Some(reason);
                self.phase = Phase::Resuming { refused };
                self.deadline = Some(now + limits::RESUME_RETRY);
            }
            (Phase::Resuming { .. }, On(Input::RunRequested { age })) => {
                // An operator's word does not need it.
                if self.word_until.is_some() {
                    self.hear_word(now, age);
                }
            }
            (Phase::Resuming { refused }, Deadline) => self.resume_again(now, refused),
            (Phase::Adopting, On(Input::GuestAdopted)) => self.adopted(now),
            (Phase::Filling(filling), event) => return self.step_filling(now, filling, event),
            (Phase::Adopting, On(Input::AdoptFailed { reason })) => self.last = Some(reason),
            (Phase::Adopting, Deadline) => self.adopt(now),
            (
                Phase::Resuming { .. } | Phase::Adopting | Phase::Ended(Ending::Running),
                On(Input::AbandonRequested),
            ) => return Err(Refused::TooLate),
            (
                Phase::Adopting | Phase::Ended(_) | Phase::Abandoning { .. },
                On(Input::RunRequested { .. }),
            ) => {
                // The answer is `hand_off_answer`.
            }
            (
                Phase::Resuming { .. } | Phase::Adopting,
                On(Input::SessionFailed { .. } | Input::SessionReopened),
            )
            | (
                Phase::Adopting,
                On(Input::Hypervisor(_) | Input::GuestResumed | Input::ResumeFailed { .. }),
            )
            | (Phase::Adopting, On(Input::HypervisorGone { .. })) => {
                // A session that has done its work may end; a guest that runs may be shut down.
            }

            // Nothing is to be left of it.
            (Phase::Abandoning { starting: true, .. }, On(Input::HypervisorGone { .. })) => {
                // A start that is under way could still bring one.
            }
            (
                Phase::Abandoning { cause, .. },
                On(Input::HypervisorGone { .. } | Input::StartFailed { .. }),
            ) => self.abandoned(now, cause),
            (Phase::Abandoning { cause, .. }, On(Input::HypervisorStarted) | Deadline) => {
                self.outbox.act(Action::KillHypervisor);
                let phase = Phase::Abandoning {
                    cause,
                    starting: false,
                };
                self.enter(now, phase, Some(limits::ADOPT_RETRY));
            }
            (
                Phase::Abandoning { .. }
                | Phase::Ended(Ending::Abandoned(_) | Ending::Lost(_) | Ending::CutOff),
                On(Input::AbandonRequested),
            ) => {}
            (
                Phase::Abandoning { .. },
                On(Input::Hypervisor(_) | Input::Settled(_) | Input::SessionFailed { .. }),
            ) => {}

            // A new agent asks what became of it.
            (
                Phase::Recovering {
                    session: Session::Unknown,
                },
                On(Input::SessionLives),
            ) => {
                self.outbox.act(Action::Observe);
                self.recover_with(now, Session::Lives);
            }
            (
                Phase::Recovering {
                    session: Session::Unknown | Session::Lives,
                },
                On(Input::SessionFailed { .. }),
            ) => self.settle_anew(now),
            (
                Phase::Recovering {
                    session: Session::Gone,
                },
                On(Input::SessionFailed { .. } | Input::SessionLives),
            ) => {}
            (Phase::Recovering { session }, On(Input::Hypervisor(seen))) => {
                self.recovered(now, &seen, session);
            }
            (Phase::Recovering { .. }, On(Input::Settled(seen))) => {
                if !self.has_arrived(now, &seen) {
                    self.abandon(now, Cause::AgentRestarted);
                }
            }
            (Phase::Recovering { .. }, On(Input::HypervisorGone { reason })) => {
                self.recovered_without_guest(now, reason);
            }
            (Phase::Recovering { .. }, On(Input::AbandonRequested)) if self.is_certainly_here() => {
                return Err(Refused::TooLate);
            }
            (Phase::Recovering { .. }, On(Input::AbandonRequested)) => {
                self.abandon(now, Cause::SourceKept);
            }
            (Phase::Recovering { .. }, On(Input::RunRequested { .. })) => {
                self.outbox.act(Action::Observe);
            }
            (Phase::Recovering { session }, Deadline) => {
                self.outbox.act(match session {
                    Session::Unknown => Action::FindSession,
                    Session::Lives => Action::Observe,
                    Session::Gone => Action::Settle,
                });
                self.recover_with(now, session);
            }

            (_, On(input)) => return Err(self.unexpected(input.name())),
            (_, Deadline) => return Err(self.unexpected("deadline")),
        }
        Ok(())
    }

    fn late(&mut self, now: Time, step: &str, bound: Time) {
        self.abandon(now, deadline(step, bound));
    }

    fn settle(&mut self, now: Time, cause: Cause) {
        self.outbox.act(Action::Settle);
        self.enter(now, Phase::Settling { cause }, Some(limits::OBSERVE_RETRY));
    }

    fn received(&mut self, now: Time, seen: Observation, handed_off: bool) {
        match seen.migration {
            _ if seen.has_arrived() && handed_off && self.word_counts(now) => self.resume(now),
            _ if seen.has_arrived() => self.arrive(now),
            MigrationSeen::Failed { .. } | MigrationSeen::Cancelled if handed_off => {
                // QEMU ends by itself after this; until it has, nothing is certain.
            }
            MigrationSeen::Failed { reason } => {
                self.abandon(now, Cause::HypervisorFailed { reason });
            }
            MigrationSeen::Cancelled => self.abandon(now, Cause::CancelledElsewhere),
            MigrationSeen::Active | MigrationSeen::Postcopy { .. } if !handed_off => {
                self.enter(
                    now,
                    Phase::Receiving {
                        begun: true,
                        handed_off,
                    },
                    None,
                );
            }
            _ => {}
        }
    }

    /// What counts in every phase.
    fn note(&mut self, now: Time, event: &Event) {
        match event {
            Event::Input(Input::GuestResumed) => self.has_answered(),
            Event::Input(Input::Hypervisor(seen)) if seen.guest == GuestSeen::Running => {
                self.has_answered();
            }
            _ => {}
        }
        match event {
            Event::Input(input @ (Input::SessionLives | Input::SessionReopened)) => {
                self.reopened = Some(now);
                // One that was found again may have brought pages all the time.
                self.waits_for_session = matches!(input, Input::SessionReopened);
            }
            Event::Input(Input::SessionFailed { .. }) => self.reopened = None,
            Event::Input(Input::Hypervisor(seen)) if seen.goes_on() => {
                self.reopened = self.reopened.and(Some(now));
                self.waits_for_session = false;
            }
            Event::Input(Input::Hypervisor(seen))
                if seen.migration == MigrationSeen::PostcopyPaused =>
            {
                self.waits_for_session = true;
            }
            _ => {}
        }
        match event {
            Event::Input(Input::Hypervisor(seen) | Input::Settled(seen)) if seen.has_arrived() => {
                self.pages_follow = seen.pages_follow();
            }
            Event::Input(Input::SessionFailed { .. } | Input::Settled(_)) => {
                self.session_over = true;
            }
            Event::Input(Input::SessionLives | Input::SessionReopened) => {
                self.session_over = false;
            }
            Event::Input(Input::HypervisorGone { .. }) => self.hypervisor_gone = true,
            _ => {}
        }
    }

    fn settled(&mut self, now: Time, seen: &Observation, cause: Cause) {
        if seen.has_arrived() {
            self.arrive(now);
        } else {
            self.abandon(now, cause);
        }
    }
}

fn deadline(step: &str, bound: Time) -> Cause {
    Cause::Deadline {
        step: step.to_owned(),
        seconds: bound.as_secs(),
    }
}
