//! Checkpoints: pages of guests that left this host, on its disk, for their return (`[checkpoints]`); and baselines: pages of guests
//! as they arrived here, from a host that keeps a checkpoint, so that only what changed of them goes back.
//!
//! ```text
//!   begin ─▶ NAME.pages grows while the guest leaves ─▶ keep ─▶ NAME.json ─▶ take ─▶ Returning: its relay reads them
//!                 └── given up, where it stays: nothing is left ◀── back, doubted, too old, removed, not wanted ──┘
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
//! - Where the directory is not there, as its file system is not mounted, nothing is written in its place, and no key is removed for it:
//!   the directory has a mark of this agent. Nothing in a directory with the mark of another one is written or removed.
//! - No checkpoint is missing because of a baseline that is kept, which saves less: for one there is room only beside the checkpoint of
//!   its guest, and it makes room for any. One that is still growing takes its room.

mod beginning;
mod disk;
mod files;
mod handles;
mod mark;
mod opening;
mod waiting;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_api::{CheckpointKind, CheckpointView, CheckpointsView};
use drover_carrier::{BaselineFile, StoredFile};
use drover_pagestore::{DigestKey, NoSegment};
use drover_types::{Bytes, VmName};

use crate::limits::{CHECKPOINT_PATIENCE, CHECKPOINTS_END, CHECKPOINTS_LOOK};
use disk::{DiskThread, Queue};
use files::{KINDS, Told, erase, place, taken, told};
pub use handles::{Growing, Returning};
pub use mark::Away;
use mark::Marks;
use waiting::{Promised, WaitingRoom};

/// Those of this host.
#[derive(Debug, Clone)]
pub struct Checkpoints(Arc<Inner>);

/// What a relay reads of a file of pages before it has answered.
const BEGINNING: usize = 4096;

type Key = (VmName, CheckpointKind);

type All = BTreeMap<Key, Checkpoint>;

/// Leave to work on files, and what is known of where they are.
type Disk<'d> = MutexGuard<'d, Marks>;

#[derive(Debug)]
struct Inner {
    /// Where it is told which there are.
    own: PathBuf,
    /// Where new ones are put.
    directory: PathBuf,
    size: Bytes,
    lasts: Duration,
    key: DigestKey,
    /// Who works on files has it, one at a time, and waits for the disk with it.
    disk: Mutex<Marks>,
    thread: DiskThread,
    deferred: Queue,
    /// Not before whoever writes a file: that may take a minute.
    behind: Queue,
    /// Of the memory that pages may take which wait, what guests that move were promised.
    memory: Bytes,
    promised: Promised,
    /// Not behind what is written to the disk there: that may take minutes.
    letting_go: Queue,
    /// Bytes of removed files that are not let go of yet.
    held: Arc<AtomicU64>,
    /// Why nothing is put into the directory for now. Not held while a disk is waited for, either.
    away: Mutex<Option<Away>>,
    /// For those who wait for no disk: it is not held while one is waited for. Who has both took it second.
    all: Mutex<All>,
}

#[derive(Debug)]
enum Checkpoint {
    /// Its guest is on its way. It takes so much at most.
    Growing {
        most: Bytes,
        /// It is not kept when it is whole.
        unwanted: bool,
    },
    Kept {
        told: Told,
        takes: Bytes,
    },
}

