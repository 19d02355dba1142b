//! Main channels as each version of QEMU writes them, whole and in pieces, and what is not quite one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod model;

use drover_qstream::{Block, Compression, Found, Kind, Opaque, Page};
use model::{BLOCKS, PAGE, Stream, VERSIONS, Version, With, Word, fed, glanced, page_of, pieces};
use proptest::prelude::*;

const PLAIN: With = With {
    postcopy: false,
    multifd: false,
    ignore_shared: false,
    uuid: false,
};

fn words() -> [Word; 5] {
    [
        Word::Page(0, 7),
        Word::Zero(0, 8),
        Word::Page(2, 0),
        Word::Page(2, 1),
        Word::Zero(1, 3),
    ]
}

/// All combinations of what a guest migrates with.
fn all_with() -> impl Iterator<Item = (Version, With)> {
    VERSIONS.into_iter().flat_map(|version| {
        (0..16_u8).map(move |bits| {
            let with = With {
                postcopy: bits & 1 > 0,
                multifd: bits & 2 > 0,
                ignore_shared: bits & 4 > 0,
                uuid: bits & 8 > 0,
            };
            (version, with)
        })
    })
}

fn opaque(bytes: &[u8]) -> (u64, Opaque) {
    match fed([bytes]).0.kind() {
        Kind::Opaque { from, why } => (from, why),
        kind => panic!("{kind:?}"),
    }
}

/// That of a stream which goes on so behind its first part.
fn opaque_behind(more: impl FnOnce(&mut Stream)) -> Opaque {
    let mut stream = Stream::begun(Version::V7_2, PLAIN);
    stream.part(&words());
    let begins = stream.bytes.len() as u64;
    more(&mut stream);
    let (from, why) = opaque(&stream.bytes);
    assert_eq!(from, begins, "{why}");
    assert_eq!(fed([&stream.bytes[..]]).1, stream.found);
    why
}

/// That of a stream whose next part begins with this word.
fn opaque_word(word: u64, more: &[u8]) -> Opaque {
    let mut stream = Stream::begun(Version::V7_2, PLAIN);
    stream.put(&[2, 0, 0, 0, 2]);
    let begins = stream.bytes.len() as u64;
    stream.put(&word.to_be_bytes());
    stream.put(more);
    let (from, why) = opaque(&stream.bytes);
    assert_eq!(from, begins, "{why}");
    why
}

#[test]
fn pages_of_every_version_are_found_until_devices_follow() {
    for (version, with) in all_with() {
        let mut stream = Stream::begun(version, with);
        stream.part(&words());
        stream.part(&[]);
        stream.part(&[Word::Page(1, 5), Word::Page(3, 1)]);
        assert_eq!(fed([&stream.bytes[..]]).0.kind(), Kind::Main);
        stream.end(&[Word::Page(3, 2), Word::Page(0, 0)]);
        let ends = stream.bytes.len() as u64;
        stream.devices();
        let (channel, found) = fed([&stream.bytes[..]]);
        assert_eq!(found, stream.found, "{version:?} {with:?}");
        let why = Opaque::Devices;
        assert_eq!(channel.kind(), Kind::Opaque { from: ends, why });
        assert!(!why.hides_pages());
    }
}

#[test]
fn pages_that_follow_by_postcopy_are_found_behind_devices_in_one_piece() {
    for version in VERSIONS {
        let with = With {
            postcopy: true,
            ..PLAIN
        };
        let mut stream = Stream::begun(version, with);
        stream.part(&words());
        stream.postcopy_begins();
        // The block that was last sent is still known.
        stream.part(&[Word::Page(1, 9), Word::Page(1, 10), Word::Page(0, 1)]);
        stream.end(&[Word::Page(0, 2)]);
        stream.ends();
        let (channel, found) = fed([&stream.bytes[..]]);
        assert_eq!(found, stream.found, "{version:?}");
        assert_eq!(channel.kind(), Kind::Main);
        let ends = stream.bytes.len() as u64;
        stream.put(&[2]);
        assert_eq!(opaque(&stream.bytes), (ends, Opaque::AfterEnd));
    }
}

#[test]
fn a_page_is_where_it_is_said_to_be() {
    let mut stream = Stream::begun(Version::V10_0, PLAIN);
    stream.part(&words());
    for found in fed([&stream.bytes[..]]).1 {
        let Found::Page(page) = found else { continue };
        let Page { begins, offset, .. } = page;
        let number = BLOCKS
            .iter()
            .position(|(name, ..)| Block::named(name.as_bytes()) == page.block);
        let begins = usize::try_from(begins).unwrap();
        let at = u16::try_from(offset / PAGE as u64).unwrap();
        let wanted = page_of(u8::try_from(number.unwrap()).unwrap(), at);
        assert!(stream.bytes[begins..begins + PAGE] == wanted);
    }
}

