//! Channels of multifd, built byte by byte, whole and in pieces, and what is not quite one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod model;

use drover_qstream::{Block, Compression, Found, Kind, Opaque, Page};
use model::{fed, fed_with, glanced, pieces};
use proptest::prelude::*;

const PAGE: u32 = 4096;
const PLACE: u32 = 128;
const HEADER: usize = 1344;

/// A packet as QEMU lays it out.
#[derive(Debug, Clone)]
struct Sent {
    magic: u32,
    version: u32,
    flags: u32,
    place: u32,
    /// Offsets that the header has, whatever it says.
    slots: usize,
    normal: u32,
    following: u32,
    zero: u32,
    reserved: u8,
    block: &'static [u8],
    offsets: Vec<u64>,
}

impl Sent {
    fn pages(pages: &[u64], zeros: &[u64]) -> Self {
        let normal = u32::try_from(pages.len()).unwrap();
        Self {
            magic: 0x1122_3344,
            version: 1,
            flags: 0,
            place: PLACE,
            slots: 128,
            normal,
            following: normal * PAGE,
            zero: u32::try_from(zeros.len()).unwrap(),
            reserved: 0,
            block: b"pc.ram",
            offsets: [pages, zeros].concat(),
        }
    }

    fn sync() -> Self {
        Self {
            flags: 1,
            block: b"",
            ..Self::pages(&[], &[])
        }
    }

