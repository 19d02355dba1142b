//! The memory in which guests that arrive at this host share pages: what one of them brought does not cross again for the
//! next (`migration.shared_pages_memory`).
//!
//! It is filled by those that arrive first, and given back when no guest has arrived for a while (`shared_pages_keep_minutes`): so what hosts
//! are drained of for hours finds what came at first, which is what guests of one image have in common. Where it is kept for days, who
//! arrives finds what guests brought that run here since.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_carrier::StoredFile;
use drover_pagestore::{DigestKey, NoSegment, Segment, shape_within};
use drover_types::Bytes;

use crate::limits::SHARED_PAGES_LOOK;

/// It.
#[derive(Debug)]
pub struct SharedPages {
    memory: Bytes,
    keep: Duration,
    key: DigestKey,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    segment: Option<Arc<Segment>>,
    /// A migration that referred to it may have failed for it: nobody else does.
    spoiled: bool,
    used: Instant,
}

/// What an arriving guest is given. While it lives, the memory is not given back.
#[derive(Debug, Default)]
pub struct Lease {
    segment: Option<Arc<Segment>>,
}

/// There is none for an arriving guest.
#[derive(Debug, thiserror::Error)]
pub enum NoMemory {
    /// It cannot be had.
    #[error("no memory for shared pages can be had")]
    Segment(#[from] NoSegment),
    /// It may be damaged, and is still in use.
    #[error(
        "a chunk that may refer to shared pages could not be used, or a relay that had them died, and others still use them"
    )]
    Spoiled,
    /// No descriptor is left.
    #[error("no descriptor is left for shared pages")]
    Descriptor(#[from] io::Error),
}

impl SharedPages {
    /// Of so much memory, none of which is taken now, kept for so long after the last guest, with digests by this key; with no memory,
    /// nothing is shared.
    pub fn new(memory: Bytes, keep: Duration, key: DigestKey) -> Self {
        Self {
            memory,
            keep,
            key,
            pages: Mutex::new(Pages {
                segment: None,
                spoiled: false,
                used: Instant::now(),
            }),
        }
    }

    /// Whether there are any.
    pub const fn is_on(&self) -> bool {
        self.memory.0 > 0
    }

    /// For a guest with pages of so many bytes that arrives now, and that adds its own or only finds others': a file for its relay, if there
    /// is one, and what holds it.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn lease(
        &self,
        page_bytes: u32,
        adds: bool,
    ) -> Result<(Lease, Option<(File, StoredFile)>), NoMemory> {
        // Given back behind the lock, as in `give_back`.
        let _spoiled;
        let mut pages = self.lock();
        pages.used = Instant::now();
        if pages.spoiled {
            if pages.is_used() {
                return Err(NoMemory::Spoiled);
            }
            _spoiled = pages.segment.take();
            pages.spoiled = false;
        }
        if pages.segment.is_none()
            && let Some(shape) = shape_within(self.memory.0, page_bytes, false)
        {
            pages.segment = Some(Arc::new(Segment::in_memory(shape)?));
        }
        let Some(segment) = &pages.segment else {
            return Ok((Lease::default(), None));
        };
        let stored = StoredFile {
            key: *self.key.bytes(),
            seal: None,
            fill: adds,
            waiting_bytes: 0,
        };
        let file = segment.file().try_clone()?;
        let lease = Lease {
            segment: Some(segment.clone()),
        };
        Ok((lease, Some((file, stored))))
    }

    /// Memory that they take now.
    pub fn taken(&self) -> Bytes {
        let pages = self.lock();
        let bytes = pages.segment.as_ref().map(|segment| {
            let pages = segment.count().unwrap_or(0);
            u64::from(pages) * u64::from(segment.shape().page_bytes)
        });
        Bytes(bytes.unwrap_or(0))
    }

    /// Gives memory back that nobody has used for a while, for ever.
    pub async fn keep_tidy(&self) {
        loop {
            tokio::time::sleep(SHARED_PAGES_LOOK).await;
            self.give_back();
        }
    }

    fn give_back(&self) {
        let mut pages = self.lock();
        if pages.is_used() {
            pages.used = Instant::now();
        } else if pages.used.elapsed() >= self.keep {
            let segment = pages.segment.take();
            drop(pages);
            // The kernel takes its time for much memory.
            drop(segment);
        }
    }

    /// A chunk could not be used, or a relay died, perhaps for a page of this lease: nobody else is given it. Whether it
    /// is of those that are given.
    pub fn spoil(&self, lease: &Lease) -> bool {
        let mut pages = self.lock();
        let same = |segment: &Arc<Segment>, own: &Arc<Segment>| Arc::ptr_eq(segment, own);
        let is_own = pages.segment.as_ref().zip(lease.segment.as_ref());
        let is_given = is_own.is_some_and(|(segment, own)| same(segment, own));
        pages.spoiled |= is_given;
        is_given
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn is_used(&self) -> bool {
        let segment = self.segment.as_ref();
        segment.is_some_and(|segment| Arc::strong_count(segment) > 1)
    }
}

