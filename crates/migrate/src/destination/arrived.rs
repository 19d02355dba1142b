//! The part of the destination's table in which everything is here. Nothing but the source's word
//! moves it on, or an operator's while the source does not answer.

use super::{Action, Destination, Event, Input, Phase};
use crate::Time;
use crate::cause::{Cause, Reason, Refused};
use crate::journal::DestinationStep;
use crate::limits;
use crate::observation::Verdict;
use crate::resolution::{LastQuestion, Resolution, Resolving};

impl Destination {
    pub(super) fn step_arrived(
        &mut self,
        now: Time,
        phase: Phase,
        event: Event,
    ) -> Result<(), Refused> {
        let Phase::Arrived {
            attempts,
            asking,
            resolving,
        } = phase
        else {
            return Ok(());
        };
        match event {
            Event::Input(Input::RunRequested | Input::VerdictAnswered(Verdict::HandedOff)) => {
                self.overruled(resolving.is_some());
                self.resume(now);
            }
            Event::Input(Input::AbandonRequested | Input::VerdictAnswered(Verdict::Kept)) => {
                self.overruled(resolving.is_some());
                self.abandon(now, Cause::SourceKept);
            }
            Event::Input(Input::VerdictAnswered(Verdict::Undecided)) => {
                self.overruled(resolving.is_some());
                self.silent_since = None;
                self.heard = Some(now);
                self.last = Some(Reason::from("the source has not decided yet"));
                self.wait(now, attempts);
            }
            Event::Input(Input::VerdictUnreachable { reason }) => {
                self.silent_since.get_or_insert(now);
                self.last = Some(reason);
                self.not_answered(now, attempts, resolving);
            }
            Event::Deadline => match resolving {
                Some(_) => self.not_answered(now, attempts, resolving),
                None => self.ask(now, attempts, None),
            },
            Event::Input(Input::ResolveRequested(wish)) => {
                let other = resolving.is_some_and(|(resolution, _)| resolution != wish);
                if other || wish == Resolution::GiveUp {
                    return Err(self.unexpected("resolve-requested"));
                }
                if resolving.is_some() {
                    return Ok(());
                }
                self.resolving = Resolving::Asking;
                if asking {
                    self.phase = Phase::Arrived {
                        attempts,
                        asking,
                        resolving: Some((wish, LastQuestion::Waits)),
                    };
                } else {
                    self.ask(now, attempts, Some(wish));
                }
            }
            Event::Input(Input::HypervisorGone { reason }) => {
                self.overruled(resolving.is_some());
                self.lose(now, reason);
            }
            Event::Input(Input::SessionFailed { .. } | Input::Hypervisor(_)) => {
                // A session that has done its work may end.
            }
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    /// Something else than the operator's wish counts.
    fn overruled(&mut self, wished: bool) {
        if wished {
            self.resolving = Resolving::Answered;
        }
    }

    fn ask(&mut self, now: Time, attempts: u32, wish: Option<Resolution>) {
        self.outbox.act(Action::AskVerdict);
        let phase = Phase::Arrived {
            attempts: attempts.saturating_add(1),
            asking: true,
            resolving: wish.map(|wish| (wish, LastQuestion::Asked)),
        };
        self.enter(now, phase, Some(limits::VERDICT_ANSWER));
    }

    fn wait(&mut self, now: Time, attempts: u32) {
        let phase = Phase::Arrived {
            attempts,
            asking: false,
            resolving: None,
        };
        self.enter(now, phase, Some(limits::VERDICT_RETRY));
    }

    /// What was asked last has ended without an answer.
    fn not_answered(
        &mut self,
        now: Time,
        attempts: u32,
        resolving: Option<(Resolution, LastQuestion)>,
    ) {
        match resolving {
            None => self.wait(now, attempts),
            Some((wish, LastQuestion::Waits)) => self.ask(now, attempts, Some(wish)),
            Some((Resolution::RunHere, LastQuestion::Asked)) => {
                self.resolving = Resolving::Decided;
                self.record(DestinationStep::RunHere);
                self.resume(now);
            }
            Some((_, LastQuestion::Asked)) => {
                self.resolving = Resolving::Decided;
                self.record(DestinationStep::Discarding);
                self.discard(now);
            }
        }
    }

    pub(super) fn discard(&mut self, now: Time) {
        self.abandon(now, Cause::Discarded);
    }
}
