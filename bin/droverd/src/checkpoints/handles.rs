//! What is in use of what is kept: one that grows, and one that its guest comes back to.

use std::fs::File;
use std::io;

use drover_api::CheckpointKind;
use drover_types::VmName;
use jiff::{SignedDuration, Timestamp};

use super::files::{Told, make, taken};
use super::{Checkpoint, Checkpoints, Key};
use crate::registry::files as documents;

/// A checkpoint that grows while its guest leaves, or a baseline while it arrives. Dropped, it is given up, which blocks as long as the
/// disk takes.
#[derive(Debug)]
pub struct Growing {
    all: Checkpoints,
    key: Key,
    file: File,
    told: Told,
    over: bool,
}

/// A checkpoint that its guest uses while it comes back. Dropped, it stays for the next try.
#[derive(Debug)]
pub struct Returning {
    all: Checkpoints,
    vm: VmName,
    since: Timestamp,
}

impl Growing {
    pub(super) const fn new(all: Checkpoints, key: Key, file: File, told: Told) -> Self {
        Self {
            all,
            key,
            file,
            told,
            over: false,
        }
    }

    pub(super) const fn told(&self) -> &Told {
        &self.told
    }

    /// Keeps it, unless it was let go meanwhile: its guest has left, or is here. Blocks until a checkpoint is on the disk.
    ///
    /// # Errors
    /// It cannot be written; then it is given up.
    pub fn keep(mut self) -> io::Result<()> {
        // What of a baseline does not get to the disk costs bytes and nothing else, and its guest begins to use that disk.
        if self.key.1 == CheckpointKind::Checkpoint {
            self.file.sync_all()?;
        }
        let inner = &self.all.0;
        let lasts = SignedDuration::try_from(inner.lasts).map_err(io::Error::other)?;
        self.told.begin(lasts);
        make(&inner.own)?;
        let text = serde_json::to_vec_pretty(&self.told)?;
        let takes = taken(&self.file.metadata()?);
        let (vm, kind) = &self.key;
        let disk = self.all.disk();
        if self.all.is_let_go(&self.key) {
            drop(disk);
            tracing::info!(%vm, "its {kind} is not kept: it was removed, or its guest is back");
            return Ok(());
        }
        documents::write_whole(&self.all.key_of(&self.key), &text)?;
        let told = self.told.clone();
        let kept = Checkpoint::Kept { told, takes };
        self.all.lock().insert(self.key.clone(), kept);
        drop(disk);
        self.over = true;
        Ok(())
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        if !self.over {
            let path = &self.told.path;
            self.all.give_up(&self.all.disk(), &self.key, path);
        }
    }
}

impl Returning {
    pub(super) const fn new(all: Checkpoints, vm: VmName, since: Timestamp) -> Self {
        Self { all, vm, since }
    }

    /// Removes it: the guest is back, or the pages may be why it is not. Blocks as long as the disk takes.
    pub fn remove(self) {
        let key = (self.vm.clone(), CheckpointKind::Checkpoint);
        let is_it = |found: &Key, told: &Told| *found == key && told.since == self.since;
        self.all.remove_those(&self.all.disk(), is_it);
    }
}
