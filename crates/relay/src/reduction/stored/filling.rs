//! Stores the pages of a guest that cross, for others or for its return: in a thread of its own and with less priority, so that no chunk
//! waits for it. What it cannot keep up with is left out.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use drover_pagestore::{DigestKey, Filler, SealKey, Segment};

use super::{NotAdded, StoredPages};
use crate::limits::STORED_WAITING;
use crate::pool::lock;
use crate::reduction::courtesy::lower_priority;
use crate::shared::spawn;

#[derive(Debug)]
pub(crate) struct Filling {
    page_bytes: u32,
    pages: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    added: AtomicU64,
    left_out: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// Nobody takes pages any more.
    over: AtomicBool,
}

impl Filling {
    /// Adds to this file from now on.
    pub(crate) fn start(
        segment: &Segment,
        key: DigestKey,
        seal: Option<&SealKey>,
    ) -> Result<Self, NotAdded> {
        let filler = Filler::new(segment.file(), key, seal)?;
        let (pages, offered) = sync_channel(STORED_WAITING);
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        let started = spawn("store", move || fill(filler, &offered, &own));
        started.map_err(NotAdded::Thread)?;
        let page_bytes = segment.shape().page_bytes;
        Ok(Self {
            page_bytes,
            pages,
            counts,
        })
    }

    /// Offers the pages that are there in a chunk.
    pub(crate) fn offer(&self, raw: &[u8], pages: &[Range<usize>]) {
        let bytes: usize = pages.iter().map(ExactSizeIterator::len).sum();
        if bytes == 0 {
            return;
        }
        let count = bytes as u64 / u64::from(self.page_bytes);
        if self.counts.over.load(Ordering::Relaxed) {
            self.counts.left_out.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let all = pages.iter().filter_map(|at| raw.get(at.clone()));
        let all = all.collect::<Vec<_>>().concat();
        if self.pages.try_send(all).is_err() {
            self.counts.left_out.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn report(&self) -> StoredPages {
        StoredPages {
            added: self.counts.added.load(Ordering::Relaxed),
            left_out: self.counts.left_out.load(Ordering::Relaxed),
            trouble: lock(&self.counts.trouble).clone(),
            ..StoredPages::default()
        }
    }
}

/// Ends when there is no more room, or nobody who offers pages.
fn fill(mut filler: Filler, offered: &Receiver<Vec<u8>>, counts: &Counts) {
    lower_priority();
    let why = loop {
        let Ok(pages) = offered.recv() else {
            return;
        };
        match filler.add(&pages) {
            Ok(added) => {
                counts.added.fetch_add(added.new.into(), Ordering::Relaxed);
                if added.full {
                    break "no more pages fit into the file of stored pages".to_owned();
                }
            }
            Err(error) => break format!("no more pages are stored: {error}"),
        }
    };
    tracing::info!(why);
    *lock(&counts.trouble) = Some(why);
    counts.over.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use drover_pagestore::{KEY_BYTES, Shape};

    use super::*;

    #[test]
    fn what_crossed_is_stored_until_it_is_full_which_is_told() {
        let page_bytes = 1024;
        let segment = Segment::in_memory(Shape {
            page_bytes,
            places: 2,
        })
        .unwrap();
        let filling = Filling::start(&segment, DigestKey::new([1; KEY_BYTES]), None).unwrap();
        let raw: Vec<u8> = (0..4_u8).flat_map(|page| [page; 1024]).collect();
        let crossed = [0..1024, 2048..4096];
        filling.offer(&raw, &crossed);
        while filling.report().trouble.is_none() {
            std::thread::yield_now();
        }
        let report = filling.report();
        assert_eq!(report.added, 2);
        assert!(report.trouble.unwrap().contains("no more pages fit"));
        let mut page = vec![9; 1024];
        segment.read(1, &mut page).unwrap();
        assert_eq!(page, [2; 1024]);
        // Nobody takes it any more, which is counted.
        while filling.report().left_out == 0 {
            filling.offer(&raw, &crossed);
        }
    }
}
