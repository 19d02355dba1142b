//! The bound of every size, each with its reason.

use crate::multifd;

/// What a packet carries at most: `MULTIFD_PACKET_SIZE` of QEMU 7.2 to 10.2. The size of a page follows from it and
/// the number of pages that a packet has place for.
pub const PACKET_BYTES: u32 = 512 << 10;

/// The smallest page of any architecture that QEMU migrates (SPARC, older ARM).
pub const PAGE_BYTES_LEAST: u32 = 1 << 10;

/// Pages in a packet: as many of the smallest.
pub const PACKET_PAGES_MOST: u32 = PACKET_BYTES / PAGE_BYTES_LEAST;

/// The longest header: its fixed part, and 8 bytes for each page.
pub const HEADER_BYTES_MOST: usize = multifd::FIXED_BYTES + 8 * PACKET_PAGES_MOST as usize;
