//! The memory of one end of a session, from what bounds each part of it: as docs/SEMANTICS.md gives it.

#![allow(dead_code, reason = "each of the tests' programs uses its part")]

use drover_lanes::limits::{
    READ_BYTES, RECORD_BYTES_MAX, RECORD_OVERHEAD, SEAL_BYTES, TLS_WORDS_BYTES,
};
use drover_reduce::limits::{FINDING_BYTES, PACKING_BYTES, SAMPLING_BYTES, UNPACKING_BYTES};
use drover_relay::Reduction;
use drover_relay::limits::{PIPE_SEGMENT_BYTES, STORED_WAITING_BYTES};
use drover_session::limits::{FORGOTTEN_PATHS, LOST_LANES_KEPT};

pub const MIB: u64 = 1 << 20;

/// A slot of a pipe, in the kernel.
const SLOT_BYTES: u64 = 40;

/// Of a thread's stack that was ever touched. They do not recurse, and have no large arrays.
const STACK_BYTES: u64 = 32 << 10;

/// Two for each lane and each channel, and those of the relay and its process: timer, accept, dial,
/// count, the process' own and a few that open lanes.
const OTHER_THREADS: u64 = 8;

/// Counters of a lane that is gone, with the reason.
const LOST_LANE_BYTES: u64 = 512;

/// What the lanes of a path carried before that, with what a map takes for it.
const FORGOTTEN_BYTES: u64 = 128;

/// Program, allocator and what the agent did not take yet (`drover_carrier::limits::UNREAD_BYTES` and a
/// line).
const PROCESS_BYTES: u64 = 8 * MIB;

/// To know a digest (`drover_pagestore::KnownDigests`).
pub const KNOWN_BYTES: u64 = 23;

/// To know where a page of a baseline is that is recorded (`drover_pagestore::Recorder`): 14 when all are there, and slots that
/// were doubled for those that come.
pub const RECORDED_BYTES: u64 = 20;

/// To know where a page of a baseline is that is compared with (`drover_pagestore::Baseline`), and to read it ahead.
pub const COMPARED_BYTES: u64 = 16;
const WARMED_BYTES: u64 = MIB;

/// Chunks of pages on their way to a file, beside those that wait: the one that is put together, the one that is written, and what
/// that is once it is sealed.
const WRITTEN_CHUNKS: u64 = 3;

/// What a channel works on at the source: what it reads, and both sections of what it describes.
const SOURCE_CHUNKS: u64 = 3;

/// The same at the destination: both sections, stored pages, and what they give.
const DESTINATION_CHUNKS: u64 = 4;

/// What determines how much a session takes.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    pub chunk_bytes: u64,
    pub lanes: u64,
    pub channels: u64,
}

/// What is in files of pages at one end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files {
    /// In the one that pages are added to.
    pub stored: u64,
    /// In the guest's baseline.
    pub baseline: u64,
}

/// A lane's own: TLS both ways, with a record that was decrypted and not taken.
fn tls_bytes() -> u64 {
    let out = TLS_WORDS_BYTES + SEAL_BYTES + (SEAL_BYTES >> 14) * RECORD_OVERHEAD;
    (out + READ_BYTES + RECORD_BYTES_MAX) as u64
}

impl Session {
    /// All but the windows, and but for what reduction takes.
    pub fn beside_the_windows(self) -> u64 {
        let Self {
            chunk_bytes,
            lanes,
            channels,
        } = self;
        let threads = 2 * lanes + 2 * channels + OTHER_THREADS;
        // One for each chunk that is read or received into, and a lane's spare one.
        let pipes = (2 * lanes + channels) * self.slots() * SLOT_BYTES;
        chunk_bytes * (lanes + channels)
            + lanes * tls_bytes()
            + pipes
            + threads * STACK_BYTES
            + LOST_LANES_KEPT as u64 * LOST_LANE_BYTES
            + FORGOTTEN_PATHS as u64 * FORGOTTEN_BYTES
            + PROCESS_BYTES
    }

    /// Slots of a chunk's pipe.
    fn slots(self) -> u64 {
        (self.chunk_bytes / u64::from(PIPE_SEGMENT_BYTES) + 2).next_power_of_two()
    }

    /// What reduction takes at the source beside `migration.reduction_memory`.
    pub fn reduced_at_source(self, agreed: &Reduction, files: Files) -> u64 {
        let window = 1_u64 << agreed.window_log;
        // A window of each is in the memory that was agreed on, and as much again.
        let tables = (PACKING_BYTES as u64).saturating_sub(window);
        u64::from(agreed.kept_pages) * FINDING_BYTES as u64
            + self.channels * (tables + SOURCE_CHUNKS * self.chunk_bytes)
            + 2 * self.channels * u64::from(agreed.page_bytes)
            + SAMPLING_BYTES as u64
            + self.stores(files.stored)
            + files.baseline * COMPARED_BYTES
            + WARMED_BYTES
    }

    /// The same at the destination.
    pub fn reduced_at_destination(self, agreed: &Reduction, files: Files) -> u64 {
        let window = 1_u64 << agreed.window_log;
        let blocks = (UNPACKING_BYTES as u64).saturating_sub(window);
        u64::from(agreed.kept_pages)
            + self.channels * (blocks + DESTINATION_CHUNKS * self.chunk_bytes)
            + self.stores(files.stored)
            + self.waits()
            + files.baseline * RECORDED_BYTES
    }

    /// Pages are added to a file that has so many.
    fn stores(self, pages: u64) -> u64 {
        self.waits() + pages * KNOWN_BYTES
    }

    /// Pages wait to be written to a file.
    fn waits(self) -> u64 {
        STORED_WAITING_BYTES + WRITTEN_CHUNKS * self.chunk_bytes
    }
}

/// `migration.reduction_memory`, as it is divided: kept pages, two windows for each channel, and digests of stored pages at the source.
pub fn agreed_memory(agreed: &Reduction, channels: u64, told: u64) -> u64 {
    u64::from(agreed.kept_pages) * u64::from(agreed.page_bytes)
        + channels * (2 << agreed.window_log)
        + told * KNOWN_BYTES
}
