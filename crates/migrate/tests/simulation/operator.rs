//! An operator who resolves correctly: only when the other host really does not run the guest and
//! will not; and what the agents tell each other of it afterwards.

use std::time::Duration;

use drover_migrate::destination::{self, Phase as DestinationPhase};
use drover_migrate::source::{self, Phase as SourcePhase, Source};
use drover_migrate::{
    Claimed, DestinationStep, JournalVersion, MigrationSeen, Outcome, Resolution, Resolving,
    SourceRecord, SourceStep, claimed,
};

use crate::event::Event;
use crate::qemu::Qemu;
use crate::world::{World, migration};

/// Between two tries of whoever tries again.
const AGAIN: Duration = Duration::from_secs(2);

/// An operator gives up waiting for a chance.
const OPERATOR: Duration = Duration::from_secs(150);

impl World {
    pub(crate) fn destination_resolution(&self) -> Option<Resolution> {
        match (&self.destination, &self.destination_disk) {
            (Some(machine), _) => machine.resolution(),
            (None, Some(record)) => record.resolution(),
            (None, None) => None,
        }
    }

    /// The destination's guest may run by an operator's word, also while an agent that was started
    /// again has not found yet that it has run.
    pub(crate) fn may_run_by_operator(&self) -> bool {
        let recovering = self
            .destination
            .as_ref()
            .is_some_and(|machine| matches!(machine.phase(), DestinationPhase::Recovering { .. }));
        let qemu = self.destination_qemu.as_ref();
        let has_run = qemu.is_some_and(|qemu| qemu.has_run);
        let on_disk = self.destination_disk.as_ref();
        let resolution = match on_disk {
            Some(record) if recovering && has_run => record.resolution(),
            _ => self.destination_resolution(),
        };
        resolution == Some(Resolution::RunHere)
    }

    /// The source's copy is ended only when the destination has the guest, or a person said so.
    pub(crate) fn may_be_quit(&self) -> bool {
        let record = self.destination_disk.as_ref();
        let runs = record.is_some_and(|record| {
            matches!(
                record.step,
                DestinationStep::Running { .. }
                    | DestinationStep::Filling { .. }
                    | DestinationStep::RunHere
                    | DestinationStep::CutOff
            )
        });
        // What was asked for twice may be done once more when all is done.
        let given_up = self.source_disk.as_ref().is_some_and(|record| {
            matches!(
                record.step,
                SourceStep::GivenUp { .. }
                    | SourceStep::Finished {
                        outcome: Outcome::GivenUp { .. }
                    }
            )
        });
        runs || given_up
    }

    pub(crate) fn operator(&mut self, wish: Resolution) {
        let taken = match wish {
            Resolution::GiveUp => self.operator_on_the_source(),
            _ => self.operator_on_the_destination(wish),
        };
        if !taken && self.now < OPERATOR {
            self.at(self.now + AGAIN, Event::Operator(wish));
        }
    }

    fn operator_on_the_destination(&mut self, wish: Resolution) -> bool {
        // What a discard gives up is the guest's memory: no second guest can come of it.
        let safe = wish == Resolution::Discard || !self.source_qemu.alive;
        let Some(machine) = self.destination.as_ref().filter(|_| safe) else {
            return false;
        };
        if *machine.resolving() == Resolving::Decided {
            self.decided = true;
            return true;
        }
        let stuck = machine.ambiguity().is_some();
        let depends = matches!(
            machine.phase(),
            DestinationPhase::Arrived { .. } | DestinationPhase::Filling(_)
        );
        if stuck && depends {
            self.tell_destination(destination::Input::ResolveRequested(wish));
        }
        false
    }

    fn operator_on_the_source(&mut self) -> bool {
        let ended = |qemu: &Qemu| !qemu.alive;
        let gone = self.careless || self.destination_qemu.as_ref().is_some_and(ended);
        if let Some(machine) = self.source.as_ref().filter(|_| gone) {
            if *machine.resolving() == Resolving::Decided {
                self.decided = true;
            } else if machine.ambiguity().is_some()
                && matches!(
                    machine.phase(),
                    SourcePhase::HandingOff { .. }
                        | SourcePhase::Switching { .. }
                        | SourcePhase::Serving { .. }
                )
            {
                self.tell_source(source::Input::GiveUpRequested);
            }
        }
        // Started anew as soon as it can be.
        let given_up = matches!(
            self.source_disk.as_ref().map(|record| &record.step),
            Some(SourceStep::Finished {
                outcome: Outcome::GivenUp { .. }
            })
        );
        let safe = !self.careless || self.had_heard == Some(false);
        let starts = safe && given_up && self.source_definition && self.source_life != 0;
        if starts && !self.source_qemu.alive {
            self.source_qemu = Qemu::running(MigrationSeen::None);
        }
        starts
    }

    /// The source's agent has the guest by an operator's word, and tells the destination's.
    pub(crate) fn source_claims(&mut self) {
        let record = self.source_disk.as_ref();
        let finished =
            record.is_some_and(|record| matches!(record.step, SourceStep::Finished { .. }));
        let resolution = record.and_then(SourceRecord::resolution);
        if self.source_told || !finished || resolution.is_none() {
            return;
        }
        let reachable = self.control && self.destination_life != 0;
        if reachable && self.destination_lets_go() {
            self.source_told = true;
            return;
        }
        let life = self.source_life;
        self.at(self.now + AGAIN, Event::SourceClaims { life });
    }

    fn destination_lets_go(&mut self) -> bool {
        let ended = |machine: &destination::Destination| {
            matches!(machine.phase(), DestinationPhase::Ended(_))
        };
        if !self.destination.as_ref().is_none_or(ended) {
            self.tell_destination(destination::Input::AbandonRequested);
            return false;
        }
        let process = self
            .destination_qemu
            .as_ref()
            .is_some_and(|qemu| qemu.alive);
        let claimed = claimed(self.destination_resolution(), process);
        let was_wrong = self.had_heard == Some(true);
        let lets_go = claimed == Claimed::LetsGo;
        assert!(lets_go || was_wrong, "{}", self.story());
        self.destination_definition &= !lets_go;
        lets_go
    }

    /// The destination's agent has the guest by an operator's word, and tells the source's.
    pub(crate) fn destination_claims(&mut self) {
        let record = self.destination_disk.as_ref();
        let runs = record.is_some_and(|r| r.step == DestinationStep::Running { resolved: true });
        if self.destination_told || !runs {
            return;
        }
        let reachable = self.control && self.source_life != 0;
        if reachable && self.source_lets_go() {
            self.destination_told = true;
            return;
        }
        let life = self.destination_life;
        self.at(self.now + AGAIN, Event::DestinationClaims { life });
    }

    fn source_lets_go(&mut self) -> bool {
        let outcome = match self.source.as_ref().map(Source::phase) {
            Some(SourcePhase::Ended { outcome }) => Some(outcome.clone()),
            Some(_) => {
                self.tell_source(source::Input::DestinationRuns);
                return false;
            }
            None => self
                .source_disk
                .as_ref()
                .and_then(|record| match &record.step {
                    SourceStep::Finished { outcome } => Some(outcome.clone()),
                    _ => None,
                }),
        };
        if outcome == Some(Outcome::Completed) {
            return true;
        }
        let claimed = claimed(None, self.source_qemu.alive);
        assert_eq!(claimed, Claimed::LetsGo, "{}", self.story());
        let record = SourceRecord {
            version: JournalVersion,
            migration: migration(),
            step: SourceStep::RunsThere,
        };
        self.source = Some(Source::recover(record, self.now));
        self.drive_source();
        false
    }
}
