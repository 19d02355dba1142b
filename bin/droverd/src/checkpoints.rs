//! Checkpoints: pages of guests that left this host, on its disk, for their return (`[checkpoints]`).
//!
//! ```text
//!   begin ─▶ NAME.pages grows while the guest leaves ─▶ keep ─▶ NAME.json ─▶ take ─▶ Returning: its relay reads them
//!                 └── given up, where it stays: nothing is left ◀── back, failed, too old, removed, not wanted ──┘
//! ```
//! `NAME.pages` is where the configuration wants it, sealed with a key of its own. The key is in `NAME.json`, with the agent's own
//! state: where that is removed nobody reads the pages any more, whatever a disk does with what is deleted.
//!
//! # Invariants
//! - A checkpoint is no copy of a guest: nothing is ever started from it. What it lacks crosses again.
//! - It is known by its pages' content: one that is old, or of another guest of this name, costs room and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{CheckpointView, CheckpointsView};
use drover_carrier::StoredFile;
use drover_pagestore::{DigestKey, NoSegment, SealKey, Segment, shape_within};
use drover_types::{Bytes, VmName};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::limits::{CHECKPOINT_BESIDE, CHECKPOINT_PART_LEAST, CHECKPOINT_SPARE, CHECKPOINTS_LOOK};
use crate::registry::files;

const PAGES: &str = "pages";
const TOLD: &str = "json";

/// Those of this host.
#[derive(Debug, Clone)]
pub struct Checkpoints(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Where it is told which there are.
    own: PathBuf,
    /// Where new ones are put.
    directory: PathBuf,
    size: Bytes,
    lasts: Duration,
    key: DigestKey,
    all: Mutex<BTreeMap<VmName, Checkpoint>>,
}

#[derive(Debug)]
enum Checkpoint {
    /// Its guest leaves. It takes so much at most.
    Growing(Bytes),
    Kept {
        told: Told,
        takes: Bytes,
    },
}

