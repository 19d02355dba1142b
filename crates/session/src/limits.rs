//! Bounds of a session, each with its reason.

use std::time::Duration;

/// Longest time for which a written chunk goes unconfirmed. A checkpoint is sent earlier when a
/// quarter of the window was written. Small against the window, which holds some 50 ms of the
/// line, and large enough that a slow trickle does not cost a frame per chunk.
pub const CHECKPOINT_DELAY: Duration = Duration::from_millis(5);

/// A checkpoint is sent at the latest when this part of the window was written.
pub const CHECKPOINT_WINDOW_PART: u64 = 4;

/// Chunks without bytes (open, end, reset) that may be on their way beside a full window.
pub const CONTROL_CHUNKS: u64 = 3;
