//! The bound of every size, each with its reason.

use crate::layout::HEADER_BYTES;

/// The smallest page of any architecture that QEMU migrates.
pub const PAGE_BYTES_LEAST: usize = 1 << 10;

/// The largest: as much as a packet of multifd carries.
pub const PAGE_BYTES_MOST: usize = 512 << 10;

/// Kept pages of a session: with pages of 4 KiB 16 GiB, more than any host gives.
pub const SLOTS_MOST: u32 = 1 << 22;

/// What a codec remembers of a channel, as a power of two of bytes: at most 128 MiB, zstd's own bound for a decoder that
/// was not told otherwise.
pub const WINDOW_LOG_MOST: u32 = 27;

/// At least 1 KiB: zstd's own bound.
pub const WINDOW_LOG_LEAST: u32 = 10;

/// A change larger than this part of its page is sent as the page that it makes: to find one takes time at both ends, and
/// a codec takes half of most pages by itself.
pub const DELTA_PART: usize = 2;

/// Places that are looked at for one that can be given to another page. What is on its way holds some thousand of them at
/// most, and those that are next to each other came together.
pub const PLACES_TRIED: u32 = 64;

/// What an operation takes at most, beside the bytes that it carries: its name and three numbers of 5 bytes.
const OPERATION_BYTES: usize = 16;

/// What a chunk of so many bytes can stand for whatever is in them, so that it is no longer than agreed on: all of it
/// less its header, an operation for each page and for what is between two, and what zstd adds to bytes that it cannot
/// make fewer, which is 3 bytes for 128 KiB and 20 for each section.
#[must_use]
pub const fn raw_bytes_most(chunk_bytes: usize, page_bytes: usize) -> usize {
    let operations = 2 * (chunk_bytes / page_bytes + 1) * OPERATION_BYTES;
    let codec = 2 * (20 + 3 * (chunk_bytes / (128 << 10) + 1));
    chunk_bytes.saturating_sub(HEADER_BYTES + operations + codec)
}
