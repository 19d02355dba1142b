//! A file of pages, as those see it who add to it.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::digest::{Digest, DigestKey};
use crate::layout::{NoSegment, Shape};
use crate::seal::SealKey;
use crate::segment::Segment;

/// Digests of others' pages that are read at once: 64 KiB.
const DIGESTS_AT_ONCE: u32 = 4096;

/// Adds pages to a file, beside others that do.
#[derive(Debug)]
pub struct Filler {
    segment: Segment,
    key: DigestKey,
    known: HashSet<Digest>,
    /// Of so many pages the digests are known.
    seen: u32,
}

/// What became of pages that were to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// Those that were not there.
    pub new: u32,
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
        Ok(Self {
            segment: Segment::open(own, seal)?,
            key,
            known: HashSet::new(),
            seen: 0,
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
            if !self.known.contains(&digest) {
                batch.push((digest, page));
            }
        }
        if batch.is_empty() {
            let full = self.seen == self.segment.shape().places;
            return Ok(Added { new: 0, full });
        }
        self.segment.file().lock()?;
        let added = self.add_alone(batch);
        let unlocked = self.segment.file().unlock();
        added.and_then(|added| unlocked.map(|()| added))
    }

    /// The same, while nobody else adds any.
    fn add_alone(&mut self, mut batch: Vec<(Digest, &[u8])>) -> io::Result<Added> {
        self.look()?;
        let shape = self.segment.shape();
        let room = (shape.places - self.seen) as usize;
        let mut first = HashSet::new();
        batch.retain(|(digest, _)| !self.known.contains(digest) && first.insert(*digest));
        batch.truncate(room);
        let new = batch.len() as u32;
        if new > 0 {
            let mut pages = Vec::new();
            for (number, (_, page)) in (self.seen..).zip(&batch) {
                self.segment.append(number, page, &mut pages)?;
            }
            let digests = batch.iter().flat_map(|(digest, _)| digest.0);
            let digests: Vec<u8> = digests.collect();
            let file = self.segment.file();
            // In this order, so that what is counted is there, for others and whenever this process dies.
            file.write_all_at(&pages, self.segment.page_at(self.seen))?;
            file.write_all_at(&digests, Shape::digest_at(self.seen))?;
            Shape::set_count(file, self.seen + new)?;
            self.seen += new;
            self.known.extend(batch.iter().map(|(digest, _)| *digest));
        }
        let full = self.seen == shape.places;
        Ok(Added { new, full })
    }

    /// Learns what others have added.
    fn look(&mut self) -> io::Result<()> {
        let count = self.segment.count()?;
        while self.seen < count {
            let end = count.min(self.seen.saturating_add(DIGESTS_AT_ONCE));
            self.known.extend(self.segment.digests(self.seen..end)?);
            self.seen = end;
        }
        Ok(())
    }
}
