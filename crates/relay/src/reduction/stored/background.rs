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
    batches: Sender<Batch<B>>,
    counts: Arc<Counts>,
    /// Bytes of pages that may wait.
    room: u64,
}

#[derive(Debug)]
struct Batch<B> {
    of: B,
    /// How much there is of it.
    size: Size,
}

/// How much there is of some pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) pages: u64,
    pub(super) bytes: u64,
}

/// Who is not over before the thread is.
pub(crate) type Lives = Box<dyn Send>;

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

#[derive(Debug, Default)]
struct Counts {
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
    /// Starts it; `what` is the file, and `room` for so many bytes of pages that wait.
    pub(super) fn start(
        name: &str,
        what: &'static str,
        room: u64,
        lives: Lives,
        write: impl FnMut(B) -> io::Result<Written> + Send + 'static,
    ) -> io::Result<Self> {
        let (batches, offered) = channel();
        let counts = Arc::<Counts>::default();
        let own = counts.clone();
        spawn(name, move || {
            write_all(what, write, &offered, &own);
            drop(lives);
        })?;
        Ok(Self {
            batches,
            counts,
            room,
        })
    }

    /// Offers so many pages, which are not even put together where there is no room for them, or nobody takes any more.
    pub(super) fn offer(&self, size: Size, batch: impl FnOnce() -> B) {
        let is_offered = self.counts.take_room(size, self.room) && {
            let of = batch();
            self.batches.send(Batch { of, size }).is_ok()
        };
        if !is_offered {
            self.counts
                .left_out
                .fetch_add(size.pages, Ordering::Relaxed);
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            written: self.counts.written.load(Ordering::Relaxed),
            waiting: self.counts.waiting.load(Ordering::Relaxed),
            left_out: self.counts.left_out.load(Ordering::Relaxed),
            trouble: lock(&self.counts.trouble).clone(),
        }
    }
}

impl Counts {
    /// Whether there is room for one more batch, which is taken.
    fn take_room(&self, size: Size, room: u64) -> bool {
        let more = |waiting: u64| Some(waiting + size.bytes).filter(|all| *all <= room);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_taken = !self.over.load(Ordering::Relaxed)
            && self.waiting_bytes.fetch_update(set, fetch, more).is_ok();
        if is_taken {
            self.waiting.fetch_add(size.pages, Ordering::Relaxed);
        }
        is_taken
    }

    /// A batch does not wait any more.
    fn give_back(&self, size: Size) {
        self.waiting_bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        self.waiting.fetch_sub(size.pages, Ordering::Relaxed);
    }
}

/// Ends when there is no more room, or nobody who offers pages.
fn write_all<B>(
    what: &str,
    mut write: impl FnMut(B) -> io::Result<Written>,
    offered: &Receiver<Batch<B>>,
    counts: &Counts,
) {
    lower_priority();
    let why = loop {
        let Ok(Batch { of, size }) = offered.recv() else {
            return;
        };
        let written = write(of);
        counts.give_back(size);
        match written {
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
    // Whoever offers pages has seen that by now, or finds nobody.
    for Batch { size, .. } in offered.try_iter() {
        counts.give_back(size);
        counts.left_out.fetch_add(size.pages, Ordering::Relaxed);
    }
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
        let background = Background::start("stalls", "a file", 100, Box::new(()), write).unwrap();
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
        } = background.standing();
        assert_eq!((waiting, left_out), (10, 10));
        for _ in 0..10 {
            background.offer(size(3), || put_together += 1);
        }
        assert_eq!(put_together, 10);
        assert_eq!(background.standing().left_out, 40);
        drop(end);
        while background.standing().waiting > 0 {
            std::thread::yield_now();
        }
        assert!(background.standing().trouble.is_some());
    }

    #[test]
    fn what_waits_is_written_when_nobody_offers_any_more_and_who_lives_for_it_is_over_after_that() {
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
        let lives = Arc::new(());
        let over = Arc::downgrade(&lives);
        let lives = Box::new(lives);
        let background = Background::start("waits", "a file", 100, lives, write).unwrap();
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
