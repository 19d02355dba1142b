//! The part of the destination's table in which the guest runs and pages of it are still at the source:
//! postcopy. Nothing in it ends or stops the guest.

use super::phase::Filling;
use super::{Action, Destination, Ending, Event, Input, Phase};
use crate::Time;
use crate::cause::Refused;
use crate::journal::DestinationStep;
use crate::limits;
use crate::observation::{GuestSeen, MigrationSeen, Verdict};
use crate::resolution::{Resolution, Resolving};

impl Destination {
    /// The source may open a session anew, and this host's QEMU be told to listen for it: from when the
    /// guest's devices are here on, as a guest that is told to run may wait for a page at once.
    #[must_use]
    pub fn may_reopen(&self) -> bool {
        let phase = matches!(
            self.phase,
            Phase::Arrived { .. } | Phase::Resuming { .. } | Phase::Adopting | Phase::Filling(_)
        );
        phase && self.pages_follow
    }

    /// What is still at the source has to follow before the guest can go on without it.
    #[must_use]
    pub fn needs_its_source(&self) -> bool {
        self.pages_follow
    }

    pub(super) fn fill(&mut self, now: Time) {
        // All may be here by now.
        self.outbox.act(Action::Observe);
        self.wait_for_pages(now, Filling::default());
    }

    fn wait_for_pages(&mut self, now: Time, filling: Filling) {
        let asks = if self.session_over || self.unanswered {
            limits::VERDICT_RETRY
        } else {
            limits::PAGES_ASKED
        };
        self.enter(now, Phase::Filling(filling), Some(asks));
    }

