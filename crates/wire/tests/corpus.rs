//! Every decoder against the bytes in `corpus`, against every small change of them, and against large
//! ones.
//!
//! A file's name says what its bytes are: `ok-...` is read, `bad-...` is refused. Whatever a fuzzer
//! finds belongs there as a file. They are cut, or filled up with zeros, to what is read at once.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::fs;
use std::path::Path;

use drover_corpus::limits::CHANGES;
use drover_wire::limits::CHUNK_BYTES_MAX;
use drover_wire::{
    ANSWER_BYTES, ANSWER_HEAD_BYTES, Answer, Frame, HEADER_BYTES, HELLO_BYTES, Hello, Malformed,
    PREAMBLE_BYTES, Preamble, WELCOME_BYTES, Welcome,
};

fn sized<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut fixed = [0; N];
    let count = bytes.len().min(N);
    fixed[..count].copy_from_slice(&bytes[..count]);
    fixed
}

/// The bytes, with each bit changed, each byte at its extremes, cut at each length, and each two
/// neighbours swapped.
fn mutations(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for at in 0..bytes.len() {
        let mut with = |value: u8| {
            let mut changed = bytes.to_vec();
            changed[at] = value;
            all.push(changed);
        };
        (0..8).for_each(|bit| with(bytes[at] ^ (1 << bit)));
        [0, 1, 0x7f, 0x80, 0xff].into_iter().for_each(&mut with);
        all.push(bytes[..at].to_vec());
        if at > 0 {
            let mut changed = bytes.to_vec();
            changed.swap(at - 1, at);
            all.push(changed);
        }
    }
    all
}

/// Reads every seed and every mutation of it; `read` fails when what was taken makes no sense.
fn replay(decoder: &str, length: usize, read: impl Fn(&[u8]) -> Result<(), Malformed>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(decoder);
    let mut seeds = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = fs::read(entry.path()).unwrap();
        bytes.resize(length, 0);
        assert_eq!(
            read(&bytes).is_ok(),
            name.starts_with("ok-"),
            "{decoder}/{name}"
        );
        for mutation in mutations(&bytes) {
            let _ = read(&mutation); // taken or refused
        }
        seeds += 1;
    }
    assert!(seeds >= 5, "{seeds} seeds in {}", folder.display());
    let documents = drover_corpus::documents(folder);
    drover_corpus::replay_binary(documents, CHANGES, |bytes| {
        let mut bytes = bytes.to_vec();
        bytes.resize(length, 0);
        read(&bytes).map_err(|error| error.to_string())
    });
}

#[test]
fn preambles_of_the_corpus_and_all_their_mutations_are_read_alike_or_refused() {
    replay("preamble", PREAMBLE_BYTES, |bytes| {
        let read = Preamble::decode(&sized(bytes))?;
        assert_eq!(Preamble::decode(&read.encode()), Ok(read));
        Ok(())
    });
}

#[test]
fn answers_of_the_corpus_and_all_their_mutations_are_read_alike_or_refused() {
    replay("answer", ANSWER_BYTES, |bytes| {
        let head = Answer::decode_head(&sized(bytes))?;
        let again = match head {
            Ok(version) => Answer::GoOn(version, Answer::nonce(&sized(bytes))),
            Err((code, versions)) => Answer::Refused(code, versions),
        };
        let again = again.encode();
        let length = if head.is_ok() {
            ANSWER_BYTES
        } else {
            ANSWER_HEAD_BYTES
        };
        assert_eq!(again.len(), length);
        assert_eq!(Answer::decode_head(&sized(&again)), Ok(head));
        Ok(())
    });
}

#[test]
fn hellos_of_the_corpus_and_all_their_mutations_are_read_alike_or_refused() {
    replay("hello", HELLO_BYTES, |bytes| {
        let read = Hello::decode(&sized(bytes))?;
        assert_eq!(Hello::decode(&read.encode()), Ok(read));
        Ok(())
    });
}

#[test]
fn welcomes_of_the_corpus_and_all_their_mutations_are_read_alike_or_refused() {
    replay("welcome", WELCOME_BYTES, |bytes| {
        let read = Welcome::decode(&sized(bytes))?;
        assert_eq!(Welcome::decode(&read.encode()), Ok(read));
        Ok(())
    });
}

#[test]
fn frames_of_the_corpus_and_all_their_mutations_are_read_alike_or_refused() {
    replay("frame", HEADER_BYTES, |bytes| {
        let (read, checksum) = Frame::decode(&sized(bytes))?;
        assert!(read.payload_length() <= CHUNK_BYTES_MAX);
        let again = Frame::decode(&read.encode(checksum));
        assert_eq!(again, Ok((read, checksum)));
        Ok(())
    });
}
