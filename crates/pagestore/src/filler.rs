//! A file of pages, as those see it who add to it.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use crate::digest::{Digest, DigestKey};
use crate::known::KnownDigests;
use crate::layout::{BY_DIGEST, NoSegment, Shape};
use crate::seal::SealKey;
use crate::segment::Segment;

/// Digests of others' pages that are read at once: 64 KiB.
const DIGESTS_AT_ONCE: u32 = 4096;

/// From one try to be alone with a file to the next: others have it for as long as they write what is added at once, some 0.1 ms for 256 KiB.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// How often it is tried: whoever has it for longer than half a second was stopped, and may be for ever.
const LOCK_TRIES: u32 = 500;

/// Adds pages to a file, beside others that do.
#[derive(Debug)]
pub struct Filler {
    segment: Segment,
    key: DigestKey,
    /// Of the pages that are known to be there.
    known: KnownDigests,
}

/// What became of pages that were to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// Those that were not there.
    pub new: u32,
    /// Those that were not added, perhaps not there either, as another has kept everybody from the file for half a second.
    pub left_out: u32,
    /// There is no more room.
    pub full: bool,
}

impl Filler {
    /// Of a file, however it was opened for writing, whose digests have that key, and whose pages are sealed with the other
    /// one where they are sealed.
    ///
    /// # Errors
    /// [`NoSegment`].
    pub fn new(file: &File, key: DigestKey, seal: Option<&SealKey>) -> Result<Self, NoSegment> {
        // Locks are those of an open file, and whoever was given a descriptor shares it with who gave it.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let own = File::options().read(true).write(true).open(path)?;
        let segment = Segment::open(own, seal)?;
        Ok(Self {
            known: KnownDigests::new(segment.shape().places),
            segment,
            key,
        })
    }

    /// Adds those of the pages, which stand one behind the other, that are not there, as far as there is room.
    ///
    /// # Errors
    /// The kernel's. What was added before is there.
    pub fn add(&mut self, pages: &[u8]) -> io::Result<Added> {
        let page_bytes = self.segment.shape().page_bytes as usize;
        let mut batch: Vec<(Digest, &[u8])> = Vec::new();
        for page in pages.chunks_exact(page_bytes) {
            let digest = self.key.digest(page);
            if self.known.find(&digest).is_none() {
                batch.push((digest, page));
            }
        }
        if batch.is_empty() {
            return Ok(self.added(0));
        }
        if !self.lock()? {
            return Ok(Added {
                left_out: batch.len() as u32,
                ..self.added(0)
            });
        }
        let added = self.add_alone(batch);
        let unlocked = self.segment.file().unlock();
        added.and_then(|added| unlocked.map(|()| added))
    }

    /// The same, while nobody else adds any.
    fn add_alone(&mut self, mut batch: Vec<(Digest, &[u8])>) -> io::Result<Added> {
        self.look()?;
        let seen = self.known.count();
        let room = (self.segment.shape().places - seen) as usize;
        let mut first = HashSet::new();
        batch.retain(|(digest, _)| self.known.find(digest).is_none() && first.insert(*digest));
        batch.truncate(room);
        let new = batch.len() as u32;
        if new > 0 {
            let mut pages = Vec::new();
            for (number, (_, page)) in (seen..).zip(&batch) {
                self.segment.append(number, page, &mut pages)?;
            }
            let digests = batch.iter().flat_map(|(digest, _)| digest.0);
            let digests: Vec<u8> = digests.collect();
            let file = self.segment.file();
            // In this order, so that what is counted is there, for others and whenever this process dies.
            file.write_all_at(&pages, self.segment.page_at(seen))?;
            file.write_all_at(&digests, Shape::known_at(seen, BY_DIGEST))?;
            Shape::set_count(file, seen + new)?;
            for (digest, _) in &batch {
                self.known.add(*digest);
            }
        }
        Ok(self.added(new))
    }

    fn added(&self, new: u32) -> Added {
        let (left_out, full) = (0, self.known.is_full());
        Added {
            new,
            left_out,
            full,
        }
    }

    /// Whether nobody else adds any from now on.
    fn lock(&self) -> io::Result<bool> {
        for _ in 0..LOCK_TRIES {
            match self.segment.file().try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Learns what others have added.
    fn look(&mut self) -> io::Result<()> {
        let count = self.segment.count()?;
        while self.known.count() < count {
            let seen = self.known.count();
            let end = count.min(seen.saturating_add(DIGESTS_AT_ONCE));
            for digest in self.segment.digests(seen..end)? {
                self.known.add(digest);
            }
        }
        Ok(())
    }
}
