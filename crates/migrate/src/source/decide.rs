//! What the source's table calls: decisions that depend on what was seen, not on the phase alone.

use std::time::Duration;

use super::{Action, Input, Phase, Source, Switching, Why, failed};
use crate::Time;
use crate::cause::{CancelledBy, Cause, KeptGuest, Outcome, Reason, Refused};
use crate::journal::SourceStep;
use crate::limits;
use crate::observation::{GuestSeen, Observation, OutgoingSeen};
use crate::session::Session;

impl Source {
    /// Inputs that end a migration of which the hypervisor knows nothing yet.
    pub(super) fn fail_before(
        &mut self,
        now: Time,
        phase: &Phase,
        input: Input,
    ) -> Result<(), Refused> {
        let why = match input {
            Input::DestinationRefused { reason } => {
                Why::Failed(Cause::DestinationFailed { reason })
            }
            Input::DestinationUnreachable { reason, .. } => {
                Why::Failed(Cause::DestinationUnreachable { reason })
            }
            Input::DestinationGone { reason } => Why::Failed(Cause::DestinationGone { reason }),
            Input::SessionFailed { reason } if *phase != Phase::Preparing => {
                Why::Failed(Cause::SessionFailed { reason })
            }
            Input::CancelRequested { by } => Why::Cancelled(by),
            Input::HypervisorGone { reason } => {
                let cause = Cause::HypervisorGone { reason };
                self.keep(now, failed(cause, KeptGuest::Gone), false);
                return Ok(());
            }
            // What is seen of the hypervisor is not about this migration yet.
            Input::Hypervisor(_) => return Ok(()),
            other => return Err(self.unexpected(other.name())),
        };
        self.keep(now, why.outcome(KeptGuest::Runs), false);
        Ok(())
    }

    pub(super) fn late(&mut self, now: Time, step: &str, bound: Duration) {
        self.keep(now, failed(deadline(step, bound), KeptGuest::Runs), false);
    }

    /// A look at a hypervisor that accepted the command.
    pub(super) fn observed(&mut self, now: Time, seen: &Observation, believed: bool) {
        match seen.outgoing() {
            OutgoingSeen::UnderWay => {}
            OutgoingSeen::Completed => self.hand_off(now),
            OutgoingSeen::Left { connected } => self.has_left(now, connected),
            // It may be of an earlier migration; the deadline asks again.
            _ if !believed => {}
            OutgoingSeen::Failed { reason } => {
                let cause = Cause::HypervisorFailed { reason };
                self.keep(now, failed(cause, kept(seen)), true);
            }
            OutgoingSeen::Cancelled => {
                self.keep(now, failed(Cause::CancelledElsewhere, kept(seen)), true);
            }
            OutgoingSeen::NotThere => {
                // It accepted the command, so this cannot be; make sure of it before deciding.
                let reason = Reason::from("it shows no migration after it accepted one");
                let why = Why::Failed(Cause::HypervisorFailed { reason });
                self.give_up(now, why, true, true);
            }
        }
    }

    /// Postcopy that this agent, or this life of it, has not begun.
    pub(super) fn has_left(&mut self, now: Time, connected: bool) {
        self.record(SourceStep::PostcopyBegun);
        let switching = Switching {
            left: true,
            broken: !connected,
            ..Switching::default()
        };
        self.switch(now, switching);
    }

    pub(super) fn recovered(&mut self, now: Time, step: &SourceStep, seen: &Observation) {
        let why = Why::Failed(Cause::AgentRestarted);
        if *step == SourceStep::Preparing {
            self.keep(now, why.outcome(kept(seen)), false);
            return;
        }
        match seen.outgoing() {
            OutgoingSeen::Completed => self.hand_off(now),
            OutgoingSeen::Left { .. } => self.has_left(now, false),
            OutgoingSeen::UnderWay if *step == SourceStep::PostcopyBegun => {
                let switching = Switching {
                    broken: true,
                    ..Switching::default()
                };
                self.switch(now, switching);
            }
            OutgoingSeen::UnderWay => self.give_up(now, why, true, true),
            OutgoingSeen::Failed { .. } | OutgoingSeen::Cancelled | OutgoingSeen::NotThere => {
                self.keep(now, why.outcome(kept(seen)), true);
            }
        }
    }

