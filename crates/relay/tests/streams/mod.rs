//! What the channels of a guest send, and what relays agree on for them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each of the tests' programs uses its part"
)]

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use drover_pagestore::Segment;
use drover_relay::{
    Class, Codec, DigestKey, Level, Policy, Reduction, Relay, Section, Settings, Sizes, StoredFile,
    StoredPages, Way,
};

use crate::pair::{PATIENCE, Pair, SETTINGS, content};

pub const PAGE: usize = 4096;

/// Bytes in front of a multifd channel's first packet.
pub const BEGINNING_BYTES: usize = 64;

/// Bytes in front of a packet's pages.
pub const HEADER_BYTES: usize = 1344;

/// Such settings as agents agree on, with zstd.
pub fn settings() -> Settings {
    by(Policy::Always(Way::with(Codec::Zstd(Level::USUAL))))
}

pub fn by(policy: Policy) -> Settings {
    Settings {
        sizes: Sizes {
            chunk_bytes: 64 << 10,
            window: 6,
        },
        reduction: Some(Reduction {
            page_bytes: PAGE as u32,
            kept_pages: 512,
            stored_pages: 0,
            window_log: 20,
            policy,
        }),
        ..SETTINGS
    }
}

/// A page of a guest: text, one word, numbers or noise.
pub fn page(at: u32) -> Vec<u8> {
    let text = match at % 4 {
        0 => format!("page {at}: the same words, again and again. ").repeat(200),
        1 => format!("{:08}", at / 8).repeat(512),
        2 => (0..PAGE as u32).map(|n| format!("{},", n * at)).collect(),
        _ => return content(at as u8, PAGE),
    };
    text.into_bytes()[..PAGE].to_vec()
}

/// Pages of a guest by their numbers.
pub type Pages = Vec<(u64, Vec<u8>)>;

/// A packet of multifd with these pages.
pub fn packet(pages: &Pages) -> Vec<u8> {
    let count = pages.len() as u32;
    let words = [0x1122_3344, 1, 0, 128, count, count * PAGE as u32, 0, 1, 0];
    let mut bytes: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    bytes.resize(64, 0);
    bytes.extend(b"pc.ram");
    bytes.resize(320, 0);
    let offsets = pages.iter().map(|(at, _)| at * PAGE as u64);
    bytes.extend(offsets.flat_map(u64::to_be_bytes));
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend(pages.iter().flat_map(|(_, page)| page));
    bytes
}

/// What a channel of multifd sends: these pages, in packets of so many.
pub fn multifd(packets: &[Pages]) -> Vec<u8> {
    let mut bytes = [0x1122_3344_u32, 1].map(u32::to_be_bytes).concat();
    bytes.resize(BEGINNING_BYTES, 0);
    bytes.extend(packets.iter().flat_map(packet));
    bytes
}

/// Three rounds over the channel's share of a guest's pages, in each of which a part of each page was changed.
pub fn rounds(channel: u32) -> Vec<u8> {
    rounds_of(channel, &[0, 1, 2])
}

/// The same of these rounds.
pub fn rounds_of(channel: u32, numbers: &[u8]) -> Vec<u8> {
    let share = |n| {
        round(n)
            .into_iter()
            .skip(channel as usize)
            .step_by(2)
            .collect()
    };
    let packets: Vec<_> = numbers
        .iter()
        .map(|number| share(*number))
        .flat_map(|pages: Vec<_>| pages.chunks(37).map(<[_]>::to_vec).collect::<Vec<_>>())
        .collect();
    multifd(&packets)
}

/// All pages of a guest, in each of which a part was changed since the round before.
pub fn round(round: u8) -> Pages {
    static BEFORE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..400).map(page).collect());
    let changed = |page: &Vec<u8>| {
        let mut page = page.clone();
        page[100..150].fill(round);
        page
    };
    (0..).zip(BEFORE.iter().map(changed)).collect()
}

/// What a guest sends that moves over one channel, in three rounds.
pub fn one_channel() -> Vec<u8> {
    main_channel(&[0, 1, 2].map(round))
}

