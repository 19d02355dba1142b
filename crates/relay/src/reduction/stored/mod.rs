//! Pages that the destination's host has stored, of whatever guest: the destination tells which, and the source refers to
//! them.
//!
//! ```text
//!  destination: files of pages ─▶ teller ═ a channel ═▶ source: Known ─▶ Reducer: "stored page 7"
//!                  ▲                                                          ║ chunk
//!                  └── Filling ◀── pages that crossed as they are ── Expander ◀
//! ```
//! The source stores pages, too, where the guest is to find them when it comes back: all that leave, through a Filling of its own.
//!
//! Of a guest that comes back, what changed of a page crosses where the source knows how it was when the guest arrived there: the
//! destination of the first trip records that, and gives it as the source of the return.
//!
//! ```text
//!  arrives: chunk ─▶ Expander ─▶ Tap ─▶ Recording ─▶ baseline      leaves again: baseline ─▶ Bases ─▶ Reducer: "stored page 7, changed"
//! ```
//!
//! The destination tells first a key, then the digest of each page, the first of which has number 0. That goes over a channel
//! of the relays' own, which no QEMU sees, opened by the source right behind QEMU's main one.
//! The source never says anything there; the destination tells until the main channel has ended.
//!
//! # Invariant
//! A number stands for the same page as long as the session lasts: it is given before it is told, and the files neither
//! change nor forget a page. What is told late, lost or left out costs bytes, and nothing else.

mod background;
mod bases;
mod behind;
mod filling;
mod held;
mod known;
mod patient;
mod store;

use std::fs::File;

use drover_pagestore::{DigestKey, SealKey, Segment};
use serde::{Deserialize, Serialize};

pub use bases::BaselineFile;
pub(crate) use bases::{Bases, Recording, Tap};
pub use behind::Behind;
pub(crate) use filling::Filling;
pub(crate) use known::Known;
pub(crate) use store::Store;

/// A file of pages that a host has stored, or stores.
#[derive(Debug)]
pub struct StoredFile {
    /// The file, as [`drover_pagestore::Segment`] reads it.
    pub file: File,
    /// The key of its digests.
    pub key: DigestKey,
    /// The key of its pages, where they are sealed.
    pub seal: Option<SealKey>,
    /// Whether pages that cross are added to it.
    pub fill: bool,
    /// Bytes of pages that may wait to be added, beyond which they are left out; at least
    /// [`STORED_WAITING_BYTES`](crate::limits::STORED_WAITING_BYTES).
    pub waiting_bytes: u64,
}

/// A file of pages that is of no use to a session.
#[derive(Debug, thiserror::Error)]
pub enum NotAdded {
    /// Nobody wants it.
    #[error("stored pages were not agreed on, or this is the source, where pages are only added")]
    NotAgreed,
    /// It is none.
    #[error("the file of stored pages cannot be used")]
    Segment(#[from] drover_pagestore::NoSegment),
    /// It is one for others.
    #[error("it has pages of {found} bytes, and this guest of {wanted}")]
    PageBytes {
        /// Of the file.
        found: u32,
        /// Of the guest.
        wanted: u32,
    },
    /// The source computes one digest of a page.
    #[error("its digests have another key than those of the files that are there")]
    Key,
    /// A guest has one.
    #[error("the guest's baseline is there already")]
    BaselineAlready,
    /// Pages go into one file.
    #[error("pages are added to another file already")]
    FilledAlready,
    /// No thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl StoredFile {
    /// Opens it, for pages of so many bytes.
    pub(super) fn open(
        file: File,
        seal: Option<&SealKey>,
        wanted: u32,
    ) -> Result<Segment, NotAdded> {
        let segment = Segment::open(file, seal)?;
        let found = segment.shape().page_bytes;
        if found != wanted {
            return Err(NotAdded::PageBytes { found, wanted });
        }
        Ok(segment)
    }
}

/// What became of stored pages, at one end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPages {
    /// Pages that the destination has told.
    pub told: u64,
    /// At the destination: pages that are stored there and that it does not tell; why is its trouble.
    #[serde(default)]
    pub untold: u64,
    /// At the destination: pages to which the source referred and that were read, from files that are not sealed.
    #[serde(default)]
    pub read: u64,
    /// The same, from sealed ones.
    #[serde(default)]
    pub read_sealed: u64,
    /// Pages that this guest has added: at the destination for others, at the source for its return.
    pub added: u64,
    /// Those that are still to be looked at, in memory; at the destination with those that are to be recorded.
    #[serde(default)]
    pub waiting: u64,
    /// Pages that cross and are not looked at, for want of room or time.
    pub left_out: u64,
    /// At the destination: pages that were recorded as they arrived, as often as they were. At the source: those of the baseline.
    #[serde(default)]
    pub recorded: u64,
    /// At the destination: pages that were not recorded, for want of room or time.
    #[serde(default)]
    pub unrecorded: u64,
    /// At the source: pages that were compared with what they were when the guest arrived here.
    #[serde(default)]
    pub compared: u64,
    /// Why fewer are told, added, recorded or compared than there could be.
    pub trouble: Option<String>,
}
