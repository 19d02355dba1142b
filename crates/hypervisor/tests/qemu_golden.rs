//! Makes the streams anew that `drover-qstream` is held against: those of the QEMUs that are there.
//!
//! ```console
//! cargo test -p drover-hypervisor --test qemu_golden -- --ignored
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

mod common;
#[path = "common/watched.rs"]
mod watched;

use std::fs;
use std::ops::Range;
use std::path::Path;

use common::huge::HugePages;
use common::pair::Pair;
use common::{Place, Qemu, guest};
use drover_hypervisor::{Compression, Guest, MigrationSettings, Movable, Start};
use drover_qstream::{self as qstream, Found, Kind, Opaque};
use drover_types::Bytes;
use watched::{Seen, followed, migrated};

/// What is kept of the first device, or of the first packet that QEMU compressed: less than its header.
const DEVICE_BYTES: u64 = 64;

#[tokio::test]
#[ignore = "it writes into the folder of another crate"]
async fn streams_of_the_installed_qemu_are_made_anew() {
    if let Some(qemu) = Qemu::installed() {
        make(&qemu).await;
    }
}

#[tokio::test]
#[ignore = "it writes into the folder of another crate"]
async fn streams_of_qemu_7_2_are_made_anew() {
    if let Some(qemu) = Qemu::oldest() {
        make(&qemu).await;
    }
}

async fn make(qemu: &Qemu) {
    let pair = small(qemu).await;
    let version = pair.source.version();
    let write =
        |how, seen: &[Seen]| write(&format!("{}.{}-{how}", version.major, version.minor), seen);
    write(
        "one-channel",
        &migrated(&pair, &MigrationSettings::default()).await,
    );
    let multifd = MigrationSettings {
        channels: 2,
        ..MigrationSettings::default()
    };
    write("multifd", &migrated(&small(qemu).await, &multifd).await);
    write("postcopy", &[followed(&small(qemu).await).await]);
    let compressed = MigrationSettings {
        compression: Some(Compression::Zstd { level: 1 }),
        ..multifd.clone()
    };
    write("zstd", &migrated(&small(qemu).await, &compressed).await);
    let Some(_pages) = HugePages::more(2 * 4) else {
        return;
    };
    let huge = || small_with(qemu, &["-object", HUGE, "-machine", "memory-backend=huge"]);
    write("huge-multifd", &migrated(&huge().await, &multifd).await);
    write("huge-postcopy", &[followed(&huge().await).await]);
}

/// Its memory, in pages of 2 MiB.
const HUGE: &str = "memory-backend-memfd,id=huge,size=8M,hugetlb=on,hugetlbsize=2M";

async fn small(qemu: &Qemu) -> Pair {
    small_with(qemu, &[]).await
}

/// A guest of 8 MiB, in which 1 MiB is noise.
async fn small_with(qemu: &Qemu, more: &[&str]) -> Pair {
    let place = Place::new();
    let content = place.content(1 << 20);
    let loader = format!(
        "loader,file={},addr={},force-raw=on",
        place.file("content").display(),
        4 << 20
    );
    let mut small = Guest {
        memory: Bytes(8 << 20),
        ..guest(qemu)
    };
    small.args.extend(["-device".to_owned(), loader]);
    small.args.extend(more.iter().map(|&word| word.to_owned()));
    let source = place.start(&small, "source", Start::Run).await;
    let destination = place.start(&small, "destination", Start::Incoming).await;
    Pair {
        place,
        source,
        destination,
        content,
    }
}

/// Writes what remains of each channel: the main one, and those of multifd by their number, also where QEMU compresses them.
fn write(name: &str, seen: &[Seen]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qstream/tests/golden");
    fs::create_dir_all(&folder).unwrap();
    let mut others = 0;
    for seen in seen {
        let why = match seen.kind {
            Kind::Opaque { why, .. } => Some(why),
            _ => None,
        };
        let which = if seen.kind == Kind::Multifd || matches!(why, Some(Opaque::Compressed(_))) {
            others += 1;
            format!("-{others}")
        } else {
            String::new()
        };
        fs::write(folder.join(format!("{name}{which}")), golden(seen)).unwrap();
    }
}

/// Its bytes, but for what is of the guest: how many are as they are and how many of those behind them are not kept, each as a
/// u32, and those that are as they are.
fn golden(seen: &Seen) -> Vec<u8> {
    let end = match seen.kind {
        Kind::Opaque { from, why } => {
            let zstd = Opaque::Compressed(qstream::Compression::Zstd);
            assert!([Opaque::Devices, zstd].contains(&why), "{why}");
            from + DEVICE_BYTES
        }
        _ => seen.bytes.len() as u64,
    };
    let mut blank: Vec<_> = seen.found.iter().filter_map(page).collect();
    blank.extend(packaged(&seen.bytes, &blank));
    blank.sort_by_key(|range| range.start);
    blank.push(end..end);
    let (mut golden, mut at) = (Vec::new(), 0);
    for range in blank {
        let kept = &seen.bytes[at as usize..range.start as usize];
        golden.extend((kept.len() as u32).to_be_bytes());
        golden.extend(((range.end - range.start) as u32).to_be_bytes());
        golden.extend(kept);
        at = range.end;
    }
    golden
}

fn page(found: &Found) -> Option<Range<u64>> {
    match found {
        Found::Page(page) => Some(page.begins..page.begins + 4096),
        Found::Filled { .. } => None,
    }
}

/// The devices that come before pages which follow by postcopy.
fn packaged(bytes: &[u8], pages: &[Range<u64>]) -> Option<Range<u64>> {
    let command = b"\x08\0\x07\0\x04";
    let within = |at: u64| pages.iter().any(|page| page.contains(&at));
    let mut all = bytes.windows(9).zip(0..);
    let (found, at) = all.find(|(next, at)| next.starts_with(command) && !within(*at))?;
    let length = u32::from_be_bytes(found[5..].try_into().unwrap());
    Some(at + 9..at + 9 + u64::from(length))
}
