//! What outlives the agent: one file per migration, its last record and what is shown of it.

use std::io;
use std::path::{Path, PathBuf};

use drover_api::{EventView, MigrationRole, MigrationView, MovingDomain, Refusal, Told};
use drover_migrate::{DestinationRecord, SourceRecord};
use drover_types::{MigrationId, in_short};
use serde::{Deserialize, Serialize};

use crate::limits::HISTORY;
use crate::registry::files;

/// The last record of a migration, of whichever side this host was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnyRecord {
    /// The guest left this host, or was to.
    Source(SourceRecord),
    /// The guest came to this host, or was to.
    Destination(DestinationRecord),
}

/// One file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// What the state machine may rely on.
    pub record: AnyRecord,
    /// What is shown.
    pub view: MigrationView,
    /// What happened.
    #[serde(default)]
    pub events: Vec<EventView>,
    /// Why it was refused, for whoever asks for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// What the next agent has to know of the guest where it is a domain of libvirt's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<MovingDomain>,
}

/// The directory with one file for each migration and side.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: PathBuf,
}

impl Journal {
    /// The journal below the agent's state directory, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join("migrations");
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    fn path(&self, id: MigrationId, role: MigrationRole) -> PathBuf {
        let side = match role {
            MigrationRole::Source => "source",
            MigrationRole::Destination => "destination",
        };
        self.directory.join(format!("{id}.{side}.json"))
    }

    /// Writes an entry, durably: when this returns it survives the loss of power.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn write(&self, entry: Entry) -> io::Result<()> {
        let path = self.path(entry.view.id, entry.view.role);
        let text = serde_json::to_vec_pretty(&entry)?;
        let written = tokio::task::spawn_blocking(move || files::write_whole(&path, &text));
        written.await.map_err(io::Error::other)?
    }

    /// Changes what is shown of a migration that has ended.
    ///
    /// # Errors
    /// There is no such entry, or it cannot be written.
    pub async fn amend(&self, view: MigrationView, events: Vec<EventView>) -> io::Result<()> {
        let path = self.path(view.id, view.role);
        let entry = read(&path)?;
        self.write(Entry {
            view,
            events,
            ..entry
        })
        .await
    }

    /// Every entry, newest first; those beyond the [`HISTORY`] are removed if their migration has
    /// ended. Whoever keeps them from then on has those removed that it lets go ([`forget`](Self::forget)).
    ///
    /// # Errors
    /// The directory or one of its files cannot be read, named. An entry that is passed over could
    /// be the one that says that a guest belongs to another host now.
    pub fn load(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for file in std::fs::read_dir(&self.directory)? {
            let path = file?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                entries.push(read(&path)?);
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.view.started_at));
        let mut seen = 0;
        entries.retain(|entry| {
            seen += 1;
            let owes = entry.view.resolution.as_ref();
            let owes = owes.is_some_and(|resolution| resolution.told != Told::Confirmed);
            let kept = seen <= HISTORY || owes || !entry.view.phase.has_ended();
            if !kept {
                self.forget(entry.view.id, entry.view.role);
            }
            kept
        });
        Ok(entries)
    }

    /// Removes what is kept of a migration that has ended.
    pub fn forget(&self, id: MigrationId, role: MigrationRole) {
        let path = self.path(id, role);
        if let Err(error) = files::remove(&path) {
            tracing::warn!(path = %path.display(), %error, "old migration not removed");
        }
    }
}

fn read(path: &Path) -> io::Result<Entry> {
    let parsed = files::read(path).and_then(|text| {
        let text = text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        serde_json::from_str::<Entry>(&text).map_err(|error| io::Error::other(in_short(error)))
    });
    parsed.map_err(|error| {
        io::Error::other(format!(
            "{}: {error}; it may say that a guest was handed to another host: restore it, start the \
             version of droverd that wrote it, or, once you know where its guest is, remove it",
            path.display()
        ))
    })
}