#[test]
fn a_section_of_something_else_before_memory_has_ended_hides_what_follows() {
    for why in [
        opaque_behind(|stream| stream.section(1, 3, "dirty-bitmap", 1)),
        opaque_behind(|stream| stream.section(4, 3, "timer", 1)),
        opaque_behind(|stream| stream.put(&[2, 0, 0, 0, 3])),
        opaque_behind(|stream| stream.section(1, 3, "ram", 4)),
    ] {
        assert_eq!(why, Opaque::DevicesBetween);
        assert!(why.hides_pages());
    }
    let mut stream = Stream::begun(Version::V7_2, PLAIN);
    let list = stream
        .bytes
        .windows(3)
        .position(|three| three == b"ram")
        .unwrap();
    stream.bytes[list + 10] = 3;
    assert_eq!(
        opaque(&stream.bytes),
        (list as u64 - 6, Opaque::DevicesBetween)
    );
}

#[test]
fn what_is_not_exactly_as_known_is_opaque_from_there_on() {
    assert_eq!(
        opaque(b"QEVM\0\0\0\x02"),
        (0, Opaque::MainVersion { version: 2 })
    );
    // RECV_BITMAP of "pc.ram".
    assert_eq!(opaque(b"\x08\0\x0a\0\x07\x06pc.ram"), (0, Opaque::Resumed));
    let section = |kind| opaque_behind(|stream| stream.put(&[kind]));
    for kind in [5, 6, 9, 0x7e, 0xff] {
        assert_eq!(section(kind), Opaque::Section { kind });
    }
    for (command, length) in [
        (0, 0),
        (1, 1),
        (2, 5),
        (3, 8),
        (7, 8),
        (8, 0),
        (9, 0),
        (10, 7),
        (12, 0),
    ] {
        let why = opaque_behind(|stream| stream.command(command, &vec![0; length.into()]));
        assert_eq!(why, Opaque::Command { command, length });
    }
    let page = |flags: u64| opaque_word(0x5000 | flags, b"\x06pc.ram");
    for (flags, why) in [
        (0x40, Opaque::Xbzrle),
        (0x60, Opaque::Xbzrle),
        (0x80, Opaque::Hook),
        (0x100, Opaque::Compressed(Compression::Zlib)),
        (0x0a, Opaque::Word { word: 0x500a }),
        (0x01, Opaque::Word { word: 0x5001 }),
        (0x04, Opaque::Word { word: 0x5004 }),
        (0x10, Opaque::Word { word: 0x5010 }),
        (0x200, Opaque::Word { word: 0x5200 }),
        (0x408, Opaque::Word { word: 0x5408 }),
        // The block before: there is none.
        (0x28, Opaque::Block),
    ] {
        assert_eq!(page(flags), why);
    }
    assert_eq!(opaque_word(0x5008, b"\0"), Opaque::Block);
    assert_eq!(opaque_word(0x5008, b"\x04pc\0r"), Opaque::Block);
    let offset = 1 << 60;
    assert_eq!(
        opaque_word(offset | 8, b"\x06pc.ram"),
        Opaque::Offset { offset }
    );
    let mut stream = Stream::begun(Version::V7_2, PLAIN);
    let footer = stream.bytes.len() - 5;
    stream.bytes[footer + 4] = 3;
    assert_eq!(opaque(&stream.bytes), (footer as u64, Opaque::Footer));
    let page_bytes = 768;
    let mut channel = drover_qstream::Channel::new(page_bytes);
    channel.feed(&stream.bytes, &mut |_| ());
    let why = Opaque::PageSize { page_bytes };
    assert_eq!(channel.kind(), Kind::Opaque { from: 0, why });
}

/// A stream's beginning up to its list of blocks, and where that begins.
fn listing(with: With) -> (Vec<u8>, u64) {
    let mut bytes = Stream::begun(Version::V7_2, with).bytes;
    let list = bytes
        .windows(4)
        .position(|four| four == b"\x03ram")
        .unwrap()
        + 12;
    bytes.truncate(list);
    (bytes, list as u64)
}

#[test]
fn a_list_of_blocks_that_does_not_add_up_is_opaque() {
    let block = |bytes: u64| [b"\x06pc.ram", &bytes.to_be_bytes()[..]].concat();
    let (word, number) = (
        |word: u64| word.to_be_bytes().to_vec(),
        0x20_0000_u64.to_be_bytes().to_vec(),
    );
    let all = word(0x8000 | 4);
    let shared = With {
        ignore_shared: true,
        ..PLAIN
    };
    // The last one is what is wrong.
    for (with, list) in [
        (PLAIN, vec![block(0x9000)]),
        (PLAIN, vec![block(0x7000), word(0x10)]),
        (PLAIN, vec![block(0x8000), block(0)]),
        (PLAIN, vec![block(0x8000), number.clone()]),
        (PLAIN, vec![number.clone()]),
        (shared, vec![block(0x8000), word(0x10)]),
        (shared, vec![block(0x8000), number.clone(), number]),
    ] {
        let (beginning, begins) = listing(with);
        let bytes = [&beginning[..], &all, &list.concat()].concat();
        let wrong = list.last().map_or(0, Vec::len);
        let (from, why) = opaque(&bytes);
        assert_eq!(why, Opaque::Blocks, "{list:?}");
        assert!(
            from > begins && from == (bytes.len() - wrong) as u64,
            "{list:?}"
        );
    }
    let (beginning, begins) = listing(PLAIN);
    for first in [0x8000, 4, 0x8014] {
        let bytes = [&beginning[..], &word(first)].concat();
        assert_eq!(opaque(&bytes), (begins, Opaque::Word { word: first }));
    }
}

