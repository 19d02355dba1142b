//! Pages of guests in files, found by their digest or by their address.
//!
//! ```text
//!  Filler, in one process ──┐                 ┌──▶ Segment, in one process: digests of the first N pages, a page by its number
//!  Filler, in another ──────┴──▶ one file ────┴──▶ Segment, in another
//! ```
//! A [`Segment`] is a file with room for so many pages. [`Filler`]s of several processes add pages to it, each page once,
//! and never change or remove one that is there: so the number of a page stands for the same content as long as there is
//! a descriptor of the file, and a reader needs no lock. Where the file has no name, it is gone with its last descriptor.
//!
//! On a disk pages are sealed with a [key](SealKey) of their file, so that nobody reads them who does not have it.
//!
//! A [`Baseline`] has the pages of one guest by their address, in the last version that was recorded of each, for one process at a
//! time.
//!
//! A page of a segment is known by its [`Digest`], which depends on a [secret key](DigestKey): who does not have the key cannot make two
//! pages of one digest, nor tell from a digest whether a page is there.

mod at_once;
mod baseline;
mod digest;
mod filler;
mod known;
mod layout;
mod seal;
mod segment;

pub use baseline::{Baseline, Recorder};
pub use digest::{DIGEST_BYTES, Digest, DigestKey, KEY_BYTES};
pub use filler::{Added, Filler};
pub use known::KnownDigests;
pub use layout::{NoSegment, Shape, shape_within};
pub use seal::{SEAL_KEY_BYTES, SealKey};
pub use segment::Segment;
