//! The recogniser against the streams in `corpus`, and against changes of them.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod model;

use std::path::Path;

use drover_qstream::{Found, Kind};
use model::{fed_with, glanced_with};

/// That of the guests in the corpus.
const PAGE: u32 = 1024;

/// Whether all pages were found that there may be.
fn read(bytes: &[u8]) -> Result<(), String> {
    let (channel, found) = fed_with(PAGE, [bytes]);
    assert_eq!(channel.passed(), bytes.len() as u64);
    for (other, others) in [
        fed_with(PAGE, bytes.chunks(7)),
        glanced_with(PAGE, bytes.chunks(1000)),
    ] {
        assert_eq!(other.kind(), channel.kind());
        assert!(others == found, "{found:?} {others:?}");
    }
    let mut ends = 0;
    for found in found {
        if let Found::Page(page) = found {
            assert!(page.begins >= ends && page.offset.is_multiple_of(PAGE.into()));
            ends = page.begins + u64::from(PAGE);
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
    drover_corpus::replay(folder, read);
}
