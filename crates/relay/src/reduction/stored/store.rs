//! The pages that the destination's host has stored, numbered as they are told.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};

use drover_pagestore::{Digest, DigestKey, Segment};
use drover_reduce::{Stored, StoredId, Wrong};

use super::held::Held;
use super::patient::Patient;
use super::{NotAdded, StoredPages};
use crate::limits::{
    STORED_LOOK, STORED_READ_LOOK, STORED_READ_LOOKS, STORED_RUNS, STORED_TOLD_AT_ONCE,
};
use crate::pool::lock;

/// What the destination's end of a session knows of them.
#[derive(Debug)]
pub(crate) struct Store {
    most: u32,
    /// Not held while a file is read: all channels, and who adds a file, would wait for its disk.
    files: RwLock<Files>,
    patient: Patient,
    /// Nothing more is to be told.
    stopped: Mutex<bool>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Files {
    key: Option<DigestKey>,
    all: Vec<Looked>,
    /// By their first numbers, which begin with 0.
    runs: Vec<Run>,
    told: u32,
    /// Pages that are stored, and of which the source is not told; why is the trouble.
    untold: u64,
    trouble: Option<String>,
}

#[derive(Debug)]
struct Looked {
    held: Arc<Held>,
    /// Of so many pages it is known that they are there; all that there are where it cannot be read.
    seen: u32,
}

/// Pages that were told one after the other, and are so in their file.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u32,
    file: usize,
    place: u32,
}

impl Run {
    /// Whether what is told next is what follows in the file.
    fn goes_on_as(self, next: Self) -> bool {
        self.file == next.file && self.place + (next.first - self.first) == next.place
    }
}

/// What is told next.
enum Next {
    Tell(Vec<Digest>),
    Nothing,
}

impl Store {
    /// Without files, and to tell of at most so many pages.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            files: RwLock::default(),
            patient: Patient::new(STORED_READ_LOOKS),
            stopped: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// Pages of this file are told from now on.
    pub(crate) fn add(&self, segment: Segment, key: DigestKey) -> Result<(), NotAdded> {
        let mut files = self.write();
        if files.key.as_ref().is_some_and(|known| *known != key) {
            return Err(NotAdded::Key);
        }
        files.key = Some(key);
        let held = Arc::new(Held::new(segment));
        files.all.push(Looked { held, seen: 0 });
        drop(files);
        self.wake.notify_all();
        Ok(())
    }

