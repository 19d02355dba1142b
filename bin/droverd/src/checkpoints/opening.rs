//! What is kept, as an agent finds it that is started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use drover_pagestore::DigestKey;
use drover_types::Bytes;

use super::disk::{DiskThread, Queue};
use super::files::{KINDS, Told, named, pages, place, taken, told, unlink};
use super::mark::{Away, Marks};
use super::waiting::Promised;
use super::{Checkpoint, Checkpoints, Disk, Gone, Inner, Key, NoCheckpoint, NotOpened};
use crate::config::Config;
use crate::limits::CHECKPOINT_START;
use crate::registry::files as documents;

impl Checkpoints {
    /// Those that are there and count; whatever else is there is removed, all where none are wanted, and what is more than is wanted. A
    /// disk that does not answer is waited for as [`CHECKPOINT_START`] says, and looked through when it does. Who `has_guests` to see to is
    /// not kept from it by a directory.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub fn open(config: &Config, has_guests: bool) -> Result<Self, NotOpened> {
        let wanted = &config.checkpoints;
        let own = config.state.join("checkpoints");
        let mut all = BTreeMap::new();
        let mut gone = Vec::new();
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
                if same && wanted.size.0 > 0 && !told.is_over() {
                    // Measured below.
                    let takes = Bytes(0);
                    all.insert((vm, kind), Checkpoint::Kept { told, takes });
                } else {
                    let key = (vm, kind);
                    gone.push(Gone { key, told });
                }
            }
        }
        let this = Self(Arc::new(Inner {
            disk: Mutex::new(Marks::open(&own, &config.host)?),
            own,
            directory: wanted.directory.clone(),
            size: wanted.size,
            lasts: wanted.lasts,
            thread: DiskThread::start()?,
            deferred: Queue::start("ckpt-deferred")?,
            letting_go: Queue::start("ckpt-let-go")?,
            behind: Queue::start("ckpt-behind")?,
            memory: wanted.memory,
            promised: Promised::default(),
            held: Arc::default(),
            key: key.map_or_else(DigestKey::random, |key| Ok(DigestKey::new(key)))?,
            away: Mutex::default(),
            all: Mutex::new(all),
        }));
        match this.patiently(CHECKPOINT_START, move |this| {
            this.begin_with(&gone, has_guests)
        }) {
            Err(NoCheckpoint::Io(error)) => return Err(error.into()),
            Err(NoCheckpoint::Away(away)) => return Err(away.into()),
            Err(why) => {
                let directory = wanted.directory.display();
                tracing::warn!(%directory, %why, "nothing is kept of guests there until it does");
            }
            Ok(()) => {}
        }
        Ok(this)
    }

    /// How an agent of this configuration would find its directory, without guests to see to: why it would keep nothing there for now.
    /// Changes nothing, and waits for a disk as long as an agent does that starts.
    ///
    /// # Errors
    /// [`NotOpened`]: it would not be started, or could never keep anything there.
    pub fn check(config: &Config) -> Result<Option<String>, NotOpened> {
        let marks = Marks::open(&config.state.join("checkpoints"), &config.host)?;
        let directory = config.checkpoints.directory.clone();
        let (answer, answered) = sync_channel(1);
        thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || {
                let refused = marks.refuse_anothers(&directory);
                // Who checks may not wait any more.
                let _ = answer.send(refused.map(|()| marks.is_there(&directory)));
            })?;
        match answered.recv_timeout(CHECKPOINT_START) {
            Ok(Err(away) | Ok(Err(away @ Away::Unusable { .. }))) => Err(away.into()),
            Ok(Ok(Err(away))) => Ok(Some(away.to_string())),
            Ok(Ok(Ok(()))) => Ok(None),
            Err(_) => Ok(Some(NoCheckpoint::Stalled(CHECKPOINT_START).to_string())),
        }
    }

    fn begin_with(&self, gone: &[Gone], has_guests: bool) -> Result<(), NoCheckpoint> {
        let mut disk = self.disk();
        self.erase(&disk, gone);
        if self.is_on() {
            if !has_guests {
                disk.refuse_anothers(&self.0.directory)?;
            }
            // What comes of it is told.
            let _ = self.look(&mut disk);
        }
        Ok(self.settle(&disk)?)
    }

    /// Looks whether the directory is there, and tells it when that has changed. What was away is looked through when it comes back.
    pub(super) fn look(&self, disk: &mut Disk<'_>) -> Result<(), Away> {
        let looked = disk.look(&self.0.directory, || self.may_begin());
        let now = looked.as_ref().err().cloned();
        let away = self.0.away.lock();
        let before = std::mem::replace(&mut *away.unwrap_or_else(PoisonError::into_inner), now);
        match &looked {
            Err(why) if before.as_ref() != Some(why) => {
                tracing::error!(%why, "nothing more is kept of guests, and what is kept there is not used");
            }
            Ok(()) if before.is_some() => {
                let directory = self.0.directory.display();
                tracing::info!(%directory, "it is there again, with what is kept of guests");
                if let Err(error) = self.settle(disk) {
                    tracing::warn!(%directory, %error, "it cannot be looked through");
                }
            }
            _ => {}
        }
        looked
    }

    /// Whether nothing is told to be in the directory.
    fn may_begin(&self) -> bool {
        let directory = Some(self.0.directory.as_path());
        let told = self.told_paths();
        told.iter().all(|(_, path)| path.parent() != directory)
    }

    fn told_paths(&self) -> Vec<(Key, PathBuf)> {
        let all = self.lock();
        let kept = all.iter().filter_map(|(key, checkpoint)| match checkpoint {
            Checkpoint::Kept { told, .. } => Some((key.clone(), told.path.clone())),
            Checkpoint::Growing { .. } => None,
        });
        kept.collect()
    }

    /// Measures what is kept. What others removed goes, what nobody knows, and what there is no room for any more; nothing of a directory
    /// that is not there.
    fn settle(&self, disk: &Disk<'_>) -> io::Result<()> {
        let mut removed = BTreeSet::new();
        for (key, path) in self.told_paths() {
            match fs::metadata(&path) {
                Ok(metadata) => {
                    if let Some(Checkpoint::Kept { takes, .. }) = self.lock().get_mut(&key) {
                        *takes = taken(&metadata);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let directory = path.parent();
                    let is_there = directory.is_some_and(|directory| disk.check(directory).is_ok());
                    // It may have been mounted in between.
                    if is_there && !path.exists() {
                        removed.insert(key);
                    }
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "what is kept cannot be looked at");
                }
            }
        }
        self.remove_those(disk, |key, _| removed.contains(key));
        self.remove_what_is_too_much(disk);
        self.remove_what_nobody_knows(disk)
    }

    /// Pages of guests that were on their way when an earlier agent ended.
    fn remove_what_nobody_knows(&self, disk: &Disk<'_>) -> io::Result<()> {
        if !disk.may_clean(&self.0.directory) {
            return Ok(());
        }
        let known: BTreeSet<PathBuf> = {
            let all = self.lock();
            let grows = |key: &Key| place(&self.0.directory, &key.0, pages(key.1));
            let path = |(key, checkpoint): (&Key, &Checkpoint)| match checkpoint {
                Checkpoint::Kept { told, .. } => told.path.clone(),
                Checkpoint::Growing { .. } => grows(key),
            };
            all.iter().map(path).collect()
        };
        for kind in KINDS {
            for vm in named(&self.0.directory, pages(kind))? {
                let path = place(&self.0.directory, &vm, pages(kind));
                if !known.contains(&path) {
                    let (held, removed) = unlink(&path);
                    self.let_go_of(held);
                    removed?;
                }
            }
        }
        Ok(())
    }
}
