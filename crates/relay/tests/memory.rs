//! The memory of one session on one host, from what bounds each part of it: as docs/SEMANTICS.md
//! gives it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bounds;

use std::time::Duration;

use bounds::{Files, MIB, Session};
use drover_relay::limits::{
    BUFFER_BYTES_MAX, CHUNK_BYTES, SPARE_BYTES_MAX, WINDOW_CHUNKS_MIN, WINDOW_TIME,
};
use drover_relay::{NotStarted, Policy, Reduction, Relay, Settings, Sizes, sizes};
use drover_session::limits::QUEUE_TIME;
use drover_types::BitRate;
use drover_wire::limits::{CHANNELS_MAX, CHUNK_BYTES_MAX, LANES_MAX, WINDOW_CHUNKS_MAX};

/// What docs/SEMANTICS.md promises beside the windows.
const PROMISED: u64 = 64 * MIB;

/// What it promises beside `migration.reduction_memory` where bytes are reduced, at either end: with the most channels that an agent
/// opens, and with six.
const PROMISED_REDUCED: u64 = 96 * MIB;
const PROMISED_WITH_SIX: u64 = 48 * MIB;

/// Of an agent: 16 of QEMU's, and three.
const CHANNELS_OF_AGENTS: u64 = 19;

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
    let (lanes, channels) = (u64::from(LANES_MAX), u64::from(CHANNELS_MAX));
    let session = Session {
        chunk_bytes: SPARE_BYTES_MAX / (lanes + channels),
        lanes,
        channels,
    };
    let needed = session.beside_the_windows();
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

/// What agents agree on with 256 MiB of `migration.reduction_memory` at both ends (`droverd::migration::reduction`).
fn agreed(channels: u64) -> Reduction {
    let (memory, stored) = (256 * MIB, 32 * MIB);
    let fits = |log: &u32| channels * (2 << *log) + stored + memory / 2 <= memory;
    let window_log = (17..=22).rev().find(fits).unwrap();
    let kept = (memory - stored - channels * (2 << window_log)) / 4096;
    Reduction {
        page_bytes: 4096,
        kept_pages: kept as u32,
        window_log,
        stored_pages: (stored / bounds::KNOWN_BYTES) as u32,
        policy: Policy::Fastest,
    }
}

#[test]
fn what_is_reduced_stored_and_recorded_at_once_takes_no_more_than_is_said() {
    for (channels, promised) in [
        (CHANNELS_OF_AGENTS, PROMISED_REDUCED),
        (6, PROMISED_WITH_SIX),
    ] {
        let session = Session {
            chunk_bytes: CHUNK_BYTES.into(),
            lanes: LANES_MAX.into(),
            channels,
        };
        let agreed = agreed(channels);
        let told = agreed.stored_pages.into();
        let memory = bounds::agreed_memory(&agreed, channels, told);
        assert!(memory <= 256 * MIB, "{agreed:?}");
        // What goes by the pages that are in files is promised for each of them.
        let none = Files::default();
        let ends = [
            session.reduced_at_source(&agreed, none),
            session.reduced_at_destination(&agreed, none),
        ];
        println!("{channels} channels: {ends:?} bytes at source and destination");
        assert!(ends.iter().all(|end| *end < promised), "{ends:?}");
    }
}
