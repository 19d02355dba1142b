//! Stores the pages of a guest that cross, for others or for its return.

use std::ops::Range;
use std::sync::Arc;

use drover_pagestore::{DigestKey, Filler, SealKey, Segment};

use super::NotAdded;
use super::background::{Background, Counts, Size, Written};

const KEPT_FROM_IT: &str = "another relay has kept all others from it, as one does that is stopped";

#[derive(Debug)]
pub(crate) struct Filling {
    page_bytes: u32,
    background: Background<Vec<u8>>,
}

impl Filling {
    /// Adds to this file from now on, what waits also when nobody offers any more; `alive` is dropped after that.
    pub(crate) fn start(
        segment: &Segment,
        key: DigestKey,
        seal: Option<&SealKey>,
        waiting_bytes: u64,
        alive: impl Send + 'static,
    ) -> Result<Self, NotAdded> {
        let mut filler = Filler::new(segment.file(), key, seal)?;
        let fill = move |pages: Vec<u8>| {
            let added = filler.add(&pages)?;
            Ok(Written {
                pages: added.new.into(),
                left_out: added.left_out.into(),
                full: added.full,
                trouble: (added.left_out > 0).then_some(KEPT_FROM_IT),
            })
        };
        let what = "the file of stored pages";
        let background = Background::start("store", what, waiting_bytes, alive, fill);
        Ok(Self {
            page_bytes: segment.shape().page_bytes,
            background: background.map_err(NotAdded::Thread)?,
        })
    }

    /// Offers the pages that are there in a chunk.
    pub(crate) fn offer(&self, raw: &[u8], pages: &[Range<usize>]) {
        let bytes: usize = pages.iter().map(ExactSizeIterator::len).sum();
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        let size = Size {
            pages: bytes / u64::from(self.page_bytes),
            bytes,
        };
        self.background.offer(size, || {
            let all = pages.iter().filter_map(|at| raw.get(at.clone()));
            all.collect::<Vec<_>>().concat()
        });
    }

    /// Has nothing more added, not even of what waits.
    pub(crate) fn give_up(&self) {
        self.background.give_up();
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        self.background.counts()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use drover_pagestore::{KEY_BYTES, Shape};

    use super::*;
    use crate::limits::STORED_WAITING_BYTES;

    fn started(segment: &Segment) -> Filling {
        let key = DigestKey::new([1; KEY_BYTES]);
        Filling::start(segment, key, None, STORED_WAITING_BYTES, ()).unwrap()
    }

    #[test]
    fn a_relay_that_is_stopped_while_it_stores_costs_others_pages_and_is_told() {
        let page_bytes = 1024;
        let segment = Segment::in_memory(Shape {
            page_bytes,
            places: 2,
        })
        .unwrap();
        // What the other relay has is another open file.
        let path = format!("/proc/self/fd/{}", segment.file().as_raw_fd());
        let stopped = File::options().write(true).open(path).unwrap();
        stopped.lock().unwrap();
        let filling = started(&segment);
        let page = 0..1024;
        let crossed = std::slice::from_ref(&page);
        filling.offer(&[1; 1024], crossed);
        while filling.counts().standing().left_out == 0 {
            std::thread::yield_now();
        }
        while filling.counts().standing().trouble.is_none() {
            std::thread::yield_now();
        }
        let told = filling.counts().standing().trouble.unwrap();
        assert!(told.contains("another relay"), "{told}");
        drop(stopped);
        // It goes on.
        while filling.counts().standing().written == 0 {
            filling.offer(&[1; 1024], crossed);
        }
    }

    #[test]
    fn what_crossed_is_stored_until_it_is_full_which_is_told() {
        let page_bytes = 1024;
        let segment = Segment::in_memory(Shape {
            page_bytes,
            places: 2,
        })
        .unwrap();
        let filling = started(&segment);
        let raw: Vec<u8> = (0..4_u8).flat_map(|page| [page; 1024]).collect();
        let crossed = [0..1024, 2048..4096];
        filling.offer(&raw, &crossed);
        while filling.counts().standing().trouble.is_none() {
            std::thread::yield_now();
        }
        let report = filling.counts().standing();
        assert_eq!(report.written, 2);
        assert!(report.trouble.unwrap().contains("no more pages fit"));
        let mut page = vec![9; 1024];
        segment.read(1, &mut page).unwrap();
        assert_eq!(page, [2; 1024]);
        // Nobody takes it any more, which is counted.
        while filling.counts().standing().left_out == 0 {
            filling.offer(&raw, &crossed);
        }
    }
}
