//! What goes wrong, and what heals.

use drover_migrate::destination::{self, Destination};
use drover_migrate::source::{self, Source};
use drover_migrate::{CancelledBy, DestinationStep, SourceStep, Verdict};

use crate::event::{Event, Fault};
use crate::qemu::Qemu;
use crate::requests::unreachable;
use crate::world::{PATIENCE, World, gone};

impl World {
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::KillSourceAgent => self.kill_source_agent(),
            Fault::KillDestinationAgent => self.kill_destination_agent(),
            Fault::KillSourceRelay => self.source_relay_ends(),
            Fault::KillDestinationRelay => self.destination_relay_ends(),
            Fault::KillSourceQemu => {
                self.source_qemu.kill();
                self.source_hears(source::Input::HypervisorGone { reason: gone() });
                self.later(Event::DestinationCut);
            }
            Fault::KillDestinationQemu => {
                if let Some(qemu) = &mut self.destination_qemu {
                    qemu.kill();
                    self.destination_hears(destination::Input::HypervisorGone { reason: gone() });
                    self.later(Event::SourceCut);
                }
            }
            Fault::HangSourceQemu => self.source_hangs = true,
            Fault::HangDestinationQemu => self.destination_hangs = true,
            Fault::PauseDestinationGuest => self.on_destination_qemu(Qemu::pause),
            Fault::UnpauseDestinationGuest => self.on_destination_qemu(Qemu::unpause),
            Fault::ReleaseQemus => {
                self.source_hangs = false;
                self.destination_hangs = false;
                self.release();
            }
            Fault::LoseSourceHost => {
                self.source_qemu.kill();
                self.source_host = false;
                self.kill_source_agent();
                self.close_source_session();
            }
            Fault::LoseDestinationHost => {
                if let Some(qemu) = &mut self.destination_qemu {
                    qemu.kill();
                }
                self.destination_host = false;
                self.kill_destination_agent();
                self.close_destination_session();
            }
            Fault::CutPaths => {
                self.control = false;
                self.later(Event::SourceRelayEnds);
                self.later(Event::DestinationRelayEnds);
            }
            Fault::FillSourceDisk => self.source_full = true,
            Fault::FillDestinationDisk => self.destination_full = true,
            Fault::FailMigration => self.gives_up(false),
            Fault::Cancel => {
                let by = CancelledBy::Operator;
                self.tell_source(source::Input::CancelRequested { by });
            }
            Fault::StartSourceAgent => self.start_source_agent(),
            Fault::StartDestinationAgent => self.start_destination_agent(),
            Fault::JoinPaths => self.control = true,
            Fault::FreeDisks => {
                self.source_full = false;
                self.destination_full = false;
            }
        }
    }

    /// What was held happens, unless it still has to wait.
    pub(crate) fn release(&mut self) {
        for event in std::mem::take(&mut self.held) {
            self.happen(event);
        }
    }

    fn on_destination_qemu(&mut self, act: impl Fn(&mut Qemu)) {
        if let Some(qemu) = &mut self.destination_qemu {
            act(qemu);
            self.look_at_both();
        }
    }

    pub(crate) fn kill_source_agent(&mut self) {
        if let Some(record) = self.source_disk.as_mut().filter(|_| self.loses_journal)
            && matches!(
                record.step,
                SourceStep::PostcopyHandedOff | SourceStep::Serving
            )
        {
            record.step = SourceStep::HandedOff;
            self.journals_lost += 1;
        }
        self.source = None;
        self.source_life = 0;
        self.observing_source = false;
        self.source_deaths += 1;
        let deaths = self.source_deaths;
        self.at(self.now + PATIENCE, Event::SourceRelayIsAlone { deaths });
    }

    pub(crate) fn kill_destination_agent(&mut self) {
        self.destination = None;
        self.destination_life = 0;
        self.observing_destination = false;
        self.open_resume = None;
        self.destination_deaths += 1;
        let deaths = self.destination_deaths;
        self.at(
            self.now + PATIENCE,
            Event::DestinationRelayIsAlone { deaths },
        );
        // Requests that waited here end with the connection.
        let waiting = [
            (
                self.waits_for_ready.take(),
                source::Action::PrepareDestination,
            ),
            (
                self.waits_for_listening.take(),
                source::Action::TellDestinationToListen,
            ),
            (
                self.waits_for_abandoned.take(),
                source::Action::AbandonDestination,
            ),
        ];
        for (life, action) in waiting {
            if let Some(life) = life {
                self.answer_locally(life, unreachable(&action));
            }
        }
    }

    pub(crate) fn start_source_agent(&mut self) {
        self.source_host = true;
        self.source_life = u32::try_from(self.steps).unwrap_or(1).max(2);
        if let Some(record) = self.source_disk.clone()
            && !matches!(record.step, SourceStep::Finished { .. })
        {
            let goes_on = matches!(
                record.step,
                SourceStep::Preparing
                    | SourceStep::Transferring
                    | SourceStep::PostcopyBegun
                    | SourceStep::PostcopyHandedOff
                    | SourceStep::Serving
            );
            if !goes_on {
                self.observing_source = true;
                self.close_source_session();
            }
            self.source = Some(Source::recover(record, self.now));
            self.drive_source();
        }
        self.source_claims();
    }

    pub(crate) fn start_destination_agent(&mut self) {
        self.destination_host = true;
        self.destination_life = u32::try_from(self.steps).unwrap_or(1).max(2);
        if let Some(record) = self.destination_disk.clone()
            && !matches!(
                record.step,
                DestinationStep::Running { .. }
                    | DestinationStep::Abandoned { .. }
                    | DestinationStep::Lost { .. }
                    | DestinationStep::CutOff
            )
        {
            let qemu = self.destination_qemu.as_ref();
            // Its record says so as soon as it was adopted, whether it was heard to run or not.
            let said = self.destination_definition;
            let has_run = qemu.is_some_and(|qemu| qemu.alive && (qemu.has_run || said));
            let machine = Destination::recover(record, self.now);
            let machine = machine.with_guest_that_has_run(has_run);
            self.destination = Some(machine.with_definition(self.destination_definition));
            self.drive_destination();
        }
        self.destination_claims();
    }

    pub fn decided_for_destination(&self) -> bool {
        self.source_disk
            .as_ref()
            .is_some_and(|record| matches!(record.verdict(), Verdict::HandedOff | Verdict::CutOff))
    }
}

/// What undoes a fault, where something does.
pub(crate) fn healing(fault: Fault) -> &'static [Fault] {
    match fault {
        Fault::KillSourceAgent | Fault::LoseSourceHost => &[Fault::StartSourceAgent],
        Fault::KillDestinationAgent | Fault::LoseDestinationHost => &[Fault::StartDestinationAgent],
        Fault::CutPaths => &[Fault::JoinPaths],
        Fault::HangSourceQemu | Fault::HangDestinationQemu => &[Fault::ReleaseQemus],
        Fault::PauseDestinationGuest => &[Fault::UnpauseDestinationGuest],
        Fault::FillSourceDisk | Fault::FillDestinationDisk => &[Fault::FreeDisks],
        _ => &[],
    }
}