    /// A look at a hypervisor whose session carries: the migration goes on where it is.
    pub(super) fn taken_up(
        &mut self,
        now: Time,
        step: &SourceStep,
        seen: &Observation,
        cancel: Option<CancelledBy>,
    ) {
        let postcopy = *step == SourceStep::PostcopyBegun;
        match (seen.outgoing(), cancel) {
            (OutgoingSeen::Completed, _) => self.hand_off(now),
            (OutgoingSeen::Left { connected }, _) => self.has_left(now, connected),
            (OutgoingSeen::UnderWay, _) if postcopy => self.switch(now, Switching::default()),
            // Nothing that is under way begins one anew.
            (_, _) if postcopy => self.recovered(now, step, seen),
            (OutgoingSeen::UnderWay, None) => {
                let phase = Phase::Transferring {
                    accepted: true,
                    believed: true,
                };
                self.enter(now, phase, None);
            }
            (OutgoingSeen::UnderWay, Some(by)) => {
                self.give_up(now, Why::Cancelled(by), true, true);
            }
            // It was not begun, or has ended meanwhile, or that was an earlier one; and a command of
            // the agent before may still be on its way to it. With the session closed it can only
            // fail.
            (_, _) => self.give_up(now, Why::Failed(Cause::AgentRestarted), true, false),
        }
    }

    /// Nothing was heard of what a new agent asks for.
    pub(super) fn look_again(&mut self, step: &SourceStep, session: Session) {
        match session {
            Session::Unknown => return self.outbox.act(Action::FindSession),
            // A hypervisor may wait for a session that is no more.
            Session::Gone if *step != SourceStep::Preparing => self.outbox.act(Action::Yank),
            Session::Gone | Session::Lives => {}
        }
        self.outbox.act(Action::Observe);
    }

    pub(super) fn left(
        &mut self,
        now: Time,
        hypervisor_gone: bool,
        forgotten: bool,
        outcome: Outcome,
    ) {
        if hypervisor_gone && forgotten {
            self.end(now, outcome);
        } else {
            self.phase = Phase::Leaving {
                hypervisor_gone,
                forgotten,
                outcome,
            };
        }
    }

    pub(super) fn abandon_again(&mut self, now: Time, outcome: Outcome, attempts: u32) {
        // While the journal is stuck nothing was told, so nothing counts.
        let untold = self.outbox.unsafe_since().is_some();
        if attempts >= limits::ABANDON_ATTEMPTS && !untold {
            return self.end(now, outcome);
        }
        let attempts = if untold { attempts } else { attempts + 1 };
        self.outbox.act(Action::AbandonDestination);
        let phase = Phase::Abandoning { outcome, attempts };
        self.enter(now, phase, Some(limits::ABANDON_ANSWER));
    }
}

/// What becomes of a guest that stays, by the last look at it.
pub(super) fn kept(seen: &Observation) -> KeptGuest {
    match seen.guest {
        GuestSeen::Other => KeptGuest::Stopped,
        GuestSeen::PostMigrate if !seen.has_failed() => KeptGuest::Stopped,
        GuestSeen::PostMigrate
        | GuestSeen::Running
        | GuestSeen::Paused
        | GuestSeen::InMigrate
        | GuestSeen::FinishMigrate => KeptGuest::Runs,
    }
}

pub(super) fn without_guest(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Cancelled { by, .. } => Outcome::Cancelled {
            by,
            guest: KeptGuest::Gone,
        },
        Outcome::Failed { cause, .. } => Outcome::Failed {
            cause,
            guest: KeptGuest::Gone,
        },
        other => other,
    }
}

pub(super) fn deadline(step: &str, bound: Duration) -> Cause {
    Cause::Deadline {
        step: step.to_owned(),
        seconds: bound.as_secs(),
    }
}