#[cfg(test)]
mod tests {
    use drover_pagestore::Filler;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn shared(memory: u64) -> SharedPages {
        SharedPages::new(Bytes(memory), HOUR, DigestKey::new([1; 32]))
    }

    #[test]
    fn all_guests_have_the_same_pages_until_none_has_arrived_for_as_long_as_they_are_kept() {
        let mut shared = shared(1 << 20);
        let (first, given) = shared.lease(4096, true).unwrap();
        let (file, stored) = given.unwrap();
        let mut filler = Filler::new(&file, DigestKey::new(stored.key), None).unwrap();
        filler.add(&[7; 4096]).unwrap();
        let (second, given) = shared.lease(4096, true).unwrap();
        let (file, stored) = given.unwrap();
        assert!(stored.fill);
        assert_eq!(Segment::open(file, None).unwrap().count().unwrap(), 1);
        assert_eq!(shared.taken(), Bytes(4096));

        drop(first);
        shared.keep = Duration::ZERO;
        shared.give_back();
        assert_eq!(shared.taken(), Bytes(4096));
        drop(second);
        shared.keep = HOUR;
        shared.give_back();
        assert_eq!(shared.taken(), Bytes(4096));
        shared.keep = Duration::ZERO;
        shared.give_back();
        assert_eq!(shared.taken(), Bytes(0));
    }

    #[test]
    fn pages_of_which_a_migration_may_have_failed_are_given_to_nobody_else() {
        let shared = shared(1 << 20);
        let (first, _) = shared.lease(4096, true).unwrap();
        let (second, _) = shared.lease(4096, true).unwrap();
        assert!(!shared.spoil(&Lease::default()));
        assert!(shared.lease(4096, true).is_ok());
        assert!(shared.spoil(&first));
        drop(first);
        assert!(matches!(shared.lease(4096, true), Err(NoMemory::Spoiled)));
        drop(second);
        let (third, given) = shared.lease(4096, true).unwrap();
        assert!(given.is_some() && shared.lease(4096, true).is_ok());
        drop(third);
    }

    #[test]
    fn a_guest_of_which_nothing_is_to_be_kept_finds_pages_and_adds_none() {
        let shared = shared(1 << 20);
        let (_others, given) = shared.lease(4096, true).unwrap();
        let (file, stored) = given.unwrap();
        let mut filler = Filler::new(&file, DigestKey::new(stored.key), None).unwrap();
        filler.add(&[7; 4096]).unwrap();
        let (_own, given) = shared.lease(4096, false).unwrap();
        let (file, stored) = given.unwrap();
        assert!(!stored.fill);
        assert_eq!(Segment::open(file, None).unwrap().count().unwrap(), 1);
    }

    #[test]
    fn nothing_is_shared_where_there_is_no_memory_for_it() {
        let shared = shared(0);
        assert!(!shared.is_on());
        assert!(shared.lease(4096, true).unwrap().1.is_none());
    }
}
