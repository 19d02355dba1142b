//! What operators changed of the limits, as it outlives the agent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use drover_api::Limit;
use drover_types::{MigrationId, in_short};
use serde::{Deserialize, Serialize};

use crate::registry::files;

/// In place of what is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// None: no limit.
    pub limit: Option<Limit>,
}

impl Change {
    /// To this limit.
    pub fn to(limit: Limit) -> Self {
        Self { limit: Some(limit) }
    }
}

/// Everything that was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// Of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Change>,
    /// Of interfaces.
    pub nics: BTreeMap<String, Change>,
    /// Of migrations from this host.
    pub migrations: BTreeMap<MigrationId, Limit>,
}

impl Changes {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where they are kept.
#[derive(Debug)]
pub struct File(PathBuf);

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl File {
    /// Below the agent's state directory.
    pub fn below(state: &Path) -> Self {
        Self(state.join("limits.json"))
    }

    /// What it holds; nothing when it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> io::Result<Changes> {
        match files::read(&self.0)? {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| io::Error::other(in_short(error)))
            }
            None => Ok(Changes::default()),
        }
    }

    /// Writes it whole and durably.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, changes: &Changes) -> io::Result<()> {
        files::write_whole(&self.0, &serde_json::to_vec_pretty(changes)?)
    }
}