/// What is told of one that is kept.
#[derive(Clone, Serialize, Deserialize)]
struct Told {
    path: PathBuf,
    digests: [u8; 32],
    seal: [u8; 32],
    since: Timestamp,
    until: Timestamp,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Told")
            .field("path", &self.path)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// No checkpoint is kept of a guest that leaves, or used of one that comes back.
#[derive(Debug, thiserror::Error)]
pub enum NoCheckpoint {
    /// Others take it.
    #[error(
        "{room} of `checkpoints.size` are left, too little for a guest with {memory}; \
         `drover checkpoints` lists what takes it"
    )]
    NoRoom {
        /// What is left.
        room: Bytes,
        /// The guest's memory.
        memory: Bytes,
    },
    /// One of it is being written.
    #[error("one of it is still being written")]
    Growing,
    /// Its file is of no use.
    #[error("its file cannot be used")]
    Segment(#[from] NoSegment),
    /// The kernel says no.
    #[error("its file cannot be written or read")]
    Io(#[from] io::Error),
}

/// A checkpoint that grows while its guest leaves. Dropped, it is given up.
#[derive(Debug)]
pub struct Growing {
    all: Checkpoints,
    vm: VmName,
    file: File,
    told: Told,
    kept: bool,
}

/// A checkpoint that its guest uses while it comes back. Dropped, it is removed: the guest is back, or the pages may be why it
/// is not.
#[derive(Debug)]
pub struct Returning {
    all: Checkpoints,
    vm: VmName,
    since: Timestamp,
}

impl Checkpoints {
    /// Those that are there and count; whatever else is there is removed, and all where none are wanted.
    ///
    /// # Errors
    /// A directory cannot be read, or the system has no random numbers.
    pub fn open(config: &Config) -> io::Result<Self> {
        let wanted = &config.checkpoints;
        let own = config.state.join("checkpoints");
        let mut all = BTreeMap::new();
        let mut key = None;
        for vm in named(&own, TOLD)? {
            let file = place(&own, &vm, TOLD);
            let told = match files::read_document::<Told>(&file) {
                Ok(Some(told)) => told,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "removed: it cannot be read");
                    files::remove(&file)?;
                    continue;
                }
            };
            // One session has digests by one key.
            let same = *key.get_or_insert(told.digests) == told.digests;
            match fs::metadata(&told.path) {
                Ok(metadata) if same && wanted.size.0 > 0 && !told.is_over() => {
                    let takes = taken(&metadata);
                    all.insert(vm, Checkpoint::Kept { told, takes });
                }
                _ => erase(&file, &told.path),
            }
        }
        let this = Self(Arc::new(Inner {
            own,
            directory: wanted.directory.clone(),
            size: wanted.size,
            lasts: wanted.lasts,
            key: key.map_or_else(DigestKey::random, |key| Ok(DigestKey::new(key)))?,
            all: Mutex::new(all),
        }));
        this.remove_what_nobody_knows()?;
        Ok(this)
    }

    /// Pages of guests that were leaving when an earlier agent ended.
    fn remove_what_nobody_knows(&self) -> io::Result<()> {
        let all = self.lock();
        for vm in named(&self.0.directory, PAGES)? {
            let path = place(&self.0.directory, &vm, PAGES);
            let is_known =
                matches!(all.get(&vm), Some(Checkpoint::Kept { told, .. }) if told.path == path);
            if !is_known {
                files::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Whether any are kept.
    pub fn is_on(&self) -> bool {
        self.0.size.0 > 0
    }

    /// The key of all digests of pages that this host has stored.
    pub fn key(&self) -> &DigestKey {
        &self.0.key
    }

    /// Begins one of a guest that leaves, with so much memory; an earlier one of it is removed.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn begin(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
    ) -> Result<(Growing, File, StoredFile), NoCheckpoint> {
        let mut all = self.lock();
        if matches!(all.get(vm), Some(Checkpoint::Growing(_))) {
            return Err(NoCheckpoint::Growing);
        }
        self.erase(&mut all, vm);
        let room = Bytes(self.0.size.0.saturating_sub(sum(&all).0));
        let wanted = memory.0 + memory.0 / CHECKPOINT_SPARE + CHECKPOINT_BESIDE.0;
        let most = wanted.min(room.0);
        let shape = shape_within(most, page_bytes, true);
        let shape = shape.filter(|_| most >= memory.0 / CHECKPOINT_PART_LEAST);
        let shape = shape.ok_or(NoCheckpoint::NoRoom { room, memory })?;
        let path = place(&self.0.directory, vm, PAGES);
        make(&self.0.directory)?;
        files::remove(&path)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let seal = SealKey::random()?;
        let segment = Segment::sealed(file.try_clone()?, shape, &seal)?;
        let for_relay = segment.file().try_clone()?;
        let told = Told {
            path,
            digests: *self.0.key.bytes(),
            seal: *seal.bytes(),
            since: Timestamp::now(),
            until: Timestamp::now(),
        };
        all.insert(vm.clone(), Checkpoint::Growing(Bytes(most)));
        let stored = told.stored(true);
        let growing = Growing {
            all: self.clone(),
            vm: vm.clone(),
            file,
            told,
            kept: false,
        };
        Ok((growing, for_relay, stored))
    }

    /// Whether there is one of this guest that counts.
    pub fn has(&self, vm: &VmName) -> bool {
        let all = self.lock();
        matches!(all.get(vm), Some(Checkpoint::Kept { told, .. }) if !told.is_over())
    }

    /// That of a guest that comes back, for its relay.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn take(&self, vm: &VmName) -> Result<Option<(Returning, File, StoredFile)>, NoCheckpoint> {
        let Some((returning, told)) = self.returning(vm) else {
            return Ok(None);
        };
        if told.is_over() {
            return Ok(None);
        }
        let file = File::open(&told.path)?;
        Ok(Some((returning, file, told.stored(false))))
    }

    /// What a guest holds of it that an earlier agent began to take in. Whether its relay reads it was not written down: if it does not, it
    /// is removed all the same, and the next return brings all pages.
    pub fn take_up(&self, vm: &VmName) -> Option<Returning> {
        self.returning(vm).map(|(returning, _)| returning)
    }

    fn returning(&self, vm: &VmName) -> Option<(Returning, Told)> {
        let all = self.lock();
        let Some(Checkpoint::Kept { told, .. }) = all.get(vm) else {
            return None;
        };
        let returning = Returning {
            all: self.clone(),
            vm: vm.clone(),
            since: told.since,
        };
        Some((returning, told.clone()))
    }

    /// Removes the one of this guest; whether there was one.
    pub fn remove(&self, vm: &VmName) -> bool {
        let mut all = self.lock();
        let is_kept = matches!(all.get(vm), Some(Checkpoint::Kept { .. }));
        if is_kept {
            self.erase(&mut all, vm);
        }
        is_kept
    }

    /// Removes those that are too old, for ever.
    pub async fn keep_tidy(&self) {
        loop {
            tokio::time::sleep(CHECKPOINTS_LOOK).await;
            let this = self.clone();
            // The kernel takes its time for large files.
            let _ = tokio::task::spawn_blocking(move || this.remove_old()).await;
        }
    }

    fn remove_old(&self) {
        let mut all = self.lock();
        let old = |(vm, checkpoint): (&VmName, &Checkpoint)| match checkpoint {
            Checkpoint::Kept { told, .. } if told.is_over() => Some(vm.clone()),
            _ => None,
        };
        let old: Vec<VmName> = all.iter().filter_map(old).collect();
        for vm in old {
            tracing::info!(%vm, "its checkpoint is too old");
            self.erase(&mut all, &vm);
        }
    }

    /// What there is.
    pub fn view(&self) -> CheckpointsView {
        let all = self.lock();
        let kept = |(vm, checkpoint): (&VmName, &Checkpoint)| match checkpoint {
            Checkpoint::Growing(_) => None,
            Checkpoint::Kept { told, takes } => Some(CheckpointView {
                vm: vm.clone(),
                bytes: *takes,
                since: told.since,
                until: told.until,
            }),
        };
        CheckpointsView {
            size: self.0.size,
            taken: sum(&all),
            checkpoints: all.iter().filter_map(kept).collect(),
        }
    }

    fn erase(&self, all: &mut BTreeMap<VmName, Checkpoint>, vm: &VmName) {
        if let Some(Checkpoint::Kept { told, .. }) = all.remove(vm) {
            erase(&place(&self.0.own, vm, TOLD), &told.path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VmName, Checkpoint>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Growing {
    /// Keeps it: its guest has left. Blocks until it is on the disk.
    ///
    /// # Errors
    /// It cannot be written; then it is given up.
    pub fn keep(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let inner = &self.all.0;
        let lasts = SignedDuration::try_from(inner.lasts).map_err(io::Error::other)?;
        self.told.since = Timestamp::now();
        self.told.until = self.told.since + lasts;
        make(&inner.own)?;
        let text = serde_json::to_vec_pretty(&self.told)?;
        let takes = taken(&self.file.metadata()?);
        let mut all = self.all.lock();
        files::write_whole(&place(&inner.own, &self.vm, TOLD), &text)?;
        let told = self.told.clone();
        all.insert(self.vm.clone(), Checkpoint::Kept { told, takes });
        drop(all);
        self.kept = true;
        Ok(())
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut all = self.all.lock();
        all.remove(&self.vm);
        erase(&place(&self.all.0.own, &self.vm, TOLD), &self.told.path);
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let is_same = |told: &Told| told.since == self.since;
        if matches!(all.get(&self.vm), Some(Checkpoint::Kept { told, .. }) if is_same(told)) {
            self.all.erase(&mut all, &self.vm);
        }
    }
}

impl Told {
    /// By this host's clock; one that went back by more than it lasts ends it, too.
    fn is_over(&self) -> bool {
        let now = Timestamp::now();
        let lasts = self.until.duration_since(self.since);
        now >= self.until || self.since.duration_since(now) > lasts
    }

    fn stored(&self, fill: bool) -> StoredFile {
        StoredFile {
            key: self.digests,
            seal: Some(self.seal),
            fill,
        }
    }
}

fn sum(all: &BTreeMap<VmName, Checkpoint>) -> Bytes {
    let each = all.values().map(|checkpoint| match checkpoint {
        Checkpoint::Growing(most) => *most,
        Checkpoint::Kept { takes, .. } => *takes,
    });
    each.sum()
}

/// On the disk: what was not written takes nothing.
fn taken(metadata: &fs::Metadata) -> Bytes {
    Bytes(metadata.blocks() * 512)
}

/// First the key, without which the rest is nothing.
fn erase(told: &Path, pages: &Path) {
    for file in [told, pages] {
        if let Err(error) = files::remove(file) {
            tracing::error!(file = %file.display(), %error, "a checkpoint was not removed");
        }
    }
}

fn place(directory: &Path, vm: &VmName, kind: &str) -> PathBuf {
    directory.join(format!("{vm}.{kind}"))
}

/// Guests with a file of this kind.
fn named(directory: &Path, kind: &str) -> io::Result<Vec<VmName>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut guests = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_ours = path.extension().is_some_and(|found| found == kind);
        guests.extend(
            stem.filter(|_| is_ours)
                .and_then(|stem| stem.parse::<VmName>().ok()),
        );
    }
    Ok(guests)
}

fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests;
