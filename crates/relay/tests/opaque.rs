//! Streams of QEMU that are not known from some packet on: carried as they are, and told of.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;
mod streams;

use std::os::unix::net::UnixStream;
use std::thread;

use drover_relay::{Codec, End, Policy, Settings, Way};
use pair::{Pair, Protected, content, ended, exchange, pair_of};
use streams::{BEGINNING_BYTES, PAGE, Pages, by, main_channel, multifd, packet, page, rounds};

const SYNC: u32 = 1;
const ZLIB: u32 = 1 << 1;
const ZSTD: u32 = 2 << 1;
const DEVICE_STATE: u32 = 32 << 1;

/// Pages that were there before, so that whoever went on to look would find them again.
fn pages() -> Pages {
    (0..37).map(|at| (u64::from(at), page(at))).collect()
}

/// A packet whose number of that place is another one.
fn with(word: usize, value: u32) -> Vec<u8> {
    let mut bytes = packet(&pages());
    bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// What QEMU compressed by itself: a header that says how much follows, and what no decoder of ours is shown.
fn compressed(flags: u32) -> Vec<u8> {
    let body = content(5, 3000);
    let mut bytes = with(2, flags);
    bytes.truncate(streams::HEADER_BYTES);
    bytes[20..24].copy_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A device's state, as QEMU 10.0 lays it out: header 12, name 256, instance u32, bytes that follow u32.
fn device_state() -> Vec<u8> {
    let state = content(6, 20_000);
    let head = [0x1122_3344, 1, DEVICE_STATE | SYNC].map(u32::to_be_bytes);
    let mut bytes = head.concat();
    bytes.extend(b"0000:00:02.0/vfio");
    bytes.resize(12 + 256, 0);
    let words = [0, state.len() as u32].map(u32::to_be_bytes);
    bytes.extend(words.concat());
    bytes.extend(state);
    bytes
}

/// What comes in the middle of a channel, and what is told of it.
fn strange() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (with(0, 0x1122_3345), "a packet begins with 0x11223345"),
        (with(1, 2), "its version of multifd is 2, known is 1"),
        (with(2, 1 << 9), "a packet has the flags 0x200"),
        (with(3, 256), "place for 256"),
        (compressed(ZLIB), "QEMU compresses it itself, with zlib"),
        (compressed(ZSTD), "QEMU compresses it itself, with zstd"),
        (device_state(), "it carries a device's state"),
    ]
}

/// What a channel is to carry, and both of its ends.
fn opened(pair: &Pair, bytes: Vec<u8>) -> (Vec<u8>, UnixStream, UnixStream) {
    let near = UnixStream::connect(&pair.near).unwrap();
    (bytes, near, pair.far.accept().unwrap().0)
}

/// Carries a main channel, one with that in its middle and one without; what is told of channels that are not looked into.
fn carried(settings: Settings, strange: &[u8]) -> Vec<(u16, String)> {
    let good = multifd(&[pages(), pages(), pages()]);
    let behind = [packet(&pages()), packet(&pages())].concat();
    let sent = [
        main_channel(&[]),
        [&good, strange, &behind].concat(),
        rounds(1),
    ];
    let pair = pair_of(Protected::Plain, settings);
    pair.connect();
    let channels = sent.map(|bytes| opened(&pair, bytes));
    thread::scope(|scope| {
        for (bytes, near, far) in &channels {
            scope.spawn(move || {
                let (at_far, at_near) = exchange(near, far, bytes, b"the way back");
                assert!(at_far == *bytes, "what arrived differs");
                assert_eq!(at_near, b"the way back");
            });
        }
    });
    assert_eq!(ended(&pair.source_events).0, End::Finished);
    assert_eq!(ended(&pair.destination_events).0, End::Finished);
    let reduced = pair.source.report().reduced.unwrap();
    if !settings.pass_through {
        // What came before, and the other channel, are still worth it.
        let counts = reduced.counts;
        assert!(counts.same + counts.changed > 300, "{counts:?}");
    }
    reduced.opaque
}

#[test]
fn what_is_not_known_in_the_middle_of_a_channel_arrives_unchanged_and_is_told_with_its_place() {
    let begins = BEGINNING_BYTES + 3 * packet(&pages()).len();
    for (strange, why) in strange() {
        for (codec, pass_through) in [(Some(Codec::Lz4), false), (None, true)] {
            let way = codec.map_or(Way::Off, Way::with);
            let settings = Settings {
                pass_through,
                ..by(Policy::Always(way))
            };
            let opaque = carried(settings, &strange);
            assert_eq!(opaque.len(), 1, "{why}: {opaque:?}");
            let (channel, told) = &opaque[0];
            assert_eq!(*channel, 1);
            let place = format!("from byte {begins}: ");
            assert!(told.starts_with(&place) && told.contains(why), "{told}");
        }
    }
}

