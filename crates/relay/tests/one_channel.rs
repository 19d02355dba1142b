//! Guests that move over QEMU's main channel alone, between two relays that agreed to reduce.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;
mod streams;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

use drover_pagestore::{Segment, shape_within};
use drover_reduce::Counts;
use drover_relay::{Codec, Level, Policy, Settings, Way};
use pair::{BOTH, PATIENCE, Pair, Protected, exchange, pair_of};
use streams::{
    PAGE, by, main_channel, of_stored, one_channel, round, settings, stored, telling, until,
};

/// Every way, with bytes in memory and in the kernel.
fn all_settings() -> impl Iterator<Item = (Protected, Settings)> {
    let zstd = Way::with(Codec::Zstd(Level::USUAL));
    let ways = [
        Way::Off,
        Way::with(Codec::None),
        Way::with(Codec::Lz4),
        zstd,
    ];
    let policies = ways.map(Policy::Always).into_iter();
    policies.chain([Policy::Fastest]).flat_map(|policy| {
        BOTH.map(|protected| {
            let pass_through = protected == Protected::Plain;
            let settings = Settings {
                pass_through,
                ..by(policy)
            };
            (protected, settings)
        })
    })
}

/// Carries what the guest's one channel sends, once that has returned, and holds what arrives against it.
fn carries_once(pair: &Pair, ready: impl FnOnce()) -> Counts {
    pair.connect();
    let near = UnixStream::connect(&pair.near).unwrap();
    let far = pair.far.accept().unwrap().0;
    ready();
    let sent = one_channel();
    let (at_far, _) = exchange(&near, &far, &sent, b"the way back");
    assert!(at_far == sent, "what arrived differs");
    let reduced = pair.source.report().reduced.unwrap();
    // Devices are where pages end, and no trouble.
    assert_eq!(reduced.opaque, []);
    reduced.counts
}

#[test]
fn a_guest_that_moves_over_one_channel_arrives_as_it_was_sent_by_every_way() {
    for (protected, settings) in all_settings() {
        let pair = pair_of(protected, settings);
        carries_once(&pair, || {});
    }
}

#[test]
fn pages_that_come_one_by_one_are_found_and_take_a_fraction() {
    for protected in BOTH {
        let pair = pair_of(protected, settings());
        let counts = carries_once(&pair, || {});
        let pages = counts.filled + counts.same + counts.changed + counts.ordinary + counts.dense;
        assert_eq!(pages, 1200);
        assert!(counts.same + counts.changed > 600, "{counts:?}");
        assert!(counts.wire * 4 < counts.raw, "{counts:?}");
    }
}

#[test]
fn a_guest_over_one_channel_finds_the_pages_that_it_brought_before() {
    let segment = Segment::in_memory(shape_within(16 << 20, PAGE as u32, false).unwrap()).unwrap();
    let settings = telling(by(Policy::Always(Way::with(Codec::None))));
    let first = pair_of(Protected::ByTls, settings);
    first
        .destination
        .add_stored(stored(&segment, true))
        .unwrap();
    let before = carries_once(&first, || {});
    until(|| of_stored(&first.destination).added >= 250);
    let again = pair_of(Protected::ByTls, settings);
    let there = u64::from(segment.count().unwrap());
    let counts = carries_once(&again, || {
        let file = stored(&segment, false);
        again.destination.add_stored(file).unwrap();
        until(|| of_stored(&again.source).told >= there);
    });
    assert!(counts.stored >= 250, "{counts:?}");
    let devices = b"a device and its state, ".len() as u64 * 20_000;
    assert!(
        (counts.wire - devices) * 4 < before.wire - devices,
        "{counts:?} {before:?}"
    );
}

#[test]
fn nothing_but_the_beginning_of_a_page_waits_for_what_comes_next() {
    for (protected, settings) in all_settings() {
        let pair = pair_of(protected, settings);
        pair.connect();
        let near = UnixStream::connect(&pair.near).unwrap();
        let mut far = pair.far.accept().unwrap().0;
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent = main_channel(&[round(0)]);
        // A word of its header, the first page's word, two pages, a half of a word, a page and a word, its end.
        let first = sent
            .windows(7)
            .rposition(|name| name == b"\x06pc.ram")
            .unwrap()
            + 7;
        let page = PAGE + 8;
        let stops = [
            9,
            first,
            first + PAGE + page,
            first + PAGE + page + 4,
            first + 4 * page,
        ];
        let mut arrived = Vec::new();
        for stop in stops.into_iter().chain([sent.len()]) {
            let next = &sent[arrived.len()..stop];
            thread::scope(|scope| {
                scope.spawn(|| (&near).write_all(next).unwrap());
                let begins = arrived.len();
                arrived.resize(stop, 0);
                far.read_exact(&mut arrived[begins..]).unwrap();
            });
            assert!(arrived == sent[..stop], "what arrived differs");
        }
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
