//! Postcopy, with the orders of QEMU that matter. A source that has not sent its first page after the stop
//! fails where its connection breaks, and one that has sent every page and waits for the last word, too: its
//! guest then runs again if it ran until its migration stopped it. Between the two both wait to be connected
//! again. A destination that has not got the devices ends.

use std::time::Duration;

use drover_migrate::{GuestSeen, MigrationSeen, Question, Reason, destination, limits, source};

use crate::event::Event;
use crate::world::{World, gone};

/// Before a hypervisor is connected to its relay, in milliseconds.
const CONNECTING: u64 = 300;

/// Parts that the pages of the guest follow in.
const PARTS: u8 = 40;

impl World {
    /// A deadline counts once what is seen is surely of this migration, which it mostly is by then.
    pub(crate) fn postcopy_at_its_deadline(&mut self) {
        for _ in 0..2 {
            let deadline = self.now + limits::LOOK_AGE + self.soon();
            self.at(deadline, Event::PostcopyRequested);
        }
    }

    pub(crate) fn open_sessions(&mut self) {
        self.session += 1;
        self.source_session = true;
        self.destination_session = true;
    }

    pub(crate) fn start_postcopy(&mut self) {
        if !self.source_qemu.migrates() {
            return;
        }
        self.source_qemu.stop();
        if self.chance(5) {
            let reason = Reason::from("refused");
            return self.source_hears(source::Input::PostcopyRefused { reason });
        }
        self.later(Event::PostcopyBegins);
    }

    pub(crate) fn postcopy_begins(&mut self) {
        let qemu = &mut self.source_qemu;
        if qemu.migrates() && qemu.guest == GuestSeen::Paused {
            qemu.migration = MigrationSeen::Postcopy { pages: false };
            qemu.guest = GuestSeen::FinishMigrate;
            self.look_at_both();
            self.later(Event::DevicesSent);
        }
    }

    pub(crate) fn devices_sent(&mut self) {
        if !self.source_qemu.alive
            || self.source_qemu.migration != (MigrationSeen::Postcopy { pages: false })
        {
            return;
        }
        if !self.source_session {
            return self.gives_up(false);
        }
        self.source_qemu.migration = MigrationSeen::Postcopy { pages: true };
        self.look_at_both();
        let session = self.session;
        self.later(Event::DevicesArrive { session });
    }

    fn carries(&self, session: u32) -> bool {
        self.connected() && self.session == session
    }

    pub(crate) fn devices_arrive(&mut self, session: u32) {
        let carries = self.carries(session);
        let incoming = self.destination_qemu.as_mut();
        let incoming = incoming.filter(|qemu| qemu.migrates() && carries);
        let Some(incoming) = incoming else {
            self.devices_lost = true;
            return;
        };
        incoming.migration = MigrationSeen::Postcopy { pages: true };
        incoming.guest = GuestSeen::Paused;
        incoming.has_everything = true;
        self.look_at_both();
        self.later(Event::PagesFollow { session, part: 0 });
    }

    pub(crate) fn pages_follow(&mut self, session: u32, part: u8) {
        let follows = MigrationSeen::Postcopy { pages: true };
        let sends = self.source_qemu.alive && self.source_qemu.migration == follows;
        let carries = self.carries(session) && sends;
        let Some(incoming) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        if !carries || incoming.migration != follows {
            return;
        }
        if self.chance(30) {
            self.page_comes();
        }
        if part < PARTS {
            let part = part + 1;
            return self.later(Event::PagesFollow { session, part });
        }
        self.source_qemu.all_sent = true;
        self.later(Event::AllArrive { session });
    }

    pub(crate) fn all_arrive(&mut self, session: u32) {
        // What was sent before the source ended is on its way still.
        let carries = self.carries(session);
        let follows = MigrationSeen::Postcopy { pages: true };
        let incoming = self.destination_qemu.as_mut().filter(|qemu| qemu.alive);
        if let Some(incoming) = incoming.filter(|qemu| carries && qemu.migration == follows) {
            incoming.migration = MigrationSeen::Completed;
            self.page_comes();
            self.later(Event::Told);
            self.look_at_both();
        }
    }

