//! What the agent must know of a running QEMU after a restart of its own: `record.json` beside
//! its sockets. And of its end: `exit.json`.

use std::io;
use std::path::Path;

use drover_api::{ExitView, VmDefinition};
use drover_types::{HostName, MigrationId, in_short};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files;

/// What the agent knows of a QEMU that it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The definition that it was started from, whatever its file says now.
    pub definition: VmDefinition,
    /// What its guest is on this host.
    pub role: Role,
    /// Since when.
    pub since: Timestamp,
}

/// What a guest with a process is on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Role {
    /// It belongs here.
    Running,
    /// It belongs here and is being copied away.
    Outgoing {
        /// The migration.
        migration: MigrationId,
        /// Where it goes.
        destination: HostName,
    },
    /// It belongs to the destination; this copy never runs again.
    HandedOff {
        /// The migration.
        migration: MigrationId,
        /// Whose it is.
        destination: HostName,
    },
    /// It belongs to the source; this copy waits.
    Incoming {
        /// The migration.
        migration: MigrationId,
        /// Where it comes from.
        source: HostName,
    },
}

impl Role {
    /// The migration that it is part of.
    #[must_use]
    pub fn migration(&self) -> Option<MigrationId> {
        match self {
            Self::Running => None,
            Self::Outgoing { migration, .. }
            | Self::HandedOff { migration, .. }
            | Self::Incoming { migration, .. } => Some(*migration),
        }
    }
}

const RECORD: &str = "record.json";
const EXIT: &str = "exit.json";

impl Record {
    /// Reads a guest's record; `None` when there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn load(directory: &Path) -> io::Result<Option<Self>> {
        load(&directory.join(RECORD))
    }

    /// Writes it whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, directory: &Path) -> io::Result<()> {
        save(&directory.join(RECORD), self)
    }

    /// Removes a guest's record.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(directory: &Path) -> io::Result<()> {
        files::remove(&directory.join(RECORD))
    }
}

/// Reads how a guest's last process ended; `None` when that is not known.
pub fn load_exit(directory: &Path) -> Option<ExitView> {
    load(&directory.join(EXIT)).ok().flatten()
}

/// Writes how it ended.
///
/// # Errors
/// The file cannot be written.
pub fn save_exit(directory: &Path, exit: &ExitView) -> io::Result<()> {
    save(&directory.join(EXIT), exit)
}

fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(text) = files::read(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| io::Error::other(format!("{}: {}", path.display(), in_short(error))))
}

fn save<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    files::write_whole(path, &serde_json::to_vec_pretty(value)?)
}
