//! Stores the pages of a guest that crossed, for others: in a thread of its own and with less priority, so that no chunk
//! waits for it. What it cannot keep up with is left out.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use drover_pagestore::{DigestKey, Filler};
use drover_reduce::Checked;

use super::{NotAdded, StoredPages};
use crate::limits::STORED_WAITING;
use crate::pool::lock;
use crate::reduction::courtesy::lower_priority;
use crate::shared::spawn;

#[derive(Debug)]
pub(super) struct Filling {
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
    pub(super) fn start(file: &File, key: DigestKey) -> Result<Self, NotAdded> {
        let filler = Filler::new(file, key)?;
        let (pages, offered) = sync_channel(STORED_WAITING);
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        let started = spawn("store", move || fill(filler, &offered, &own));
        started.map_err(NotAdded::Thread)?;
        Ok(Self { pages, counts })
    }

    pub(super) fn offer(&self, checked: &Checked<'_>, page_bytes: u32) {
        if self.counts.over.load(Ordering::Relaxed) {
            let bytes: usize = checked.crossed.iter().map(ExactSizeIterator::len).sum();
            let count = bytes as u64 / u64::from(page_bytes);
            self.counts.left_out.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let crossed = checked
            .crossed
            .iter()
            .filter_map(|at| checked.raw.get(at.clone()));
        let pages = crossed.collect::<Vec<_>>().concat();
        let count = pages.len() as u64 / u64::from(page_bytes);
        if self.pages.try_send(pages).is_err() {
            self.counts.left_out.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn report(&self) -> StoredPages {
        StoredPages {
            told: 0,
            added: self.counts.added.load(Ordering::Relaxed),
            left_out: self.counts.left_out.load(Ordering::Relaxed),
            trouble: lock(&self.counts.trouble).clone(),
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
                    break "no more pages fit into the memory for stored pages".to_owned();
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
    use drover_pagestore::{KEY_BYTES, Segment, Shape};

    use super::*;

    #[test]
    fn what_crossed_is_stored_until_it_is_full_which_is_told() {
        let page_bytes = 1024;
        let segment = Segment::in_memory(Shape {
            page_bytes,
            places: 2,
        })
        .unwrap();
        let filling = Filling::start(segment.file(), DigestKey::new([1; KEY_BYTES])).unwrap();
        let raw: Vec<u8> = (0..4_u8).flat_map(|page| [page; 1024]).collect();
        let checked = Checked {
            raw: &raw,
            crossed: vec![0..1024, 2048..4096],
        };
        filling.offer(&checked, page_bytes);
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
            filling.offer(&checked, page_bytes);
        }
    }
}
