//! The part of the source's table in which the guest leaves before its memory has: postcopy.
//!
//! ```text
//! Transferring ─▶ Switching ─▶ HandingOff ─▶ Serving ─▶ Leaving
//!                     │            (told as in any hand-off)  └─ the hypervisor ended before: cut off
//!                     └─▶ Transferring (refused), Abandoning (it failed before the guest had left)
//! ```
//!
//! Two things are needed before the hand-off. *This hypervisor will not run its guest again*: until its
//! first page has gone out after the stop it fails where it cannot send the guest's devices (QEMU
//! `postcopy_start`, to 10.1), and the guest stays. And *the destination has the devices*: until then a broken
//! connection cannot be taken up again, and a guest that was handed off would be nowhere.
//!
//! A hypervisor that fails runs its guest again if that ran when the migration stopped it; QEMU does that at
//! the very end of postcopy, too, where every page was sent and the connection breaks before the destination's
//! last word. So the guest is stopped by an order of its own before postcopy begins: what was stopped
//! by an order goes on by one only. Tried with QEMU 7.2 and 10.0.2.

use super::decide::kept;
use super::pages::PageLink;
use super::phase::{HandOff, Switching};
use super::{Action, Event, Input, Phase, Source, failed};
use crate::Time;
use crate::cause::{CancelledBy, Cause, GivenUpOn, KeptGuest, Outcome, Reason, Refused};
use crate::journal::SourceStep;
use crate::limits;
use crate::observation::{HandOffAnswer, Observation, OutgoingSeen};
use crate::session::Session;

impl Source {
    /// Has the hypervisor begin; from here on nothing cancels it.
    pub(super) fn begin_postcopy(&mut self, now: Time) {
        self.record(SourceStep::PostcopyBegun);
        self.switch(now, Switching::default());
    }

    /// The guest has left, or may be about to.
    pub(super) fn switch(&mut self, now: Time, switching: Switching) {
        self.pursue(&switching);
        let bound = Some(limits::HAND_OFF_RETRY);
        self.enter(now, Phase::Switching(switching), bound);
    }

    /// What may bring it further.
    fn pursue(&mut self, switching: &Switching) {
        if switching.left {
            let question = self.next_question();
            self.outbox.act(Action::AskDestination { question });
            return;
        }
        // Without a session the hypervisor can only fail, and then runs its guest again.
        self.outbox.act(if switching.broken {
            Action::Yank
        } else {
            Action::StartPostcopy
        });
        self.outbox.act(Action::Observe);
    }

    pub(super) fn step_switching(
        &mut self,
        now: Time,
        switching: Switching,
        event: Event,
    ) -> Result<(), Refused> {
        let Event::Input(input) = event else {
            // While the journal is stuck nothing was begun.
            if self.outbox.unsafe_since().is_none() {
                self.pursue(&switching);
            }
            self.deadline = Some(now + limits::HAND_OFF_RETRY);
            return Ok(());
        };
        match input {
            Input::CancelRequested { .. } => return Err(Refused::TooLate),
            Input::PostcopyRefused { reason } if !switching.left => {
                self.refused_postcopy(now, &switching, reason);
            }
            Input::PostcopyRefused { .. } => {}
            Input::Hypervisor(seen) => self.seen_switching(now, switching, &seen),
            // It runs it already by an operator's word, so it has it.
            Input::DestinationArrived
            | Input::DestinationRuns
            | Input::HandOffAnswered {
                answer: HandOffAnswer::Running | HandOffAnswer::Filling | HandOffAnswer::CutOff,
                ..
            } => {
                let arrived = true;
                self.hand_off_if_left(
                    now,
                    Switching {
                        arrived,
                        ..switching
                    },
                );
            }
            Input::SessionFailed { reason } => {
                self.last = Some(reason);
                if !switching.broken {
                    self.outbox.act(Action::CloseSession);
                    let broken = true;
                    self.switch(
                        now,
                        Switching {
                            broken,
                            ..switching
                        },
                    );
                }
            }
            Input::DestinationGone { reason }
            | Input::HandOffAnswered {
                answer: HandOffAnswer::Gone { reason },
                ..
            } => self.destination_is_gone(now, switching, reason),
            Input::HandOffAnswered {
                answer: HandOffAnswer::Discarded,
                ..
            } if switching.left => {
                self.give_guest_up(now, GivenUpOn::Destination, false);
            }
            Input::HandOffAnswered {
                answer: HandOffAnswer::Pending { reason },
                ..
            } => {
                self.silent_since = None;
                self.heard = Some(now);
                self.last = Some(reason);
            }
            Input::HandOffAnswered { .. } => {}
            Input::HandOffUnreachable { reason, .. } => {
                self.silent_since.get_or_insert(now);
                self.last = Some(reason);
            }
            // It was never told to run the guest, so nothing has to be waited for.
            Input::GiveUpRequested if self.ambiguity().is_some() => {
                self.give_guest_up(now, GivenUpOn::Source, false);
            }
            Input::HypervisorGone { reason } => {
                let cause = Cause::HypervisorGone { reason };
                self.keep(now, failed(cause, KeptGuest::Gone), true);
            }
            other => return Err(self.unexpected(other.name())),
        }
        Ok(())
    }

