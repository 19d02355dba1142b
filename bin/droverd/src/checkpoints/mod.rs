//! Checkpoints: pages of guests that left this host, on its disk, for their return (`[checkpoints]`); and baselines: pages of guests
//! as they arrived here, from a host that keeps a checkpoint, so that only what changed of them goes back.
//!
//! ```text
//!   begin ─▶ NAME.pages grows while the guest leaves ─▶ keep ─▶ NAME.json ─▶ take ─▶ Returning: its relay reads them
//!                 └── given up, where it stays: nothing is left ◀── back, failed, too old, removed, not wanted ──┘
//!
//!   begin_baseline ─▶ NAME.baseline grows while the guest arrives ─▶ keep ─▶ NAME.baseline-json ─▶ baseline: its relay compares
//!                 └── given up, where it does not: nothing is left ◀── left, too old, removed, not wanted, no room ──┘
//! ```
//! `NAME.pages` is where the configuration wants it, sealed with a key of its own. The key is in `NAME.json`, with the agent's own
//! state: where that is removed nobody reads the pages any more, whatever a disk does with what is deleted.
//!
//! # Invariants
//! - A checkpoint is no copy of a guest: nothing is ever started from it. What it lacks crosses again.
//! - It is known by its pages' content: one that is old, or of another guest of this name, costs room and nothing else. So is a baseline:
//!   it is used where the other host has the same page.
//! - No checkpoint is missing because of a baseline that is kept, which saves less: for one there is room only beside the checkpoint of
//!   its guest, and it makes room for any. One that is still growing takes its room.

mod files;
mod handles;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{CheckpointKind, CheckpointView, CheckpointsView};
use drover_carrier::{BaselineFile, StoredFile};
use drover_pagestore::{Baseline, DigestKey, NoSegment, SealKey, Segment, shape_within};
use drover_types::{Bytes, VmName};
use jiff::Timestamp;

use crate::config::Config;
use crate::limits::{
    BASELINE_SPARE, CHECKPOINT_BESIDE, CHECKPOINT_PART_LEAST, CHECKPOINT_SPARE, CHECKPOINTS_LOOK,
};
use crate::registry::files as documents;
use files::{KINDS, Told, erase, make, named, pages, place, taken, told};
pub use handles::{Growing, Returning};

/// Those of this host.
#[derive(Debug, Clone)]
pub struct Checkpoints(Arc<Inner>);

type Key = (VmName, CheckpointKind);

#[derive(Debug)]
struct Inner {
    /// Where it is told which there are.
    own: PathBuf,
    /// Where new ones are put.
    directory: PathBuf,
    size: Bytes,
    lasts: Duration,
    key: DigestKey,
    all: Mutex<BTreeMap<Key, Checkpoint>>,
}

#[derive(Debug)]
enum Checkpoint {
    /// Its guest is on its way. It takes so much at most.
    Growing(Bytes),
    Kept {
        told: Told,
        takes: Bytes,
    },
}

