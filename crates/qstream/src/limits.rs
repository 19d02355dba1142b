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

/// The longest name of a machine in the main channel's configuration: QEMU's own have some twenty bytes. It is not kept.
pub const MACHINE_NAME_MOST: u32 = 255;

/// Capabilities that a configuration names at the most. QEMU 10.2 names two, and has some thirty in all.
pub const CAPABILITIES_MOST: u32 = 64;

/// Bytes that are shown at once of a channel whose pages come one by one: to copy sixteen pages takes some 6 µs, and to
/// have each of them skipped, between words of 8 bytes, takes two system calls for each, some 16 µs.
pub const SHOWN_BYTES: usize = 64 << 10;
