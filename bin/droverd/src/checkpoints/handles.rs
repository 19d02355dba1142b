//! What is in use of what is kept: one that grows, and one that its guest comes back to.

use std::fs::File;
use std::io;

use drover_api::CheckpointKind;
use drover_types::{Bytes, VmName};
use jiff::{SignedDuration, Timestamp};

use super::files::{Told, make, taken};
use super::{Checkpoint, Checkpoints, Key, WaitingRoom};
use crate::registry::files as documents;

/// A checkpoint that grows while its guest leaves, or a baseline while it arrives. Dropped, it is given up, which blocks as long as the
/// disk takes.
#[derive(Debug)]
pub struct Growing {
    /// Dropped first, while it has its name: who is the last to close one that has none waits until all of its room is given back, which
    /// counts no more by then.
    file: File,
    begun: Begun,
    /// Of its pages that wait.
    room: Option<WaitingRoom>,
}

/// What is given up, unless it is over.
#[derive(Debug)]
struct Begun {
    all: Checkpoints,
    key: Key,
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
        let begun = Begun {
            all,
            key,
            told,
            over: false,
        };
        Self {
            file,
            begun,
            room: None,
        }
    }

    /// Bytes of its pages that may wait to be written, on a host that has so much memory to give; and where they are fewer than configured,
    /// why.
    pub fn waiting_room(&mut self, available: Option<Bytes>) -> (u64, Option<String>) {
        let (room, less) = self.begun.all.waiting_room(available);
        (self.room.insert(room).bytes(), less)
    }

    pub(super) const fn told(&self) -> &Told {
        &self.begun.told
    }

    /// Whose it is, and what.
    pub const fn of(&self) -> &(VmName, CheckpointKind) {
        &self.begun.key
    }

    /// So many pages were not kept, which is told of it.
    pub const fn lacks(&mut self, pages: u64) {
        self.begun.told.left_out = pages;
    }

    /// Keeps it, unless it was let go meanwhile: its guest has left, or is here. Blocks until a checkpoint is on the disk.
    ///
    /// # Errors
    /// It cannot be written; then it is given up.
    pub fn keep(mut self) -> io::Result<()> {
        let Self { file, begun, .. } = &mut self;
        // What of a baseline does not get to the disk costs bytes and nothing else, and its guest begins to use that disk.
        if begun.key.1 == CheckpointKind::Checkpoint {
            file.sync_all()?;
        }
        let takes = taken(&file.metadata()?);
        begun.keep(takes)
    }
}

impl Begun {
    fn keep(&mut self, takes: Bytes) -> io::Result<()> {
        let inner = &self.all.0;
        let lasts = SignedDuration::try_from(inner.lasts).map_err(io::Error::other)?;
        self.told.begin(lasts);
        make(&inner.own)?;
        let text = serde_json::to_vec_pretty(&self.told)?;
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

impl Drop for Begun {
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
