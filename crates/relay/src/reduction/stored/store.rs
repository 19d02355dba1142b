//! The pages that the destination's host has stored, numbered as they are told.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard};

use drover_pagestore::{Digest, DigestKey, Segment};
use drover_reduce::{Stored, StoredId, Wrong};

use super::{NotAdded, StoredPages};
use crate::limits::{STORED_LOOK, STORED_TOLD_AT_ONCE};
use crate::pool::lock;

/// What the destination's end of a session knows of them.
#[derive(Debug)]
pub(crate) struct Store {
    most: u32,
    files: RwLock<Files>,
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
    trouble: Option<String>,
}

#[derive(Debug)]
struct Looked {
    segment: Segment,
    /// Of so many pages it is known that they are there; all that there are where it cannot be read.
    seen: u32,
    /// Pages that were read, as often as they were.
    read: AtomicU64,
}

/// Pages that were told one after the other, and are so in their file.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: u32,
    file: usize,
    place: u32,
}

/// What is told next.
enum Next {
    Tell(Vec<Digest>),
    Nothing,
    Never,
}

impl Store {
    /// Without files, and to tell of at most so many pages.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            files: RwLock::default(),
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
        files.all.push(Looked {
            segment,
            seen: 0,
            read: AtomicU64::new(0),
        });
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
                Next::Never => {
                    let stopped = lock(&self.stopped);
                    let waited = self.wake.wait_while(stopped, |stopped| !*stopped);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    return Ok(());
                }
            }
        }
    }

    /// Numbers pages that were not told.
    fn next(&self) -> Next {
        if !self.files().has_news(self.most) {
            return Next::Nothing;
        }
        let mut files = self.write();
        let Files {
            all,
            runs,
            told,
            trouble,
            ..
        } = &mut *files;
        let room = (self.most - *told).min(STORED_TOLD_AT_ONCE);
        if room == 0 {
            trouble.get_or_insert_with(|| {
                let most = self.most;
                format!("the source has room for {most} of them (its `migration.reduction_memory`)")
            });
            return Next::Never;
        }
        for (file, looked) in all.iter_mut().enumerate() {
            match looked.news(room) {
                Ok(digests) if digests.is_empty() => {}
                Ok(digests) => {
                    let count = digests.len() as u32;
                    runs.push(Run {
                        first: *told,
                        file,
                        place: looked.seen,
                    });
                    looked.seen += count;
                    *told += count;
                    return Next::Tell(digests);
                }
                Err(error) => {
                    tracing::warn!(%error, "a file of stored pages cannot be read");
                    looked.seen = looked.segment.shape().places;
                    trouble
                        .get_or_insert(format!("a file of stored pages cannot be read: {error}"));
                }
            }
        }
        Next::Nothing
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To read pages for a while.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading(self.files())
    }

    pub(crate) fn report(&self) -> StoredPages {
        let files = self.files();
        let read = |sealed: bool| {
            let of_kind = files
                .all
                .iter()
                .filter(|looked| looked.segment.is_sealed() == sealed);
            of_kind
                .map(|looked| looked.read.load(Ordering::Relaxed))
                .sum()
        };
        StoredPages {
            told: files.told.into(),
            read: read(false),
            read_sealed: read(true),
            trouble: files.trouble.clone(),
            ..StoredPages::default()
        }
    }
}

impl Files {
    /// Whether there is anything to tell, or to say.
    fn has_news(&self, most: u32) -> bool {
        let is_news =
            |looked: &Looked| !matches!(looked.news(1), Ok(digests) if digests.is_empty());
        self.told >= most || self.all.iter().any(is_news)
    }
}

impl Files {
    /// The run that a number is in, and the first number behind it.
    fn run(&self, number: u32) -> Option<(Run, u32)> {
        let behind = self.runs.partition_point(|run| run.first <= number);
        let run = self.runs.get(behind.checked_sub(1)?)?;
        let end = self.runs.get(behind).map_or(self.told, |next| next.first);
        (number < end).then_some((*run, end))
    }
}

impl Looked {
    /// The digests of pages that were not told, of so many at most.
    fn news(&self, most: u32) -> io::Result<Vec<Digest>> {
        if self.seen == self.segment.shape().places {
            return Ok(Vec::new());
        }
        let count = self.segment.count()?;
        let end = count.min(self.seen.saturating_add(most));
        if end <= self.seen {
            return Ok(Vec::new());
        }
        self.segment.digests(self.seen..end)
    }
}

/// Reads pages by their numbers.
#[derive(Debug)]
pub(crate) struct Reading<'s>(RwLockReadGuard<'s, Files>);

