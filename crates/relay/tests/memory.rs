//! The memory of one session on one host, from what bounds each part of it: as docs/SEMANTICS.md
//! gives it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::time::Duration;

use drover_lanes::limits::{
    READ_BYTES, RECORD_BYTES_MAX, RECORD_OVERHEAD, SEAL_BYTES, TLS_WORDS_BYTES,
};
use drover_relay::limits::{
    BUFFER_BYTES_MAX, CHUNK_BYTES, PIPE_SEGMENT_BYTES, SPARE_BYTES_MAX, WINDOW_CHUNKS_MIN,
    WINDOW_TIME,
};
use drover_relay::{NotStarted, Relay, Settings, Sizes, sizes};
use drover_session::limits::{FORGOTTEN_PATHS, LOST_LANES_KEPT, QUEUE_TIME};
use drover_types::BitRate;
use drover_wire::limits::{CHANNELS_MAX, CHUNK_BYTES_MAX, LANES_MAX, WINDOW_CHUNKS_MAX};

const MIB: u64 = 1 << 20;

/// What docs/SEMANTICS.md promises beside the windows.
const PROMISED: u64 = 64 * MIB;

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

/// A lane's own: TLS both ways, with a record that was decrypted and not taken.
fn tls_bytes() -> u64 {
    let out = TLS_WORDS_BYTES + SEAL_BYTES + (SEAL_BYTES >> 14) * RECORD_OVERHEAD;
    (out + READ_BYTES + RECORD_BYTES_MAX) as u64
}

/// Slots of the pipe of the largest chunk that all channels and lanes may have.
fn slots() -> u64 {
    let chunk = SPARE_BYTES_MAX / u64::from(CHANNELS_MAX + LANES_MAX);
    (chunk / u64::from(PIPE_SEGMENT_BYTES) + 2).next_power_of_two()
}

/// All but the windows, for the most lanes and channels.
fn beside_the_windows() -> u64 {
    let (lanes, channels) = (u64::from(LANES_MAX), u64::from(CHANNELS_MAX));
    let threads = 2 * lanes + 2 * channels + OTHER_THREADS;
    // One for each chunk that is read or received into, and a lane's spare one.
    let pipes = (2 * lanes + channels) * slots() * SLOT_BYTES;
    SPARE_BYTES_MAX
        + lanes * tls_bytes()
        + pipes
        + threads * STACK_BYTES
        + LOST_LANES_KEPT as u64 * LOST_LANE_BYTES
        + FORGOTTEN_PATHS as u64 * FORGOTTEN_BYTES
        + PROCESS_BYTES
}

fn settings(sizes: Sizes, channels_max: u16) -> Settings {
    Settings {
        sizes,
        channels_max,
        outage_limit: Duration::ZERO,
        pass_through: true,
        verify: false,
        reduction: None,
    }
}

/// Whether a peer that asks for this gets a session.
fn is_allowed(sizes: Sizes, channels: u16) -> bool {
    let socket = std::path::Path::new("/nonexistent/migration.sock");
    match Relay::destination(settings(sizes, channels), socket, |_| {}) {
        Ok(_) => true,
        Err(NotStarted::Memory { .. } | NotStarted::Spare { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_session_needs_no_more_than_64_mib_beside_its_windows() {
    let needed = beside_the_windows();
    assert!(needed < PROMISED, "{needed}");
}

#[test]
fn the_windows_are_twice_the_bandwidth_delay_product_and_bounded() {
    assert_eq!(WINDOW_TIME, 2 * QUEUE_TIME);
    let held = |rates: &[Option<BitRate>], channels: u16| {
        let Sizes {
            chunk_bytes,
            window,
        } = sizes(rates, channels);
        u64::from(chunk_bytes) * u64::from(window) * u64::from(channels)
    };
    for (gigabits, lines) in [(1, 1), (1, 2), (10, 2), (25, 4), (100, 2), (400, 32)] {
        let rate = BitRate(gigabits * 1_000_000_000);
        let all = BitRate(rate.0 * lines as u64);
        for channels in [3, 6, 18, CHANNELS_MAX] {
            let product = all.bytes_in(QUEUE_TIME).0;
            // A channel needs some chunks, however slow the line is.
            let least = u64::from(CHUNK_BYTES) * u64::from(WINDOW_CHUNKS_MIN) * u64::from(channels);
            let most = (2 * product).max(least).min(BUFFER_BYTES_MAX.max(least));
            let held = held(&vec![Some(rate); lines], channels);
            assert!(held <= most, "{gigabits} x {lines}, {channels}: {held}");
            assert!(held <= BUFFER_BYTES_MAX);
        }
    }
}

#[test]
fn what_a_peer_may_ask_for_stays_within_the_same_bounds() {
    for chunk_bytes in [CHUNK_BYTES, 2 * CHUNK_BYTES, CHUNK_BYTES_MAX] {
        for window in [1, WINDOW_CHUNKS_MIN, 64, WINDOW_CHUNKS_MAX] {
            for channels in [1, 3, 18, CHANNELS_MAX] {
                let sizes = Sizes {
                    chunk_bytes,
                    window,
                };
                if is_allowed(sizes, channels) {
                    let chunk = u64::from(chunk_bytes);
                    let windows = chunk * u64::from(window) * u64::from(channels);
                    let spare = chunk * u64::from(channels + LANES_MAX);
                    assert!(windows <= BUFFER_BYTES_MAX && spare <= SPARE_BYTES_MAX);
                }
            }
        }
    }
    let ours = sizes(&[None; 32], 18);
    assert!(is_allowed(ours, 18), "our own sizes");
    let largest = Sizes {
        chunk_bytes: CHUNK_BYTES_MAX,
        window: 1,
    };
    assert!(!is_allowed(largest, 1), "64 lanes with chunks of 1 MiB");
}
