//! The part of the source's table in which the guest leaves before its memory has: postcopy.
//!
//! ```text
//! Transferring ─▶ Switching ─▶ HandingOff ─▶ Serving ─▶ Leaving
//!                     │            (told as in any hand-off)  └─ the hypervisor ended before: cut off
//!                     └─▶ Transferring (refused), Abandoning (it failed before the guest had left)
//! ```
//!
//! Two things are needed before the hand-off. *This hypervisor will not run its guest again*: until its
//! first page has gone out after the stop it may, where it fails to send the guest's devices (QEMU
//! `postcopy_start`, to 10.1). And *the destination has the devices*: until then a broken connection
//! cannot be taken up again, and a guest that was handed off would be nowhere.
//!
//! Known to be wrong: at the very end, when every page was sent and the destination's last word has not come, a broken
//! connection makes this hypervisor fail and run its guest again (seen with QEMU 10.0.2). Nothing here sees that.

use super::decide::kept;
use super::phase::{HandOff, PageLink, Switching};
use super::{Action, Event, Input, Phase, Source, failed};
use crate::Time;
use crate::cause::{Cause, GivenUpOn, KeptGuest, Outcome, Reason, Refused};
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
                answer: HandOffAnswer::Running,
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

    /// It goes on as if nothing had been asked for.
    fn refused_postcopy(&mut self, now: Time, switching: &Switching, reason: Reason) {
        self.record(SourceStep::Transferring);
        let phase = Phase::Transferring {
            accepted: true,
            believed: true,
        };
        self.enter(now, phase, None);
        self.last = Some(reason.clone());
        if switching.broken {
            let why = super::Why::Failed(Cause::SessionFailed { reason });
            self.give_up(now, why, true, true);
        }
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
        self.tell_to_run(now, false, Some(session));
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

    /// In the hand-off: what is seen of pages that still follow the guest.
    pub(super) fn seen_handing_off(&mut self, hand_off: HandOff, input: &Input) {
        let pages = match (hand_off.pages, input) {
            (None, _) => return,
            (_, Input::SessionFailed { .. }) => Some(Session::Gone),
            (pages, Input::Hypervisor(seen)) => match seen.outgoing() {
                OutgoingSeen::Completed => None,
                OutgoingSeen::Left { connected: false } => Some(Session::Gone),
                _ => pages,
            },
            (pages, _) => pages,
        };
        self.phase = Phase::HandingOff(HandOff { pages, ..hand_off });
    }

    /// The guest runs there, and its pages follow.
    pub(super) fn serve(&mut self, now: Time, session: Session) {
        match session {
            Session::Lives => self.enter(now, Phase::Serving(PageLink::Carries), None),
            Session::Gone => self.reopen(now),
            Session::Unknown => {
                self.outbox.act(Action::FindSession);
                let phase = Phase::Serving(PageLink::Unknown);
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
            }
        }
    }

    fn reopen(&mut self, now: Time) {
        self.outbox.act(Action::ReopenSession);
        let phase = Phase::Serving(PageLink::Reopening);
        self.enter(now, phase, Some(limits::REOPEN));
    }

    fn reopen_later(&mut self, now: Time, reason: Reason) {
        let phase = Phase::Serving(PageLink::Waits);
        self.enter(now, phase, Some(limits::REOPEN_RETRY));
        self.last = Some(reason);
    }

    pub(super) fn step_serving(
        &mut self,
        now: Time,
        link: PageLink,
        event: Event,
    ) -> Result<(), Refused> {
        use Event::Input as On;
        use PageLink::{Carries, Reopening, Resumed, Resuming, Unknown, Waits};
        match (link, event) {
            (_, On(Input::HypervisorGone { reason })) => self.cut_off(now, reason),
            // It needs nothing of here any more.
            (_, On(Input::DestinationEnded)) => self.leave(now, false),
            (_, On(Input::Hypervisor(seen))) => match (seen.outgoing(), link) {
                (OutgoingSeen::Completed, _) => self.leave(now, false),
                (OutgoingSeen::Left { connected: false }, Carries) => self.reopen(now),
                _ => {}
            },
            (Unknown, On(Input::SessionLives)) => {
                self.enter(now, Phase::Serving(Carries), None);
                self.outbox.act(Action::Observe);
            }
            (Unknown | Carries | Resumed, On(Input::SessionFailed { reason })) => {
                self.reopen(now);
                self.last = Some(reason);
            }
            (Resuming, On(Input::SessionFailed { reason }))
            | (Reopening | Resuming, On(Input::ReopenFailed { reason })) => {
                self.reopen_later(now, reason);
            }
            (Reopening, On(Input::SessionReopened)) => {
                self.outbox.act(Action::ResumeMigration);
                let phase = Phase::Serving(Resuming);
                self.enter(now, phase, Some(limits::MIGRATE_ANSWER));
            }
            // A look that was under way may still show the broken connection.
            (Resuming, On(Input::MigrationResumed)) => {
                self.enter(now, Phase::Serving(Resumed), Some(limits::LOOK_AGE));
            }
            (Resumed, Event::Deadline) => {
                self.enter(now, Phase::Serving(Carries), None);
                self.outbox.act(Action::Observe);
            }
            (Unknown, Event::Deadline) => {
                self.outbox.act(Action::FindSession);
                self.deadline = Some(now + limits::OBSERVE_RETRY);
            }
            (Reopening | Resuming | Waits, Event::Deadline) => self.reopen(now),
            // What was asked in the hand-off, or of a session that was given up.
            (
                _,
                On(
                    Input::SessionFailed { .. }
                    | Input::DestinationRuns
                    | Input::DestinationArrived
                    | Input::HandOffAnswered { .. }
                    | Input::HandOffUnreachable { .. },
                ),
            ) => {}
            (_, On(input)) => return Err(self.unexpected(input.name())),
            (_, Event::Deadline) => return Err(self.unexpected("deadline")),
        }
        Ok(())
    }

    pub(super) fn cut_off(&mut self, now: Time, reason: Reason) {
        self.record(SourceStep::CutOff {
            reason: reason.clone(),
        });
        self.leave_as(now, true, Outcome::CutOff { reason });
    }
}