/// No checkpoint is kept of a guest that leaves, or used of one that comes back; or no baseline.
#[derive(Debug, thiserror::Error)]
pub enum NoCheckpoint {
    /// Others take it.
    #[error(
        "{room} of `checkpoints.size` are left, and it takes at least {least}; \
         `drover checkpoints` lists what takes the rest"
    )]
    NoRoom {
        /// What is left.
        room: Bytes,
        /// What there has to be.
        least: Bytes,
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
        for kind in KINDS {
            for vm in named(&own, told(kind))? {
                let file = place(&own, &vm, told(kind));
                let told = match documents::read_document::<Told>(&file) {
                    Ok(Some(told)) => told,
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::warn!(file = %file.display(), %error, "removed: it cannot be read");
                        documents::remove(&file)?;
                        continue;
                    }
                };
                // One session has digests by one key.
                let same = *key.get_or_insert(told.digests) == told.digests;
                match fs::metadata(&told.path) {
                    Ok(metadata) if same && wanted.size.0 > 0 && !told.is_over() => {
                        let takes = taken(&metadata);
                        all.insert((vm, kind), Checkpoint::Kept { told, takes });
                    }
                    _ => erase(&file, &told.path),
                }
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

    /// Pages of guests that were on their way when an earlier agent ended.
    fn remove_what_nobody_knows(&self) -> io::Result<()> {
        let all = self.lock();
        for kind in KINDS {
            for vm in named(&self.0.directory, pages(kind))? {
                let path = place(&self.0.directory, &vm, pages(kind));
                let known = all.get(&(vm, kind));
                let is_known =
                    matches!(known, Some(Checkpoint::Kept { told, .. }) if told.path == path);
                if !is_known {
                    documents::remove(&path)?;
                }
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

    /// Begins one of a guest that leaves, with so much memory; an earlier one of it is removed, and baselines that take its room.
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
        let key = self.replaced(&mut all, vm, CheckpointKind::Checkpoint)?;
        let wanted = checkpoint_bytes(memory);
        let least = Bytes(memory.0 / CHECKPOINT_PART_LEAST);
        self.make_room(&mut all, (least, wanted));
        let room = self.room(&all);
        let most = wanted.min(room);
        let shape = shape_within(most.0, page_bytes, true).filter(|_| most >= least);
        let shape = shape.ok_or(NoCheckpoint::NoRoom { room, least })?;
        let seal = SealKey::random()?;
        let made = |file: &File| Segment::sealed(file.try_clone()?, shape, &seal).map(drop);
        let (growing, file) = self.grow(&mut all, key, (most, &seal), made)?;
        let stored = growing.told().stored(true);
        Ok((growing, file, stored))
    }

    /// Begins a baseline of a guest that arrives, with so much memory; an earlier one of it is removed.
    ///
    /// # Errors
    /// [`NoCheckpoint`]: also where there is no room for it beside the guest's checkpoint.
    pub fn begin_baseline(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
    ) -> Result<(Growing, File, BaselineFile), NoCheckpoint> {
        let mut all = self.lock();
        let key = self.replaced(&mut all, vm, CheckpointKind::Baseline)?;
        let spare = Bytes(memory.0 / BASELINE_SPARE);
        let most = sum_of([memory, spare, CHECKPOINT_BESIDE]);
        // The one that it comes back to goes when it is here, and the next takes its place.
        let returns_to = match all.get(&(vm.clone(), CheckpointKind::Checkpoint)) {
            Some(Checkpoint::Kept { takes, .. }) => *takes,
            _ => Bytes(0),
        };
        let next = checkpoint_bytes(memory).0.saturating_sub(returns_to.0);
        let room = self.room(&all);
        let least = sum_of([most, Bytes(next)]);
        let shape = Baseline::shape_within(most.0, page_bytes).filter(|_| least <= room);
        let shape = shape.ok_or(NoCheckpoint::NoRoom { room, least })?;
        let seal = SealKey::random()?;
        let made = |file: &File| Baseline::make(file, shape);
        let (growing, file) = self.grow(&mut all, key, (most, &seal), made)?;
        let baseline = growing.told().baseline();
        Ok((growing, file, baseline))
    }

    /// Removes an earlier one, unless it grows.
    fn replaced(
        &self,
        all: &mut BTreeMap<Key, Checkpoint>,
        vm: &VmName,
        kind: CheckpointKind,
    ) -> Result<Key, NoCheckpoint> {
        let key = (vm.clone(), kind);
        if matches!(all.get(&key), Some(Checkpoint::Growing(_))) {
            return Err(NoCheckpoint::Growing);
        }
        self.erase(all, &key);
        Ok(key)
    }

    /// Makes a file, of so many bytes at most, in which `made` writes the beginning.
    fn grow(
        &self,
        all: &mut BTreeMap<Key, Checkpoint>,
        key: Key,
        (most, seal): (Bytes, &SealKey),
        made: impl FnOnce(&File) -> Result<(), NoSegment>,
    ) -> Result<(Growing, File), NoCheckpoint> {
        let path = place(&self.0.directory, &key.0, pages(key.1));
        make(&self.0.directory)?;
        documents::remove(&path)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let told = Told {
            path,
            digests: *self.0.key.bytes(),
            seal: *seal.bytes(),
            since: Timestamp::now(),
            until: Timestamp::now(),
        };
        all.insert(key.clone(), Checkpoint::Growing(most));
        let for_relay = made(&file).and_then(|()| Ok(file.try_clone()?));
        let growing = Growing::new(self.clone(), key, file, told);
        match for_relay {
            Ok(file) => Ok((growing, file)),
            Err(error) => {
                // Dropped, it would wait for the lock, which its caller has.
                growing.give_up(all);
                Err(error.into())
            }
        }
    }

    /// Removes baselines, the oldest first, until there is so much room, or none is left that is not growing; none where not even the
    /// least can be had.
    fn make_room(&self, all: &mut BTreeMap<Key, Checkpoint>, (least, wanted): (Bytes, Bytes)) {
        let baselines = all.iter().filter_map(|(key, checkpoint)| match checkpoint {
            Checkpoint::Kept { takes, .. } if key.1 == CheckpointKind::Baseline => Some(*takes),
            _ => None,
        });
        if sum_of(baselines.chain([self.room(all)])) < least {
            return;
        }
        while self.room(all) < wanted {
            let kept = all.iter().filter_map(|(key, checkpoint)| match checkpoint {
                Checkpoint::Kept { told, .. } if key.1 == CheckpointKind::Baseline => {
                    Some((told.since, key))
                }
                _ => None,
            });
            let Some((_, oldest)) = kept.min_by_key(|(since, _)| *since) else {
                return;
            };
            let oldest = oldest.clone();
            tracing::info!(vm = %oldest.0, "its baseline makes room for a checkpoint");
            self.erase(all, &oldest);
        }
    }

    fn room(&self, all: &BTreeMap<Key, Checkpoint>) -> Bytes {
        Bytes(self.0.size.0.saturating_sub(sum(all).0))
    }

    /// Whether there is a checkpoint of this guest that counts.
    pub fn has(&self, vm: &VmName) -> bool {
        let told = self.told(vm, CheckpointKind::Checkpoint);
        told.is_some_and(|told| !told.is_over())
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
        let told = self.told(vm, CheckpointKind::Checkpoint)?;
        Some((Returning::new(self.clone(), vm.clone(), told.since), told))
    }

    /// The baseline of a guest that leaves, for its relay. It stays until that has left.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn baseline(&self, vm: &VmName) -> Result<Option<(File, BaselineFile)>, NoCheckpoint> {
        let told = self.told(vm, CheckpointKind::Baseline);
        let Some(told) = told.filter(|told| !told.is_over()) else {
            return Ok(None);
        };
        let file = File::open(&told.path)?;
        Ok(Some((file, told.baseline())))
    }

    fn told(&self, vm: &VmName, kind: CheckpointKind) -> Option<Told> {
        match self.lock().get(&(vm.clone(), kind)) {
            Some(Checkpoint::Kept { told, .. }) => Some(told.clone()),
            _ => None,
        }
    }

    /// Removes what is kept of this guest; whether there was anything.
    pub fn remove(&self, vm: &VmName) -> bool {
        let removed = KINDS.map(|kind| self.remove_one(vm, kind));
        removed.contains(&true)
    }

    /// Removes the baseline of a guest that has left.
    pub fn remove_baseline(&self, vm: &VmName) {
        self.remove_one(vm, CheckpointKind::Baseline);
    }

    fn remove_one(&self, vm: &VmName, kind: CheckpointKind) -> bool {
        let mut all = self.lock();
        let key = (vm.clone(), kind);
        let is_kept = matches!(all.get(&key), Some(Checkpoint::Kept { .. }));
        if is_kept {
            self.erase(&mut all, &key);
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
        let old = |(key, checkpoint): (&Key, &Checkpoint)| match checkpoint {
            Checkpoint::Kept { told, .. } if told.is_over() => Some(key.clone()),
            _ => None,
        };
        let old: Vec<Key> = all.iter().filter_map(old).collect();
        for key in old {
            tracing::info!(vm = %key.0, "its {} is too old", key.1);
            self.erase(&mut all, &key);
        }
    }

    /// What there is.
    pub fn view(&self) -> CheckpointsView {
        let all = self.lock();
        let kept = |(key, checkpoint): (&Key, &Checkpoint)| match checkpoint {
            Checkpoint::Growing(_) => None,
            Checkpoint::Kept { told, takes } => Some(CheckpointView {
                vm: key.0.clone(),
                kind: key.1,
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

    fn erase(&self, all: &mut BTreeMap<Key, Checkpoint>, key: &Key) {
        if let Some(Checkpoint::Kept { told: kept, .. }) = all.remove(key) {
            erase(&place(&self.0.own, &key.0, told(key.1)), &kept.path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Checkpoint>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a checkpoint of a guest with so much memory may take.
fn checkpoint_bytes(memory: Bytes) -> Bytes {
    let spare = Bytes(memory.0 / CHECKPOINT_SPARE);
    sum_of([memory, spare, CHECKPOINT_BESIDE])
}

/// As much as there is, where it is more.
fn sum_of(all: impl IntoIterator<Item = Bytes>) -> Bytes {
    let sum = |sum: u64, bytes: Bytes| sum.saturating_add(bytes.0);
    Bytes(all.into_iter().fold(0, sum))
}

fn sum(all: &BTreeMap<Key, Checkpoint>) -> Bytes {
    let each = all.values().map(|checkpoint| match checkpoint {
        Checkpoint::Growing(most) => *most,
        Checkpoint::Kept { takes, .. } => *takes,
    });
    sum_of(each)
}

#[cfg(test)]
mod tests;
