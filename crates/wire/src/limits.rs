//! Bounds that both relays hold each other to.

/// Largest chunk payload in bytes. At 100 Gbit/s one chunk of this size takes 84 µs on the line.
pub const CHUNK_BYTES_MAX: u32 = 1 << 20;

/// Most channels in a session: QEMU's main channel, up to 16 multifd channels and one for
/// postcopy preemption leave room for as many again.
pub const CHANNELS_MAX: u16 = 36;

/// Most lanes in a session: 32 paths with two lanes each.
pub const LANES_MAX: u16 = 64;

/// Most chunks of one direction of one channel that may be on their way. With the largest chunk
/// that is 256 MiB, more than 100 Gbit/s carries in 20 ms.
pub const WINDOW_CHUNKS_MAX: u16 = 256;
