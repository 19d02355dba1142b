use std::fmt;
use std::time::Duration;

use drover_types::{BitRate, Bytes};

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A word of a newer hypervisor, as it was sent.
            Other(String),
        }

        impl $name {
            /// From the hypervisor's word.
            #[must_use]
            pub fn from_word(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other($crate::qmp::excerpt(other)),
                }
            }

            /// The hypervisor's word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

word_enum! {
    /// Whether a guest runs, and if not, why. Source: `RunState` in QEMU's `qapi/run-state.json`.
    RunState {
        /// Its vCPUs run.
        Running = "running",
        /// Stopped by command.
        Paused = "paused",
        /// Started stopped, never yet run.
        Prelaunch = "prelaunch",
        /// Waits for a migration to arrive, or receives it.
        InMigrate = "inmigrate",
        /// Stopped on the source for the last round.
        FinishMigrate = "finish-migrate",
        /// Left: the source's copy after a completed migration, which must never run again. Before 8.2 also one that
        /// was stopped before its migration failed.
        PostMigrate = "postmigrate",
        /// The guest has shut down, the process stays.
        Shutdown = "shutdown",
        /// Suspended to memory (ACPI S3).
        Suspended = "suspended",
        /// Stopped by an error of a disk.
        IoError = "io-error",
        /// Stopped by an error of the hypervisor.
        InternalError = "internal-error",
        /// Stopped by the guest's kernel panicking.
        GuestPanicked = "guest-panicked",
        /// Stopped by a watchdog device.
        Watchdog = "watchdog",
        /// Stopped while a snapshot is saved.
        SaveVm = "save-vm",
        /// Stopped while a snapshot is restored.
        RestoreVm = "restore-vm",
        /// Stopped by a debugger.
        Debug = "debug",
        /// Runs on two hosts in step.
        Colo = "colo",
    }
}

word_enum! {
    /// Where a migration stands on one side. Source: `MigrationStatus` in QEMU's
    /// `qapi/migration.json`.
    MigrationStatus {
        /// None was begun.
        None = "none",
        /// Connecting, or waiting for connections.
        Setup = "setup",
        /// Memory is sent while the guest runs.
        Active = "active",
        /// The guest is stopped, the last round has not begun.
        PreSwitchover = "pre-switchover",
        /// The guest is stopped, devices are sent.
        Device = "device",
        /// The guest runs on the destination, or may, and fetches the rest; the source's copy stays stopped.
        PostcopyActive = "postcopy-active",
        /// Postcopy, with its connection lost.
        PostcopyPaused = "postcopy-paused",
        /// Postcopy, connecting again.
        PostcopyRecoverSetup = "postcopy-recover-setup",
        /// Postcopy, taking up again.
        PostcopyRecover = "postcopy-recover",
        /// Done: on the source everything was sent, on the destination everything is there.
        Completed = "completed",
        /// Failed; the source's guest goes on.
        Failed = "failed",
        /// A cancel was taken and is being carried out.
        Cancelling = "cancelling",
        /// Cancelled; the source's guest goes on.
        Cancelled = "cancelled",
        /// Waits for the guest to let go of a device.
        WaitUnplug = "wait-unplug",
        /// Continuous replication.
        Colo = "colo",
    }
}

impl MigrationStatus {
    /// Whether it is over, one way or the other.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What a hypervisor tells of a migration. A number that it does not tell (yet) is zero or `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationProgress {
    /// Where it stands.
    pub status: MigrationStatus,
    /// Since it was begun; the whole time once it is over.
    pub total_time: Duration,
    /// Connecting and preparing.
    pub setup_time: Option<Duration>,
    /// How long the guest was stopped, once it is over; measured on the source only.
    pub downtime: Option<Duration>,
    /// How long it would be stopped if the last round began now.
    pub expected_downtime: Option<Duration>,
    /// Sent on all channels.
    pub transferred: Bytes,
    /// Of that, on multifd channels.
    pub multifd: Bytes,
    /// Of the guest's memory, not yet sent or dirty again.
    pub remaining: Bytes,
    /// The guest's memory.
    pub total: Bytes,
    /// Pages found to hold only zeroes and sent as such.
    pub zero_pages: u64,
    /// Pages sent whole.
    pub normal_pages: u64,
    /// Size of a page.
    pub page_size: Bytes,
    /// Pages that the guest writes to in a second, as of the last round.
    pub dirty_pages_per_second: u64,
    /// Rounds over the memory so far.
    pub rounds: u64,
    /// Sending rate, as of late.
    pub rate: BitRate,
    /// The part of its time, in percent, that the guest stands still so that the migration ends.
    pub throttle: u8,
    /// Sent since postcopy began; zero before, and on the destination.
    pub postcopy_bytes: Bytes,
    /// Pages that the guest had to wait for since then; zero before, and on the destination.
    pub postcopy_requests: u64,
    /// Why it failed, in the hypervisor's words.
    pub error: Option<String>,
    /// Disks that are copied with it; none where there are none, or that is not told.
    pub disks: Option<DiskProgress>,
}

/// What is copied of disks, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskProgress {
    /// Copied so far.
    pub copied: Bytes,
    /// All that there is to copy, with what the guest wrote again since.
    pub total: Bytes,
}

impl MigrationProgress {
    /// One of which no more is known than where it stands.
    #[must_use]
    pub fn of(status: MigrationStatus) -> Self {
        Self {
            status,
            total_time: Duration::ZERO,
            setup_time: None,
            downtime: None,
            expected_downtime: None,
            transferred: Bytes(0),
            multifd: Bytes(0),
            remaining: Bytes(0),
            total: Bytes(0),
            zero_pages: 0,
            normal_pages: 0,
            page_size: Bytes(0),
            dirty_pages_per_second: 0,
            rounds: 0,
            rate: BitRate(0),
            throttle: 0,
            postcopy_bytes: Bytes(0),
            postcopy_requests: 0,
            error: None,
            disks: None,
        }
    }

    /// One that has failed.
    #[must_use]
    pub fn failed(why: String) -> Self {
        Self {
            error: Some(why),
            ..Self::of(MigrationStatus::Failed)
        }
    }
}
