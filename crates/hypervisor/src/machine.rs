use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use drover_types::Bytes;

use crate::inside::Inside;
use crate::process::{Exit, ProcessId};
use crate::progress::{MigrationProgress, MigrationStatus, RunState};
use crate::settings::{AppliedSettings, MigrationSettings};
use crate::storage::Storage;
use crate::{events::MachineEvents, qmp::Version};

/// A future that can be held without knowing its type.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an operation of a [`Machine`] will answer.
pub type Answer<'a, T> = Boxed<'a, Result<T, MachineError>>;

/// One guest that moves, or may: what a migration needs of it, whoever started it.
///
/// Every operation ends within a bound of [`limits`](crate::limits), or of the adapter. Dropping it lets go of the guest, which stays
/// as it is. What not every adapter can do has a body here, which says so.
pub trait Movable: Send + Sync + fmt::Debug {
    /// The hypervisor's version.
    fn version(&self) -> Version;

    /// Whether the guest runs.
    fn state(&self) -> Answer<'_, RunState>;

    /// Lets the guest run. Refused while a migration arrives (QEMU would start the guest by
    /// itself at its end) and for a guest that has left.
    fn resume(&self) -> Answer<'_, ()>;

    /// Lets a guest run on whose state was sent to somewhere from where it never runs, such as a file that does not
    /// count: also after that migration has completed. Whoever calls this answers for that.
    fn run_on(&self) -> Answer<'_, ()> {
        cannot("run the guest on")
    }

    /// Ends the process in order, as pulling the plug is for the guest, and waits for its exit.
    fn quit(&self) -> Answer<'_, Exit>;

    /// Ends the process with `SIGKILL`, whatever it does, and waits for its exit.
    fn kill(&self) -> Answer<'_, Exit>;

    /// Completes when the process has ended.
    fn exited(&self) -> Boxed<'_, Exit>;

    /// How the process ended, once it has.
    fn exit(&self) -> Option<Exit>;

    /// Prepares a migration, on either side, before [`migrate`](Self::migrate) or
    /// [`listen_incoming`](Self::listen_incoming). Without it QEMU tells no
    /// [`MachineEvent::MigrationStatus`].
    fn set_migration<'a>(&'a self, settings: &'a MigrationSettings) -> Answer<'a, AppliedSettings>;

    /// Listens for a migration; it accepts connections once this has answered. For a machine that
    /// was started with [`Start::Incoming`](crate::Start::Incoming).
    fn listen_incoming<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()>;

    /// Begins to migrate. Answers before the connection is made: watch
    /// [`events`](Self::events) and [`migration`](Self::migration).
    fn migrate<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()>;

    /// Changes the downtime limit, also of a migration under way.
    fn set_downtime_limit(&self, limit: Duration) -> Answer<'_, ()>;

    /// Cancels the migration under way. Answers when that was taken; then the status becomes
    /// `cancelled`, or now and then `failed` (QEMU shuts the return path down first, and its
    /// thread may be quicker: `migrate_fd_cancel` in QEMU's `migration/migration.c`), or
    /// `completed` where it was too late.
    ///
    /// Whoever holds the other ends of the migration's sockets must go on reading all of them to
    /// their end. Where the peer closes the multifd channels once the main channel has ended,
    /// QEMU's migration thread may wait for ever for a channel's thread that has gone: the guest
    /// runs, but cannot migrate again, and no command helps (8 to 11 of 100 cancels on 7.2 and
    /// 10.0.2; none of 600 with a peer that reads on: `docs/measurements/qemu-cancel.md`).
    ///
    /// While a channel stalls, the status stays `cancelling`, or there is no answer: then
    /// [`yank_migration`](Self::yank_migration).
    ///
    /// Once postcopy has begun there is nothing to go back to: QEMU 10 refuses this then, and it is not to be
    /// told it.
    fn cancel(&self) -> Answer<'_, ()>;

    /// Cuts the migration's connections, also while the hypervisor's main loop hangs on them. The
    /// migration fails, or is cancelled where that was asked before; the source's guest goes on. One that has gone
    /// over to postcopy becomes `postcopy-paused` instead.
    /// Without a connection there is nothing to do, and that is no error.
    fn yank_migration(&self) -> Answer<'_, ()>;

    /// Lets the guest go on at the destination before its memory is there: it is stopped, its devices are sent, and
    /// the pages that are left follow. Answers when that was taken; the status becomes `postcopy-active` a moment
    /// later, or `completed` where there was nothing left. From then on the guest is in both processes together,
    /// and lost when either ends.
    ///
    /// Until [`MigrationProgress::postcopy_bytes`] grows a broken connection fails the migration, and where every
    /// page was sent but the destination's last word has not come it does, too, or is not noticed at all (QEMU
    /// 7.2); in between the status becomes `postcopy-paused`. The guest is stopped by an order of its own
    /// (`stop`), without which a hypervisor that fails runs it again by itself, at the very end as well.
    ///
    /// Refused where the migration has not been begun, or without
    /// [`AppliedSettings::postcopy`](AppliedSettings); the guest stands still then. The destination's is stopped,
    /// as at the end of any migration: it waits for [`resume`](Self::resume), also while it is
    /// `postcopy-active`.
    fn start_postcopy(&self) -> Answer<'_, ()> {
        cannot("go on by postcopy")
    }

    /// Connects a migration that is `postcopy-paused` again, on its source; its destination must have been told
    /// [`recover_incoming`](Self::recover_incoming) before. Answers before the connection is made: the status becomes
    /// `postcopy-recover`, then `postcopy-active`, or `postcopy-paused` again where that did not succeed, from
    /// where it can be repeated. Refused in every other status.
    fn migrate_again<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        cannot("connect its migration again")
    }

    /// Listens for the rest of a migration that is `postcopy-paused`, on its destination; it accepts connections once
    /// this has answered. It gets through also while the hypervisor's main loop waits for a page of the guest. May be
    /// repeated with another address; refused in every other status.
    fn recover_incoming<'a>(&'a self, _address: &'a MigrationAddress) -> Answer<'a, ()> {
        cannot("listen for the rest of a migration")
    }

    /// Lifts what is left of [`Throttle::DirtyLimit`](drover_types::Throttle) after a migration that did not
    /// complete: QEMU itself means to when it is cancelled, and refuses it to itself while the migration is
    /// under way, as it does here (`dirtylimit_is_allowed` in QEMU's `softmmu/dirtylimit.c`). Nothing to lift is no
    /// error.
    fn lift_dirty_limit(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// How much of its memory the guest writes to in so many whole seconds, by a sample of its pages that takes
    /// that long; `None` when it could not be measured, as while it stands still. Pages that were rewritten
    /// count once, however often. Source: `calc-dirty-rate` in QEMU's `qapi/migration.json`.
    fn dirtied(&self, _within: Duration) -> Answer<'_, Option<Bytes>> {
        Box::pin(async { Ok(None) })
    }

    /// How the migration stands.
    fn migration(&self) -> Answer<'_, MigrationProgress>;

    /// What happens from now on. Take it before asking for the state, so that nothing falls
    /// between.
    fn events(&self) -> MachineEvents;
}

