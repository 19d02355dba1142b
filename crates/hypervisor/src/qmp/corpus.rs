//! Lines of real QEMUs, and changes of them, against everything that reads lines.

use super::message::{Message, decode};
use crate::events::understand;
use crate::limits::{EVENT_BYTES, EXCERPT_CHARS};
use crate::qemu::progress;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/qmp");

/// An excerpt has so many characters, each of at most 4 bytes.
const EXCERPT_BYTES: usize = 4 * EXCERPT_CHARS;

#[test]
fn lines_of_the_corpus_and_changes_of_them_are_understood_or_refused() {
    drover_corpus::replay(FOLDER, |line| {
        match decode(line).ok_or("no JSON object")? {
            Message::Event(event) => {
                assert!(
                    event.name.len() <= EXCERPT_BYTES,
                    "{} bytes",
                    event.name.len()
                );
                assert!(event.data.is_null() || line.len() <= EVENT_BYTES);
                understand(&event);
            }
            Message::Answer {
                result: Ok(value), ..
            } => {
                let read = progress(&value);
                assert!(read.error.is_none_or(|error| error.len() <= EXCERPT_BYTES));
            }
            Message::Answer {
                result: Err(refusal),
                ..
            } => assert!(refusal.description.len() <= EXCERPT_BYTES),
            Message::Greeting { .. } | Message::Unknown => {}
        }
        Ok(())
    });
}
