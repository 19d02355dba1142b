//! What the agents ask each other, over a network that loses requests and answers.

use drover_migrate::destination::{self, Destination};
use drover_migrate::source;
use drover_migrate::{Cause, DestinationStep, HandOffAnswer, Reason, Resolution};

use crate::world::{Event, World, gone, migration, path};

impl World {
    pub(crate) fn request(&mut self, life: u32, action: &source::Action) {
        use source::{Action, Input};
        if !self.control || !self.destination_host || self.destination_life == 0 {
            return self.answer_locally(life, unreachable(action));
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
            Action::TellDestinationToRun => {
                self.tell_destination(destination::Input::RunRequested);
                let answer = self.hand_off_answer();
                self.answer(life, Input::HandOffAnswered(answer));
            }
            Action::AskDestination => {
                let answer = self.hand_off_answer();
                let known = self.destination.is_some() || self.destination_disk.is_some();
                self.answer(
                    life,
                    match answer {
                        HandOffAnswer::Running => Input::HandOffAnswered(answer),
                        _ if known => Input::DestinationAnswered { reason: gone() },
                        _ => Input::DestinationSilent { reason: gone() },
                    },
                );
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

    pub(crate) fn ask_verdict(&mut self, life: u32) {
        use destination::Input;
        let reachable = self.control && self.source_host && self.source_life != 0;
        let verdict = match (&self.source, &self.source_disk) {
            (Some(source), _) => Some(source.verdict()),
            (None, Some(record)) => Some(record.verdict()),
            (None, None) => None,
        };
        let input = match verdict.filter(|_| reachable) {
            Some(verdict) => Input::VerdictAnswered(verdict),
            None => Input::VerdictUnreachable { reason: gone() },
        };
        self.later(Event::ToDestination { life, input });
    }
}

/// What the asking agent makes of a request that did not get through.
pub(crate) fn unreachable(action: &source::Action) -> source::Input {
    use source::{Action, Input};
    let reason = Reason::from("no route");
    match action {
        Action::TellDestinationToRun => Input::HandOffUnreachable { reason },
        Action::AbandonDestination => Input::AbandonUnreachable { reason },
        Action::AskDestination => Input::DestinationSilent { reason },
        _ => Input::DestinationUnreachable { reason, sent: true },
    }
}

/// What the asking agent makes of an answer that did not get through.
pub(crate) fn unreachable_answer(input: &source::Input) -> source::Input {
    use source::{Action, Input};
    match input {
        Input::HandOffAnswered(_) => unreachable(&Action::TellDestinationToRun),
        Input::DestinationAnswered { .. } | Input::DestinationSilent { .. } => {
            unreachable(&Action::AskDestination)
        }
        Input::DestinationAbandoned | Input::DestinationRuns => {
            unreachable(&Action::AbandonDestination)
        }
        _ => unreachable(&Action::PrepareDestination),
    }
}
