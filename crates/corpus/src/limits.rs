//! Bounds of a replay, each with its reason.

use std::time::Duration;

/// Changed documents of each kept one in a test run: some tenths of a second for a decoder of JSON.
pub const CHANGES: u32 = 500;

/// Longest time for one document. The longest are some 300 KiB, which is milliseconds; a busy
/// machine takes a second to come back to a thread.
pub const READING: Duration = Duration::from_secs(5);

/// Most that the process' memory may grow by in a replay: many times the longest document. A length
/// that lies and is believed takes gigabytes.
pub const MEMORY_BYTES: u64 = 256 << 20;

/// Longest words of a refusal: somebody has to read them.
pub const REFUSAL_BYTES: usize = 4 << 10;

/// Documents that a replay keeps because their refusal was new.
pub const KEPT: usize = 1000;

/// Longest document that is changed again, unless those that are kept are longer; changes make documents longer.
pub const GROWN_BYTES: usize = 64 << 10;

/// How deep nesting is laid on.
pub const NESTING: usize = 20_000;

/// How often a piece of a document is repeated at the most.
pub const REPEATS: usize = 300;
