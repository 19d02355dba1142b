//! Bounds of a session, each with its reason.

use std::time::Duration;

/// Longest time for which a written chunk goes unconfirmed. A checkpoint is sent earlier when a
/// quarter of the window was written. Small against the window, which holds some 25 ms of the
/// line, and large enough that a slow trickle does not cost a frame per chunk.
pub const CHECKPOINT_DELAY: Duration = Duration::from_millis(5);

/// A checkpoint is sent at the latest when this part of the window was written.
pub const CHECKPOINT_WINDOW_PART: u64 = 4;

/// Chunks without bytes (open, end, reset) that may be on their way beside a full window.
pub const CONTROL_CHUNKS: u64 = 3;

/// Time at the measured rate that a channel may have on its way. It is felt twice: the guest's last
/// pages wait behind it when QEMU stops the guest (50 ms: 216 ms of downtime over two lines of
/// 1 Gbit/s, 25 ms: 155 ms), and the lanes that are fast wait for a chunk on a slow one (25 ms: 98 %
/// of 1000, 500 and 200 Mbit/s together, 12 ms: 56 %).
pub const QUEUE_TIME: Duration = Duration::from_millis(25);

/// How often a channel's window is adjusted.
pub const PACE_INTERVAL: Duration = Duration::from_millis(20);

/// Chunks that a channel may always have on their way, and begins with: one being written, one on
/// each of some lanes, one being read. At a delay of 1 ms that is 2 GB/s, so that a window that
/// begins or became small grows within a few intervals.
pub const PACE_START_CHUNKS: u64 = 8;

/// Part of its size that a window keeps at the least when it is adjusted, as one late chunk says
/// little.
pub const PACE_SHRINK: (u64, u64) = (7, 8);
