//! The guest's baseline at both ends: recorded at the destination when it arrives, read at the source when it leaves again.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use drover_pagestore::{Baseline, Recorder, SealKey, Shape};
use drover_qstream::Channel;
use drover_reduce::{PageId, Span};
use drover_types::with_sources;

use super::background::{Background, Counts, Size, Written};
use super::{NotAdded, StoredPages};
use crate::limits::STORED_WAITING_BYTES;
use crate::pool::lock;
use crate::reduction::courtesy::lower_priority;
use crate::reduction::pages::Pages;
use crate::shared::spawn;

/// The file of a guest's pages by their address: as they cross, or as they were when it arrived here.
#[derive(Debug)]
pub struct BaselineFile {
    /// The file, as [`drover_pagestore::Baseline`] reads it.
    pub file: File,
    /// The key of its pages.
    pub seal: SealKey,
    /// At the destination: bytes of pages that may wait to be recorded, beyond which they are left out; at least
    /// [`STORED_WAITING_BYTES`].
    pub waiting_bytes: u64,
}

/// Records pages as they arrive.
#[derive(Debug)]
pub(crate) struct Recording {
    background: Background<Batch>,
}

#[derive(Debug)]
struct Batch {
    addresses: Vec<u64>,
    pages: Vec<u8>,
}

impl Recording {
    /// Records to this file from now on pages of so many bytes, what waits also when none arrive any more; `alive` is dropped after that.
    pub(crate) fn start(
        file: BaselineFile,
        page_bytes: u32,
        alive: impl Send + 'static,
    ) -> Result<Self, NotAdded> {
        let room = file.waiting_bytes.max(STORED_WAITING_BYTES);
        let mut recorder = Recorder::new(file.file, &file.seal)?;
        check(recorder.shape(), page_bytes)?;
        let record = move |batch: Batch| {
            let left_out = recorder.record(&batch.addresses, &batch.pages)?.into();
            Ok(Written {
                pages: batch.addresses.len() as u64 - left_out,
                left_out,
                // Those that are there may come again.
                full: false,
                trouble: None,
            })
        };
        let what = "the guest's baseline";
        let background = Background::start("baseline", what, room, alive, record);
        let background = background.map_err(NotAdded::Thread)?;
        Ok(Self { background })
    }

    fn offer(&self, raw: &[u8], pages: &[(PageId, Range<usize>)]) {
        if pages.is_empty() {
            return;
        }
        let size = Size {
            pages: pages.len() as u64,
            bytes: pages.iter().map(|(_, at)| at.len() as u64).sum(),
        };
        self.background.offer(size, || {
            let bytes = pages.iter().filter_map(|(_, at)| raw.get(at.clone()));
            Batch {
                addresses: pages.iter().map(|(page, _)| page.0).collect(),
                pages: bytes.collect::<Vec<_>>().concat(),
            }
        });
    }

    /// Has nothing more recorded, not even of what waits.
    pub(crate) fn give_up(&self) {
        self.background.give_up();
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        self.background.counts()
    }
}

/// Finds the pages in what one channel gives its QEMU.
#[derive(Debug)]
pub(crate) struct Tap {
    channel: Channel,
    pages: Pages,
    page_bytes: usize,
    begins: u64,
}

impl Tap {
    pub(crate) fn new(page_bytes: u32) -> Self {
        Self {
            channel: Channel::new(page_bytes),
            pages: Pages::new(page_bytes),
            page_bytes: page_bytes as usize,
            begins: 0,
        }
    }

    /// Has the pages recorded that are in the channel's next bytes. One that goes on in the next chunk is left out; the source cuts none
    /// where it keeps what leaves.
    pub(crate) fn see(&mut self, raw: &[u8], recording: &Recording) {
        let pages = &mut self.pages;
        self.channel.feed(raw, &mut |found| pages.add(found));
        let begins = self.begins;
        self.begins += raw.len() as u64;
        let mut at = 0;
        let mut all = Vec::new();
        for span in self.pages.spans(begins..self.begins) {
            match span {
                Span::Plain(bytes) => at += bytes,
                Span::Page(page) => {
                    all.push((page, at..at + self.page_bytes));
                    at += self.page_bytes;
                }
            }
        }
        recording.offer(raw, &all);
    }
}

/// What the source has of the guest as it arrived. It is opened, and read ahead, in a thread of its own: no chunk waits for a disk, and
/// no request for a large file.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    baseline: OnceLock<Baseline>,
    /// It cannot be read.
    over: AtomicBool,
    read: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Bases {
    /// Of this file, for pages of so many bytes.
    pub(crate) fn open(file: BaselineFile, page_bytes: u32) -> Result<Arc<Self>, NotAdded> {
        check(Baseline::shape_of(&file.file)?, page_bytes)?;
        let this = Arc::<Self>::default();
        let own = this.clone();
        let started = spawn("bases", move || own.load(file));
        started.map_err(NotAdded::Thread)?;
        Ok(this)
    }

    fn load(&self, file: BaselineFile) {
        lower_priority();
        let loaded = Baseline::open(file.file, &file.seal).map_err(|error| with_sources(&error));
        let warmed = loaded.and_then(|baseline| {
            let baseline = self.baseline.get_or_init(|| baseline);
            baseline.warm().map_err(|error| with_sources(&error))
        });
        if let Err(why) = warmed {
            self.fails(&why);
        }
    }

    /// Fills `page` with what was there when the guest arrived; `false` where that is not known.
    pub(super) fn find(&self, id: PageId, page: &mut Vec<u8>, memory: &mut Vec<u8>) -> bool {
        let baseline = self.baseline.get();
        let Some(baseline) = baseline.filter(|_| !self.over.load(Ordering::Relaxed)) else {
            return false;
        };
        page.resize(baseline.shape().page_bytes as usize, 0);
        match baseline.read(id.0, page, memory) {
            Ok(found) => {
                self.read.fetch_add(found.into(), Ordering::Relaxed);
                found
            }
            Err(error) => {
                self.fails(&with_sources(&error));
                false
            }
        }
    }

    /// For good: a disk that fails takes long to say so.
    fn fails(&self, why: &str) {
        self.over.store(true, Ordering::Relaxed);
        lock(&self.trouble).get_or_insert_with(|| {
            tracing::warn!(why, "the guest's baseline cannot be read");
            format!("the guest's baseline cannot be read: {why}")
        });
    }

    pub(crate) fn add_to(&self, report: &mut StoredPages) {
        report.recorded = self.baseline.get().map_or(0, Baseline::count) as u64;
        report.compared = self.read.load(Ordering::Relaxed);
        let trouble = || lock(&self.trouble).clone();
        report.trouble = report.trouble.take().or_else(trouble);
    }
}

fn check(shape: Shape, wanted: u32) -> Result<(), NotAdded> {
    let found = shape.page_bytes;
    if found == wanted {
        Ok(())
    } else {
        Err(NotAdded::PageBytes { found, wanted })
    }
}
