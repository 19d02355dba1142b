//! What begins to be kept, and the room for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use drover_api::CheckpointKind;
use drover_carrier::{BaselineFile, StoredFile};
use drover_pagestore::{Baseline, NoSegment, SealKey, Segment, shape_within};
use drover_types::{Bytes, VmName};
use jiff::Timestamp;

use super::files::{Told, pages, place, unlink};
use super::{All, Checkpoint, Checkpoints, Disk, Gone, Growing, Key, NoCheckpoint, sum, sum_of};
use crate::limits::{
    BASELINE_SPARE, CHECKPOINT_BESIDE, CHECKPOINT_PART_LEAST, CHECKPOINT_PATIENCE, CHECKPOINT_ROOM,
    CHECKPOINT_SPARE,
};

impl Checkpoints {
    /// Begins one of a guest that leaves, with so much memory; an earlier one of it is removed, and baselines that take its room. Blocks
    /// for [`CHECKPOINT_PATIENCE`] at most.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn begin(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
    ) -> Result<(Growing, File, StoredFile), NoCheckpoint> {
        let (vm, until) = (vm.clone(), Instant::now() + CHECKPOINT_ROOM);
        self.patiently(CHECKPOINT_PATIENCE, move |this| {
            this.begin_checkpoint(&vm, memory, page_bytes, until)
        })
    }

    /// The same, where room is waited for until then.
    pub(super) fn begin_checkpoint(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
        until: Instant,
    ) -> Result<(Growing, File, StoredFile), NoCheckpoint> {
        let mut disk = self.disk();
        self.look(&mut disk)?;
        let key = (vm.clone(), CheckpointKind::Checkpoint);
        let wanted = checkpoint_bytes(memory);
        let least = Bytes(memory.0 / CHECKPOINT_PART_LEAST);
        let shape = self.reserve(&disk, &key, |all, gone| {
            self.make_room(all, (least, wanted), gone);
            let room = self.room(all);
            let most = wanted.min(room);
            let shape = shape_within(most.0, page_bytes, true).filter(|_| most >= least);
            let shape = shape.ok_or(NoCheckpoint::NoRoom { room, least })?;
            Ok((most, shape))
        })?;
        let made =
            |file: &File, seal: &SealKey| Segment::sealed(file.try_clone()?, shape, seal).map(drop);
        let (growing, file) = self.grow(&disk, key, until, made)?;
        let stored = growing.told().stored(true);
        Ok((growing, file, stored))
    }

    /// Begins a baseline of a guest that arrives, with so much memory; an earlier one of it is removed. Blocks likewise.
    ///
    /// # Errors
    /// [`NoCheckpoint`]: also where there is no room for it beside the guest's checkpoint.
    pub fn begin_baseline(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
    ) -> Result<(Growing, File, BaselineFile), NoCheckpoint> {
        let (vm, until) = (vm.clone(), Instant::now() + CHECKPOINT_ROOM);
        self.patiently(CHECKPOINT_PATIENCE, move |this| {
            this.begin_recording(&vm, memory, page_bytes, until)
        })
    }

    fn begin_recording(
        &self,
        vm: &VmName,
        memory: Bytes,
        page_bytes: u32,
        until: Instant,
    ) -> Result<(Growing, File, BaselineFile), NoCheckpoint> {
        let mut disk = self.disk();
        self.look(&mut disk)?;
        let key = (vm.clone(), CheckpointKind::Baseline);
        let spare = Bytes(memory.0 / BASELINE_SPARE);
        let most = sum_of([memory, spare, CHECKPOINT_BESIDE]);
        let shape = self.reserve(&disk, &key, |all, _| {
            // The one that it comes back to goes when it is here, and the next takes its place.
            let returns_to = match all.get(&(vm.clone(), CheckpointKind::Checkpoint)) {
                Some(Checkpoint::Kept { takes, .. }) => *takes,
                _ => Bytes(0),
            };
            let next = checkpoint_bytes(memory).0.saturating_sub(returns_to.0);
            let room = self.room(all);
            let least = sum_of([most, Bytes(next)]);
            let shape = Baseline::shape_within(most.0, page_bytes).filter(|_| least <= room);
            let shape = shape.ok_or(NoCheckpoint::NoRoom { room, least })?;
            Ok((most, shape))
        })?;
        let made = |file: &File, _: &SealKey| Baseline::make(file, shape);
        let (growing, file) = self.grow(&disk, key, until, made)?;
        let baseline = growing.told().baseline();
        Ok((growing, file, baseline))
    }

    /// Reserves as much room as `find` says, with what else it finds. An earlier one is removed, unless it grows, and what `find` has
    /// go for it.
    fn reserve<T>(
        &self,
        disk: &Disk<'_>,
        key: &Key,
        find: impl FnOnce(&mut All, &mut Vec<Gone>) -> Result<(Bytes, T), NoCheckpoint>,
    ) -> Result<T, NoCheckpoint> {
        let mut all = self.lock();
        if matches!(all.get(key), Some(Checkpoint::Growing { .. })) {
            return Err(NoCheckpoint::Growing);
        }
        let mut gone = Vec::new();
        remove(&mut all, key, &mut gone);
        let found = find(&mut all, &mut gone);
        if let Ok((most, _)) = &found {
            let growing = Checkpoint::Growing {
                most: *most,
                unwanted: false,
            };
            all.insert(key.clone(), growing);
        }
        drop(all);
        self.erase(disk, &gone);
        found.map(|(_, found)| found)
    }

    /// Makes a file, in which `made` writes the beginning, where room is reserved for it.
    fn grow(
        &self,
        disk: &Disk<'_>,
        key: Key,
        until: Instant,
        made: impl FnOnce(&File, &SealKey) -> Result<(), NoSegment>,
    ) -> Result<(Growing, File), NoCheckpoint> {
        let path = place(&self.0.directory, &key.0, pages(key.1));
        let files = SealKey::random().map_err(NoCheckpoint::from);
        let files = files.and_then(|seal| {
            let file = self.new_file(&path)?;
            self.wait_for_room(until)?;
            made(&file, &seal)?;
            Ok((file.try_clone()?, file, seal))
        });
        let (for_relay, file, seal) = files.inspect_err(|_| self.give_up(disk, &key, &path))?;
        let told = Told {
            path,
            digests: *self.0.key.bytes(),
            seal: *seal.bytes(),
            since: Timestamp::now(),
            until: Timestamp::now(),
            left_out: 0,
        };
        Ok((Growing::new(self.clone(), key, file, told), for_relay))
    }

    fn new_file(&self, path: &Path) -> io::Result<File> {
        let (held, removed) = unlink(path);
        self.let_go_of(held);
        removed?;
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    }

    /// Waits until the room that is reserved is there, where that takes what removed files have not given back yet, and for no more of it.
    /// Nobody adds to either meanwhile: who does has the disk.
    pub(super) fn wait_for_room(&self, until: Instant) -> Result<(), NoCheckpoint> {
        let patience = until.saturating_duration_since(Instant::now());
        let room = self.room(&self.lock());
        let is_short = || self.held() > room;
        if self.0.letting_go.wait_while(patience, is_short) {
            return Ok(());
        }
        let held = self.held();
        let short = Bytes(held.0.saturating_sub(room.0));
        Err(NoCheckpoint::NotGivenBack { held, short })
    }

    /// Removes baselines, the oldest first, until there is so much room, or none is left that is not growing; none where not even the
    /// least can be had.
    fn make_room(&self, all: &mut All, (least, wanted): (Bytes, Bytes), gone: &mut Vec<Gone>) {
        let baselines = all.iter().filter_map(|(key, checkpoint)| match checkpoint {
            Checkpoint::Kept { takes, .. } if key.1 == CheckpointKind::Baseline => Some(*takes),
            _ => None,
        });
        if sum_of(baselines.chain([self.room(all)])) < least {
            return;
        }
        while self.room(all) < wanted
            && let Some(oldest) = oldest(all, CheckpointKind::Baseline)
        {
            tracing::info!(vm = %oldest.0, "its baseline makes room for a checkpoint");
            remove(all, &oldest, gone);
        }
    }

    /// Removes the oldest, baselines first, until the rest is no more than `checkpoints.size`: that is less than it was.
    pub(super) fn remove_what_is_too_much(&self, disk: &Disk<'_>) {
        let mut all = self.lock();
        let mut gone = Vec::new();
        while sum(&all) > self.0.size
            && let Some(key) = oldest(&all, CheckpointKind::Baseline)
                .or_else(|| oldest(&all, CheckpointKind::Checkpoint))
        {
            let (vm, kind) = &key;
            let size = self.0.size;
            tracing::warn!(%vm, "its {kind} is removed: all that is kept takes more than {size}, as `checkpoints.size` says");
            remove(&mut all, &key, &mut gone);
        }
        drop(all);
        self.erase(disk, &gone);
    }

    /// What is left for others. What removed files have not given back yet is: [`wait_for_room`](Self::wait_for_room).
    fn room(&self, all: &All) -> Bytes {
        Bytes(self.0.size.0.saturating_sub(sum(all).0))
    }
}

/// The oldest of this kind that is kept.
fn oldest(all: &All, kind: CheckpointKind) -> Option<Key> {
    let kept = all.iter().filter_map(|(key, checkpoint)| match checkpoint {
        Checkpoint::Kept { told, .. } if key.1 == kind => Some((told.since, key)),
        _ => None,
    });
    let oldest = kept.min_by_key(|(since, _)| *since);
    oldest.map(|(_, key)| key.clone())
}

/// Has one go that is kept.
fn remove(all: &mut All, key: &Key, gone: &mut Vec<Gone>) {
    let found = all.remove(key);
    gone.extend(found.and_then(|found| found.gone(key.clone())));
}

/// What a checkpoint of a guest with so much memory may take.
pub(super) fn checkpoint_bytes(memory: Bytes) -> Bytes {
    let spare = Bytes(memory.0 / CHECKPOINT_SPARE);
    sum_of([memory, spare, CHECKPOINT_BESIDE])
}