    pub(super) fn step_filling(
        &mut self,
        now: Time,
        filling: Filling,
        event: Event,
    ) -> Result<(), Refused> {
        match event {
            Event::Input(Input::Hypervisor(seen)) => match seen.migration {
                _ if self.stands_still(seen.guest) && self.was_told(now) => {
                    self.outbox.act(Action::ResumeGuest);
                    // It lacks nothing else.
                    if seen.migration == MigrationSeen::Completed && filling.last_look {
                        self.wait_for_pages(now, Filling::default());
                    }
                }
                // Nothing but the source's word has it run; one that gave it up has none.
                MigrationSeen::Completed if self.stands_still(seen.guest) && !filling.last_look => {
                }
                MigrationSeen::Completed => self.run(now, false),
                // A session that has not ended yet may bring the rest.
                MigrationSeen::Postcopy { .. } if filling.last_look => {
                    self.deadline = Some(now + limits::LAST_LOOK);
                }
                MigrationSeen::Postcopy { .. } => self.session_over = false,
                MigrationSeen::PostcopyPaused if !self.session_over => {
                    self.session_over = true;
                    self.wait_for_pages(now, filling);
                }
                _ => {}
            },
            // A guest that runs may be shut down, and needs no page then.
            Event::Input(Input::HypervisorGone { .. }) => self.ran_here(now),
            Event::Input(Input::SessionReopened) => self.wait_for_pages(now, Filling::default()),
            Event::Input(Input::SessionLives) => self.wait_for_pages(now, filling),
            Event::Input(Input::SessionFailed { reason }) => {
                if !filling.asking && !filling.last_look {
                    self.wait_for_pages(now, filling);
                }
                self.last = Some(reason);
            }
            Event::Deadline if filling.last_look => self.cut_off(now),
            // A last question whose end nobody told is none.
            // The source may have nothing of it any more; only it can tell.
            Event::Deadline => self.ask_for_pages(now),
            Event::Input(
                ref input @ (Input::VerdictAnswered { question, .. }
                | Input::VerdictRefused { question, .. }
                | Input::VerdictUnreachable { question, .. }),
            ) if !filling.asking || self.is_late(now, question) => {
                return Err(self.unexpected(input.name()));
            }
            // As every answer to its order to run; the next look shows whether it does.
            Event::Input(Input::GuestResumed) => self.outbox.act(Action::Observe),
            Event::Input(Input::ResumeFailed { reason, .. }) => self.last = Some(reason),
            Event::Input(Input::VerdictAnswered {
                // A source that gave the guest up has ended its copy, and the pages with it.
                verdict: verdict @ (Verdict::CutOff | Verdict::Kept),
                ..
            }) => {
                self.source_is_there(now);
                self.hear_verdict(verdict);
                self.look_once_more(now);
            }
            Event::Input(Input::VerdictAnswered { verdict, .. }) => {
                self.source_is_there(now);
                self.hear_verdict(verdict);
                self.wait_for_pages(now, Filling::default());
                if self.unanswered {
                    self.outbox.act(Action::Observe);
                }
            }
            Event::Input(Input::VerdictRefused { reason, .. }) => {
                self.source_is_there(now);
                self.wait_for_pages(now, Filling::default());
                self.last = Some(reason);
            }
            Event::Input(Input::VerdictUnreachable { reason, .. }) => {
                self.silent_since.get_or_insert(now);
                if self.resolving == Resolving::Asking {
                    self.resolving = Resolving::Decided;
                    self.look_once_more(now);
                } else {
                    self.wait_for_pages(now, Filling::default());
                }
                self.last = Some(reason);
            }
            Event::Input(Input::ResolveRequested(wish)) => self.give_pages_up(now, wish)?,
            // The answer is `hand_off_answer`.
            Event::Input(Input::RunRequested { age }) if self.unanswered => {
                self.hear_word(now, age);
            }
            Event::Input(Input::RunRequested { .. }) => {}
            Event::Input(Input::AbandonRequested) => return Err(Refused::TooLate),
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// It certainly runs.
    pub(super) fn has_answered(&mut self) {
        let unanswered = std::mem::replace(&mut self.unanswered, false);
        if unanswered && matches!(self.phase, Phase::Filling(_)) {
            self.record(DestinationStep::Filling { unanswered: false });
        }
    }

    /// Its hypervisor answers, and does not run it: the order to do so was lost.
    fn stands_still(&self, guest: GuestSeen) -> bool {
        self.unanswered && guest == GuestSeen::Paused
    }

    /// The source's word still counts. An operator has none here.
    fn was_told(&self, now: Time) -> bool {
        self.word_until.is_some_and(|until| now < until)
    }

    fn hear_verdict(&mut self, verdict: Verdict) {
        if matches!(verdict, Verdict::HandedOff | Verdict::CutOff) {
            self.word_until = self.word_until.max(Some(self.asked + limits::WORD_COUNTS));
        }
    }

    /// A source whose agent was started again before its hypervisor was told to go on over this session takes it for
    /// one that carries, where that hypervisor has not seen that the one before broke. The session's end tells it.
    ///
    /// A hypervisor that answers nothing hangs on a page, which a session that was found again may bring: no other one
    /// can be opened then.
    fn close_in_vain(&mut self, now: Time) {
        let bound = limits::REOPENED + self.outage_limit;
        if self.waits_for_session && self.reopened.is_some_and(|at| at + bound <= now) {
            self.reopened = None;
            self.outbox.act(Action::CloseSession);
        }
    }

    fn ask_for_pages(&mut self, now: Time) {
        self.close_in_vain(now);
        self.asked = now;
        self.question = self.question.next();
        let question = self.question;
        self.outbox.act(Action::AskVerdict { question });
        self.outbox.act(Action::Observe);
        let filling = Filling {
            asking: true,
            last_look: false,
        };
        self.enter(now, Phase::Filling(filling), Some(limits::VERDICT_ANSWER));
    }

    /// No page comes from the source any more. All may be here by now, or on the way over a session that
    /// has not ended yet.
    fn look_once_more(&mut self, now: Time) {
        self.outbox.act(Action::Observe);
        let filling = Filling {
            asking: false,
            last_look: true,
        };
        self.enter(now, Phase::Filling(filling), Some(limits::LAST_LOOK));
    }

    /// Its word counts, and not an operator's.
    fn source_is_there(&mut self, now: Time) {
        self.hear(now);
        if self.resolving == Resolving::Asking {
            self.resolving = Resolving::Answered;
        }
    }

    /// An operator gives the pages up, of a source that does not come back: it is asked once more.
    fn give_pages_up(&mut self, now: Time, wish: Resolution) -> Result<(), Refused> {
        if wish == Resolution::RunHere {
            return Err(Refused::PagesMissing);
        }
        if wish != Resolution::Discard || self.ambiguity().is_none() {
            return Err(self.unexpected("resolve-requested"));
        }
        if self.resolving != Resolving::Asking {
            self.resolving = Resolving::Asking;
            self.ask_for_pages(now);
        }
        Ok(())
    }

    fn cut_off(&mut self, now: Time) {
        self.record(DestinationStep::CutOff);
        self.outbox.act(Action::CloseSession);
        self.finish(now, Ending::CutOff);
    }
}
