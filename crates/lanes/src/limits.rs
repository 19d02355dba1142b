//! Bounds of a lane, each with its reason.

use std::time::Duration;

/// Longest wait for a peer to accept a connection before a migration: two lost SYNs (1 s and 2 s) and their answers.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(3500);

/// A lane on which sent bytes stay unacknowledged for this long is given up by the kernel
/// (`TCP_USER_TIMEOUT`): long enough for a rebooting switch's port to flap, and shorter than an
/// operator's patience.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// An idle lane is probed this often (`TCP_KEEPINTVL`), so that a peer that vanished is noticed
/// within [`SILENCE_LIMIT`].
pub const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes that may wait unsent in a lane's socket (`TCP_NOTSENT_LOWAT`). What waits there cannot be
/// overtaken by the main channel, cannot go over another lane, and holds up the others on a slow
/// path. 64 KiB is 0.5 ms at 1 Gbit/s, which is enough to wake the lane's thread; four times as much
/// gained nothing without a limit, and cost a quarter of the throughput over unequal paths.
pub const UNSENT_BYTES: u32 = 64 << 10;

/// Connections that wait to be accepted.
pub const BACKLOG: i32 = 128;
