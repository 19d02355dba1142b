//! What a chunk can have a channel's end take.

use super::*;
use crate::kept::source;
use crate::limits::UNPACKING_BYTES;
use crate::{Choice, Codec, Encoder, Level};

const PAGE: usize = 1024;
const CHUNK: usize = 32 << 10;
const WINDOW_LOG: u32 = 16;

/// An honest source's, with a codec that remembers so much.
fn chunk(raw: &[u8], codec: Codec, window_log: u32) -> Vec<u8> {
    let mut encoder = Encoder::new(0, PAGE, window_log);
    let mut kept = source::Kept::new(PAGE, 0);
    encoder.describe(0, raw, &[], &mut kept, &mut ());
    let choice = Choice {
        ordinary: codec,
        dense: codec,
    };
    let mut chunk = Vec::new();
    encoder.pack(raw, choice, &mut chunk).unwrap();
    chunk
}

/// Why a channel does not take it, and that it has taken no more memory for that than was agreed on.
fn refused(chunk: &[u8]) -> Wrong {
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let wrong = decoder.unpack(chunk).unwrap_err();
    // The operations are behind the ordinary pages.
    let sections = [&decoder.ordinary, &decoder.dense].map(Vec::capacity);
    assert!(sections[0] <= 2 * CHUNK, "{sections:?}");
    assert!(sections[1] <= CHUNK, "{sections:?}");
    let taken = decoder.unpacker.taken();
    assert!(taken <= (1 << WINDOW_LOG) + UNPACKING_BYTES, "{taken}");
    wrong
}

#[test]
fn a_bomb_takes_no_more_memory_than_agreed_on_by_either_codec() {
    let zeros = vec![0; 4 << 20];
    for (codec, name, found_out) in [
        (
            Codec::Zstd(Level::USUAL),
            "zstd",
            "it has more than it says",
        ),
        (Codec::Lz4, "lz4", "it is damaged"),
    ] {
        let mut bomb = chunk(&zeros, codec, WINDOW_LOG);
        assert!(bomb.len() < CHUNK, "{name}: {}", bomb.len());
        assert!(matches!(refused(&bomb), Wrong::TooMuch { .. }), "{name}");
        // The same, which says that it is small.
        for at in [0, 12] {
            bomb[at..at + 4].copy_from_slice(&1024_u32.to_be_bytes());
        }
        let (codec, why) = (name, found_out);
        assert_eq!(refused(&bomb), Wrong::Codec { codec, why });
    }
}

#[test]
fn a_window_that_is_larger_than_agreed_on_is_refused_however_little_is_in_it() {
    let codec = Codec::Zstd(Level::USUAL);
    let wrong = refused(&chunk(&[7; 4 * PAGE], codec, WINDOW_LOG + 6));
    let Wrong::Codec { codec, why } = wrong else {
        panic!("{wrong}");
    };
    assert!(codec == "zstd" && why.contains("too much memory"), "{why}");
}
