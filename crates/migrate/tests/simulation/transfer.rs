//! The guest's state on its way, and the session that carries it.

use drover_migrate::{GuestSeen, MigrationSeen, destination};

use crate::event::Event;
use crate::world::{World, gone};

impl World {
    pub(crate) fn connected(&self) -> bool {
        self.source_session && self.destination_session && self.control
    }

    pub(crate) fn transfer(&mut self, step: u8) {
        // A guest that writes too fast for the downtime limit is mostly stopped by nothing else.
        let another_round = self.postcopy && step == 1 && self.chance(99);
        let goes_on = self.source_qemu.migrates() && self.connected();
        let Some(incoming) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            // The relay finds nobody to connect to, also where that was so before it began.
            return self.later(Event::SourceCut);
        };
        if !goes_on {
            return;
        }
        match step {
            0 => {
                incoming.migration = MigrationSeen::Active;
                if self.postcopy {
                    self.postcopy_at_its_deadline();
                }
            }
            1 if another_round => return self.later(Event::Transfer { step: 1 }),
            1 => self.source_qemu.guest = GuestSeen::FinishMigrate,
            _ => {
                incoming.has_everything = true;
                return self.later(Event::Loaded);
            }
        }
        self.look_at_both();
        self.later(Event::Transfer { step: step + 1 });
    }

    pub(crate) fn loaded(&mut self) {
        let session = self.destination_session;
        let Some(qemu) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        if !qemu.has_everything || qemu.migration != MigrationSeen::Active {
            return;
        }
        qemu.migration = MigrationSeen::Completed;
        qemu.guest = GuestSeen::Paused;
        if session {
            self.later(Event::Told);
        }
        self.look_at_both();
    }

    /// The word went off while the session lived; it may arrive even if it has died since.
    pub(crate) fn told(&mut self) {
        let arrives = self.source_session && (self.connected() || self.chance(50));
        let waits = self.source_qemu.migrates() || self.source_qemu.is_in_postcopy();
        if arrives && waits && !self.source_qemu.stuck {
            self.source_qemu.migration = MigrationSeen::Completed;
            self.source_qemu.guest = GuestSeen::FinishMigrate;
            self.later(Event::AfterMigrate);
            self.look_at_both();
        }
    }

    /// The hypervisors' own events make their agents look.
    pub(crate) fn look_at_both(&mut self) {
        if self.observing_source && self.source_life != 0 {
            self.look_at_source();
        }
        if self.observing_destination && self.destination_life != 0 {
            self.look_at_destination(false);
        }
    }

    pub(crate) fn gives_up(&mut self, cancelled: bool) {
        self.source_qemu.give_up(cancelled);
        self.look_at_both();
    }

    pub(crate) fn close_source_session(&mut self) {
        if std::mem::replace(&mut self.source_session, false) {
            self.later(Event::SourceCut);
            self.later(Event::DestinationRelayEnds);
        }
    }

    pub(crate) fn close_destination_session(&mut self) {
        if std::mem::replace(&mut self.destination_session, false) {
            self.later(Event::DestinationCut);
            self.later(Event::SourceRelayEnds);
        }
    }

    /// The relay's sockets are closed before its agent hears of it, if there is one.
    pub(crate) fn source_relay_ends(&mut self) {
        if self.source_session {
            self.close_source_session();
            let (life, session) = (self.source_life, self.session);
            self.later(Event::SourceSessionOver { life, session });
        }
    }

    pub(crate) fn destination_relay_ends(&mut self) {
        if self.destination_session {
            self.close_destination_session();
            let (life, session) = (self.destination_life, self.session);
            self.later(Event::DestinationSessionOver { life, session });
        }
    }

    pub(crate) fn destination_cut(&mut self) {
        let Some(qemu) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        qemu.cut = true;
        qemu.pause_postcopy();
        if !qemu.has_everything && qemu.guest == GuestSeen::InMigrate {
            qemu.kill();
            self.destination_hears(destination::Input::HypervisorGone { reason: gone() });
        }
    }
}
