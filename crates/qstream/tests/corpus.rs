//! The recogniser against the streams in `corpus` and those of real QEMUs, and against changes of them.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod kept;
mod model;

use std::path::Path;

use drover_corpus::limits::CHANGES;
use drover_qstream::{Found, Kind};
use kept::streams;
use model::{fed_with, glanced_with};

/// What of each stream of a real QEMU is changed: a packet that is full, and what follows it.
const GOLDEN_BYTES: usize = 600 << 10;

/// How often: they are much longer than those of the corpus.
const GOLDEN_CHANGES: u32 = 60;

/// Whether all pages of that size were found that there may be, however the bytes are divided.
fn read(bytes: &[u8], page: u32, pieces: [usize; 2]) -> Result<(), String> {
    let (channel, found) = fed_with(page, [bytes]);
    assert_eq!(channel.passed(), bytes.len() as u64);
    for (other, others) in [
        fed_with(page, bytes.chunks(pieces[0])),
        glanced_with(page, bytes.chunks(pieces[1])),
    ] {
        assert_eq!(other.kind(), channel.kind());
        assert!(others == found, "{found:?} {others:?}");
    }
    let mut ends = 0;
    for found in found {
        if let Found::Page(found) = found {
            assert!(found.begins >= ends && found.offset.is_multiple_of(page.into()));
            ends = found.begins + u64::from(page);
        }
    }
    match channel.kind() {
        Kind::Opaque { why, .. } if why.hides_pages() => Err(in_words(&why.to_string())),
        _ => Ok(()),
    }
}

/// Without what stands in the stream itself, which would make each refusal a new one.
fn in_words(why: &str) -> String {
    let words = why.split(' ').filter(|word| !word.starts_with("0x"));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn streams_of_the_corpus_and_changes_of_them_are_read_alike_however_they_are_divided() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/channel");
    let documents = drover_corpus::documents(folder);
    drover_corpus::replay_binary(documents, CHANGES, |bytes| read(bytes, 1024, [7, 1000]));
}

#[test]
fn streams_of_real_qemus_and_changes_of_them_are_read_alike_however_they_are_divided() {
    let known = |name: &str, bytes: &[u8]| {
        let (channel, _) = fed_with(4096, [bytes]);
        let hides = matches!(channel.kind(), Kind::Opaque { why, .. } if why.hides_pages());
        assert_eq!(
            hides,
            name.ends_with("zstd-1") || name.ends_with("zstd-2"),
            "{name}"
        );
        if hides { "bad" } else { "ok" }
    };
    let documents = streams().into_iter().map(|(name, mut bytes)| {
        bytes.truncate(GOLDEN_BYTES);
        (name, bytes)
    });
    let documents = documents.map(|(name, bytes)| {
        let known = known(&name, &bytes);
        (format!("{known}-{name}"), bytes)
    });
    drover_corpus::replay_binary(documents.collect(), GOLDEN_CHANGES, |bytes| {
        read(bytes, 4096, [10_007, 100_003])
    });
}
