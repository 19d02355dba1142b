//! The part of the destination's table in which everything is here. Nothing but the source's word
//! moves it on, or an operator's while the source does not answer.

use super::{Action, Destination, Event, Input, Phase};
use crate::Time;
use crate::cause::{Cause, Reason, Refused};
use crate::journal::DestinationStep;
use crate::limits;
use crate::observation::{GuestSeen, Verdict};
use crate::question::Question;
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
            Event::Input(
                ref input @ (Input::VerdictAnswered { question, .. }
                | Input::VerdictRefused { question, .. }
                | Input::VerdictUnreachable { question, .. }),
            ) if !asking || self.is_late(now, question) => {
                return Err(self.unexpected(input.name()));
            }
            Event::Input(Input::VerdictAnswered { verdict, .. }) => {
                self.overruled(resolving.is_some());
                self.hear(now);
                match verdict {
                    Verdict::HandedOff | Verdict::CutOff => {
                        self.word_until = self.deadline;
                        self.resume(now);
                    }
                    Verdict::Kept => self.abandon(now, Cause::SourceKept),
                    Verdict::Undecided => {
                        let reason = Reason::from("the source has not decided yet");
                        self.no_verdict(now, attempts, reason);
                    }
                }
            }
            Event::Input(Input::VerdictRefused { reason, .. }) => {
                self.overruled(resolving.is_some());
                self.no_verdict(now, attempts, reason);
            }
            Event::Input(Input::RunRequested { age }) => {
                self.overruled(resolving.is_some());
                self.hear_word(now, age);
                self.resume(now);
            }
            Event::Input(Input::AbandonRequested) => {
                self.overruled(resolving.is_some());
                self.abandon(now, Cause::SourceKept);
            }
            // A `cont` that was thought to have failed, or to be lost.
            Event::Input(Input::Hypervisor(seen)) if seen.guest == GuestSeen::Running => {
                self.overruled(resolving.is_some());
                self.adopt(now);
            }
            Event::Input(Input::VerdictUnreachable { reason, .. }) => {
                self.silent_since.get_or_insert(now);
                self.last = Some(reason);
                self.not_answered(now, attempts, resolving);
            }
            // A last question whose end nobody told is none: an answer may have come meanwhile.
            Event::Deadline => self.ask(now, attempts, resolving.map(|(wish, _)| wish)),
            Event::Input(Input::ResolveRequested(Resolution::RunHere)) if self.pages_follow => {
                return Err(Refused::PagesMissing);
            }
            Event::Input(Input::ResolveRequested(wish)) => {
                let other = resolving.is_some_and(|(resolution, _)| resolution != wish);
                if other || wish == Resolution::GiveUp {
                    return Err(self.unexpected("resolve-requested"));
                }
                if resolving.is_some() {
                    return Ok(());
                }
                if self.ambiguity().is_none() {
                    return Err(self.unexpected("resolve-requested"));
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
            Event::Input(
                Input::SessionFailed { .. } | Input::SessionReopened | Input::Hypervisor(_),
            ) => {
                // A session that has done its work may end; one that has not is opened anew.
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

    /// An answer counts for its own question, and until that one's deadline.
    pub(super) fn is_late(&self, now: Time, question: Question) -> bool {
        question != self.question || self.deadline.is_some_and(|at| at <= now)
    }

    /// The source is there, and has not told whose the guest is.
    fn no_verdict(&mut self, now: Time, attempts: u32, reason: Reason) {
        self.hear(now);
        self.last = Some(reason);
        self.wait(now, attempts);
    }

    pub(super) fn ask(&mut self, now: Time, attempts: u32, wish: Option<Resolution>) {
        self.question = self.question.next();
        let question = self.question;
        self.outbox.act(Action::AskVerdict { question });
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
                self.word_until = None;
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