/// One guest in a process that a [`Hypervisor`](crate::Hypervisor) started or found.
///
/// As with [`Movable`], dropping a machine lets go of it; the guest stays as it is.
pub trait Machine: Storage {
    /// Its process.
    fn process(&self) -> ProcessId;

    /// The concrete machine type, such as `pc-q35-10.0` where it was started with `q35`.
    fn machine_type(&self) -> Answer<'_, String>;

    /// Stops the guest where it is.
    fn pause(&self) -> Answer<'_, ()>;

    /// Presses the guest's power button (ACPI). The guest decides what becomes of it.
    fn power_down(&self) -> Answer<'_, ()>;

    /// Why this guest cannot be migrated now, in the hypervisor's words, such as a device of the host
    /// that it was given; empty when nothing speaks against it. Source: `blocked-reasons` in QEMU's
    /// `qapi/migration.json`.
    fn migration_blockers(&self) -> Answer<'_, Vec<String>>;

    /// What it was given, as far as it cannot be told from its arguments alone. Asks some five times for each card.
    fn inside(&self) -> Answer<'_, Inside>;
}

/// What an adapter does not do, and is not asked for where it does not say that it would.
fn cannot<T: Send + 'static>(operation: &'static str) -> Answer<'static, T> {
    let reason = format!("there is no way to {operation} for this guest");
    Box::pin(async move {
        Err(MachineError::Other {
            operation,
            reason,
            unanswered: false,
        })
    })
}

