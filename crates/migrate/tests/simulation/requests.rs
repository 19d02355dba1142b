//! What the agents ask each other, over a network that loses requests and answers.

use drover_migrate::destination::{self, Destination};
use drover_migrate::source;
use drover_migrate::{Cause, DestinationStep, HandOffAnswer, Reason, Resolution};

use crate::event::Event;
use crate::world::{World, gone, migration, path};

impl World {
    pub(crate) fn request(&mut self, life: u32, action: &source::Action) {
        use source::{Action, Input};
        if !self.control || !self.destination_host || self.destination_life == 0 {
            return match unreachable(action) {
                Input::HandOffUnreachable { question, .. } => self.call_ends(life, question),
                input => self.answer_locally(life, input),
            };
        }
        match action {
            Action::PrepareDestination => {
                // An agent that heard of this migration before takes no second one in.
                if self.destination.is_some() || self.destination_disk.is_some() {
                    let reason = Reason::from("known already");
                    return self.answer(life, Input::DestinationRefused { reason });
                }
                self.destination = Some(Destination::new(migration(), self.now));
                self.waits_for_ready = Some(life);
                self.drive_destination();
            }
            Action::TellDestinationToListen => {
                self.waits_for_listening = Some(life);
                self.tell_destination(destination::Input::ListenRequested);
            }
            Action::TellDestinationToRun { .. } | Action::AskDestination { .. } => {
                self.hear_question(life, action, self.now);
            }
            Action::AbandonDestination => {
                self.waits_for_abandoned = Some(life);
                self.tell_destination(destination::Input::AbandonRequested);
                self.answer_waiting();
            }
            _ => {}
        }
    }

    pub(crate) fn hand_off_answer(&self) -> HandOffAnswer {
        let on_disk = self.destination_disk.as_ref().map(|record| &record.step);
        match (&self.destination, on_disk) {
            (Some(destination), _) => destination.hand_off_answer(),
            (None, Some(DestinationStep::Running { .. })) => HandOffAnswer::Running,
            (None, Some(DestinationStep::CutOff)) => HandOffAnswer::CutOff,
            (
                None,
                Some(DestinationStep::Abandoned {
                    cause: Cause::Discarded,
                }),
            ) => HandOffAnswer::Discarded,
            (None, Some(DestinationStep::Abandoned { .. } | DestinationStep::Lost { .. })) => {
                HandOffAnswer::Gone { reason: gone() }
            }
            (None, _) => HandOffAnswer::Pending {
                reason: Reason::from("not known here"),
            },
        }
    }

    pub(crate) fn answer_locally(&mut self, life: u32, input: source::Input) {
        self.later(Event::ToSource { life, input });
    }

    /// Answers the source's requests that waited for a phase.
    pub(crate) fn answer_waiting(&mut self) {
        use destination::Phase;
        use source::Input;
        let phase = self
            .destination
            .as_ref()
            .map(|machine| machine.phase().clone());
        let given_up = matches!(phase, Some(Phase::Abandoning { .. } | Phase::Ended(_)));
        if let Some(life) = self.waits_for_ready {
            if phase == Some(Phase::Prepared) {
                self.waits_for_ready = None;
                self.answer(
                    life,
                    Input::DestinationReady {
                        paths: vec![path()],
                        channels: 2,
                    },
                );
            } else if given_up {
                self.waits_for_ready = None;
                self.answer(life, Input::DestinationRefused { reason: gone() });
            }
        }
        if let Some(life) = self.waits_for_listening {
            if matches!(phase, Some(Phase::Receiving { .. })) {
                self.waits_for_listening = None;
                self.answer(life, Input::DestinationListens);
            } else if given_up {
                self.waits_for_listening = None;
                self.answer(life, Input::DestinationRefused { reason: gone() });
            }
        }
        let runs_here = self.destination_resolution() == Some(Resolution::RunHere);
        if let Some(life) = self.waits_for_abandoned
            && !runs_here
            && (phase.is_none() || matches!(phase, Some(Phase::Ended(_))))
        {
            self.waits_for_abandoned = None;
            self.answer(life, Input::DestinationAbandoned);
        }
        if let Some(life) = self.waits_for_abandoned
            && runs_here
        {
            self.waits_for_abandoned = None;
            self.answer(life, Input::DestinationRuns);
        }
    }

    /// The destination's agent has heard that the guest is its own, and acts on it.
    pub(crate) fn destination_has_heard(&self) -> bool {
        use destination::{Ending, Phase};
        let phase = self.destination.as_ref().map(Destination::phase);
        let heard = matches!(
            phase,
            Some(
                Phase::Resuming { .. }
                    | Phase::Adopting
                    | Phase::Filling(_)
                    | Phase::Ended(Ending::Running)
                    | Phase::Receiving {
                        handed_off: true,
                        ..
                    }
            )
        );
        // Its pages may be missing: it may have been told, and has not run.
        let record = self.destination_disk.as_ref();
        let on_disk = record.is_some_and(|record| {
            let step = &record.step;
            matches!(
                step,
                DestinationStep::Filling { .. } | DestinationStep::CutOff
            )
        });
        let qemu = self.destination_qemu.as_ref();
        let has_run = qemu.is_some_and(|qemu| qemu.alive && qemu.has_run);
        // An agent that is started again takes a definition for a guest that has run: also where the
        // order to run was lost, and no record of the hand-off could be written.
        heard || on_disk || has_run || self.destination_definition
    }
}

/// What the asking agent makes of a request that did not get through.
pub(crate) fn unreachable(action: &source::Action) -> source::Input {
    use source::{Action, Input};
    let reason = Reason::from("no route");
    match action {
        Action::TellDestinationToRun { question } | Action::AskDestination { question } => {
            let question = *question;
            Input::HandOffUnreachable { question, reason }
        }
        Action::AbandonDestination => Input::AbandonUnreachable { reason },
        _ => Input::DestinationUnreachable { reason, sent: true },
    }
}

/// What the asking agent makes of an answer that did not get through.
pub(crate) fn unreachable_answer(input: &source::Input) -> source::Input {
    use source::{Action, Input};
    match input {
        Input::HandOffAnswered { question, .. } => {
            let question = *question;
            unreachable(&Action::AskDestination { question })
        }
        Input::SessionReopened { attempt } | Input::ReopenFailed { attempt, .. } => {
            let attempt = *attempt;
            let reason = gone();
            Input::ReopenFailed { attempt, reason }
        }
        Input::DestinationAbandoned | Input::DestinationRuns => {
            unreachable(&Action::AbandonDestination)
        }
        _ => unreachable(&Action::PrepareDestination),
    }
}