#[test]
fn a_configuration_with_something_else_is_opaque() {
    let with = |more: &dyn Fn(&mut Stream)| {
        let mut stream = Stream::begun(Version::V7_2, PLAIN);
        stream.bytes.truncate(8 + 5 + "pc-i440fx-7.2".len());
        more(&mut stream);
        opaque(&stream.bytes).1
    };
    let capabilities = "configuration/capabilities";
    for (name, why) in [
        ("mapped-ram", Opaque::MappedRam),
        ("unheard-of", Opaque::Capability),
    ] {
        let found = with(&|stream| {
            stream.subsection(capabilities);
            stream.put(&[0, 0, 0, 1]);
            stream.name(name);
        });
        assert_eq!(found, why);
    }
    for (name, bytes) in [
        (capabilities, [0xff; 4]),
        ("configuration/target-page-bits", [0, 0, 0, 16]),
        ("configuration/target-page-bits", [0, 0, 0, 99]),
        ("configuration/unheard-of", [0; 4]),
    ] {
        let found = with(&|stream| {
            stream.subsection(name);
            stream.put(&bytes);
        });
        assert_eq!(found, Opaque::Configuration, "{name} {bytes:?}");
    }
    let known = |stream: &mut Stream| {
        stream.subsection("configuration/target-page-bits");
        stream.put(&[0, 0, 0, 12]);
        stream.put(&[9]);
    };
    assert_eq!(with(&known), Opaque::Section { kind: 9 });
    let long = b"QEVM\0\0\0\x03\x07\0\0\x01\0";
    assert_eq!(opaque(long), (8, Opaque::Configuration));
}

fn word() -> impl Strategy<Value = Word> {
    let place = || (0..BLOCKS.len() as u8, 0..200_u16);
    prop_oneof![
        3 => place().prop_map(|(block, at)| Word::Page(block, at)),
        1 => place().prop_map(|(block, at)| Word::Zero(block, at)),
    ]
}

prop_compose! {
    fn stream()(
        version in prop::sample::select(&VERSIONS[..]),
        bits in 0..16_u8,
        parts in prop::collection::vec(prop::collection::vec(word(), 0..6), 0..4),
        followed in prop::option::of(prop::collection::vec(word(), 0..6)),
    ) -> Stream {
        let with = With {
            postcopy: followed.is_some() || bits & 1 > 0,
            multifd: bits & 2 > 0,
            ignore_shared: bits & 4 > 0,
            uuid: bits & 8 > 0,
        };
        let mut stream = Stream::begun(version, with);
        parts.iter().for_each(|words| stream.part(words));
        match followed {
            Some(words) => {
                stream.postcopy_begins();
                stream.part(&words);
                stream.end(&words);
                stream.ends();
            }
            None => {
                stream.end(&words());
                stream.devices();
            }
        }
        stream
    }
}

proptest! {
    #[test]
    fn how_the_bytes_are_divided_makes_no_difference(
        stream in stream(),
        cuts in prop::collection::vec(any::<usize>(), 0..40),
        changed in prop::option::of((any::<usize>(), any::<u8>())),
    ) {
        let mut bytes = stream.bytes;
        if let Some((at, value)) = changed {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let (whole, found) = fed([&bytes[..]]);
        if changed.is_none() {
            prop_assert_eq!(&found, &stream.found);
        }
        for (channel, others) in [
            fed(pieces(&bytes, &cuts)),
            fed(bytes.chunks(1)),
            glanced(pieces(&bytes, &cuts)),
            glanced([&bytes[..]]),
        ] {
            prop_assert_eq!(whole.kind(), channel.kind());
            prop_assert_eq!(whole.passed(), channel.passed());
            prop_assert_eq!(&found, &others);
        }
    }

    #[test]
    fn any_bytes_are_carried_and_bounded(
        mut bytes in prop::collection::vec(any::<u8>(), 0..6000),
        begins_well in any::<bool>(),
    ) {
        if begins_well {
            let beginning = Stream::begun(Version::V10_0, PLAIN).bytes;
            bytes.splice(0..0, [&beginning[..], &[2, 0, 0, 0, 2]].concat());
        }
        let (channel, found) = fed([&bytes[..]]);
        prop_assert_eq!(channel.passed(), bytes.len() as u64);
        prop_assert!(found.len() <= bytes.len() / 9);
    }
}