    /// Its guest may stand still for it already: the migration is given up, and the guest goes on.
    fn refused_postcopy(&mut self, now: Time, switching: &Switching, reason: Reason) {
        let why = if switching.broken {
            super::Why::Failed(Cause::SessionFailed { reason })
        } else {
            super::Why::Cancelled(CancelledBy::Deadline)
        };
        self.give_up(now, why, true, true);
    }

    fn seen_switching(&mut self, now: Time, switching: Switching, seen: &Observation) {
        let cause = match seen.outgoing() {
            OutgoingSeen::Completed => return self.hand_off(now),
            OutgoingSeen::UnderWay => return,
            OutgoingSeen::Left { connected } => {
                let broken = switching.broken || !connected;
                let first = !switching.left;
                let switching = Switching {
                    left: true,
                    broken,
                    ..switching
                };
                return match switching.gone.clone() {
                    Some(reason) => self.destination_is_gone(now, switching, reason),
                    None if switching.arrived => self.hand_off_if_left(now, switching),
                    None if first => self.switch(now, switching),
                    None => self.phase = Phase::Switching(switching),
                };
            }
            OutgoingSeen::Failed { reason } => match switching.gone {
                Some(reason) => Cause::DestinationGone { reason },
                None => Cause::HypervisorFailed { reason },
            },
            OutgoingSeen::Cancelled => Cause::CancelledElsewhere,
            OutgoingSeen::NotThere => Cause::HypervisorFailed {
                reason: Reason::from("it shows no migration after it accepted one"),
            },
        };
        self.keep(now, failed(cause, kept(seen)), true);
    }

    fn hand_off_if_left(&mut self, now: Time, switching: Switching) {
        if !switching.left {
            self.phase = Phase::Switching(switching);
            // Whoever waits for this stands still.
            return self.outbox.act(Action::Observe);
        }
        let session = if switching.broken {
            Session::Gone
        } else {
            Session::Lives
        };
        self.record(SourceStep::PostcopyHandedOff);
        self.pages_follow_over(now, session);
        self.tell_to_run(now, false);
    }

    /// Nobody will ever run it there. A guest that has left its hypervisor cannot return to it.
    fn destination_is_gone(&mut self, now: Time, switching: Switching, reason: Reason) {
        if switching.left {
            let cause = Cause::DestinationGone { reason };
            return self.keep(now, failed(cause, KeptGuest::Stopped), true);
        }
        self.outbox.act(Action::CloseSession);
        let switching = Switching {
            broken: true,
            gone: Some(reason),
            ..switching
        };
        self.switch(now, switching);
    }

    /// The guest runs there, and its pages follow.
    pub(super) fn serve(&mut self, now: Time) {
        self.hear(now);
        self.enter(now, Phase::Serving { asking: false }, None);
        self.attend(now);
        self.quit_what_failed();
    }

