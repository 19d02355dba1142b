//! Fewer bytes for what QEMU sends: joins `qstream`, which finds the pages, and `reduce`, which describes them.
//!
//! ```text
//!  source: QEMU ─▶ Reducer: read, find pages, describe, pack ─▶ chunk       one for each channel, in its reading thread
//!                     └── kept pages, of the session ──┐
//!                                                      ├── the same, by the order of chunks
//!                     ┌── kept pages, of the session ──┘
//!  destination: chunk ─▶ Expander: unpack, expand, check ─▶ QEMU            one for each channel, in its writing thread
//! ```
//! Only what the source's QEMU sends is reduced; what comes back is little.
//!
//! # Invariant
//! What QEMU gets is what the other QEMU sent, or nothing: a chunk that cannot be read, or whose content is another one,
//! breaks its channel before a byte of it is written.

mod courtesy;
mod deciding;
mod expander;
mod glance;
mod pages;
mod reducer;
mod stored;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use drover_reduce::Sampler;
use drover_reduce::kept::{destination, source};
use drover_session::ChannelId;
use serde::{Deserialize, Serialize};

pub use deciding::{Decided, Policy};
use deciding::{Deciding, Done, Order};
pub(crate) use expander::Expander;
pub use expander::{ExpandTimes, Expanded};
pub(crate) use glance::Glance;
pub(crate) use reducer::{Reducer, Taken};
pub use stored::{BaselineFile, Behind, NotAdded, StoredFile, StoredPages};
use stored::{Bases, Filling, Known, Recording, Store};

use crate::limits::STORED_WAITING_BYTES;
use crate::pool::lock;
use crate::report::Reduced;

/// What both ends agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduction {
    /// The size of the guest's pages in bytes.
    pub page_bytes: u32,
    /// Pages that both ends keep at most, to refer to them.
    pub kept_pages: u32,
    /// What a codec remembers of each channel: 2^`window_log` bytes.
    pub window_log: u32,
    /// Pages of which the destination tells at most that its host has stored them; none: it tells nothing.
    #[serde(default)]
    pub stored_pages: u32,
    /// Who decides what is done, at the source.
    pub policy: Policy,
}

/// What the channels of one end share.
#[derive(Debug)]
pub(crate) struct Shared {
    agreed: Reduction,
    end: End,
    deciding: Mutex<Deciding>,
    sampler: Mutex<Sampler>,
    /// Pages that QEMU itself found to be zero.
    zero: AtomicU64,
    /// Channels in which pages are no longer found, and why: in a word, and in full.
    opaque: Mutex<BTreeMap<ChannelId, (&'static str, String)>>,
    /// Stores the pages that cross, where that is wanted.
    filling: OnceLock<Filling>,
    /// As the destination: records the pages that arrive, where that is wanted.
    recording: OnceLock<Recording>,
    /// As the source: how pages were when the guest arrived here, where that is known.
    bases: OnceLock<Arc<Bases>>,
    /// What became of what arrived, at the destination.
    expanded: Mutex<Expanded>,
}

#[derive(Debug)]
enum End {
    Source(Mutex<source::Kept>, Arc<Known>),
    Destination(Mutex<destination::Kept>, Arc<Store>),
}

impl Shared {
    pub(crate) fn new(agreed: Reduction, is_source: bool) -> Self {
        let (page_bytes, most) = (agreed.page_bytes as usize, agreed.kept_pages);
        let end = if is_source {
            let known = Known::new(agreed.stored_pages);
            End::Source(
                Mutex::new(source::Kept::new(page_bytes, most)),
                Arc::new(known),
            )
        } else {
            let store = Store::new(agreed.stored_pages);
            End::Destination(
                Mutex::new(destination::Kept::new(page_bytes, most)),
                Arc::new(store),
            )
        };
        Self {
            agreed,
            end,
            sampler: Mutex::default(),
            zero: AtomicU64::new(0),
            deciding: Mutex::new(Deciding::new(agreed.policy)),
            opaque: Mutex::default(),
            filling: OnceLock::new(),
            recording: OnceLock::new(),
            bases: OnceLock::new(),
            expanded: Mutex::default(),
        }
    }

    /// The other end has worked off all chunks of a channel before this one.
    pub(crate) fn worked_off(&self, channel: ChannelId, before: u64) {
        if let End::Source(kept, _) = &self.end {
            lock(kept).worked_off(channel, before);
        }
    }

    /// Whether the destination tells of stored pages.
    pub(crate) const fn tells(&self) -> bool {
        self.agreed.stored_pages > 0
    }

    /// Takes this end's part in the telling, until it is over. Blocks.
    pub(crate) fn take_part_in_telling(&self) -> impl FnOnce(UnixStream) + Send + 'static {
        let (known, store) = match &self.end {
            End::Source(_, known) => (Some(known.clone()), None),
            End::Destination(_, store) => (None, Some(store.clone())),
        };
        move |stream| {
            if let Some(known) = known {
                known.listen(stream);
            } else if let Some(store) = store {
                store.tell(stream);
            }
        }
    }

