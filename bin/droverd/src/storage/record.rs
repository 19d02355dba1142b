//! What outlives the agent of a move of a disk: one file for each, written before what it says is done.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use drover_api::{StorageMoveEvent, StorageMovePhase, StorageMoveView};
use drover_migrate::storage_move::Stage;
use drover_types::{MigrationId, StorageMoveId, in_short};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::limits;
use crate::disks::KnownFile;
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "storage-moves";

/// A move of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What is shown.
    pub view: StorageMoveView,
    /// The domain.
    pub domain: Uuid,
    /// How far it is; none when it has ended.
    pub stage: Option<Stage>,
    /// Somebody wants the disk to stay.
    #[serde(default)]
    pub cancelled: bool,
    /// When the guest was about to be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// The old file, where it is to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<KnownFile>,
    /// What is to go yet.
    #[serde(default)]
    pub owes: Owes,
}

/// A file that is to go yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owes {
    /// None.
    #[default]
    Nothing,
    /// The new one.
    New,
    /// The old one.
    Old,
}

impl Record {
    /// Tells what happened.
    pub fn tell(&mut self, what: impl Into<String>) {
        let what = what.into();
        let (id, vm, disk) = (self.view.id, &self.view.vm, &self.view.disk);
        tracing::info!(%id, %vm, disk, what, "storage move");
        let events = &mut self.view.events;
        if events.len() >= limits::EVENTS {
            // How it began and how it ended are told longest.
            events.remove(limits::EVENTS / 2);
        }
        let at = Timestamp::now();
        events.push(StorageMoveEvent { at, what });
    }

    /// It goes on at this stage.
    pub fn go(&mut self, stage: Stage) {
        self.stage = Some(stage);
        self.view.phase = match stage {
            Stage::Making => StorageMovePhase::Preparing,
            Stage::Copying => StorageMovePhase::Copying,
            Stage::Pivoting { .. } => StorageMovePhase::Pivoting,
            Stage::GivingUp { .. } => StorageMovePhase::GivingUp,
        };
    }

    /// It has ended, and owes nothing.
    pub fn is_over(&self) -> bool {
        self.stage.is_none() && self.owes == Owes::Nothing
    }

    /// It has ended so.
    pub fn end(&mut self, phase: StorageMovePhase) {
        self.stage = None;
        self.view.phase = phase;
        self.view.ended_at = Some(Timestamp::now());
    }
}

/// By what files are known that are made for it: the id is the same.
pub fn files_of(id: StorageMoveId) -> MigrationId {
    MigrationId(id.0)
}

/// The folder with one file for each.
#[derive(Debug, Clone)]
pub struct Journal(PathBuf);

impl Journal {
    /// Below the agent's state directory; the folder is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join(FOLDER);
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Writes one down, durably.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record)?;
        files::write_whole(&self.path(record.view.id), &text)
    }

    /// All of them, newest first. Those beyond the [`limits::HISTORY`] go that have ended, and owe nothing.
    ///
    /// # Errors
    /// One cannot be read, and is named: it could be of a guest that stands still.
    pub fn load(&self) -> io::Result<Vec<Record>> {
        let mut all = Vec::new();
        for id in ids(&self.0) {
            all.extend(self.read(id)?);
        }
        all.sort_by_key(|record: &Record| std::cmp::Reverse(record.view.id));
        let mut seen = 0;
        all.retain(|record| {
            seen += 1;
            let kept = seen <= limits::HISTORY || !record.is_over();
            if !kept {
                self.forget(record.view.id);
            }
            kept
        });
        Ok(all)
    }

    /// Lets go of one.
    pub fn forget(&self, id: StorageMoveId) {
        if let Err(error) = files::remove(&self.path(id)) {
            tracing::warn!(%id, %error, "an old storage move is not forgotten");
        }
    }

    fn read(&self, id: StorageMoveId) -> io::Result<Option<Record>> {
        let path = self.path(id);
        files::read_document(&path)
            .map_err(|error| io::Error::other(format!("{}: {}", path.display(), in_short(error))))
    }

    fn path(&self, id: StorageMoveId) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

/// By what files are known that moves of disks had made, of which something is known here.
pub fn with_files(state: &Path) -> BTreeSet<MigrationId> {
    ids(&state.join(FOLDER)).into_iter().map(files_of).collect()
}

fn ids(folder: &Path) -> Vec<StorageMoveId> {
    let Ok(found) = std::fs::read_dir(folder) else {
        // There are none.
        return Vec::new();
    };
    let names = found
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()));
    let names = names.filter(|name| name.extension().is_some_and(|ext| ext == "json"));
    let ids = names.filter_map(|name| name.file_stem()?.to_str()?.parse().ok());
    ids.collect()
}

#[cfg(test)]
pub mod tests {
    use drover_api::DiskFormat;
    use drover_types::Bytes;

    use super::*;

    pub fn record(number: u128) -> Record {
        Record {
            view: StorageMoveView {
                id: StorageMoveId(Uuid::from_u128(number)),
                vm: "web".parse().unwrap(),
                disk: "vda".to_owned(),
                from: "/images/web.img".into(),
                from_format: DiskFormat::Raw,
                to: "/fast/web.img".into(),
                to_format: DiskFormat::Raw,
                remove_old: false,
                phase: StorageMovePhase::Preparing,
                copied: Bytes(0),
                total: Bytes(7),
                paused_ms: None,
                started_at: Timestamp::UNIX_EPOCH,
                ended_at: None,
                cause: None,
                next: None,
                events: Vec::new(),
            },
            domain: Uuid::from_u128(9),
            stage: Some(Stage::Making),
            cancelled: false,
            paused_at: None,
            old: None,
            owes: Owes::Nothing,
        }
    }

    #[test]
    fn a_move_is_known_after_the_agents_end_and_old_ones_go_that_owe_nothing() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(with_files(state.path()), BTreeSet::new());
        let journal = Journal::open(state.path()).unwrap();
        let mut first = record(1);
        first.go(Stage::Pivoting { resumes: true });
        first.tell("it stands still");
        journal.write(&first).unwrap();
        assert_eq!(journal.load().unwrap(), [first.clone()]);
        let id = MigrationId(Uuid::from_u128(1));
        assert_eq!(with_files(state.path()), [id].into());
        let mut owes = record(2);
        owes.end(StorageMovePhase::Failed);
        owes.owes = Owes::New;
        journal.write(&owes).unwrap();
        for number in 3..=4 + limits::HISTORY as u128 {
            let mut over = record(number);
            over.end(StorageMovePhase::Moved);
            journal.write(&over).unwrap();
        }
        let all = journal.load().unwrap();
        assert_eq!(all.len(), limits::HISTORY + 2);
        assert_eq!(all[limits::HISTORY..], [owes, first]);
        assert_eq!(journal.load().unwrap().len(), limits::HISTORY + 2);
        std::fs::write(journal.path(StorageMoveId(id.0)), "{").unwrap();
        let unread = journal.load().unwrap_err().to_string();
        assert!(unread.contains("storage-moves/"), "{unread}");
    }
}
