//! Writes pages to a file in a thread of its own and with less priority, so that no chunk waits for it. What it cannot keep up with
//! waits in memory, and beyond that is left out.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::pool::lock;
use crate::reduction::courtesy::lower_priority;
use crate::shared::spawn;

/// A thread that takes batches of pages. It outlives this until all that waits is written.
#[derive(Debug)]
pub(super) struct Background<B> {
    offered: Sender<Offered<B>>,
    counts: Arc<Counts>,
    /// Bytes of pages that may wait.
    room: u64,
}

#[derive(Debug)]
struct Offered<B> {
    batch: B,
    place: Place,
}

/// How much there is of some pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) pages: u64,
    pub(super) bytes: u64,
}

/// The place of a batch among those that wait. Dropped, it is given back, and what is not written by then counts as left out.
#[derive(Debug)]
struct Place {
    counts: Arc<Counts>,
    size: Size,
    is_written: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Size { pages, bytes } = self.size;
        if !self.is_written {
            self.counts.left_out.fetch_add(pages, Ordering::Relaxed);
        }
        self.counts
            .waiting_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        self.counts.waiting.fetch_sub(pages, Ordering::Relaxed);
    }
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
    pub(super) waiting: u64,
    pub(super) left_out: u64,
    pub(super) trouble: Option<String>,
}

/// The same, as it is counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Bytes that wait, or are being put together to, and the pages that they are.
    waiting_bytes: AtomicU64,
    waiting: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// Nobody takes pages any more.
    over: AtomicBool,
}

impl<B: Send + 'static> Background<B> {
    /// Starts it; `what` is the file, `room` for so many bytes of pages that wait, and `alive` is dropped once the thread has ended.
    pub(super) fn start(
        name: &str,
        what: &'static str,
        room: u64,
        alive: impl Send + 'static,
        write: impl FnMut(B) -> io::Result<Written> + Send + 'static,
    ) -> io::Result<Self> {
        let (offered, all) = channel();
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        spawn(name, move || {
            write_all(what, write, all, &own);
            drop(alive);
        })?;
        Ok(Self {
            offered,
            counts,
            room,
        })
    }

    /// Offers so many pages, which are not even put together where there is no room for them, or nobody takes any more.
    pub(super) fn offer(&self, size: Size, batch: impl FnOnce() -> B) {
        let Some(place) = Place::take(&self.counts, size, self.room) else {
            self.counts
                .left_out
                .fetch_add(size.pages, Ordering::Relaxed);
            return;
        };
        let batch = batch();
        // Nobody takes it any more: its place says so.
        let _ = self.offered.send(Offered { batch, place });
    }

    /// Has nothing more written, not even of what waits: nobody wants the file any more.
    pub(super) fn give_up(&self) {
        self.counts.over.store(true, Ordering::Relaxed);
    }

    /// They go on to be counted when this is dropped, until all that waits is written.
    pub(super) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

impl Counts {
    pub(super) fn standing(&self) -> Standing {
        Standing {
            written: self.written.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            trouble: lock(&self.trouble).clone(),
        }
    }
}

impl Standing {
    /// When nobody writes any more. Where one still does, it is at most: the batch that is being written may count as both.
    pub(super) fn ended(self) -> Self {
        Self {
            waiting: 0,
            left_out: self.left_out + self.waiting,
            ..self
        }
    }
}

impl Place {
    /// Where there is room for it.
    fn take(counts: &Arc<Counts>, size: Size, room: u64) -> Option<Self> {
        let more = |waiting: u64| Some(waiting + size.bytes).filter(|all| *all <= room);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_over = counts.over.load(Ordering::Relaxed);
        if is_over || counts.waiting_bytes.fetch_update(set, fetch, more).is_err() {
            return None;
        }
        counts.waiting.fetch_add(size.pages, Ordering::Relaxed);
        Some(Self {
            counts: counts.clone(),
            size,
            is_written: false,
        })
    }
}

/// Ends when there is no more room, nothing more is wanted, or nobody offers pages.
fn write_all<B>(
    what: &str,
    mut write: impl FnMut(B) -> io::Result<Written>,
    offered: Receiver<Offered<B>>,
    counts: &Counts,
) {
    lower_priority();
    let why = loop {
        let Ok(Offered { batch, mut place }) = offered.recv() else {
            return;
        };
        if counts.over.load(Ordering::Relaxed) {
            return;
        }
        match write(batch) {
            Ok(written) => {
                place.is_written = true;
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
        let (end, stalls) = channel::<()>();
        let write = move |()| {
            let _ = stalls.recv();
            Err(io::ErrorKind::StorageFull.into())
        };
        let background = Background::start("stalls", "a file", 100, (), write).unwrap();
        let mut put_together = 0;
        let size = |pages| Size {
            pages,
            bytes: 10 * pages,
        };
        for _ in 0..20 {
            background.offer(size(1), || put_together += 1);
        }
        assert_eq!(put_together, 10);
        let Standing {
            waiting, left_out, ..
        } = background.counts().standing();
        assert_eq!((waiting, left_out), (10, 10));
        let ended = background.counts().standing().ended();
        assert_eq!((ended.waiting, ended.left_out), (0, 20));
        for _ in 0..10 {
            background.offer(size(3), || put_together += 1);
        }
        assert_eq!(put_together, 10);
        assert_eq!(background.counts().standing().left_out, 40);
        drop(end);
        while background.counts().standing().waiting > 0 {
            std::thread::yield_now();
        }
        let Standing {
            left_out, trouble, ..
        } = background.counts().standing();
        assert_eq!(left_out, 50);
        assert!(trouble.is_some());
    }

    #[test]
    fn what_waits_for_a_file_that_nobody_wants_any_more_is_left_out() {
        let (go_on, stalls) = channel::<()>();
        let (begins, begun) = channel();
        let write = move |()| {
            begins.send(()).unwrap();
            let _ = stalls.recv();
            Ok(Written {
                pages: 1,
                left_out: 0,
                full: false,
                trouble: None,
            })
        };
        let background = Background::start("given-up", "a file", 100, (), write).unwrap();
        let size = Size { pages: 1, bytes: 1 };
        for _ in 0..10 {
            background.offer(size, || ());
        }
        begun.recv().unwrap();
        background.give_up();
        drop(go_on);
        while background.counts().standing().waiting > 0 {
            std::thread::yield_now();
        }
        let Standing {
            written, left_out, ..
        } = background.counts().standing();
        assert_eq!((written, left_out), (1, 9));
        background.offer(size, || panic!("it is put together"));
        assert_eq!(background.counts().standing().left_out, 10);
    }

    #[test]
    fn what_waits_is_written_when_nobody_offers_any_more_and_only_then_its_thread_is_over() {
        let (begin, begins) = channel::<()>();
        let (tell, told) = channel();
        let write = move |page: u8| {
            let _ = begins.recv();
            tell.send(page).map_err(io::Error::other)?;
            Ok(Written {
                pages: 1,
                left_out: 0,
                full: false,
                trouble: None,
            })
        };
        let alive = Arc::new(());
        let over = Arc::downgrade(&alive);
        let background = Background::start("waits", "a file", 100, alive, write).unwrap();
        let size = Size { pages: 1, bytes: 1 };
        for page in 0..100 {
            background.offer(size, || page);
        }
        drop(background);
        assert!(over.upgrade().is_some());
        drop(begin);
        assert!(told.iter().eq(0..100));
        while over.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}