    /// As the destination: pages that its host has stored. At either end: where to store those that cross.
    ///
    /// `alive` is dropped at once, or where this is the source once all that waits is stored.
    pub(crate) fn add_stored(
        &self,
        stored: StoredFile,
        alive: impl Send + 'static,
    ) -> Result<(), NotAdded> {
        let store = match &self.end {
            End::Destination(_, store) if self.agreed.stored_pages > 0 => Some(store),
            End::Source(..) if stored.fill => None,
            _ => return Err(NotAdded::NotAgreed),
        };
        if stored.fill && self.filling.get().is_some() {
            return Err(NotAdded::FilledAlready);
        }
        let StoredFile {
            file,
            key,
            seal,
            fill,
            waiting_bytes,
        } = stored;
        let segment = StoredFile::open(file, seal.as_ref(), self.agreed.page_bytes)?;
        let waiting_bytes = waiting_bytes.max(STORED_WAITING_BYTES);
        // What other guests may find costs bytes, and no process its end.
        let alive = store.is_none().then_some(alive);
        let start = || Filling::start(&segment, key.clone(), seal.as_ref(), waiting_bytes, alive);
        let filling = fill.then(start);
        let filling = filling.transpose()?;
        if let Some(store) = store {
            store.add(segment, key)?;
        }
        if let Some(filling) = filling {
            let set = self.filling.set(filling);
            set.map_err(|_| NotAdded::FilledAlready)?;
        }
        Ok(())
    }

    /// As the destination: where to record the pages that arrive. As the source: how they were when the guest arrived here.
    ///
    /// `alive` is dropped at once, or where this is the destination once all that waits is recorded.
    pub(crate) fn add_baseline(
        &self,
        file: BaselineFile,
        alive: impl Send + 'static,
    ) -> Result<(), NotAdded> {
        let page_bytes = self.agreed.page_bytes;
        let is_new = match &self.end {
            End::Source(..) => {
                let is_new = self.bases.set(Bases::open(file, page_bytes)?).is_ok();
                if is_new {
                    lock(&self.deciding).comes_back();
                }
                is_new
            }
            End::Destination(..) => {
                let recording = Recording::start(file, page_bytes, alive)?;
                self.recording.set(recording).is_ok()
            }
        };
        is_new.then_some(()).ok_or(NotAdded::BaselineAlready)
    }

    /// Where pages that arrive are recorded.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.recording.get()
    }

    /// Where pages that cross are stored.
    fn filling(&self) -> Option<&Filling> {
        self.filling.get()
    }

    /// Nobody wants what this guest adds any more.
    pub(crate) fn give_up(&self) {
        if let Some(filling) = self.filling() {
            filling.give_up();
        }
        if let Some(recording) = self.recording() {
            recording.give_up();
        }
    }

    /// Nothing more is told of stored pages, as nothing more is sent.
    pub(crate) fn stop_telling(&self) {
        if let End::Destination(_, store) = &self.end {
            store.stop();
        }
    }

    /// What becomes of pages that are stored or recorded, also when nothing else of this is left.
    pub(crate) fn behind(&self) -> Behind {
        Behind::new(self.filling(), self.recording())
    }

    /// What became of stored pages so far, where they were agreed on or are stored.
    pub(crate) fn report_stored(&self) -> Option<StoredPages> {
        let (behind, bases) = (self.behind(), self.bases.get());
        let is_any = self.agreed.stored_pages > 0 || behind.is_any() || bases.is_some();
        is_any.then(|| {
            let mut report = match &self.end {
                End::Source(_, known) => known.report(),
                End::Destination(_, store) => store.report(),
            };
            behind.report(&mut report);
            if let Some(bases) = bases {
                bases.add_to(&mut report);
            }
            report
        })
    }

    fn next(&self) -> Order {
        lock(&self.deciding).next(Instant::now())
    }

    fn done(&self, done: &Done) {
        lock(&self.deciding).done(Instant::now(), done);
    }

    fn add_zero(&self, pages: u64) {
        self.zero.fetch_add(pages, Ordering::Relaxed);
    }

    fn opaque(&self, channel: ChannelId, word: &'static str, why: String) {
        lock(&self.opaque).insert(channel, (word, why));
    }

    fn expanded(&self, done: &Expanded) {
        *lock(&self.expanded) += *done;
    }

    /// What became of what arrived so far.
    pub(crate) fn report_expanded(&self) -> Expanded {
        *lock(&self.expanded)
    }

    /// What became of the bytes so far.
    pub(crate) fn report(&self) -> Reduced {
        let opaque = lock(&self.opaque).clone();
        let words = opaque.iter();
        let words = words.map(|(channel, (word, _))| (*channel, (*word).to_owned()));
        let words = words.collect();
        let whys = opaque.into_iter().map(|(channel, (_, why))| (channel, why));
        let kept = match &self.end {
            End::Source(kept, _) => lock(kept).bytes(),
            End::Destination(kept, _) => lock(kept).bytes(),
        };
        let deciding = lock(&self.deciding);
        Reduced {
            counts: deciding.counts(),
            kept,
            zero: self.zero.load(Ordering::Relaxed),
            codecs: deciding.codecs(),
            times: deciding.times(),
            decided: deciding.decided(),
            opaque: whys.collect(),
            opaque_words: words,
        }
    }
}
