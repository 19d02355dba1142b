//! The decoder against the chunks in `corpus`, and against changes of them: as they come from a peer, and with nothing but
//! their operations changed, so that those are read and not refused for a codec's sake.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use drover_corpus::Document;
use drover_corpus::limits::CHANGES;
use drover_reduce::kept::destination::Kept;
use drover_reduce::{Decoder, Stored, StoredId, Wrong};

const PAGE: usize = 1024;
const CHUNK: usize = 32 << 10;
const WINDOW_LOG: u32 = 16;
const SLOTS: u32 = 24;

/// Bytes of each section of a chunk that is forged.
const SECTION: u32 = 8 << 10;

/// The first hundred stored pages.
struct Hundred;

impl Stored for Hundred {
    fn read(&self, first: StoredId, pages: &mut [u8]) -> Result<(), Wrong> {
        for (page, id) in pages.chunks_exact_mut(PAGE).zip(first.0..) {
            let known = u8::try_from(id).ok().filter(|id| *id < 100);
            page.fill(known.ok_or(Wrong::NotStored(StoredId(id)))?);
        }
        Ok(())
    }
}

/// What a decoder makes of it that has seen nothing.
fn decode(chunk: &[u8]) -> Result<(), Wrong> {
    let mut decoder = Decoder::new(CHUNK, PAGE, WINDOW_LOG);
    let mut kept = Kept::new(PAGE, SLOTS);
    let mut raw = Vec::new();
    let unpacked = decoder.unpack(chunk)?;
    let expanded = unpacked.fetch(&Hundred)?.expand(&mut kept, &mut raw);
    let checked = expanded.and_then(|expanded| {
        let checked = expanded.check()?;
        assert!(checked.raw.len() <= CHUNK);
        for crossed in &checked.crossed {
            assert!(checked.raw.get(crossed.clone()).is_some());
        }
        Ok(())
    });
    assert!(raw.capacity() <= 2 * CHUNK);
    assert!(kept.bytes() <= u64::from(SLOTS) * PAGE as u64);
    checked
}

fn corpus(name: &str) -> Vec<Document> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    drover_corpus::documents(folder.join(name))
}

#[test]
fn chunks_of_the_corpus_and_changes_of_them_give_what_they_stand_for_or_are_refused() {
    drover_corpus::replay_binary(corpus("chunk"), CHANGES, |bytes| {
        decode(bytes).map_err(|wrong| match wrong {
            // With both checksums, each would be a new one.
            Wrong::Content { .. } => "it gives other bytes".to_owned(),
            wrong => wrong.to_string(),
        })
    });
}

/// A chunk of operations behind the number of bytes that they give, with as much as they like of pages.
fn forged(document: &[u8]) -> Option<Vec<u8>> {
    let (raw, operations) = document.split_first_chunk::<4>()?;
    let count = u32::try_from(operations.len()).ok()?;
    let lengths = [SECTION, count, SECTION, SECTION + count];
    let mut chunk = raw.to_vec();
    chunk.extend([0; 8]);
    chunk.extend(lengths.iter().flat_map(|length| length.to_be_bytes()));
    chunk.extend([0; 4]);
    chunk.extend((0..SECTION).map(|at| (at % 251) as u8));
    chunk.extend(operations);
    chunk.extend((0..SECTION).map(|at| (at % 241) as u8));
    Some(chunk)
}

#[test]
fn operations_of_the_corpus_and_changes_of_them_give_as_many_bytes_as_they_say_or_are_refused() {
    drover_corpus::replay_binary(corpus("operations"), CHANGES, |bytes| {
        let chunk = forged(bytes).ok_or("it is too short")?;
        match decode(&chunk) {
            // No checksum was made for it.
            Ok(()) | Err(Wrong::Content { .. }) => Ok(()),
            Err(wrong) => Err(wrong.to_string()),
        }
    });
}
