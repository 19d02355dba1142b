//! The part of the source's table after the decision for the destination. Nothing in it runs the
//! source's copy: it leaves for the destination, or an operator gives it up and it is ended.

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
        use Event::Deadline;
        use Event::Input as On;
        match (phase, event) {
            (_, On(Input::CancelRequested { .. })) => return Err(Refused::TooLate),
            (_, On(Input::Hypervisor(_) | Input::SessionFailed { .. })) => {}
            (phase @ Phase::Leaving { .. }, event) => return self.step_leaving(now, phase, event),

            // The destination runs it: that is final, whatever is being done here.
            (
                Phase::HandingOff {
                    hypervisor_gone, ..
                }
                | Phase::TakingBack {
                    hypervisor_gone, ..
                },
                On(Input::HandOffAnswered(HandOffAnswer::Running) | Input::DestinationRuns),
            ) => {
                self.record(SourceStep::RunsThere);
                self.leave(now, hypervisor_gone);
            }
            (phase @ Phase::TakingBack { .. }, event) => {
                return self.step_taking_back(now, phase, event);
            }

            (
                Phase::HandingOff { .. },
                On(
                    Input::HandOffAnswered(HandOffAnswer::Gone { reason })
                    | Input::DestinationGone { reason },
                ),
            ) => {
                self.outbox.act(Action::CloseSession);
                self.end(now, Outcome::Lost { reason });
            }
            (
                Phase::HandingOff {
                    hypervisor_gone, ..
                },
                On(Input::HandOffAnswered(HandOffAnswer::Discarded)),
            ) => self.give_guest_up(now, GivenUpOn::Destination, hypervisor_gone),
            (
                phase @ Phase::HandingOff { .. },
                On(
                    Input::HandOffAnswered(HandOffAnswer::Pending { reason })
                    | Input::DestinationAnswered { reason },
                ),
            ) => self.answered(now, phase, reason),
            (
                Phase::HandingOff {
                    giving_up: Some(LastQuestion::Asked),
                    ..
                },
                On(Input::HandOffUnreachable { .. }),
            ) => {
                // That it was told to run is long over; the last question is still open.
            }
            (phase @ Phase::HandingOff { .. }, On(Input::HandOffUnreachable { reason })) => {
                self.unheard(now, Some(reason));
                self.not_answered(now, phase);
            }
            (Phase::HandingOff { .. }, Deadline) if self.outbox.unsafe_since().is_some() => {
                // While the journal is stuck nothing was asked, so nothing counts.
                self.deadline = Some(now + limits::HAND_OFF_RETRY);
            }
            (
                phase @ Phase::HandingOff {
                    giving_up: Some(_), ..
                },
                Deadline,
            ) => {
                self.unheard(now, None);
                self.not_answered(now, phase);
            }
            (
                Phase::HandingOff {
                    attempts,
                    hypervisor_gone,
                    asking,
                    ..
                },
                Deadline,
            ) => {
                if asking {
                    self.unheard(now, None);
                }
                self.tell_again(now, attempts, hypervisor_gone);
            }
            (
                Phase::HandingOff {
                    hypervisor_gone,
                    giving_up: Some(LastQuestion::Asked),
                    ..
                },
                On(Input::DestinationSilent { reason }),
            ) => {
                self.unheard(now, Some(reason));
                self.give_guest_up(now, GivenUpOn::Source, hypervisor_gone);
            }
            (Phase::HandingOff { .. }, On(Input::DestinationSilent { .. })) => {
                // Nobody waits for it any more.
            }
            (
                Phase::HandingOff {
                    giving_up: Some(_), ..
                },
                On(Input::GiveUpRequested),
            ) => {}
            (phase @ Phase::HandingOff { asking, .. }, On(Input::GiveUpRequested)) => {
                self.resolving = Resolving::Asking;
                if asking {
                    // That it was told to run has to be over before the operator's word counts.
                    let phase = with_question(phase, LastQuestion::Waits);
                    self.enter(now, phase, Some(limits::LAST_TELL));
                } else {
                    self.ask_last(now, phase);
                }
            }
            (
                Phase::HandingOff {
                    attempts,
                    asking,
                    giving_up,
                    ..
                },
                On(Input::HypervisorGone { .. }),
            ) => {
                self.phase = Phase::HandingOff {
                    attempts,
                    hypervisor_gone: true,
                    asking,
                    giving_up,
                };
            }
            (_, On(input)) => return Err(self.unexpected(input.name())),
            (_, Deadline) => return Err(self.unexpected("deadline")),
        }
        Ok(())
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
            Event::Input(Input::HypervisorGone { .. }) => self.taken_back(now, on, true, returned),
            Event::Input(Input::GuestReturned) => self.taken_back(now, on, hypervisor_gone, true),
            Event::Input(Input::LeaveFailed { reason }) => self.last = Some(reason),
            Event::Deadline => {
                if !hypervisor_gone {
                    self.outbox.act(Action::QuitSource);
                }
                if !returned {
                    self.outbox.act(Action::ReturnGuest);
                }
                self.deadline = Some(now + limits::LEAVE_RETRY);
            }
            Event::Input(
                Input::HandOffAnswered(_)
                | Input::HandOffUnreachable { .. }
                | Input::DestinationAnswered { .. }
                | Input::DestinationSilent { .. }
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
        } = phase
        else {
            return Ok(());
        };
        match event {
            Event::Input(Input::HypervisorGone { .. }) => self.left(now, true, forgotten),
            Event::Input(Input::GuestForgotten) => self.left(now, hypervisor_gone, true),
            Event::Input(Input::LeaveFailed { reason }) => self.last = Some(reason),
            Event::Input(Input::DestinationRuns) => {}
            Event::Deadline => {
                if !hypervisor_gone {
                    self.outbox.act(Action::QuitSource);
                }
                if !forgotten {
                    self.outbox.act(Action::ForgetGuest);
                }
                self.deadline = Some(now + limits::LEAVE_RETRY);
            }
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// The destination answers and does not run the guest yet: an operator's word does not count.
    fn answered(&mut self, now: Time, phase: Phase, reason: Reason) {
        let Phase::HandingOff {
            attempts,
            hypervisor_gone,
            giving_up,
            ..
        } = phase
        else {
            return;
        };
        if giving_up.is_some() {
            self.resolving = Resolving::Answered;
        }
        self.silent_since = None;
        self.heard = Some(now);
        self.last = Some(reason);
        let phase = Phase::HandingOff {
            attempts,
            hypervisor_gone,
            asking: false,
            giving_up: None,
        };
        self.enter(now, phase, Some(limits::HAND_OFF_RETRY));
    }

    fn unheard(&mut self, now: Time, reason: Option<Reason>) {
        self.silent_since.get_or_insert(now);
        self.last = reason.or(self.last.take());
    }

    /// What was asked last has ended without an answer.
    fn not_answered(&mut self, now: Time, phase: Phase) {
        let Phase::HandingOff {
            attempts,
            hypervisor_gone,
            giving_up,
            ..
        } = phase
        else {
            return;
        };
        match giving_up {
            Some(LastQuestion::Asked) => {
                self.give_guest_up(now, GivenUpOn::Source, hypervisor_gone);
            }
            Some(LastQuestion::Waits) => self.ask_last(now, phase),
            None => {
                let phase = Phase::HandingOff {
                    attempts,
                    hypervisor_gone,
                    asking: false,
                    giving_up,
                };
                self.enter(now, phase, Some(limits::HAND_OFF_RETRY));
            }
        }
    }

    /// Asks without telling: from here on the destination is not told to run any more.
    fn ask_last(&mut self, now: Time, phase: Phase) {
        self.outbox.withdraw_actions();
        self.outbox.act(Action::AskDestination);
        let phase = with_question(phase, LastQuestion::Asked);
        self.enter(now, phase, Some(limits::HAND_OFF_ANSWER));
    }

    fn tell_again(&mut self, now: Time, attempts: u32, hypervisor_gone: bool) {
        self.outbox.act(Action::TellDestinationToRun);
        let phase = Phase::HandingOff {
            attempts: attempts.saturating_add(1),
            hypervisor_gone,
            asking: true,
            giving_up: None,
        };
        self.enter(now, phase, Some(limits::HAND_OFF_ANSWER));
    }

    fn give_guest_up(&mut self, now: Time, on: GivenUpOn, hypervisor_gone: bool) {
        self.outbox.withdraw_actions();
        self.resolving = Resolving::Decided;
        self.record(SourceStep::GivenUp { on });
        self.take_back(now, on, hypervisor_gone);
    }

    /// Ends the stopped copy, so that the guest can be started anew.
    pub(super) fn take_back(&mut self, now: Time, on: GivenUpOn, hypervisor_gone: bool) {
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

fn with_question(phase: Phase, question: LastQuestion) -> Phase {
    match phase {
        Phase::HandingOff {
            attempts,
            hypervisor_gone,
            ..
        } => Phase::HandingOff {
            attempts,
            hypervisor_gone,
            asking: true,
            giving_up: Some(question),
        },
        other => other,
    }
}