    pub(crate) fn resume_migration(&mut self, attempt: Question) {
        let paused = self.source_qemu.migration == MigrationSeen::PostcopyPaused;
        let incoming = self.destination_qemu.as_mut().filter(|qemu| qemu.alive);
        let resumes = self.source_session && self.source_qemu.alive && paused;
        match incoming.filter(|qemu| qemu.migration == MigrationSeen::PostcopyPaused) {
            Some(_) if resumes => {
                // It is answered before it is connected; an old one shows that it waits until then.
                if !self.source_qemu.old {
                    self.source_qemu.migration = MigrationSeen::Postcopy { pages: true };
                }
                let session = self.session;
                self.connecting = Some(session);
                let connected = Duration::from_millis(1 + self.random() % CONNECTING);
                self.at(self.now + connected, Event::GoesOn { session });
                self.source_hears(source::Input::MigrationResumed { attempt });
                self.look_at_both();
            }
            _ if self.source_qemu.alive && !paused => {
                let reason = Reason::from("no paused migration");
                self.source_hears(source::Input::ResumeRefused { attempt, reason });
            }
            _ => {
                let reason = gone();
                self.source_hears(source::Input::ReopenFailed { attempt, reason });
            }
        }
    }

    pub(crate) fn goes_on(&mut self, session: u32) {
        if self.connecting != Some(session) || self.session != session {
            return;
        }
        self.connecting = None;
        let paused = MigrationSeen::PostcopyPaused;
        let incoming = self.destination_qemu.as_mut().filter(|qemu| qemu.alive);
        let incoming = incoming.filter(|qemu| qemu.migration == paused);
        let connected = self.source_session && self.destination_session && self.control;
        let Some(incoming) = incoming.filter(|_| connected && self.source_qemu.alive) else {
            self.source_qemu.pause_postcopy();
            return self.look_at_both();
        };
        incoming.migration = MigrationSeen::Postcopy { pages: true };
        self.source_qemu.migration = MigrationSeen::Postcopy { pages: true };
        if self.handshakes_break && self.chance(40) {
            self.handshake_breaks();
            return self.look_at_both();
        }
        self.resumed += 1;
        self.later(Event::PagesFollow { session, part: 0 });
        self.look_at_both();
    }

    /// An old source does not see that, and goes on over no other session.
    fn handshake_breaks(&mut self) {
        self.handshakes_broken += 1;
        if self.source_qemu.old {
            self.source_qemu.stuck = true;
        }
        self.source_relay_ends();
    }

    /// What is left of the session before goes at once: whoever opens a new one waits for that.
    fn end_sessions(&mut self) {
        self.source_session = false;
        self.destination_session = false;
        let of_session = |event: &Event| {
            matches!(
                event,
                Event::SourceCut
                    | Event::DestinationCut
                    | Event::SourceRelayEnds
                    | Event::DestinationRelayEnds
            )
        };
        self.events.retain(|_, event| !of_session(event));
        self.held.retain(|event| !of_session(event));
        self.source_qemu.pause_postcopy();
        if let Some(qemu) = &mut self.destination_qemu {
            qemu.pause_postcopy();
        }
    }

    pub(crate) fn reopen(&mut self, life: u32, attempt: Question) {
        let reachable = self.control && self.destination_host && self.destination_life != 0;
        let machine = self.destination.as_ref();
        let may = machine.is_some_and(destination::Destination::may_reopen);
        if reachable && may {
            self.end_sessions();
            let qemu = self.destination_qemu.as_ref().filter(|qemu| qemu.alive);
            let waits = qemu.is_some_and(|qemu| qemu.migration == MigrationSeen::PostcopyPaused);
            let answers = !self.destination_hangs;
            self.look_at_both();
            if waits && answers && life == self.source_life {
                self.open_sessions();
                // Its own agent opens it, and hears of its end after that.
                self.tell_destination(destination::Input::SessionReopened);
                return self.answer(life, source::Input::SessionReopened { attempt });
            }
        }
        let reason = gone();
        self.answer(life, source::Input::ReopenFailed { attempt, reason });
    }

    /// A copy whose pages somebody waits for is not ended, unless it has failed or an operator gave the guest up.
    pub(crate) fn check_needs_no_page(&self) {
        let waits = self.destination_qemu.as_ref();
        let waits = waits.is_some_and(|qemu| qemu.is_in_postcopy() && qemu.has_run);
        // It may have heard since that the guest had gone on there.
        let given_up = self.had_heard.is_some();
        let cut_off = self
            .destination_disk
            .as_ref()
            .is_some_and(|record| record.step == drover_migrate::DestinationStep::CutOff);
        let qemu = &self.source_qemu;
        let failed = qemu.stuck || matches!(qemu.migration, MigrationSeen::Failed { .. });
        assert!(
            !waits || failed || given_up || cut_off,
            "its pages are lost\n{}",
            self.story()
        );
    }
}
