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

/// Most bytes that are encrypted at once and written with one system call: a chunk. It takes some
/// 20 µs, for which the lane's other direction waits, and stays in a core's second-level cache.
pub const SEAL_BYTES: usize = 128 << 10;

/// Most bytes of TLS that are read with one system call. A chunk with its records' overhead, and
/// the beginning of the next.
pub const READ_BYTES: usize = 160 << 10;

/// Longest record of TLS 1.3: 2^14 bytes, 256 of expansion, 5 of header (RFC 8446, 5.2).
pub const RECORD_BYTES_MAX: usize = (1 << 14) + 256 + 5;

/// What a record adds to its bytes with either cipher: header 5, content type 1, tag 16.
pub const RECORD_OVERHEAD: usize = 22;

/// Room for what TLS itself may have to say before the bytes, such as a change of keys.
pub const TLS_WORDS_BYTES: usize = 1 << 10;

/// Most bytes of TLS that are taken from a peer until it has proved who it is. The hello with a
/// hybrid key share takes 1.4 KiB, our certificates less than 1 KiB with their signature.
pub const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// Least number of bytes that a reader asks to be woken for (`SO_RCVLOWAT`): below two packets nothing
/// is saved.
pub const MARK_LEAST: usize = 4 << 10;

/// Most of them: half of what Linux gives a receiving socket at first (`tcp_rmem`, 128 KiB), so that they
/// always fit. A chunk then wakes its reader once or a few times, not with each packet.
pub const MARK_MOST: usize = 64 << 10;

/// How long it is waited for so many bytes; after it the reader takes what is there. 64 KiB take so
/// long at 26 Mbit/s. It also ends the wait where memory is so short that the kernel holds fewer.
pub const MARK_TIME: Duration = Duration::from_millis(20);