    /// What sends no page any more is of no use here, and must never run its guest.
    fn quit_what_failed(&mut self) {
        if self.sends_no_more() && !self.hypervisor_has_ended() {
            self.outbox.act(Action::QuitSource);
        }
    }

    /// While nothing carries the pages the destination is asked: it may need none any more, or be silent.
    pub(super) fn attend(&mut self, now: Time) {
        let Phase::Serving { asking } = self.phase else {
            return;
        };
        match self.page_link() {
            None => self.leave(now, false),
            Some(link) if link.carries() => {
                self.hear(now);
                self.phase = Phase::Serving { asking: false };
                self.deadline = None;
            }
            Some(_) if asking || self.deadline.is_some() => {}
            Some(_) => self.deadline = Some(now + limits::HAND_OFF_RETRY),
        }
    }

    pub(super) fn step_serving(
        &mut self,
        now: Time,
        asking: bool,
        event: Event,
    ) -> Result<(), Refused> {
        match event {
            Event::Input(input) if Self::is_of_pages(&input) => {
                let sent = !self.sends_no_more();
                self.heard_of_pages(now, input)?;
                self.attend(now);
                if sent {
                    self.quit_what_failed();
                }
            }
            // What is final is so whenever it was asked for.
            Event::Input(Input::HandOffAnswered {
                answer: HandOffAnswer::Running,
                ..
            }) => {
                let gone = self.hypervisor_has_ended();
                self.leave(now, gone);
            }
            Event::Input(Input::HandOffAnswered {
                answer: HandOffAnswer::CutOff,
                ..
            }) => {
                let gone = self.hypervisor_has_ended();
                self.cut_off(now, gone);
            }
            Event::Input(
                ref input @ (Input::HandOffAnswered { question, .. }
                | Input::HandOffUnreachable { question, .. }),
            ) if !asking || question != self.question => {
                return Err(self.unexpected(input.name()));
            }
            Event::Input(Input::HandOffAnswered { .. }) => {
                self.hear(now);
                self.ask_again_later(now);
            }
            Event::Input(Input::HandOffUnreachable { reason, .. }) => {
                self.unheard(now, Some(reason));
                self.ask_again_later(now);
            }
            // While the journal is stuck nothing was asked, so nothing counts.
            Event::Deadline if self.outbox.unsafe_since().is_some() => self.ask_again_later(now),
            Event::Deadline => {
                if asking {
                    self.unheard(now, None);
                }
                let question = self.next_question();
                self.outbox.act(Action::AskDestination { question });
                self.phase = Phase::Serving { asking: true };
                self.deadline = Some(now + limits::HAND_OFF_ANSWER);
            }
            // The guest is given up as one that nobody knows to run.
            Event::Input(Input::GiveUpRequested) => {
                let hand_off = HandOff {
                    attempts: 0,
                    hypervisor_gone: self.hypervisor_has_ended(),
                    asking,
                    giving_up: None,
                };
                self.wish_to_give_up(now, hand_off)?;
            }
            // What was asked in the hand-off.
            Event::Input(Input::DestinationRuns | Input::DestinationArrived) => {}
            Event::Input(Input::LeaveFailed { reason }) => self.last = Some(reason),
            Event::Input(input) => return Err(self.unexpected(input.name())),
        }
        Ok(())
    }

    fn ask_again_later(&mut self, now: Time) {
        self.phase = Phase::Serving { asking: false };
        self.deadline = Some(now + limits::HAND_OFF_RETRY);
    }

    pub(super) fn cut_off(&mut self, now: Time, hypervisor_gone: bool) {
        let reason = match self.page_link() {
            Some(PageLink::Over { reason, .. }) => reason.clone(),
            _ => Reason::from("an operator gave them up"),
        };
        self.record(SourceStep::CutOff {
            reason: reason.clone(),
        });
        self.leave_as(now, hypervisor_gone, Outcome::CutOff { reason });
    }
}
