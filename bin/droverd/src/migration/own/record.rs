//! What the next agent has to know of disks that are copied from here.

use std::io;
use std::path::{Path, PathBuf};

use drover_api::NewDisk;
use drover_migrate::mirrors::Stage;
use drover_types::MigrationId;
use serde::{Deserialize, Serialize};

use super::{DISKS_SOCKET, Local};
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "moving-disks";

/// It.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How far the copies are; none before they were begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The disks.
    pub disks: Vec<NewDisk>,
    /// QEMU's name of each.
    pub nodes: Vec<String>,
    /// Where the relay listens for memory.
    pub memory: PathBuf,
}

impl Record {
    pub fn new(locals: &[Local], memory: &Path) -> Self {
        Self {
            stage: None,
            disks: locals.iter().map(|local| local.new.clone()).collect(),
            nodes: locals.iter().map(|local| local.node.clone()).collect(),
            memory: memory.to_owned(),
        }
    }

    /// Where the relay listens for them.
    pub fn socket(&self) -> PathBuf {
        self.memory.with_file_name(DISKS_SOCKET)
    }

    /// That of a migration, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(state: &Path, migration: MigrationId) -> io::Result<Option<Self>> {
        let file = file(state, migration);
        files::read_document(&file)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
    }

    /// Writes it down.
    ///
    /// # Errors
    /// It cannot be.
    pub fn write(&self, state: &Path, migration: MigrationId) -> io::Result<()> {
        let file = file(state, migration);
        let written = serde_json::to_vec(self)
            .map_err(io::Error::other)
            .and_then(|document| {
                std::fs::create_dir_all(state.join(FOLDER))?;
                files::write_whole(&file, &document)
            });
        written.map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
    }

    /// Nothing is left to be known of it.
    pub fn forget(state: &Path, migration: MigrationId) {
        let file = file(state, migration);
        if let Err(error) = files::remove(&file) {
            tracing::warn!(file = %file.display(), %error, "not removed");
        }
    }
}

fn file(state: &Path, migration: MigrationId) -> PathBuf {
    state.join(FOLDER).join(format!("{migration}.json"))
}
