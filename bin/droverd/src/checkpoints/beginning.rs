//! What begins to be kept, and the room for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

use drover_api::CheckpointKind;
use drover_carrier::{BaselineFile, StoredFile};
use drover_pagestore::{Baseline, NoSegment, SealKey, Segment, shape_within};
use drover_types::{Bytes, VmName};
use jiff::Timestamp;

use super::files::{Told, make, pages, place};
use super::{Checkpoint, Checkpoints, Growing, Key, NoCheckpoint, sum, sum_of};
use crate::limits::{
    BASELINE_SPARE, CHECKPOINT_BESIDE, CHECKPOINT_PART_LEAST, CHECKPOINT_SPARE,
};
use crate::registry::files as documents;

impl Checkpoints {
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
}

/// What a checkpoint of a guest with so much memory may take.
pub(super) fn checkpoint_bytes(memory: Bytes) -> Bytes {
    let spare = Bytes(memory.0 / CHECKPOINT_SPARE);
    sum_of([memory, spare, CHECKPOINT_BESIDE])
}