    /// Nothing more is told from now on.
    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.wake.notify_all();
    }

    /// Tells of pages as they come, until [`Store::stop`].
    pub(crate) fn tell(self: &Arc<Self>, mut to: UnixStream) {
        if let Err(error) = self.tell_all(&mut to) {
            // A session that is over does not listen.
            tracing::debug!(%error, "stored pages are no longer told");
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn tell_all(&self, to: &mut impl Write) -> io::Result<()> {
        let mut key_is_told = false;
        loop {
            match self.next() {
                Next::Tell(digests) => {
                    let mut bytes = Vec::new();
                    if let Some(key) = &self.files().key
                        && !std::mem::replace(&mut key_is_told, true)
                    {
                        bytes.extend(key.bytes());
                    }
                    bytes.extend(digests.iter().flat_map(|digest| digest.0));
                    to.write_all(&bytes)?;
                    if *lock(&self.stopped) {
                        return Ok(());
                    }
                }
                Next::Nothing => {
                    let stopped = lock(&self.stopped);
                    let waited = self
                        .wake
                        .wait_timeout_while(stopped, STORED_LOOK, |stopped| !*stopped);
                    if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Numbers pages that were not told. Only one thread does.
    fn next(&self) -> Next {
        let (looked, room) = {
            let files = self.files();
            let each = files.all.iter();
            let looked: Vec<_> = each.map(|one| (one.held.clone(), one.seen)).collect();
            (looked, files.room(self.most).min(STORED_TOLD_AT_ONCE))
        };
        if room == 0 {
            self.count_untold(&looked);
            return Next::Nothing;
        }
        for (file, (held, seen)) in looked.into_iter().enumerate() {
            match held.news(seen, room) {
                Ok(digests) if digests.is_empty() => {}
                Ok(digests) => {
                    self.write().told(file, digests.len() as u32);
                    return Next::Tell(digests);
                }
                Err(error) => self.write().cannot_be_read(file, &error),
            }
        }
        Next::Nothing
    }

    /// Counts the pages that are not told, and says why.
    fn count_untold(&self, looked: &[(Arc<Held>, u32)]) {
        let mut untold = 0;
        for (file, (held, seen)) in looked.iter().enumerate() {
            match held.beyond(*seen) {
                Ok(pages) => untold += u64::from(pages),
                Err(error) => self.write().cannot_be_read(file, &error),
            }
        }
        if untold != self.files().untold {
            self.write().leave_untold(untold, self.most);
        }
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with a chunk for whose page this comes back.
    fn wrong(&self, id: StoredId, held: &Held, error: &io::Error) -> Wrong {
        if error.kind() != io::ErrorKind::TimedOut {
            let of = match held.segment().is_sealed() {
                true => "what is kept of the guest for its return",
                false => "the memory of pages that guests share",
            };
            return Wrong::Damaged { id, of };
        }
        let waited_s = (STORED_READ_LOOK * STORED_READ_LOOKS).as_secs();
        let why = || format!("the disk of stored pages has not answered for {waited_s} s");
        self.write().trouble.get_or_insert_with(why);
        Wrong::NotGiven { id, waited_s }
    }

    /// To read pages for a while.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading(self)
    }

    pub(crate) fn report(&self) -> StoredPages {
        let files = self.files();
        let read = |sealed: bool| {
            let of_kind = files
                .all
                .iter()
                .filter(|looked| looked.held.segment().is_sealed() == sealed);
            of_kind.map(|looked| looked.held.read()).sum()
        };
        StoredPages {
            told: files.told.into(),
            untold: files.untold,
            read: read(false),
            read_sealed: read(true),
            trouble: files.trouble.clone(),
            ..StoredPages::default()
        }
    }
}

impl Files {
    /// How many more may be told, where the source takes so many at most.
    fn room(&self, most: u32) -> u32 {
        match self.runs.len() < STORED_RUNS {
            true => most.saturating_sub(self.told),
            false => 0,
        }
    }

    fn leave_untold(&mut self, untold: u64, most: u32) {
        self.untold = untold;
        let is_full = self.told >= most;
        self.trouble.get_or_insert_with(|| match is_full {
            true => {
                format!("the source has room for {most} of them (its `migration.reduction_memory`)")
            }
            false => format!("they are in {STORED_RUNS} pieces, and no more are told"),
        });
    }

    /// So many more of a file are told.
    fn told(&mut self, file: usize, count: u32) {
        if let Some(looked) = self.all.get_mut(file) {
            let run = Run {
                first: self.told,
                file,
                place: looked.seen,
            };
            if !self.runs.last().is_some_and(|last| last.goes_on_as(run)) {
                self.runs.push(run);
            }
            looked.seen += count;
            self.told += count;
        }
    }

    fn cannot_be_read(&mut self, file: usize, error: &io::Error) {
        tracing::warn!(%error, "a file of stored pages cannot be read");
        if let Some(looked) = self.all.get_mut(file) {
            looked.seen = looked.held.segment().shape().places;
        }
        let why = format!("a file of stored pages cannot be read: {error}");
        self.trouble.get_or_insert(why);
    }

    /// The file in which a number is, its place there, and the first number behind those that follow it there.
    fn find(&self, number: u32) -> Option<(Arc<Held>, u32, u32)> {
        let behind = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        let end = self.runs.get(behind).map_or(self.told, |next| next.first);
        let held = &self.all.get(run.file)?.held;
        (number < end).then(|| (held.clone(), run.place + (number - run.first), end))
    }
}

/// Reads pages by their numbers.
#[derive(Debug)]
pub(crate) struct Reading<'s>(&'s Store);

impl Stored for Reading<'_> {
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong> {
        let (mut number, mut left) = (first.0, pages);
        while !left.is_empty() {
            let unknown = Wrong::NotStored(StoredId(number));
            let found = self.0.files().find(number);
            let (held, place, end) = found.ok_or(unknown)?;
            let each = held.segment().shape().page_bytes as usize;
            let count = (left.len() / each).clamp(1, (end - number) as usize);
            let (now, rest) = left.split_at_mut((count * each).min(left.len()));
            held.give(&self.0.patient, place, now).map_err(|error| {
                tracing::error!(%error, place, count, "stored pages cannot be read");
                self.0.wrong(StoredId(number), &held, &error)
            })?;
            number += count as u32;
            left = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
