//! What `drover-qstream` finds in the streams of real QEMUs, held against the guest's memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use common::pair::{Pair, multifd};
use common::{CONTENT_AT, Qemu, status};
use drover_hypervisor::{
    Compression, Machine, MigrationAddress, MigrationSettings, MigrationStatus,
};
use drover_qstream::{self as qstream, Kind, Opaque, Packet};

on_each_qemu! {
    every_page_of_a_guest_is_found_where_it_is
    channels_that_qemu_compresses_are_opaque_and_arrive
}

/// A channel that has ended: all its bytes, and what was found in them.
struct Seen {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
    kind: Kind,
}

/// Takes each connection to one socket to another, and looks at what the source sends; each is told of at its end.
fn watched(from: &Path, to: &Path) -> Receiver<Seen> {
    let listener = UnixListener::bind(from).unwrap();
    let (tell, seen) = channel();
    let to: PathBuf = to.to_owned();
    thread::spawn(move || {
        for source in listener.incoming() {
            let (source, tell) = (source.unwrap(), tell.clone());
            let destination = UnixStream::connect(&to).unwrap();
            thread::spawn(move || tell.send(carried(&source, &destination).unwrap()));
        }
    });
    seen
}

fn carried(mut source: &UnixStream, mut destination: &UnixStream) -> io::Result<Seen> {
    let back = (destination.try_clone()?, source.try_clone()?);
    thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
    let mut channel = qstream::Channel::new(4096);
    let (mut bytes, mut packets) = (Vec::new(), Vec::new());
    // Pieces that fit neither headers nor pages.
    let mut buffer = vec![0; 10_007];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            destination.shutdown(Shutdown::Write)?;
            let kind = channel.kind();
            return Ok(Seen {
                bytes,
                packets,
                kind,
            });
        }
        channel.feed(&buffer[..read], &mut |packet| packets.push(packet));
        bytes.extend_from_slice(&buffer[..read]);
        destination.write_all(&buffer[..read])?;
    }
}

/// Migrates, and what was seen of each channel: the main one, and those of multifd.
async fn migrated(pair: &Pair, settings: &MigrationSettings) -> Vec<Seen> {
    pair.prepare(settings).await;
    let MigrationAddress::Unix(to) = pair.place.socket() else {
        panic!("it is a socket");
    };
    let from = to.with_extension("watched");
    let seen = watched(&from, &to);
    let (mut source, mut destination) = (pair.source.events(), pair.destination.events());
    pair.source
        .migrate(&MigrationAddress::Unix(from))
        .await
        .unwrap();
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;
    pair.assert_memory_is_equal().await;
    let channels = 1 + settings.channels as usize;
    let seen = (0..channels).map(|_| seen.recv_timeout(common::PATIENCE).unwrap());
    seen.collect()
}

/// What was sent last of each page of a block.
fn pages(channels: &[Seen], block: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let mut pages = BTreeMap::new();
    for seen in channels {
        let of_block = |packet: &&Packet| packet.block.is_some_and(|name| name.as_bytes() == block);
        for packet in seen.packets.iter().filter(of_block) {
            let size = packet.page_bytes as usize;
            let begins = usize::try_from(packet.begins).unwrap();
            for (at, offset) in packet.pages.iter().enumerate() {
                let page = begins + at * size;
                pages.insert(*offset, seen.bytes[page..page + size].to_vec());
            }
        }
    }
    pages
}

async fn every_page_of_a_guest_is_found_where_it_is(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let seen = migrated(&pair, &multifd()).await;
    let (main, others): (Vec<_>, Vec<_>) = seen
        .into_iter()
        .partition(|seen| seen.kind != Kind::Multifd);
    let [main] = &main[..] else {
        panic!(
            "{:?}",
            main.iter().map(|seen| seen.kind).collect::<Vec<_>>()
        );
    };
    assert!(
        matches!(
            main.kind,
            Kind::Opaque {
                from: 0,
                why: Opaque::Main
            }
        ),
        "{:?}",
        main.kind
    );
    // Each channel ended with a packet, and not within one.
    for seen in &others {
        let last = seen.packets.last().unwrap();
        assert_eq!(last.begins + last.follows(), seen.bytes.len() as u64);
    }
    let found = pages(&others, b"pc.ram");
    // No page of it changes while it moves: the firmware waits for a disk.
    for (number, page) in pair.content.chunks(4096).enumerate() {
        let offset = CONTENT_AT + number as u64 * 4096;
        assert!(
            found.get(&offset).is_some_and(|sent| sent == page),
            "the page at {offset:#x}"
        );
    }
}

async fn channels_that_qemu_compresses_are_opaque_and_arrive(qemu: Qemu) {
    let pair = Pair::new(&qemu, &qemu, None).await;
    let settings = MigrationSettings {
        compression: Some(Compression::Zstd { level: 1 }),
        ..multifd()
    };
    let seen = migrated(&pair, &settings).await;
    let compressed = Opaque::Compressed(qstream::Compression::Zstd);
    let of_multifd = seen
        .iter()
        .filter(|seen| matches!(seen.kind, Kind::Opaque { why, .. } if why == compressed));
    assert_eq!(of_multifd.count(), settings.channels as usize);
}
