//! The part of the source's table after the decision for the destination. Nothing in it runs the
//! source's copy: it leaves for the destination, or an operator gives it up and it is ended.

use super::phase::HandOff;
use super::{Action, Event, Input, Phase, Source};
use crate::Time;
use crate::cause::{GivenUpOn, Outcome, Reason, Refused};
use crate::journal::SourceStep;
use crate::limits;
use crate::observation::HandOffAnswer;
use crate::resolution::{LastQuestion, Resolving};

impl Source {
    pub(super) fn step_decided(
        &mut self,
        now: Time,
        phase: Phase,
        event: Event,
    ) -> Result<(), Refused> {
        use Event::Input as On;
        match (phase, event) {
            (_, On(Input::CancelRequested { .. })) => Err(Refused::TooLate),
            (Phase::Serving { asking }, event) => self.step_serving(now, asking, event),
            (Phase::HandingOff(hand_off), On(input))
                if self.pages_follow() && Self::is_of_pages(&input) =>
            {
                let gone = matches!(input, Input::HypervisorGone { .. });
                self.phase = Phase::HandingOff(HandOff {
                    hypervisor_gone: hand_off.hypervisor_gone || gone,
                    ..hand_off
                });
                self.heard_of_pages(now, input)
            }
            (_, On(Input::Hypervisor(_) | Input::SessionFailed { .. })) => Ok(()),
            (Phase::HandingOff(_), On(Input::DestinationArrived)) => Ok(()),
            (Phase::HandingOff(hand_off), event) => self.step_handing_off(now, hand_off, event),
            (_, On(Input::LeaveFailed { reason })) => {
                self.last = Some(reason);
                Ok(())
            }
            (phase @ Phase::TakingBack { .. }, event) => self.step_taking_back(now, phase, event),
            (phase @ Phase::Leaving { .. }, event) => self.step_leaving(now, phase, event),
            (_, On(input)) => Err(self.unexpected(input.name())),
            (_, Event::Deadline) => Err(self.unexpected("deadline")),
        }
    }