impl Stored for Reading<'_> {
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong> {
        let files = &*self.0;
        let (mut number, mut left) = (first.0, pages);
        while !left.is_empty() {
            let unknown = Wrong::NotStored(StoredId(number));
            let (run, end) = files.run(number).ok_or(unknown)?;
            let Looked { segment, read, .. } = &files.all[run.file];
            let each = segment.shape().page_bytes as usize;
            let count = (left.len() / each).clamp(1, (end - number) as usize);
            let (now, rest) = left.split_at_mut((count * each).min(left.len()));
            let place = run.place + (number - run.first);
            segment.read(place, now).map_err(|error| {
                tracing::error!(%error, place, count, "stored pages cannot be read");
                Wrong::NotStored(StoredId(number))
            })?;
            read.fetch_add(count as u64, Ordering::Relaxed);
            number += count as u32;
            left = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use drover_pagestore::{DIGEST_BYTES, Filler, KEY_BYTES, Shape};
    use drover_reduce::Told;

    use super::super::Known;
    use super::*;

    const PAGE: usize = 1024;

    fn key() -> DigestKey {
        DigestKey::new([9; KEY_BYTES])
    }

    /// A file with pages filled with these bytes.
    fn stored(bytes: &[u8]) -> (Segment, Filler) {
        let segment = Segment::in_memory(Shape {
            page_bytes: PAGE as u32,
            places: 64,
        })
        .unwrap();
        let mut filler = Filler::new(segment.file(), key(), None).unwrap();
        for byte in bytes {
            filler.add(&[*byte; PAGE]).unwrap();
        }
        (segment, filler)
    }

    fn again(segment: &Segment) -> Segment {
        Segment::open(segment.file().try_clone().unwrap(), None).unwrap()
    }

    /// What the page is whose number the source would give for one filled with that byte.
    fn found(known: &Known, store: &Store, byte: u8) -> Option<Vec<u8>> {
        let id = known.asking(None).find(&[byte; PAGE])?;
        let mut page = vec![0; PAGE];
        store.reading().read(id, &mut page).unwrap();
        Some(page)
    }

    #[test]
    fn pages_of_several_files_are_told_as_they_come_and_read_by_their_numbers() {
        let (first, mut more) = stored(&[1, 2, 3]);
        let (second, _) = stored(&[4, 2]);
        let store = Arc::new(Store::new(100));
        store.add(again(&first), key()).unwrap();
        store.add(again(&second), key()).unwrap();
        let known = Arc::new(Known::new(100));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (telling, hearing) = (store.clone(), known.clone());
        let teller = std::thread::spawn(move || telling.tell(ours));
        let listener = std::thread::spawn(move || hearing.listen(theirs));
        more.add(&[5; PAGE]).unwrap();
        while known.report().told < 6 {
            std::thread::yield_now();
        }
        for byte in [1, 2, 3, 4, 5] {
            assert_eq!(found(&known, &store, byte), Some(vec![byte; PAGE]));
        }
        // Over the end of one file, and of what was told at once.
        let mut run = vec![0; 4 * PAGE];
        store.reading().read(StoredId(2), &mut run).unwrap();
        for (page, number) in run.chunks(PAGE).zip(2..) {
            let mut alone = [0; PAGE];
            store.reading().read(StoredId(number), &mut alone).unwrap();
            assert_eq!(page, alone, "{number}");
        }
        let over = store.reading().read(StoredId(5), &mut run);
        assert_eq!(over, Err(Wrong::NotStored(StoredId(6))));
        assert_eq!(found(&known, &store, 6), None);
        let beyond = store.reading().read(StoredId(6), &mut [0; PAGE]);
        assert_eq!(beyond, Err(Wrong::NotStored(StoredId(6))));
        // One for each byte, four in a run and one each, and two before the end was found.
        let report = store.report();
        assert_eq!((report.read, report.read_sealed), (5 + 8 + 1, 0));
        store.stop();
        teller.join().unwrap();
        listener.join().unwrap();
    }

    #[test]
    fn no_more_pages_are_told_than_agreed_on_and_a_file_of_another_key_is_refused() {
        let (segment, _) = stored(&[1, 2, 3, 4]);
        let store = Store::new(3);
        store.add(again(&segment), key()).unwrap();
        store.stop();
        let mut told = Vec::new();
        store.tell_all(&mut told).unwrap();
        assert_eq!(told.len(), KEY_BYTES + 3 * DIGEST_BYTES);

        let other = store.add(again(&segment), DigestKey::new([1; KEY_BYTES]));
        assert!(matches!(other, Err(NotAdded::Key)));
    }

    #[test]
    fn a_file_that_was_cut_short_is_told_of_as_trouble_and_its_pages_are_not_guessed() {
        let (segment, _) = stored(&[1, 2]);
        let store = Store::new(100);
        store.add(again(&segment), key()).unwrap();
        store.stop();
        store.tell_all(&mut Vec::new()).unwrap();
        segment.file().set_len(100).unwrap();
        let lost = store.reading().read(StoredId(1), &mut [0; PAGE]);
        assert_eq!(lost, Err(Wrong::NotStored(StoredId(1))));
        let (cut, _) = stored(&[7]);
        cut.file().set_len(66).unwrap();
        store.add(again(&cut), key()).unwrap();
        store.tell_all(&mut Vec::new()).unwrap();
        assert!(store.report().trouble.unwrap().contains("cannot be read"));
    }
}
