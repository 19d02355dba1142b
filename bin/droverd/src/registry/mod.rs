//! The guests of this host: what is defined, what runs, and who may touch it.
//!
//! Owns the directory of definitions, the runtime directory of each guest and the processes in
//! them. It never decides where a guest runs: that is `migration`'s, which sets a guest's role
//! through a [`Reservation`].
//!
//! ```text
//!   definitions/NAME.toml ──start──▶ runtime/vms/NAME/record.json + QEMU ──exit──▶ exit.json
//!          ▲                                    │
//!          └──────── adopt (arrived) ───────────┤
//!   state/departed/NAME.toml ◀── hand_off ──────┤
//!   suspended/NAME ◀── suspend ── start ───────▶┘
//! ```
//!
//! # Invariant
//! A guest has at most one reservation, and only its holder changes it. A guest that was handed
//! off has no definition here any more: nothing can start it, not even after a reboot.

pub(crate) mod definitions;
mod exit;
pub mod files;
mod known;
mod memory;
mod operations;
mod preflight;
mod process;
pub(crate) mod record;
mod recovery;
mod reservation;
mod reserve;
mod resume;
mod room;
mod settle;
mod shutdown;
mod slot;
mod suspend;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal};
use drover_hypervisor::Hypervisor;
use drover_types::{HostName, MigrationId, VmName};

use crate::config::Config;
use crate::saved::SavedStates;
pub use known::{Known, Sampled};
pub use memory::guest_memory;
pub use record::Role;
pub use reservation::{Reached, Recovered, Reservation};
pub use room::resident;
use slot::Slot;

/// Why a guest is reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// It is being started.
    Start,
    /// It is being stopped.
    Stop,
    /// It is being suspended.
    Suspend,
    /// It leaves.
    Outgoing {
        /// The migration.
        migration: MigrationId,
        /// Where it goes.
        destination: HostName,
    },
    /// It arrives.
    Incoming {
        /// The migration.
        migration: MigrationId,
        /// Where it comes from.
        source: HostName,
    },
}

/// The guests of this host. Clones share them.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<Config>,
    hypervisor: Arc<dyn Hypervisor>,
    saved: SavedStates,
    /// Never held across an await.
    slots: Mutex<BTreeMap<VmName, Slot>>,
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<VmName, Slot>> {
        // A panic while it was held cannot leave a slot half changed: every change is one store.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self, name: &VmName) -> PathBuf {
        self.config.runtime.join("vms").join(name.as_str())
    }

    fn departed(&self, name: &VmName) -> PathBuf {
        self.config
            .state
            .join("departed")
            .join(format!("{name}.toml"))
    }
}

/// For an operation on our own files that failed: the operator must look.
fn broken(what: impl std::fmt::Display, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("cannot {what}: {error}"))
        .next("check the file system and its permissions, then try again")
}

#[cfg(test)]
mod tests;