    fn step_handing_off(
        &mut self,
        now: Time,
        hand_off: HandOff,
        event: Event,
    ) -> Result<(), Refused> {
        use Event::Deadline;
        use Event::Input as On;
        let gone = hand_off.hypervisor_gone;
        match event {
            // What is final is so whenever it was asked for.
            On(
                Input::HandOffAnswered {
                    answer: HandOffAnswer::Running,
                    ..
                }
                | Input::DestinationRuns,
            ) => {
                self.overruled(hand_off.giving_up.is_some());
                self.record(SourceStep::RunsThere);
                self.leave(now, gone);
            }
            On(Input::HandOffAnswered {
                answer: HandOffAnswer::Filling,
                ..
            }) => {
                self.overruled(hand_off.giving_up.is_some());
                self.runs_there(now, gone);
            }
            On(Input::HandOffAnswered {
                answer: HandOffAnswer::CutOff,
                ..
            }) => {
                self.overruled(hand_off.giving_up.is_some());
                self.cut_off(now, gone);
            }
            On(
                Input::HandOffAnswered {
                    answer: HandOffAnswer::Gone { reason },
                    ..
                }
                | Input::DestinationGone { reason },
            ) => {
                self.overruled(hand_off.giving_up.is_some());
                self.outbox.act(Action::CloseSession);
                self.end(now, Outcome::Lost { reason });
            }
            On(Input::HandOffAnswered {
                answer: HandOffAnswer::Discarded,
                ..
            }) => self.give_guest_up(now, GivenUpOn::Destination, gone),

            // What is not counts for the question that it answers.
            On(
                ref input @ (Input::HandOffAnswered { question, .. }
                | Input::HandOffUnreachable { question, .. }),
            ) if !hand_off.asking || question != self.question => {
                return Err(self.unexpected(input.name()));
            }
            On(Input::HandOffAnswered {
                answer: HandOffAnswer::Pending { reason },
                ..
            }) => self.answered(now, hand_off, reason),
            On(Input::HandOffUnreachable { reason, .. }) => {
                self.unheard(now, Some(reason));
                self.not_answered(now, hand_off);
            }
            Deadline if self.outbox.unsafe_since().is_some() => {
                // While the journal is stuck nothing was asked, so nothing counts.
                self.deadline = Some(now + limits::HAND_OFF_RETRY);
            }
            Deadline => {
                if hand_off.asking {
                    self.unheard(now, None);
                }
                self.time_passed(now, hand_off);
            }
            On(Input::GiveUpRequested) => self.wish_to_give_up(now, hand_off)?,
            On(Input::HypervisorGone { .. }) => {
                self.phase = Phase::HandingOff(HandOff {
                    hypervisor_gone: true,
                    ..hand_off
                });
            }
            On(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// The guest may need pages there.
    fn runs_there(&mut self, now: Time, hypervisor_gone: bool) {
        // Where the journal was lost only the guest's own record is left, which does not tell of pages.
        if !self.pages_follow() && !self.completed {
            self.pages_are_unknown(now, hypervisor_gone);
        }
        if self.pages_follow() {
            self.record(SourceStep::Serving);
            return self.serve(now);
        }
        self.record(SourceStep::RunsThere);
        self.leave(now, hypervisor_gone);
    }

    fn step_taking_back(&mut self, now: Time, phase: Phase, event: Event) -> Result<(), Refused> {
        let Phase::TakingBack {
            on,
            hypervisor_gone,
            returned,
        } = phase
        else {
            return Ok(());
        };
        match event {
            // The destination runs it: that is final, whatever is being done here.
            Event::Input(
                Input::HandOffAnswered {
                    answer: HandOffAnswer::Running,
                    ..
                }
                | Input::DestinationRuns,
            ) => {
                self.record(SourceStep::RunsThere);
                self.leave(now, hypervisor_gone);
            }
            // It does, and its pages are being ended here.
            Event::Input(Input::HandOffAnswered {
                answer: HandOffAnswer::Filling | HandOffAnswer::CutOff,
                ..
            }) => self.cut_off(now, hypervisor_gone),
            Event::Input(Input::HypervisorGone { .. }) => self.taken_back(now, on, true, returned),
            Event::Input(Input::GuestReturned) => self.taken_back(now, on, hypervisor_gone, true),
            Event::Deadline => {
                self.clear_again(now, hypervisor_gone, returned, Action::ReturnGuest)
            }
            Event::Input(
                Input::HandOffAnswered { .. }
                | Input::HandOffUnreachable { .. }
                | Input::DestinationGone { .. }
                | Input::GiveUpRequested,
            ) => {}
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    fn step_leaving(&mut self, now: Time, phase: Phase, event: Event) -> Result<(), Refused> {
        let Phase::Leaving {
            hypervisor_gone,
            forgotten,
            outcome,
        } = phase
        else {
            return Ok(());
        };
        match event {
            Event::Input(Input::HypervisorGone { .. }) => {
                self.left(now, true, forgotten, outcome);
            }
            Event::Input(Input::GuestForgotten) => {
                self.left(now, hypervisor_gone, true, outcome);
            }
            Event::Input(Input::DestinationRuns) => {}
            Event::Deadline => {
                self.clear_again(now, hypervisor_gone, forgotten, Action::ForgetGuest);
            }
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// Of the copy here and its definition, what has not gone its way yet.
    fn clear_again(&mut self, now: Time, hypervisor_gone: bool, moved: bool, definition: Action) {
        if !hypervisor_gone {
            self.outbox.act(Action::QuitSource);
        }
        if !moved {
            self.outbox.act(definition);
        }
        self.deadline = Some(now + limits::LEAVE_RETRY);
    }

    /// Something else than an operator's wish counts.
    fn overruled(&mut self, wished: bool) {
        if wished {
            self.resolving = Resolving::Answered;
        }
    }

    /// The destination answers and does not run the guest yet.
    fn answered(&mut self, now: Time, hand_off: HandOff, reason: Reason) {
        self.overruled(hand_off.giving_up.is_some());
        self.hear(now);
        self.last = Some(reason);
        let hand_off = HandOff {
            asking: false,
            giving_up: None,
            ..hand_off
        };
        let bound = Some(limits::HAND_OFF_RETRY);
        self.enter(now, Phase::HandingOff(hand_off), bound);
    }

    pub(super) fn hear(&mut self, now: Time) {
        self.silent_since = None;
        self.heard = Some(now);
    }

    pub(super) fn unheard(&mut self, now: Time, reason: Option<Reason>) {
        self.silent_since.get_or_insert(now);
        self.last = reason.or(self.last.take());
    }

    /// The question that was open has ended without an answer.
    fn not_answered(&mut self, now: Time, hand_off: HandOff) {
        let bound = match hand_off.giving_up {
            None => limits::HAND_OFF_RETRY,
            Some(LastQuestion::Waits) => limits::WORD_OVER,
            Some(LastQuestion::Asked) => {
                let gone = hand_off.hypervisor_gone;
                return self.give_guest_up(now, GivenUpOn::Source, gone);
            }
        };
        let hand_off = HandOff {
            asking: false,
            ..hand_off
        };
        self.enter(now, Phase::HandingOff(hand_off), Some(bound));
    }

    fn time_passed(&mut self, now: Time, hand_off: HandOff) {
        match hand_off.giving_up {
            None => self.tell_again(now, hand_off),
            // A last question whose end nobody told is none: an answer may have come meanwhile.
            Some(LastQuestion::Waits | LastQuestion::Asked) => self.ask_last(now, hand_off),
        }
    }

    /// An operator gives the guest up. From here on nothing tells the destination to run it
    /// ([`Source::verdict`]), and what was said before has to be over before it is asked once more.
    pub(super) fn wish_to_give_up(&mut self, now: Time, hand_off: HandOff) -> Result<(), Refused> {
        if hand_off.giving_up.is_some() {
            return Ok(());
        }
        if self.ambiguity().is_none() {
            return Err(self.unexpected(Input::GiveUpRequested.name()));
        }
        self.outbox.withdraw_actions();
        self.resolving = Resolving::Asking;
        let still_open = if hand_off.asking {
            limits::HAND_OFF_ANSWER
        } else {
            Time::ZERO
        };
        let hand_off = HandOff {
            giving_up: Some(LastQuestion::Waits),
            ..hand_off
        };
        let bound = still_open + limits::WORD_OVER;
        self.enter(now, Phase::HandingOff(hand_off), Some(bound));
        Ok(())
    }

    /// Asks without telling.
    fn ask_last(&mut self, now: Time, hand_off: HandOff) {
        let question = self.next_question();
        self.outbox.act(Action::AskDestination { question });
        let hand_off = HandOff {
            asking: true,
            giving_up: Some(LastQuestion::Asked),
            ..hand_off
        };
        let bound = Some(limits::HAND_OFF_ANSWER);
        self.enter(now, Phase::HandingOff(hand_off), bound);
    }

    fn tell_again(&mut self, now: Time, hand_off: HandOff) {
        let question = self.next_question();
        self.outbox.act(Action::TellDestinationToRun { question });
        let hand_off = HandOff {
            attempts: hand_off.attempts.saturating_add(1),
            asking: true,
            ..hand_off
        };
        let bound = Some(limits::HAND_OFF_ANSWER);
        self.enter(now, Phase::HandingOff(hand_off), bound);
    }

    pub(super) fn give_guest_up(&mut self, now: Time, on: GivenUpOn, hypervisor_gone: bool) {
        self.outbox.withdraw_actions();
        self.resolving = Resolving::Decided;
        self.record(SourceStep::GivenUp { on });
        self.take_back(now, on, hypervisor_gone);
    }

    /// Ends the stopped copy, so that the guest can be started anew.
    pub(super) fn take_back(&mut self, now: Time, on: GivenUpOn, hypervisor_gone: bool) {
        self.pages = None;
        let phase = Phase::TakingBack {
            on,
            hypervisor_gone,
            returned: false,
        };
        self.enter(now, phase, Some(limits::LEAVE_RETRY));
        self.outbox.act(Action::CloseSession);
        if !hypervisor_gone {
            self.outbox.act(Action::QuitSource);
        }
        self.outbox.act(Action::ReturnGuest);
    }

    fn taken_back(&mut self, now: Time, on: GivenUpOn, hypervisor_gone: bool, returned: bool) {
        if hypervisor_gone && returned {
            self.end(now, Outcome::GivenUp { on });
        } else {
            self.phase = Phase::TakingBack {
                on,
                hypervisor_gone,
                returned,
            };
        }
    }
}
