//! The source's table: what each input does in each phase. The table is printed, whole, in
//! `tests/snapshots/`.

use super::decide::{deadline, kept, without_guest};
use super::{Action, Event, Input, Phase, Source, Why, failed, guest_of};
use crate::Time;
use crate::cause::{Cause, KeptGuest, Outcome, Refused};
use crate::journal::SourceStep;
use crate::limits;
use crate::observation::OutgoingSeen;
use crate::session::Session;

impl Source {
    #[allow(
        clippy::too_many_lines,
        reason = "one match is the table; its arms are one call each"
    )]
    pub(super) fn step(&mut self, now: Time, event: Event) -> Result<(), Refused> {
        use Event::Deadline;
        use Event::Input as On;
        match (self.phase.clone(), event) {
            // The destination gets ready.
            (Phase::Preparing, On(Input::DestinationReady { paths, .. })) if paths.is_empty() => {
                self.keep(now, failed(Cause::NoPath, KeptGuest::Runs), false);
            }
            (Phase::Preparing, On(Input::DestinationReady { paths, channels })) => {
                self.outbox.act(Action::OpenLanes { paths });
                self.enter(now, Phase::Connecting { channels }, Some(limits::LANES));
            }
            (Phase::Preparing, On(Input::DestinationRefused { reason })) => {
                self.end(now, Outcome::Refused { reason });
            }
            (
                Phase::Preparing,
                On(Input::DestinationUnreachable {
                    reason,
                    sent: false,
                }),
            ) => {
                let cause = Cause::DestinationUnreachable { reason };
                self.end(now, failed(cause, KeptGuest::Runs));
            }
            (Phase::Preparing, Deadline) => {
                self.late(now, "preparing the destination", limits::PREPARE);
            }
            (Phase::Connecting { channels }, On(Input::LanesUp)) => {
                self.outbox.act(Action::TellDestinationToListen);
                self.enter(now, Phase::Starting { channels }, Some(limits::LISTEN));
            }
            (Phase::Connecting { .. }, Deadline) => {
                self.late(now, "opening the lanes", limits::LANES);
            }
            (Phase::Starting { channels }, On(Input::DestinationListens)) => {
                self.record(SourceStep::Transferring);
                self.outbox.act(Action::StartMigration { channels });
                let phase = Phase::Transferring {
                    accepted: false,
                    believed: false,
                };
                self.enter(now, phase, Some(limits::MIGRATE_ANSWER));
            }
            (Phase::Starting { .. }, Deadline) => {
                self.late(
                    now,
                    "making the destination's hypervisor listen",
                    limits::LISTEN,
                );
            }

            // Before the hypervisor was told anything, a failure costs nothing.
            (
                phase @ (Phase::Preparing | Phase::Connecting { .. } | Phase::Starting { .. }),
                On(input),
            ) => return self.fail_before(now, &phase, input),

            // The hypervisor was told to migrate: only it knows what becomes of that.
            (
                Phase::Transferring {
                    accepted: false, ..
                },
                On(Input::MigrationStarted),
            ) => {
                let phase = Phase::Transferring {
                    accepted: true,
                    believed: false,
                };
                self.enter(now, phase, Some(limits::LOOK_AGE));
                self.outbox.act(Action::Observe);
            }
            (
                Phase::Transferring {
                    accepted: false, ..
                },
                On(Input::MigrationRefused { reason }),
            ) => {
                let cause = Cause::HypervisorRefused { reason };
                self.keep(now, failed(cause, KeptGuest::Runs), true);
            }
            (
                Phase::Transferring {
                    accepted: false, ..
                },
                Deadline,
            ) => {
                let cause = deadline("the answer to the migrate command", limits::MIGRATE_ANSWER);
                self.give_up(now, Why::Failed(cause), true, false);
            }
            (Phase::Transferring { accepted: true, .. }, Deadline) => {
                self.enter(
                    now,
                    Phase::Transferring {
                        accepted: true,
                        believed: true,
                    },
                    None,
                );
                if self.postcopy_asked {
                    self.begin_postcopy(now);
                } else {
                    self.outbox.act(Action::Observe);
                }
            }
            (
                Phase::Transferring {
                    accepted: true,
                    believed,
                },
                On(Input::Hypervisor(seen)),
            ) => {
                self.observed(now, &seen, believed);
            }
            (
                Phase::Transferring {
                    accepted: true,
                    believed,
                },
                On(Input::PostcopyRequested),
            ) => {
                // In a moment, where what is seen may still be of an earlier migration.
                self.postcopy_asked = true;
                if believed {
                    self.begin_postcopy(now);
                }
            }
            (Phase::Transferring { .. }, On(Input::DestinationArrived)) => {
                // The hypervisor tells the same in a moment.
            }
            (Phase::Transferring { accepted, believed }, On(Input::SessionFailed { reason })) => {
                let why = Why::Failed(Cause::SessionFailed { reason });
                self.give_up(now, why, accepted, believed);
            }
            (Phase::Transferring { accepted, believed }, On(Input::DestinationGone { reason })) => {
                let why = Why::Failed(Cause::DestinationGone { reason });
                self.give_up(now, why, accepted, believed);
            }
            (Phase::Transferring { accepted, believed }, On(Input::CancelRequested { by })) => {
                self.give_up(now, Why::Cancelled(by), accepted, believed)
            }
            (Phase::Transferring { .. }, On(Input::HypervisorGone { reason })) => {
                let cause = Cause::HypervisorGone { reason };
                self.keep(now, failed(cause, KeptGuest::Gone), true);
            }

            // It is to give up, and may still complete.
            (
                Phase::Cancelling {
                    why,
                    unanswered: true,
                    ..
                },
                On(Input::MigrationStarted),
            ) => {
                self.give_up(now, why, true, false);
            }
            (
                Phase::Cancelling {
                    why,
                    unanswered: true,
                    ..
                },
                On(Input::MigrationRefused { .. }),
            ) => {
                self.keep(now, why.outcome(KeptGuest::Runs), true);
            }
            (
                Phase::Cancelling {
                    why, unanswered, ..
                },
                Deadline,
            ) => {
                self.stop_migration(true);
                let believed = !unanswered;
                let phase = Phase::Cancelling {
                    why,
                    unanswered: false,
                    believed,
                };
                self.enter(now, phase, Some(limits::CANCEL_RETRY));
            }
            (
                Phase::Cancelling {
                    unanswered: true, ..
                },
                On(Input::Hypervisor(_)),
            ) => {}
            (Phase::Cancelling { why, believed, .. }, On(Input::Hypervisor(seen))) => {
                match seen.outgoing() {
                    OutgoingSeen::Completed => self.hand_off(now),
                    OutgoingSeen::UnderWay => {}
                    OutgoingSeen::Left { connected } => {
                        let closed = matches!(why, Why::Failed(_));
                        self.has_left(now, connected && !closed);
                    }
                    _ if believed => self.keep(now, why.outcome(kept(&seen)), true),
                    _ => {}
                }
            }
            (Phase::Cancelling { why, .. }, On(Input::HypervisorGone { reason })) => {
                let cause = match why {
                    Why::Cancelled(_) => Cause::HypervisorGone { reason },
                    Why::Failed(cause) => cause,
                };
                self.keep(now, failed(cause, KeptGuest::Gone), true);
            }
            (
                Phase::Cancelling {
                    unanswered: false, ..
                },
                On(Input::SessionFailed { .. }),
            ) => {
                // A cancel could wait for a session that is no more.
                self.stop_migration(true);
            }
            (
                Phase::Cancelling { .. },
                On(
                    Input::CancelRequested { .. }
                    | Input::SessionFailed { .. }
                    | Input::DestinationGone { .. },
                ),
            ) => {}

            // Postcopy.
            (Phase::Switching(switching), event) => {
                return self.step_switching(now, switching, event);
            }

            // Decided for the destination.
            (
                phase @ (Phase::HandingOff(_)
                | Phase::Serving { .. }
                | Phase::TakingBack { .. }
                | Phase::Leaving { .. }),
                event,
            ) => return self.step_decided(now, phase, event),

            // Decided for the source.
            (Phase::Abandoning { outcome, .. }, On(Input::DestinationAbandoned)) => {
                self.end(now, outcome);
            }
            (Phase::Abandoning { outcome, .. }, On(Input::DestinationRuns)) => {
                let guest = guest_of(&outcome);
                if guest == KeptGuest::Runs {
                    return Err(Refused::RunsHere);
                }
                self.record(SourceStep::RunsThere);
                self.leave(now, guest == KeptGuest::Gone);
            }
            (Phase::Abandoning { outcome, attempts }, On(Input::AbandonUnreachable { reason })) => {
                if attempts >= limits::ABANDON_ATTEMPTS {
                    self.end(now, outcome);
                } else {
                    self.last = Some(reason);
                    self.deadline = Some(now + limits::ABANDON_RETRY);
                }
            }
            (Phase::Abandoning { outcome, attempts }, Deadline) => {
                self.abandon_again(now, outcome, attempts);
            }
            (Phase::Abandoning { outcome, attempts }, On(Input::HypervisorGone { .. })) => {
                self.phase = Phase::Abandoning {
                    outcome: without_guest(outcome),
                    attempts,
                };
            }
            (Phase::Abandoning { .. }, On(Input::DestinationReady { .. })) => {
                // It got ready after all, perhaps after it was told to abandon.
                self.outbox.act(Action::AbandonDestination);
            }
            (
                Phase::Abandoning { .. },
                On(
                    Input::Hypervisor(_)
                    | Input::SessionFailed { .. }
                    | Input::DestinationGone { .. }
                    | Input::CancelRequested { .. },
                ),
            ) => {}

            // A new agent asks what became of it.
            (
                Phase::Recovering {
                    session: Session::Unknown,
                    step,
                    cancel,
                },
                On(input @ (Input::SessionLives | Input::SessionFailed { .. })),
            ) => {
                let session = match input {
                    Input::SessionLives => Session::Lives,
                    _ => Session::Gone,
                };
                self.outbox.act(Action::Observe);
                let phase = Phase::Recovering {
                    step,
                    session,
                    cancel,
                };
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
            }
            (
                Phase::Recovering {
                    session: Session::Unknown,
                    ..
                },
                On(Input::Hypervisor(_)),
            ) => {
                // It is older than the answer that is waited for.
            }
            (
                Phase::Recovering {
                    step: step @ (SourceStep::Transferring | SourceStep::PostcopyBegun),
                    session: Session::Lives,
                    cancel,
                },
                On(Input::Hypervisor(seen)),
            ) => self.taken_up(now, &step, &seen, cancel),
            (
                Phase::Recovering {
                    step: SourceStep::PostcopyBegun,
                    ..
                },
                On(Input::CancelRequested { .. }),
            ) => return Err(Refused::TooLate),
            (
                Phase::Recovering {
                    step: SourceStep::Transferring,
                    session: Session::Lives,
                    ..
                },
                On(Input::SessionFailed { reason }),
            ) => {
                let why = Why::Failed(Cause::SessionFailed { reason });
                self.give_up(now, why, true, false);
            }
            (
                Phase::Recovering {
                    step: SourceStep::Transferring,
                    session: Session::Lives,
                    ..
                },
                On(Input::DestinationGone { reason }),
            ) => {
                let why = Why::Failed(Cause::DestinationGone { reason });
                self.give_up(now, why, true, false);
            }
            (Phase::Recovering { step, .. }, On(Input::Hypervisor(seen))) => {
                self.recovered(now, &step, &seen);
            }
            (Phase::Recovering { step, .. }, On(Input::HypervisorGone { reason })) => {
                let begun = step != SourceStep::Preparing;
                self.keep(
                    now,
                    failed(Cause::HypervisorGone { reason }, KeptGuest::Gone),
                    begun,
                );
            }
            (
                Phase::Recovering {
                    step,
                    session,
                    cancel,
                },
                Deadline,
            ) => {
                self.look_again(&step, session);
                let phase = Phase::Recovering {
                    step,
                    session,
                    cancel,
                };
                self.enter(now, phase, Some(limits::OBSERVE_RETRY));
            }
            (Phase::Recovering { step, session, .. }, On(Input::CancelRequested { by })) => {
                self.phase = Phase::Recovering {
                    step,
                    session,
                    cancel: Some(by),
                };
            }
            (
                Phase::Recovering { .. },
                On(
                    Input::SessionLives
                    | Input::SessionFailed { .. }
                    | Input::DestinationGone { .. },
                ),
            ) => {}

            (_, On(input)) => return Err(self.unexpected(input.name())),
            (_, Deadline) => return Err(self.unexpected("deadline")),
        }
        Ok(())
    }
}
