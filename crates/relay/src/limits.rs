//! Bounds of a relay, each with its reason.

use std::time::Duration;

/// Size of a chunk in bytes. A lane that is lost costs what it carried: 256 KiB is 2 ms at
/// 1 Gbit/s and 20 µs at 100 Gbit/s, and QEMU's UNIX socket rarely yields more in one read
/// (`net.core.wmem_default` is 208 KiB).
pub const CHUNK_BYTES: u32 = 256 << 10;

/// Time of the whole line that may be on its way. Long enough for a lane with a tenth of the rate
/// to deliver a chunk that the others wait for, short enough not to be felt when QEMU stops the
/// guest and its last pages wait behind.
pub const WINDOW_TIME: Duration = Duration::from_millis(50);

/// Line rate assumed where a driver tells none.
pub const UNKNOWN_RATE_BITS: u64 = 10_000_000_000;

/// Fewest chunks in a channel's window: one being read, one queued, one on a lane, one to confirm.
pub const WINDOW_CHUNKS_MIN: u16 = 4;

/// Most bytes that the windows of one direction of all channels hold: 50 ms at 20 Gbit/s. It bounds
/// the memory of one migration on one host, as only the main channel carries much in both
/// directions.
pub const BUFFER_BYTES_MAX: u64 = 128 << 20;

/// Connections tried at once to find out what reaches what; each costs a thread for a moment.
pub const PROBES_AT_ONCE: usize = 32;

/// A peer that connected has this long to say which migration it belongs to.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may be in their handshake at once: all lanes of a large session.
pub const HANDSHAKES_MAX: usize = 64;

/// After our farewell the peer has this long to take what is on its way; then all is closed.
pub const FAREWELL_TIME: Duration = Duration::from_millis(500);

/// How often the amount carried is noted, to tell the rate of the bulk phase.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Samples kept. When there are more, every other one is dropped and the interval doubled.
pub const SAMPLES_MAX: usize = 4096;

/// After a failed accept, for one because descriptors ran out: the condition would outlast a busy
/// loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