/// What the main channel sends: these parts of a guest's memory, then its devices.
pub fn main_channel(parts: &[Pages]) -> Vec<u8> {
    let mut bytes = b"QEVM\0\0\0\x03".to_vec();
    bytes.extend(b"\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04");
    bytes.extend(0x1000_0004_u64.to_be_bytes());
    bytes.extend(b"\x06pc.ram");
    bytes.extend(0x1000_0000_u64.to_be_bytes());
    part_ends(&mut bytes);
    let mut names = &b"\x06pc.ram"[..];
    for (pages, at) in parts.iter().zip(1..) {
        let kind = if at == parts.len() { 3 } else { 2 };
        bytes.extend([kind, 0, 0, 0, 2]);
        for (at, page) in pages {
            let flags = if names.is_empty() { 0x28 } else { 0x08 };
            bytes.extend((at * PAGE as u64 + flags).to_be_bytes());
            bytes.extend(std::mem::take(&mut names));
            bytes.extend(page);
        }
        part_ends(&mut bytes);
    }
    if parts.is_empty() {
        bytes.extend([3, 0, 0, 0, 2]);
        part_ends(&mut bytes);
    }
    bytes.extend(b"\x04\0\0\0\x05\x05timer");
    bytes.extend(b"a device and its state, ".repeat(20_000));
    bytes
}

fn part_ends(bytes: &mut Vec<u8>) {
    bytes.extend(0x10_u64.to_be_bytes());
    bytes.extend([0x7e, 0, 0, 0, 2]);
}

/// The same, where the destination tells of stored pages.
pub fn telling(settings: Settings) -> Settings {
    let reduction = settings.reduction.map(|agreed| Reduction {
        stored_pages: 2000,
        ..agreed
    });
    Settings {
        reduction,
        ..settings
    }
}

pub fn stored(segment: &Segment, fill: bool) -> StoredFile {
    StoredFile {
        file: segment.file().try_clone().unwrap(),
        key: DigestKey::new([7; 32]),
        seal: None,
        fill,
        waiting_bytes: 0,
    }
}

/// What both ends tell of the codecs and of what was expanded fits what these channels sent and what crossed.
pub fn adds_up(pair: &Pair, sent: &[Vec<u8>]) {
    let near = pair.source.report();
    let reduced = near.reduced.unwrap();
    let of = |class| {
        let mut section = Section::default();
        for of in reduced.codecs.iter().filter(|of| of.class == class) {
            section += of.section;
        }
        section
    };
    let counts = reduced.counts;
    assert_eq!(of(Class::Ordinary), counts.ordinary_section);
    assert_eq!(of(Class::Dense), counts.dense_section);
    let report = pair.destination.report();
    let expanded = report.expanded.unwrap();
    let sent: usize = sent.iter().map(Vec::len).sum();
    assert_eq!(expanded.raw, sent as u64);
    assert_eq!(expanded.wire, report.session.written_bytes());
    assert_eq!(expanded.chunks, counts.chunks);
    assert!(expanded.passed >= counts.passed, "{expanded:?} {counts:?}");
    assert_eq!(near.expanded, None);
    // However often lanes were lost, each byte is new once.
    let (lanes, forgotten) = (&near.session.lanes, &near.session.forgotten);
    let new = lanes.iter().map(|lane| lane.sent_bytes);
    let new = new.chain(forgotten.iter().map(|gone| gone.sent_bytes));
    assert_eq!(new.sum::<u64>(), expanded.wire);
    let again = lanes.iter().map(|lane| lane.resent_bytes);
    let again = again.chain(forgotten.iter().map(|gone| gone.resent_bytes));
    let of_channels = near.session.channels.iter();
    assert_eq!(
        again.sum::<u64>(),
        of_channels.map(|channel| channel.resent_bytes).sum::<u64>()
    );
}

/// Waits until something is so.
pub fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it is not so");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn of_stored(relay: &Relay) -> StoredPages {
    relay.report().stored.unwrap()
}
