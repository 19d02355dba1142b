//! What was made here for the disks of each migration, as the next agent has to know it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drover_types::MigrationId;
use serde::{Deserialize, Serialize};

use super::identity::{AtRest, FileId};
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "new-disks";

/// One that was made, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub path: PathBuf,
    /// None before all were there under any name.
    pub file: Option<FileId>,
    /// As it was once libvirt had ended what it copied, and nobody had it open; none before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_rest: Option<AtRest>,
}

/// Whether files were made here for a migration, and are its own still.
pub fn is_recorded(state: &Path, migration: MigrationId) -> bool {
    ledger(state, migration).exists()
}

/// They are the domain's from now on.
pub fn forget(state: &Path, migration: MigrationId) {
    let file = ledger(state, migration);
    if let Err(error) = files::remove(&file) {
        tracing::warn!(file = %file.display(), %error, "not removed");
    }
}

pub fn read(state: &Path, migration: MigrationId) -> Result<Vec<Made>, String> {
    let file = ledger(state, migration);
    let all = files::read_document(&file);
    let all = all.map_err(|error| {
        format!(
            "what was made for its disks is not known: {}: {error}",
            file.display()
        )
    })?;
    Ok(all.unwrap_or_default())
}

pub fn write(state: &Path, migration: MigrationId, all: &[Made]) -> Result<(), String> {
    let file = ledger(state, migration);
    let written = serde_json::to_vec(all)
        .map_err(io::Error::other)
        .and_then(|document| {
            fs::create_dir_all(state.join(FOLDER))?;
            files::write_whole(&file, &document)
        });
    written.map_err(|error| format!("that cannot be written down in {}: {error}", file.display()))
}

fn ledger(state: &Path, migration: MigrationId) -> PathBuf {
    state.join(FOLDER).join(format!("{migration}.json"))
}
