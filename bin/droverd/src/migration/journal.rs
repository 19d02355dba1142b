//! What outlives the agent: one file per migration, its last record and what is shown of it.

use std::io;
use std::path::{Path, PathBuf};

use drover_api::{EventView, MigrationRole, MigrationView, Refusal, Told};
use drover_migrate::{DestinationRecord, Outcome, SourceRecord, SourceStep};
use drover_types::{MigrationId, in_short};
use serde::{Deserialize, Serialize};

use crate::disks;
use crate::libvirt::{DomainRecord, kept_definition};
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
    pub domain: Option<DomainRecord>,
}

impl Entry {
    /// A domain of libvirt's left this host by it, and runs on the other one.
    fn has_moved_a_domain(&self) -> bool {
        let completed = SourceStep::Finished {
            outcome: Outcome::Completed,
        };
        let left = matches!(&self.record, AnyRecord::Source(record) if record.step == completed);
        left && self.domain.is_some()
    }
}

/// The directory with one file for each migration and side.
#[derive(Debug, Clone)]
pub struct Journal {
    state: PathBuf,
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
        let state = state.to_owned();
        Ok(Self { state, directory })
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

    /// Changes what is shown of a migration that has ended, and what is known of its domain.
    ///
    /// # Errors
    /// There is no such entry, or it cannot be written.
    pub async fn amend(
        &self,
        view: MigrationView,
        events: Vec<EventView>,
        domain: Option<DomainRecord>,
    ) -> io::Result<()> {
        let path = self.path(view.id, view.role);
        let entry = read(&path)?;
        self.write(Entry {
            view,
            events,
            domain,
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
            let domain = entry.domain.as_ref();
            let owes = owes || domain.is_some_and(|domain| !domain.owes.is_empty());
            let owes = owes || disks::is_recorded(&self.state, entry.view.id);
            let kept = seen <= HISTORY || owes || !entry.view.phase.has_ended();
            if !kept {
                self.forget(entry.view.id, entry.view.role);
            }
            kept
        });
        Ok(entries)
    }

    /// Removes what is kept of a migration that has ended, and the definition of a domain that runs elsewhere by it.
    pub fn forget(&self, id: MigrationId, role: MigrationRole) {
        let path = self.path(id, role);
        if read(&path).is_ok_and(|entry| entry.has_moved_a_domain()) {
            let kept = kept_definition(&self.state, id);
            if let Err(error) = files::remove(&kept) {
                tracing::warn!(path = %kept.display(), %error, "old definition not removed");
            }
        }
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

#[cfg(test)]
mod tests {
    use drover_api::MovingDomain;
    use drover_migrate::{JournalVersion, Migration, Reason};

    use super::*;
    use crate::migration::snapshot::samples::leaving;

    fn ended(outcome: Outcome) -> Entry {
        let view = leaving().view;
        let migration = Migration {
            id: view.id,
            vm: view.vm.clone(),
            source: view.source.clone(),
            destination: view.destination.clone(),
        };
        let moving = MovingDomain {
            uuid: "6b2c8a1e-0000-4000-8000-000000000007".to_owned(),
            name: "web".to_owned(),
            persistent: true,
            autostart: true,
            paused: false,
            needs: Vec::new(),
            files_told: true,
        };
        Entry {
            record: AnyRecord::Source(SourceRecord {
                version: JournalVersion,
                migration,
                step: SourceStep::Finished { outcome },
            }),
            view,
            events: Vec::new(),
            refusal: None,
            domain: Some(moving.into()),
        }
    }

    #[tokio::test]
    async fn the_definition_of_a_domain_goes_with_the_record_that_it_runs_elsewhere_and_stays_where_it_is_lost()
     {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        std::fs::create_dir(state.path().join("departed")).unwrap();
        let lost = Outcome::Lost {
            reason: Reason::from("its host lost power"),
        };
        for (outcome, stays) in [(Outcome::Completed, false), (lost, true)] {
            let entry = ended(outcome);
            let (id, role) = (entry.view.id, entry.view.role);
            let kept = kept_definition(state.path(), id);
            std::fs::write(&kept, "<domain/>").unwrap();
            journal.write(entry).await.unwrap();
            assert_eq!(journal.load().unwrap().len(), 1);
            journal.forget(id, role);
            assert_eq!(kept.exists(), stays);
            assert!(journal.load().unwrap().is_empty());
        }
    }
}
