//! Decoders against kept documents, and against changes of them.
//!
//! ```text
//!   tests/corpus/NAME/ok-...   must be read      ─┐
//!   tests/corpus/NAME/bad-...  must be refused   ─┼─ changed, spliced, cut, changed again ─▶ decoder
//!   what was refused in new words               ─┘
//! ```
//! A panic, a document that takes long, memory that grows and a refusal that nobody could read fail
//! the test, with the document. A replay is the same each time. `DROVER_FUZZ_SECONDS` lets each
//! go on for so long, with other changes each time; words of refusal that were not heard before tell
//! that a change led somewhere new, and what it led to is changed further.
//!
//! What is no text ([`replay_binary`]) is changed otherwise: numbers of several bytes, and packets. Its documents may be made by the test.
//!
//! It is for tests only, and panics as they do.

#![allow(
    clippy::panic,
    clippy::expect_used,
    reason = "a panic is how a test fails"
)]

mod binary;
mod change;
mod dice;
pub mod limits;
mod replay;

pub use replay::{Document, documents, replay, replay_binary};
