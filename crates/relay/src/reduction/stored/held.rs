//! A file of stored pages at the destination. Whoever reads it holds no lock: it may be on a disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drover_pagestore::{Digest, Segment};

use super::patient::Patient;

/// It.
#[derive(Debug)]
pub(super) struct Held {
    segment: Segment,
    /// Pages that were read, as often as they were.
    read: AtomicU64,
    /// Its disk has not answered in time: nobody waits for it again.
    stalled: AtomicBool,
}

impl Held {
    pub(super) const fn new(segment: Segment) -> Self {
        Self {
            segment,
            read: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
        }
    }

    pub(super) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Pages that were read, as often as they were.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The digests of pages behind those that were seen, of so many at most.
    pub(super) fn news(&self, seen: u32, most: u32) -> io::Result<Vec<Digest>> {
        if seen == self.segment.shape().places {
            return Ok(Vec::new());
        }
        let count = self.segment.count()?;
        let end = count.min(seen.saturating_add(most));
        if end <= seen {
            return Ok(Vec::new());
        }
        self.segment.digests(seen..end)
    }

    /// How many pages there are behind those that were seen.
    pub(super) fn beyond(&self, seen: u32) -> io::Result<u32> {
        if seen == self.segment.shape().places {
            return Ok(0);
        }
        Ok(self.segment.count()?.saturating_sub(seen))
    }

    /// Fills `pages` with those from this place on.
    pub(super) fn give(
        self: &Arc<Self>,
        patient: &Patient,
        place: u32,
        pages: &mut [u8],
    ) -> io::Result<()> {
        if self.segment.read_at_once(place, pages)? {
            self.count(pages.len());
            return Ok(());
        }
        if self.stalled.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (own, count) = (self.clone(), pages.len());
        let read = patient.read(move || {
            let mut pages = vec![0; count];
            own.segment.read(place, &mut pages)?;
            Ok(pages)
        });
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::TimedOut
        {
            self.stalled.store(true, Ordering::Relaxed);
        }
        pages.copy_from_slice(&read?);
        self.count(pages.len());
        Ok(())
    }

    fn count(&self, bytes: usize) {
        let pages = bytes / self.segment.shape().page_bytes as usize;
        self.read.fetch_add(pages as u64, Ordering::Relaxed);
    }
}
