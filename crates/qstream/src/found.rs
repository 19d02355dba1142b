//! What is found in a channel.

use crate::block::Block;

/// Something that a channel says of a page of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Its content follows.
    Page(Page),
    /// It is filled with one byte, usually zero, and nothing follows.
    Filled {
        /// The block that it is in.
        block: Block,
        /// Where in its block, in bytes.
        offset: u64,
    },
}

/// A page whose content is in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Where in the channel it begins, in bytes from the channel's first.
    pub begins: u64,
    /// The block that it is in.
    pub block: Block,
    /// Where in its block it is, in bytes.
    pub offset: u64,
}

/// No block of memory is as large.
const OFFSET_MOST: u64 = 1 << 52;

/// Whether a page can begin there.
pub const fn is_place(offset: u64, page_bytes: u32) -> bool {
    offset.is_multiple_of(page_bytes as u64) && offset < OFFSET_MOST
}