#[test]
fn a_channel_of_another_version_or_of_larger_pages_arrives_unchanged_from_its_first_byte_on() {
    let mut newer = multifd(&[pages()]);
    newer[7] = 2;
    // As a guest of another architecture would send: place for eight pages of 64 KiB.
    let mut larger = multifd(&[]);
    larger.extend(with(3, 8));
    larger.extend(content(1, 16 * PAGE));
    for (sent, from) in [(newer, 0), (larger, BEGINNING_BYTES)] {
        let pair = pair_of(Protected::ByTls, streams::settings());
        pair.connect();
        let near = UnixStream::connect(&pair.near).unwrap();
        let far = pair.far.accept().unwrap().0;
        let (at_far, _) = exchange(&near, &far, &sent, b"");
        assert!(at_far == sent, "what arrived differs");
        let opaque = pair.source.report().reduced.unwrap().opaque;
        assert!(
            opaque[0].1.starts_with(&format!("from byte {from}: ")),
            "{opaque:?}"
        );
    }
}

#[test]
fn a_main_channel_of_a_qemu_never_seen_arrives_unchanged_and_is_told_and_the_others_are_reduced() {
    let mut unknown = main_channel(&[pages()]);
    unknown[4..8].copy_from_slice(&99_u32.to_be_bytes());
    let sent = [unknown, multifd(&[pages(), pages(), pages()])];
    let pair = pair_of(Protected::ByTls, streams::settings());
    pair.connect();
    let channels = sent.map(|bytes| opened(&pair, bytes));
    thread::scope(|scope| {
        for (bytes, near, far) in &channels {
            scope.spawn(move || {
                let (at_far, _) = exchange(near, far, bytes, b"");
                assert!(at_far == *bytes, "what arrived differs");
            });
        }
    });
    let reduced = pair.source.report().reduced.unwrap();
    assert_eq!(reduced.opaque.len(), 1, "{:?}", reduced.opaque);
    let (channel, told) = &reduced.opaque[0];
    assert_eq!(*channel, 0);
    assert!(
        told.starts_with("from byte 0: ") && told.contains("99"),
        "{told}"
    );
    assert!(reduced.counts.same > 30, "{:?}", reduced.counts);
}

/// The place of a page, of the block of the one before, and what QEMU has made of it by itself.
fn own_word(flags: u64) -> Vec<u8> {
    (0x5000 | 0x20 | flags).to_be_bytes().to_vec()
}

/// What QEMU sends of a page in a guest's one channel where it does not send the page, and what is told of it.
fn made_by_qemu() -> [(Vec<u8>, &'static str); 3] {
    let body = content(7, 900);
    // Its kind, and how many bytes follow.
    let changed = [&own_word(0x40)[..], &[1, 3, 132], &body].concat();
    let packed = [&own_word(0x100)[..], &[0, 0, 3, 132], &body].concat();
    [
        (changed, "QEMU itself sends what changed in pages (xbzrle)"),
        (packed, "QEMU compresses it itself, with zlib"),
        (own_word(0x80), "pages go another way"),
    ]
}

#[test]
fn what_qemu_makes_of_pages_in_its_one_channel_arrives_unchanged_and_is_told_with_its_place() {
    let good = main_channel(&[pages(), pages()]);
    let ends = [&0x10_u64.to_be_bytes()[..], &[0x7e, 0, 0, 0, 2]].concat();
    let begins = good.windows(ends.len()).rposition(|bytes| bytes == ends);
    let (before, after) = good.split_at(begins.unwrap());
    for (made, why) in made_by_qemu() {
        let pair = pair_of(Protected::ByTls, streams::settings());
        pair.connect();
        let (sent, near, far) = opened(&pair, [before, &made, after].concat());
        let (at_far, at_near) = exchange(&near, &far, &sent, b"the way back");
        assert!(at_far == sent, "what arrived differs");
        assert_eq!(at_near, b"the way back");
        let reduced = pair.source.report().reduced.unwrap();
        let told = format!("from byte {}: ", before.len());
        assert_eq!(reduced.opaque.len(), 1, "{why}: {:?}", reduced.opaque);
        let (channel, opaque) = &reduced.opaque[0];
        assert_eq!(*channel, 0);
        assert!(
            opaque.starts_with(&told) && opaque.contains(why),
            "{opaque}"
        );
        // Pages before it were found, those that were there already.
        assert!(reduced.counts.same > 15, "{:?}", reduced.counts);
    }
}