/// Where a migration goes to, or is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationAddress {
    /// A UNIX socket.
    Unix(PathBuf),
    /// QEMU's own notation, such as `tcp:10.0.0.2:4444,mptcp=on`.
    Uri(String),
}

/// Why an operation of a [`Machine`] did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The hypervisor understood and refused.
    #[error("qemu refused to {operation}: {reason}")]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// The hypervisor's own words.
        reason: String,
    },
    /// No answer in time; it may still be carried out.
    #[error("qemu did not answer within {within:?} when told to {operation}")]
    NoAnswer {
        /// What was to be done.
        operation: &'static str,
        /// How long was waited.
        within: Duration,
    },
    /// The connection to the hypervisor is gone; its process most likely is as well.
    #[error("the connection to qemu was lost, telling it to {operation}: {reason}")]
    Lost {
        /// What was to be done.
        operation: &'static str,
        /// How the connection ended.
        reason: String,
    },
    /// Nothing was sent: too many commands wait for their answer.
    #[error("qemu was not told to {operation}: {waiting} commands wait for their answer already")]
    Busy {
        /// What was to be done.
        operation: &'static str,
        /// Commands that wait.
        waiting: usize,
    },
    /// This hypervisor cannot do it.
    #[error("qemu {version} cannot {operation}: it has no {missing}")]
    Unsupported {
        /// What was to be done.
        operation: &'static str,
        /// What it would need.
        missing: String,
        /// The hypervisor's version.
        version: Version,
    },
    /// Not in this state of the guest; nothing was sent.
    #[error("refused to {operation}: the guest is in state {state}, {why}")]
    WrongState {
        /// What was to be done.
        operation: &'static str,
        /// The guest's state.
        state: RunState,
        /// What speaks against it.
        why: &'static str,
    },
    /// An argument that cannot be used; nothing was sent.
    #[error("cannot {operation}: {problem}")]
    Invalid {
        /// What was to be done.
        operation: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The answer lacks what it must have.
    #[error("qemu's answer, told to {operation}, has no usable {missing}")]
    Unexpected {
        /// What was to be done.
        operation: &'static str,
        /// The member that was looked for.
        missing: &'static str,
    },
    /// What another adapter than QEMU's says, in its own words.
    #[error("{reason}")]
    Other {
        /// What was to be done.
        operation: &'static str,
        /// Why it was not, with who says so.
        reason: String,
        /// It may have been done, or be yet.
        unanswered: bool,
    },
    /// The process did not end.
    #[error("qemu, process {pid}, still runs {within:?} after it was told to end")]
    StillRunning {
        /// Its process.
        pid: u32,
        /// How long was waited.
        within: Duration,
    },
}

impl MachineError {
    /// Whether what was to be done may have been done, or be yet.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Lost { .. } => true,
            Self::Other { unanswered, .. } => *unanswered,
            _ => false,
        }
    }
}

/// What a machine tells without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineEvent {
    /// The guest's vCPUs stopped.
    Stopped {
        /// When.
        at: UnixMicros,
    },
    /// The guest's vCPUs run.
    Resumed {
        /// When.
        at: UnixMicros,
    },
    /// A migration, to or from here, changed its status.
    MigrationStatus {
        /// The new status.
        status: MigrationStatus,
        /// When.
        at: UnixMicros,
    },
    /// A round over the memory begins.
    Round {
        /// Its number, from 1.
        round: u64,
        /// When.
        at: UnixMicros,
    },
    /// The guest is shutting down or was told to; the process ends next, unless told to stay.
    Shutdown {
        /// Whether the guest did so by itself.
        by_guest: bool,
        /// Why, in the hypervisor's word, such as `guest-shutdown` or `host-qmp-quit`.
        reason: String,
        /// When.
        at: UnixMicros,
    },
    /// So many events were dropped because this reader was slow: ask for the state anew.
    Missed(u64),
    /// The connection to the hypervisor ended; every later call says so again.
    Disconnected {
        /// How.
        reason: String,
    },
    /// Anything else, by the hypervisor's name for it.
    Other {
        /// Its name.
        name: String,
        /// When.
        at: UnixMicros,
    },
}

/// A time in microseconds since the UNIX epoch, by the clock of the host it was taken on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub u64);

impl UnixMicros {
    /// The time from `earlier` to this; zero if it was later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}