    fn header(&self) -> Vec<u8> {
        let words = [
            self.magic,
            self.version,
            self.flags,
            self.place,
            self.normal,
            self.following,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(self.zero.to_be_bytes());
        bytes.extend([self.reserved; 28]);
        let mut name = [0; 256];
        name[..self.block.len()].copy_from_slice(self.block);
        bytes.extend(name);
        // What an earlier packet had there stays.
        let mut offsets = self.offsets.clone();
        offsets.resize(self.slots, 0xdead_0000);
        bytes.extend(offsets.iter().flat_map(|offset| offset.to_be_bytes()));
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        let pages = usize::try_from(self.normal * PAGE).unwrap();
        bytes.extend((0..pages).map(|at| (at % 251) as u8));
        bytes
    }
}

fn beginning() -> Vec<u8> {
    let mut bytes = [0x1122_3344_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    bytes.extend([0xab; 16]);
    bytes.push(3);
    bytes.resize(64, 0);
    bytes
}

fn channel(packets: &[Sent]) -> Vec<u8> {
    let packets = packets.iter().flat_map(Sent::bytes);
    beginning().into_iter().chain(packets).collect()
}

/// Pages of `pc.ram` one after the other, then pages of zeros.
fn wanted(begins: u64, pages: &[u64], zeros: &[u64]) -> Vec<Found> {
    let block = Block::named(b"pc.ram");
    let pages = pages.iter().zip(0..).map(|(offset, at)| {
        Found::Page(Page {
            begins: begins + at * u64::from(PAGE),
            block,
            offset: *offset,
        })
    });
    let zeros = zeros.iter().map(|offset| Found::Filled {
        block,
        offset: *offset,
    });
    pages.chain(zeros).collect()
}

fn opaque(bytes: &[u8]) -> (u64, Opaque) {
    let (channel, _) = fed([bytes]);
    match channel.kind() {
        Kind::Opaque { from, why } => (from, why),
        kind => panic!("{kind:?}"),
    }
}

/// That of a channel whose second packet is this one, which begins at its second argument.
fn opaque_at(sent: &Sent) -> Opaque {
    let first = Sent::pages(&[0], &[]);
    let begins = 64 + first.bytes().len() as u64;
    let (from, why) = opaque(&channel(&[first, sent.clone()]));
    assert_eq!(from, begins, "{why}");
    why
}

#[test]
fn each_packet_is_told_with_where_its_pages_are() {
    let bytes = channel(&[
        Sent::pages(&[0x1000, 0x5000], &[0x2000]),
        Sent::sync(),
        Sent::pages(&[0], &[]),
    ]);
    let (channel, found) = fed([&bytes[..]]);
    assert_eq!(channel.kind(), Kind::Multifd);
    assert_eq!(channel.passed(), bytes.len() as u64);
    let last = bytes.len() as u64 - u64::from(PAGE);
    let all = [
        wanted(64 + HEADER as u64, &[0x1000, 0x5000], &[0x2000]),
        wanted(last, &[0], &[]),
    ];
    assert_eq!(found, all.concat());
}

#[test]
fn a_full_packet_and_one_of_large_pages_are_read() {
    let all: Vec<u64> = (0..128).map(|page| page * 4096).collect();
    let (_, found) = fed([&channel(&[Sent::pages(&all, &[])])[..]]);
    assert_eq!(found, wanted(64 + HEADER as u64, &all, &[]));
    // Pages of 64 KiB: place for eight.
    let large = Sent {
        place: 8,
        slots: 8,
        following: 65_536,
        ..Sent::pages(&[65_536], &[])
    };
    let (_, found) = fed_with(65_536, [&[beginning(), large.header()].concat()[..]]);
    assert_eq!(found, wanted(64 + 384, &[65_536], &[]));
}

#[test]
fn packets_that_only_end_a_round_are_those_of_each_version() {
    // 10.0 leaves all but the flags empty; 7.2 leaves what followed the packet before.
    let newer = Sent {
        place: 0,
        ..Sent::sync()
    };
    let older = Sent {
        following: 524_288,
        ..Sent::sync()
    };
    let last = Sent::pages(&[0x3000], &[]);
    let bytes = channel(&[newer, older, last]);
    let (channel, found) = fed([&bytes[..]]);
    assert_eq!(channel.kind(), Kind::Multifd);
    assert_eq!(
        found,
        wanted(bytes.len() as u64 - u64::from(PAGE), &[0x3000], &[])
    );
}

#[test]
fn sizes_that_no_page_has_are_opaque() {
    let bytes = channel(&[Sent::sync()]);
    for page_bytes in [0, 512, 4095, 1 << 20] {
        let (channel, _) = fed_with(page_bytes, [&bytes[..]]);
        let why = Opaque::PageSize { page_bytes };
        assert_eq!(channel.kind(), Kind::Opaque { from: 64, why });
    }
}

#[test]
fn other_channels_are_told_apart() {
    let other = [7; 80];
    assert_eq!(opaque(&other), (0, Opaque::Unknown { magic: 0x0707_0707 }));
    let mut newer = beginning();
    newer[7] = 2;
    assert_eq!(opaque(&newer), (0, Opaque::Version { version: 2 }));
}

#[test]
fn what_is_not_exactly_as_known_is_opaque_from_there_on() {
    let good = || Sent::pages(&[0x1000], &[0x2000]);
    let flags = |flags| Sent { flags, ..good() };
    for (sent, why) in [
        (Sent { magic: 9, ..good() }, Opaque::Packet { magic: 9 }),
        (
            Sent {
                version: 2,
                ..good()
            },
            Opaque::Version { version: 2 },
        ),
        (flags(1 << 1), Opaque::Compressed(Compression::Zlib)),
        (flags(2 << 1), Opaque::Compressed(Compression::Zstd)),
        (flags(4 << 1), Opaque::Compressed(Compression::Accelerator)),
        (flags(8 << 1), Opaque::Compressed(Compression::Accelerator)),
        (flags(16 << 1), Opaque::Compressed(Compression::Accelerator)),
        (flags(3 << 1), Opaque::Flags { flags: 6 }),
        (flags(32 << 1), Opaque::DeviceState),
        (flags(1 << 9), Opaque::Flags { flags: 1 << 9 }),
        (
            Sent { place: 0, ..good() },
            Opaque::Place {
                found: 0,
                known: 128,
            },
        ),
        (
            Sent {
                place: 100,
                ..good()
            },
            Opaque::Place {
                found: 100,
                known: 128,
            },
        ),
        (
            Sent {
                place: 1024,
                ..good()
            },
            Opaque::Place {
                found: 1024,
                known: 128,
            },
        ),
        (
            Sent {
                following: 1,
                ..good()
            },
            Opaque::Size {
                wanted: 4096,
                said: 1,
            },
        ),
        (
            Sent {
                reserved: 1,
                ..good()
            },
            Opaque::Reserved,
        ),
        (
            Sent {
                block: b"",
                ..good()
            },
            Opaque::Block,
        ),
        (
            Sent {
                block: b"\x1b[0m",
                ..good()
            },
            Opaque::Block,
        ),
        (
            Sent::pages(&[0x1001], &[]),
            Opaque::Offset { offset: 0x1001 },
        ),
        (
            Sent::pages(&[], &[1 << 60]),
            Opaque::Offset { offset: 1 << 60 },
        ),
    ] {
        assert_eq!(opaque_at(&sent), why);
    }
    let many = Sent {
        zero: 128,
        ..good()
    };
    let why = Opaque::TooManyPages {
        normal: 1,
        zero: 128,
        place: 128,
    };
    assert_eq!(opaque_at(&many), why);
    let most = Sent {
        normal: u32::MAX,
        zero: u32::MAX,
        ..Sent::sync()
    };
    assert!(matches!(
        opaque(&[beginning(), most.header()].concat()),
        (64, Opaque::TooManyPages { .. })
    ));
}

#[test]
fn a_name_that_fills_its_field_or_goes_on_after_its_end_is_none() {
    let mut bytes = [beginning(), Sent::pages(&[0], &[]).header()].concat();
    let name = 64 + 64;
    bytes[name..name + 256].fill(b'a');
    assert_eq!(opaque(&bytes), (64, Opaque::Block));
    bytes[name + 255] = 0;
    assert_eq!(fed([&bytes[..]]).0.kind(), Kind::Multifd);
}

fn sent() -> impl Strategy<Value = Sent> {
    let offsets = || prop::collection::vec((0_u64..1 << 20).prop_map(|page| page * 4096), 0..6);
    prop_oneof![
        8 => (offsets(), offsets()).prop_map(|(pages, zeros)| Sent::pages(&pages, &zeros)),
        2 => Just(Sent::sync()),
    ]
}

proptest! {
    #[test]
    fn how_the_bytes_are_divided_makes_no_difference(
        packets in prop::collection::vec(sent(), 0..4),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
        changed in prop::option::of((any::<usize>(), any::<u8>())),
    ) {
        let mut bytes = channel(&packets);
        if let Some((at, value)) = changed {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let (whole, found) = fed([&bytes[..]]);
        let (in_pieces, found_in_pieces) = fed(pieces(&bytes, &cuts));
        prop_assert_eq!(whole.kind(), in_pieces.kind());
        prop_assert_eq!(whole.passed(), in_pieces.passed());
        prop_assert_eq!(&found, &found_in_pieces);
        let (by_bytes, found_by_bytes) = fed(bytes.chunks(1));
        prop_assert_eq!(whole.kind(), by_bytes.kind());
        prop_assert_eq!(&found, &found_by_bytes);
        let (glanced, found_at_a_glance) = glanced(pieces(&bytes, &cuts));
        prop_assert_eq!(whole.kind(), glanced.kind());
        prop_assert_eq!(whole.passed(), glanced.passed());
        prop_assert_eq!(&found, &found_at_a_glance);
    }

    #[test]
    fn any_bytes_are_carried_and_bounded(
        mut bytes in prop::collection::vec(any::<u8>(), 0..6000),
        begins_well in any::<bool>(),
    ) {
        if begins_well {
            bytes.splice(0..0, beginning());
        }
        let (channel, found) = fed([&bytes[..]]);
        prop_assert_eq!(channel.passed(), bytes.len() as u64);
        prop_assert!(found.len() <= 512 * (bytes.len() / HEADER + 1));
    }

    #[test]
    fn pages_are_where_the_packets_say(packets in prop::collection::vec(sent(), 1..5)) {
        let bytes = channel(&packets);
        let (channel, found) = fed([&bytes[..]]);
        prop_assert_eq!(channel.kind(), Kind::Multifd);
        let mut begins = 64;
        let mut all = Vec::new();
        for sent in &packets {
            begins += HEADER as u64;
            let (pages, zeros) = sent.offsets.split_at(sent.normal as usize);
            all.extend(wanted(begins, pages, zeros));
            begins += u64::from(sent.normal * PAGE);
        }
        prop_assert_eq!(&found, &all);
        for found in found {
            let Found::Page(page) = found else { continue };
            let begins = usize::try_from(page.begins).unwrap();
            let content = bytes[begins..].iter().take(PAGE as usize).enumerate();
            let follows = content.map(|(at, byte)| (usize::from(*byte) + 251 - at % 251) % 251);
            let each: Vec<usize> = follows.collect();
            prop_assert!(each.len() == PAGE as usize && each.iter().all(|n| n == &each[0]));
        }
    }
}
