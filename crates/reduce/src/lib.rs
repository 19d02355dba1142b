//! Fewer bytes for the same pages: what a guest's pages have in common is said once.
//!
//! ```text
//!  source                                                                      destination
//!  bytes of a channel ─▶ Encoder::describe ─▶ Encoder::pack ══ chunk ═▶ Decoder::unpack ─▶ fetch ─▶ expand ─▶ the same bytes
//!  and where pages are        │  ▲                codec                  codec               │  ▲
//!                             ▼  │                                                           ▼  │
//!                       source::Kept  · · · · · · · the same pages in both · · · · · ·  destination::Kept
//! ```
//!
//! A chunk is described by [operations](ops): bytes and pages as they are, pages filled with one word, pages that the
//! destination has already ([kept pages](kept), and [those that its host has stored](Stored)), and what changed of them
//! since. What has to cross as it is goes through
//! a codec, which remembers what went before it on the same channel. What is described and how it is packed is
//! separate, as the first needs the kept pages that all channels of a session share, and the second does not.
//!
//! What of it pays is [decided](decide) by what is measured.
//!
//! Pure: no clock, no I/O. Whoever uses it says what is on, and measures what it takes.
//!
//! # Invariant
//! What [`Decoder`] gives is byte for byte what [`Encoder`] took, or an error: each chunk has a checksum of what it
//! stands for. No chunk, whatever is in it, makes the decoder panic, or take more memory than [`limits`] say.

pub mod decide;
pub mod delta;
pub mod kept;
pub mod limits;
pub mod ops;

mod class;
mod codec;
mod codecs;
mod counts;
mod decoder;
mod encoder;
mod layout;
mod sample;
mod stored;
mod varint;
mod wrong;

pub use class::Class;
pub use codec::{Codec, Level, NoLevel, ZstdFailed};
pub use codecs::{OfCodec, OfCodecs, PackingTook};
pub use counts::{Counts, Section};
pub use decoder::{Checked, Decoder, Expanded, Fetched, Unpacked};
pub use encoder::{Choice, Encoder, Span};
pub use sample::Sampler;
pub use stored::{Stored, StoredId, Told};
pub use wrong::Wrong;

/// A page of a guest, by a number that is the same whenever it is sent in one migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

/// The place of a kept page, the same at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);
