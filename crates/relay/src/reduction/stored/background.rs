//! Writes pages to a file in a thread of its own and with less priority, so that no chunk waits for it. What it cannot keep up with is
//! left out.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use crate::limits::STORED_WAITING;
use crate::pool::lock;
use crate::reduction::courtesy::lower_priority;
use crate::shared::spawn;

/// A thread that takes batches of pages.
#[derive(Debug)]
pub(super) struct Background<B> {
    batches: SyncSender<B>,
    counts: Arc<Counts>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    /// Pages of it that are in the file now.
    pub(super) pages: u64,
    /// Pages of it that found no room.
    pub(super) left_out: u64,
    /// There is no room for any that comes.
    pub(super) full: bool,
    /// Why some were left out that others may find room for.
    pub(super) trouble: Option<&'static str>,
}

/// What became of all so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    pub(super) written: u64,
    pub(super) left_out: u64,
    pub(super) trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Batches that wait, or are being put together to.
    waiting: AtomicUsize,
    written: AtomicU64,
    left_out: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// Nobody takes pages any more.
    over: AtomicBool,
}

impl<B: Send + 'static> Background<B> {
    /// Starts it; `what` is the file.
    pub(super) fn start(
        name: &str,
        what: &'static str,
        write: impl FnMut(B) -> io::Result<Written> + Send + 'static,
    ) -> io::Result<Self> {
        let (batches, offered) = sync_channel(STORED_WAITING);
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        spawn(name, move || write_all(what, write, &offered, &own))?;
        Ok(Self { batches, counts })
    }

    /// Offers so many pages, which are not even put together where there is no room for them, or nobody takes any more.
    pub(super) fn offer(&self, pages: u64, batch: impl FnOnce() -> B) {
        if !self.counts.take_room() || self.batches.try_send(batch()).is_err() {
            self.counts.left_out.fetch_add(pages, Ordering::Relaxed);
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            written: self.counts.written.load(Ordering::Relaxed),
            left_out: self.counts.left_out.load(Ordering::Relaxed),
            trouble: lock(&self.counts.trouble).clone(),
        }
    }
}

impl Counts {
    /// Whether there is room for one more batch, which is taken.
    fn take_room(&self) -> bool {
        let more = |waiting| (waiting < STORED_WAITING).then_some(waiting + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        !self.over.load(Ordering::Relaxed) && self.waiting.fetch_update(set, fetch, more).is_ok()
    }
}

/// Ends when there is no more room, or nobody who offers pages.
fn write_all<B>(
    what: &str,
    mut write: impl FnMut(B) -> io::Result<Written>,
    offered: &Receiver<B>,
    counts: &Counts,
) {
    lower_priority();
    let why = loop {
        let Ok(batch) = offered.recv() else {
            return;
        };
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
        match write(batch) {
            Ok(written) => {
                counts.written.fetch_add(written.pages, Ordering::Relaxed);
                let left_out = written.left_out;
                counts.left_out.fetch_add(left_out, Ordering::Relaxed);
                if let Some(why) = written.trouble {
                    let mut trouble = lock(&counts.trouble);
                    trouble.get_or_insert_with(|| format!("pages were left out of {what}: {why}"));
                }
                if written.full {
                    break format!("no more pages fit into {what}");
                }
            }
            Err(error) => break format!("no more pages are written to {what}: {error}"),
        }
    };
    tracing::info!(why);
    *lock(&counts.trouble) = Some(why);
    counts.over.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_not_even_put_together() {
        let (end, stalls) = sync_channel::<()>(0);
        let write = move |()| {
            let _ = stalls.recv();
            Err(io::ErrorKind::StorageFull.into())
        };
        let background = Background::start("stalls", "a file", write).unwrap();
        let mut put_together = 0;
        // One is being written, and as many wait as can.
        while put_together <= STORED_WAITING {
            background.offer(1, || put_together += 1);
        }
        let left_out = background.standing().left_out;
        for _ in 0..10 {
            background.offer(3, || put_together += 1);
        }
        assert_eq!(put_together, STORED_WAITING + 1);
        assert_eq!(background.standing().left_out, left_out + 30);
        drop(end);
        while background.standing().trouble.is_none() {
            std::thread::yield_now();
        }
    }
}
