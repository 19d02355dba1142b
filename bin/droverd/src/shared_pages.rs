//! The memory in which guests that arrive at this host share pages: what one of them brought does not cross again for the
//! next (`migration.shared_pages_memory`).
//!
//! Half of it is filled while the other half is only read: once the newer half has little room left and no migration uses the
//! older one, that is given back and another begins. All of it is given back when no guest has arrived for a while.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_carrier::StoredFile;
use drover_pagestore::{DigestKey, NoSegment, Segment, shape_within};
use drover_types::Bytes;

use crate::limits::{SHARED_PAGES_KEPT, SHARED_PAGES_LOOK, SHARED_PAGES_ROOM_PART};

/// It.
#[derive(Debug)]
pub struct SharedPages {
    memory: Bytes,
    key: DigestKey,
    halves: Mutex<Halves>,
}

/// Older ones first, two at most.
#[derive(Debug)]
struct Halves {
    all: Vec<Arc<Segment>>,
    used: Instant,
}

/// What an arriving guest is given. While it lives, the memory is not given to others.
#[derive(Debug, Default)]
pub struct Lease {
    _halves: Vec<Arc<Segment>>,
}

/// There is none for an arriving guest.
#[derive(Debug, thiserror::Error)]
pub enum NoMemory {
    /// It cannot be had.
    #[error("no memory for shared pages can be had")]
    Segment(#[from] NoSegment),
    /// No descriptor is left.
    #[error("no descriptor is left for shared pages")]
    Descriptor(#[from] io::Error),
}

impl SharedPages {
    /// Of so much memory, none of which is taken now; with zero, nothing is shared.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(memory: Bytes) -> io::Result<Self> {
        Ok(Self {
            memory,
            key: DigestKey::random()?,
            halves: Mutex::new(Halves {
                all: Vec::new(),
                used: Instant::now(),
            }),
        })
    }

    /// Whether there are any.
    pub const fn is_on(&self) -> bool {
        self.memory.0 > 0
    }

    /// For a guest with pages of so many bytes that arrives now: files for its relay, and what holds them.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn lease(&self, page_bytes: u32) -> Result<(Lease, Vec<(File, StoredFile)>), NoMemory> {
        let mut halves = self.lock();
        halves.used = Instant::now();
        if halves.wants_another(page_bytes)
            && let Some(shape) = shape_within(self.memory.0 / 2, page_bytes)
        {
            if halves.all.len() == 2 {
                halves.all.remove(0);
            }
            halves.all.push(Arc::new(Segment::in_memory(shape)?));
        }
        let newest = halves.all.len().saturating_sub(1);
        let given = halves.all.iter().enumerate().map(|(at, segment)| {
            let stored = StoredFile {
                key: *self.key.bytes(),
                fill: at == newest,
            };
            Ok((segment.file().try_clone()?, stored))
        });
        let files = given.collect::<io::Result<_>>()?;
        let lease = Lease {
            _halves: halves.all.clone(),
        };
        Ok((lease, files))
    }

    /// Memory that they take now.
    pub fn taken(&self) -> Bytes {
        let halves = self.lock();
        let bytes = halves.all.iter().map(|segment| {
            let pages = segment.count().unwrap_or(0);
            u64::from(pages) * u64::from(segment.shape().page_bytes)
        });
        Bytes(bytes.sum())
    }

    /// Gives memory back that nobody has used for a while, for ever.
    pub async fn keep_tidy(&self) {
        loop {
            tokio::time::sleep(SHARED_PAGES_LOOK).await;
            self.give_back(SHARED_PAGES_KEPT);
        }
    }

    fn give_back(&self, after: Duration) {
        let mut halves = self.lock();
        if halves.all.iter().any(is_used) {
            halves.used = Instant::now();
        } else if halves.used.elapsed() >= after {
            halves.all.clear();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Halves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Halves {
    /// Whether another half can begin, and should.
    fn wants_another(&self, page_bytes: u32) -> bool {
        let Some(newest) = self.all.last() else {
            return true;
        };
        let shape = newest.shape();
        let room = shape.places - newest.count().unwrap_or(shape.places);
        let is_full = room < shape.places / SHARED_PAGES_ROOM_PART;
        let may = self.all.len() < 2 || !self.all.first().is_some_and(is_used);
        may && (is_full || shape.page_bytes != page_bytes)
    }
}

fn is_used(segment: &Arc<Segment>) -> bool {
    Arc::strong_count(segment) > 1
}

#[cfg(test)]
mod tests {
    use drover_pagestore::Filler;

    use super::*;

    fn fill(files: &[(File, StoredFile)], pages: std::ops::Range<u32>) {
        let (file, stored) = files.iter().find(|(_, stored)| stored.fill).unwrap();
        let mut filler = Filler::new(file, DigestKey::new(stored.key)).unwrap();
        for page in pages {
            filler.add(&page.to_be_bytes().repeat(1024)).unwrap();
        }
    }

    #[test]
    fn a_full_half_is_read_while_the_other_is_filled_and_the_older_goes_when_nobody_uses_it() {
        let shared = SharedPages::new(Bytes(1 << 20)).unwrap();
        let (first, files) = shared.lease(4096).unwrap();
        assert_eq!(files.len(), 1);
        let (_, again) = shared.lease(4096).unwrap();
        assert_eq!(again.len(), 1);
        fill(&files, 0..200);
        let (second, files) = shared.lease(4096).unwrap();
        assert_eq!(files.len(), 2);
        assert!(!files[0].1.fill && files[1].1.fill);
        fill(&files, 200..400);
        assert!(shared.taken().0 <= 1 << 20);
        // The older one is in use.
        let (third, files) = shared.lease(4096).unwrap();
        assert_eq!(
            shared.taken().0,
            u64::from(third._halves[0].count().unwrap()) * 2 * 4096
        );
        assert!(files[1].1.fill);
        drop((first, second, third));
        let (fourth, _) = shared.lease(4096).unwrap();
        assert_eq!(fourth._halves[1].count().unwrap(), 0);

        shared.give_back(Duration::ZERO);
        assert_eq!(shared.lock().all.len(), 2);
        drop(fourth);
        shared.give_back(Duration::from_secs(3600));
        assert_eq!(shared.lock().all.len(), 2);
        shared.give_back(Duration::ZERO);
        assert_eq!(shared.taken(), Bytes(0));
    }

    #[test]
    fn nothing_is_shared_where_there_is_no_memory_for_it() {
        let shared = SharedPages::new(Bytes(0)).unwrap();
        assert!(!shared.is_on());
        assert_eq!(shared.lease(4096).unwrap().1.len(), 0);
    }
}