/// What does not count any more, and is still on the disk.
#[derive(Debug)]
struct Gone {
    key: Key,
    told: Told,
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
    /// Removed files take it still.
    #[error(
        "its room is not there yet: {held} of removed files are not given back, of which it needs {short}; \
         the kernel is at it, and who comes later finds more"
    )]
    NotGivenBack {
        /// What they take.
        held: Bytes,
        /// What is needed of it.
        short: Bytes,
    },
    /// The directory is not there.
    #[error(transparent)]
    Away(#[from] Away),
    /// Its disk is waited for.
    #[error("its disk has not answered for {} s", .0.as_secs())]
    Stalled(Duration),
    /// Nobody else waits for it meanwhile.
    #[error("its disk has not answered who asked before")]
    Hangs,
    /// Others wait for it, which is no wonder where many guests move at once.
    #[error("its disk is busy: {0} others wait for it")]
    Busy(usize),
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

/// No agent is started.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Their directory was given to two agents; or, where it is only looked at, can never be used.
    #[error(transparent)]
    Away(#[from] Away),
    /// A directory cannot be read, or the system has no random numbers.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Checkpoints {
    /// Whether any are kept.
    pub fn is_on(&self) -> bool {
        self.0.size.0 > 0
    }

    /// The key of all digests of pages that this host has stored.
    pub fn key(&self) -> &DigestKey {
        &self.0.key
    }

    /// Whether there is a checkpoint of this guest that counts.
    pub fn has(&self, vm: &VmName) -> bool {
        let told = self.told(vm, CheckpointKind::Checkpoint);
        told.is_some_and(|told| !told.is_over())
    }

    /// That of a guest that comes back, for its relay. Blocks for [`CHECKPOINT_PATIENCE`] at most.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn take(&self, vm: &VmName) -> Result<Option<(Returning, File, StoredFile)>, NoCheckpoint> {
        let Some(told) = self.told(vm, CheckpointKind::Checkpoint) else {
            return Ok(None);
        };
        let vm = vm.clone();
        self.patiently(CHECKPOINT_PATIENCE, move |this| this.taken(&vm, &told))
    }

    fn taken(
        &self,
        vm: &VmName,
        told: &Told,
    ) -> Result<Option<(Returning, File, StoredFile)>, NoCheckpoint> {
        let opened = self.open_pages(told);
        if let Err(NoCheckpoint::Away(away)) = opened {
            return Err(away.into());
        }
        let returning = Returning::new(self.clone(), vm.clone(), told.since);
        if told.is_over() {
            // Who is the last to close one that is removed waits for its room.
            drop(opened);
            returning.remove();
            return Ok(None);
        }
        match opened {
            Ok(file) => Ok(Some((returning, file, told.stored(false)))),
            Err(why) => {
                returning.remove();
                Err(why)
            }
        }
    }

    /// Opens pages that are kept. Where they are not because their directory is not there, they are kept.
    fn open_pages(&self, told: &Told) -> Result<File, NoCheckpoint> {
        let opened = File::open(&told.path).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound
                && let Some(directory) = told.path.parent()
            {
                self.disk().check(directory)?;
            }
            Err(NoCheckpoint::from(error))
        })?;
        // The relay reads its beginning while nothing else of the guest is done: here a disk that does not answer costs no more than the
        // checkpoint.
        opened.read_at(&mut [0; BEGINNING], 0)?;
        Ok(opened)
    }

    /// What a guest holds of it that an earlier agent began to take in. Whether its relay reads it was not written down.
    pub fn take_up(&self, vm: &VmName) -> Option<Returning> {
        let told = self.told(vm, CheckpointKind::Checkpoint)?;
        Some(Returning::new(self.clone(), vm.clone(), told.since))
    }

    /// The baseline of a guest that leaves, for its relay. It stays until that has left. Blocks likewise.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn baseline(&self, vm: &VmName) -> Result<Option<(File, BaselineFile)>, NoCheckpoint> {
        let told = self.told(vm, CheckpointKind::Baseline);
        let Some(told) = told.filter(|told| !told.is_over()) else {
            return Ok(None);
        };
        self.patiently(CHECKPOINT_PATIENCE, move |this| {
            Ok(Some((this.open_pages(&told)?, told.baseline())))
        })
    }

    /// Does what nobody waits for, one after the other. Blocks nobody.
    pub fn defer(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(left) = self.0.deferred.add(work) {
            tracing::error!(
                "the disk of checkpoints hangs: files stay there as they are, and take their room, until an agent is started"
            );
            // To drop it would wait for the disk.
            std::mem::forget(left);
        }
    }

    /// Waits for what was deferred, for [`CHECKPOINTS_END`] at most.
    pub fn wait(&self) {
        let until = Instant::now() + CHECKPOINTS_END;
        let behind = self.0.behind.wait(CHECKPOINTS_END);
        let left = until.saturating_duration_since(Instant::now());
        if !self.0.deferred.wait(left) || !behind {
            let seconds = CHECKPOINTS_END.as_secs();
            tracing::warn!(
                seconds,
                "files of checkpoints are not done with, and left to the next start"
            );
        }
    }

    /// Does what waits for a disk, in a thread that is left alone with it where that takes too long: what it gives then is dropped there.
    fn patiently<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&Self) -> Result<T, NoCheckpoint> + Send + 'static,
    ) -> Result<T, NoCheckpoint> {
        let this = self.clone();
        self.0.thread.ask(patience, move || work(&this))
    }

    fn told(&self, vm: &VmName, kind: CheckpointKind) -> Option<Told> {
        match self.lock().get(&(vm.clone(), kind)) {
            Some(Checkpoint::Kept { told, .. }) => Some(told.clone()),
            _ => None,
        }
    }

    /// What a guest that is here leaves behind, also where it still grows: it came back before that was on the disk.
    pub fn spent(&self, vm: &VmName) -> Option<Returning> {
        self.let_go(&(vm.clone(), CheckpointKind::Checkpoint));
        self.take_up(vm)
    }

    /// Has one that grows not be kept; whether there is one.
    fn let_go(&self, key: &Key) -> bool {
        match self.lock().get_mut(key) {
            Some(Checkpoint::Growing { unwanted, .. }) => {
                *unwanted = true;
                true
            }
            _ => false,
        }
    }

    fn is_let_go(&self, key: &Key) -> bool {
        let all = self.lock();
        matches!(
            all.get(key),
            Some(Checkpoint::Growing { unwanted: true, .. })
        )
    }

    /// Removes what is kept of this guest, and does not keep what grows; whether there was anything. Its room is taken for as long as the
    /// kernel needs to let go of it, for which nobody waits but who needs that room. Blocks for [`CHECKPOINT_PATIENCE`] at most; where that
    /// is too little for its disk it is removed once that answers.
    ///
    /// # Errors
    /// [`NoCheckpoint`].
    pub fn remove(&self, vm: &VmName) -> Result<bool, NoCheckpoint> {
        let vm = vm.clone();
        self.patiently(CHECKPOINT_PATIENCE, move |this| {
            let removed = KINDS.map(|kind| this.remove_one(&vm, kind));
            Ok(removed.contains(&true))
        })
    }

    /// Removes the baseline of a guest that has left. Blocks as long as the disk takes.
    pub fn remove_baseline(&self, vm: &VmName) {
        self.remove_one(vm, CheckpointKind::Baseline);
    }

    fn remove_one(&self, vm: &VmName, kind: CheckpointKind) -> bool {
        let key = (vm.clone(), kind);
        let grows = self.let_go(&key);
        self.remove_those(&self.disk(), |found, _| *found == key) > 0 || grows
    }

    /// Removes those that are kept and of which this is true: how many.
    fn remove_those(&self, disk: &Disk<'_>, is_one: impl Fn(&Key, &Told) -> bool) -> usize {
        let mut all = self.lock();
        let found = all.extract_if(.., |key, checkpoint| match checkpoint {
            Checkpoint::Kept { told, .. } => is_one(key, told),
            Checkpoint::Growing { .. } => false,
        });
        let gone: Vec<Gone> = found.filter_map(|(key, found)| found.gone(key)).collect();
        drop(all);
        self.erase(disk, &gone);
        gone.len()
    }

    /// Looks whether the directory is there, and removes those that are too old, for ever.
    pub async fn keep_tidy(&self) {
        loop {
            tokio::time::sleep(CHECKPOINTS_LOOK).await;
            let this = self.clone();
            // It waits for the disk.
            let _ = tokio::task::spawn_blocking(move || this.tidy()).await;
        }
    }

    fn tidy(&self) {
        // First: to look takes the disk of the pages.
        self.remove_old();
        if self.is_on() {
            // What comes of it is told.
            let _ = self.look(&mut self.disk());
        }
    }

    fn remove_old(&self) {
        self.remove_those(&self.disk(), |key, told| {
            let is_over = told.is_over();
            if is_over {
                tracing::info!(vm = %key.0, "its {} is too old", key.1);
            }
            is_over
        });
    }

    /// What there is.
    pub fn view(&self) -> CheckpointsView {
        let all = self.lock();
        let kept = |(key, checkpoint): (&Key, &Checkpoint)| match checkpoint {
            Checkpoint::Growing { .. } => None,
            Checkpoint::Kept { told, takes } => Some(CheckpointView {
                vm: key.0.clone(),
                kind: key.1,
                bytes: *takes,
                left_out: told.left_out,
                since: told.since,
                until: told.until,
            }),
        };
        CheckpointsView {
            size: self.0.size,
            taken: self.on_disk(&all),
            checkpoints: all.iter().filter_map(kept).collect(),
            away: self.away(),
        }
    }

    /// Why nothing is put into the directory for now, and nothing of it is used.
    pub fn away(&self) -> Option<String> {
        let away = self.0.away.lock();
        let away = away.unwrap_or_else(PoisonError::into_inner);
        away.as_ref().map(ToString::to_string)
    }

    fn erase(&self, disk: &Disk<'_>, gone: &[Gone]) {
        let keys = gone.iter().map(|gone| self.key_of(&gone.key));
        let pages = gone.iter().map(|gone| gone.told.path.as_path());
        self.let_go_of(erase(keys, pages.filter(|pages| disk.may_remove(pages))));
    }

    /// Of files that are removed, where nobody waits for it.
    fn let_go_of(&self, files: impl IntoIterator<Item = File>) {
        for file in files {
            let takes = file.metadata().map_or(0, |metadata| taken(&metadata).0);
            let held = self.0.held.clone();
            held.fetch_add(takes, Ordering::AcqRel);
            let let_go = move || {
                drop(file);
                held.fetch_sub(takes, Ordering::AcqRel);
            };
            if let Err(let_go) = self.0.letting_go.add(let_go) {
                tracing::warn!(
                    "many files of checkpoints are removed at once: that waits for their disk"
                );
                let_go();
            }
        }
    }

    /// Where it is told of it, with its key.
    fn key_of(&self, (vm, kind): &Key) -> PathBuf {
        place(&self.0.own, vm, told(*kind))
    }

    /// Nothing is left of one that grew, with its pages there.
    fn give_up(&self, disk: &Disk<'_>, key: &Key, path: &Path) {
        let pages = Some(path).filter(|path| disk.may_remove(path));
        self.let_go_of(erase([self.key_of(key)], pages));
        self.lock().remove(key);
    }

    /// What all of them take, with files that are removed and not let go of yet.
    fn on_disk(&self, all: &All) -> Bytes {
        sum_of([sum(all), self.held()])
    }

    fn held(&self) -> Bytes {
        Bytes(self.0.held.load(Ordering::Acquire))
    }

    fn disk(&self) -> Disk<'_> {
        self.0.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpoint {
    /// It does not count any more, if it is kept.
    fn gone(self, key: Key) -> Option<Gone> {
        match self {
            Self::Kept { told, .. } => Some(Gone { key, told }),
            Self::Growing { .. } => None,
        }
    }
}

/// As much as there is, where it is more.
fn sum_of(all: impl IntoIterator<Item = Bytes>) -> Bytes {
    let sum = |sum: u64, bytes: Bytes| sum.saturating_add(bytes.0);
    Bytes(all.into_iter().fold(0, sum))
}

fn sum(all: &All) -> Bytes {
    let each = all.values().map(|checkpoint| match checkpoint {
        Checkpoint::Growing { most, .. } => *most,
        Checkpoint::Kept { takes, .. } => *takes,
    });
    sum_of(each)
}

#[cfg(test)]
mod tests;
