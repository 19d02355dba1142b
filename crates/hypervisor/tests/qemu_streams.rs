//! What `drover-qstream` finds in the streams of real QEMUs, held against the guest's memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;
#[path = "common/watched.rs"]
mod watched;

use std::collections::BTreeMap;

use common::pair::{Pair, multifd};
use common::{CONTENT_AT, Qemu};
use drover_hypervisor::{Compression, MigrationSettings};
use drover_qstream::{self as qstream, Block, Found, Kind, Opaque};
use watched::{Seen, followed, migrated};

on_each_qemu! {
    every_page_of_a_guest_is_found_where_it_is
    every_page_of_a_guest_that_moves_over_one_channel_is_found
    every_page_that_follows_by_postcopy_is_found
    channels_that_qemu_compresses_are_opaque_and_arrive
}

/// What was sent last of each page of a block.
fn pages<'s>(channels: &'s [&Seen], block: &[u8]) -> BTreeMap<u64, &'s [u8]> {
    let mut pages = BTreeMap::new();
    for seen in channels {
        for found in &seen.found {
            if let Found::Page(page) = found
                && page.block == Block::named(block)
            {
                let begins = usize::try_from(page.begins).unwrap();
                pages.insert(page.offset, &seen.bytes[begins..begins + 4096]);
            }
        }
    }
    pages
}

/// Every page of the content was found in these channels.
fn all_found(pair: &Pair, channels: &[&Seen]) {
    let found = pages(channels, b"pc.ram");
    // No page of it changes while it moves: the firmware waits for a disk.
    for (number, page) in pair.content.chunks(4096).enumerate() {
        let offset = CONTENT_AT + number as u64 * 4096;
        assert!(
            found.get(&offset).is_some_and(|sent| *sent == page),
            "the page at {offset:#x}"
        );
    }
}

/// Whether it is a main channel whose memory passed and was looked into to its end.
fn ends_with_devices(seen: &Seen) -> bool {
    let Kind::Opaque { from, why } = seen.kind else {
        return false;
    };
    let rest = seen.bytes.get(usize::try_from(from).unwrap()..).unwrap();
    // A section with all there is of a device, of an id, and of a name of some length.
    why == Opaque::Devices && rest[0] == 4 && rest[1..5] != [0xff; 4] && (1..64).contains(&rest[5])
}

async fn every_page_of_a_guest_is_found_where_it_is(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let seen = migrated(&pair, &multifd()).await;
    pair.assert_memory_is_equal().await;
    let (others, main): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| seen.kind == Kind::Multifd);
    let [main] = main[..] else {
        let kinds: Vec<_> = main.iter().map(|seen| seen.kind).collect();
        panic!("{kinds:?}");
    };
    assert!(ends_with_devices(main), "{:?}", main.kind);
    assert!(pages(&[main], b"pc.ram").is_empty());
    all_found(&pair, &others);
    let zeros = |seen: &&Seen| {
        let filled = |found: &&Found| matches!(found, Found::Filled { .. });
        seen.found.iter().filter(filled).count()
    };
    let of_multifd: usize = others.iter().map(zeros).sum();
    // Each version sends them on one of both.
    assert!((of_multifd > 1000) != (zeros(&main) > 1000), "{of_multifd}");
}

async fn every_page_of_a_guest_that_moves_over_one_channel_is_found(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let seen = migrated(&pair, &MigrationSettings::default()).await;
    pair.assert_memory_is_equal().await;
    assert!(ends_with_devices(&seen[0]), "{:?}", seen[0].kind);
    all_found(&pair, &[&seen[0]]);
}

async fn every_page_that_follows_by_postcopy_is_found(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let seen = followed(&pair).await;
    pair.assert_memory_is_equal().await;
    // To the channel's very end.
    assert_eq!(seen.kind, Kind::Main);
    all_found(&pair, &[&seen]);
}

async fn channels_that_qemu_compresses_are_opaque_and_arrive(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let settings = MigrationSettings {
        compression: Some(Compression::Zstd { level: 1 }),
        ..multifd()
    };
    let seen = migrated(&pair, &settings).await;
    pair.assert_memory_is_equal().await;
    let compressed = Opaque::Compressed(qstream::Compression::Zstd);
    let of_multifd = seen
        .iter()
        .filter(|seen| matches!(seen.kind, Kind::Opaque { why, .. } if why == compressed));
    assert_eq!(of_multifd.count(), settings.channels as usize);
}
