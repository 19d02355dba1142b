//! Two hypervisors as far as a migration sees them, with the orders of QEMU 10.0 that matter:
//! a source that fails resumes its guest by itself; a destination is completed before it tells
//! the source so; a source completes only when it was told.

use drover_migrate::{GuestSeen, MigrationSeen, Observation, Reason};

/// A hypervisor process.
#[derive(Debug, Clone)]
pub struct Qemu {
    pub alive: bool,
    pub migration: MigrationSeen,
    pub guest: GuestSeen,
    /// An incoming hypervisor has the whole state in its socket or in memory.
    pub has_everything: bool,
    /// What its socket to the relay will end with is decided.
    pub cut: bool,
    /// Its guest was stopped by an order of its own, not by its migration.
    pub stopped: bool,
    /// Before 8.2: of a guest that was stopped so it says after a failure that it has left, and it does not
    /// see that a connection broke at postcopy's very end.
    pub old: bool,
    /// It waits for ever: for that word, or for what is missing over a connection that is no more.
    pub stuck: bool,
    /// Every page of a postcopy was sent; what it waits for is the other one's last word.
    pub all_sent: bool,
    /// Its main loop hangs on a page of its guest, and answers nothing: it was told to run it, and the devices
    /// read its memory before it does.
    pub waits: bool,
    /// It was told to run its guest, and did: the agent marks that in the guest's own record.
    pub has_run: bool,
}

impl Qemu {
    /// Runs its guest. Of an earlier migration, in or out, it still tells how that ended.
    pub fn running(earlier: MigrationSeen) -> Self {
        let guest = GuestSeen::Running;
        Self {
            alive: true,
            migration: earlier,
            guest,
            has_everything: false,
            cut: false,
            stopped: false,
            old: false,
            stuck: false,
            all_sent: false,
            waits: false,
            has_run: false,
        }
    }

    /// Waits for its guest.
    pub fn incoming() -> Self {
        let (migration, guest) = (MigrationSeen::None, GuestSeen::InMigrate);
        Self {
            alive: true,
            migration,
            guest,
            has_everything: false,
            cut: false,
            stopped: false,
            old: false,
            stuck: false,
            all_sent: false,
            waits: false,
            has_run: false,
        }
    }

    pub fn runs_its_guest(&self) -> bool {
        self.alive && self.guest == GuestSeen::Running
    }

    pub fn observe(&self) -> Observation {
        Observation {
            migration: self.migration.clone(),
            guest: self.guest,
        }
    }

    pub fn migrates(&self) -> bool {
        self.alive && self.migration == MigrationSeen::Active
    }

    /// Its guest has left, or has come, and pages of it are still to follow.
    pub fn is_in_postcopy(&self) -> bool {
        let postcopy = matches!(
            self.migration,
            MigrationSeen::Postcopy { .. } | MigrationSeen::PostcopyPaused
        );
        self.alive && postcopy
    }

    /// The connection of a postcopy breaks. One that has not sent the devices yet fails instead.
    pub fn pause_postcopy(&mut self) {
        if !self.alive || self.migration != (MigrationSeen::Postcopy { pages: true }) {
            return;
        }
        if self.stuck {
            return;
        }
        if self.all_sent && self.old {
            self.stuck = true;
            return;
        }
        if self.all_sent {
            return self.fail();
        }
        self.migration = MigrationSeen::PostcopyPaused;
    }

    /// The connection broke where it sees that never, or at postcopy's very end: what was on its way then is
    /// not sent again.
    pub fn ended_in_vain(&self) -> bool {
        let failed = matches!(self.migration, MigrationSeen::Failed { .. });
        self.stuck || self.all_sent && failed
    }

    /// The guest becomes what it was before its migration stopped it.
    fn fail(&mut self) {
        self.migration = MigrationSeen::Failed {
            reason: Reason::from("channel closed"),
        };
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.guest == GuestSeen::FinishMigrate {
            self.guest = match (self.stopped, self.old) {
                (true, true) => GuestSeen::PostMigrate,
                (true, false) => GuestSeen::Paused,
                (false, _) => GuestSeen::Running,
            };
        }
    }

    /// `stop`
    pub fn stop(&mut self) {
        if self.runs_its_guest() {
            self.guest = GuestSeen::Paused;
            self.stopped = true;
        }
    }

    /// An outgoing migration ends without success: the guest goes on.
    pub fn give_up(&mut self, cancelled: bool) {
        self.pause_postcopy();
        let sends_devices = self.migration == (MigrationSeen::Postcopy { pages: false });
        if !(self.migrates() || self.alive && sends_devices) {
            return;
        }
        if !cancelled {
            return self.fail();
        }
        self.migration = MigrationSeen::Cancelled;
        self.go_on();
    }

    /// What follows `completed`, a moment later.
    pub fn after_migrate(&mut self) {
        if self.migration == MigrationSeen::Completed && self.guest == GuestSeen::FinishMigrate {
            self.guest = GuestSeen::PostMigrate;
        }
    }

    /// Its main loop hangs on a page.
    pub fn hangs(&self) -> bool {
        self.alive && self.waits
    }

    /// `cont`, as unguarded as QEMU's own.
    pub fn cont(&mut self) {
        if self.alive && self.guest != GuestSeen::InMigrate {
            self.guest = GuestSeen::Running;
            self.stopped = false;
            self.has_run = true;
        }
    }

    /// An operator pauses it, or its disk fails.
    pub fn pause(&mut self) {
        if self.runs_its_guest() {
            self.guest = GuestSeen::Paused;
        }
    }

    /// What paused it is over.
    pub fn unpause(&mut self) {
        if self.has_run {
            self.cont();
        }
    }

    pub fn kill(&mut self) {
        self.alive = false;
    }
}
