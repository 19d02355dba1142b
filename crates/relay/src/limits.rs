//! Bounds of a relay, each with its reason.

use std::time::Duration;

use drover_types::BitRate;
use drover_wire::limits::LANES_MAX;

pub use drover_lanes::limits::CONNECT_TIMEOUT;

/// Largest chunk in bytes where every line is quicker than [`USUAL_CHUNK_LINE`], for sessions that
/// find every lane quick (`drover_session::limits::CHUNK_TIME`): a chunk costs some ten system calls
/// whatever its size. More is not to be had: QEMU's UNIX socket holds 208 KiB
/// (`net.core.wmem_default`), and some more come while these are taken.
pub const CHUNK_BYTES: u32 = 256 << 10;

/// Where a line carries no more than this, chunks are never larger than
/// `drover_session::limits::USUAL_CHUNK_BYTES`, and the windows are counted in those.
pub const USUAL_CHUNK_LINE: BitRate = BitRate(1_000_000_000);

/// Bytes that may wait in the socket to the destination's QEMU, the kernel's own count of the pages
/// that hold them: four chunks, so that a thread that brings chunks seldom has to leave one to the
/// thread that waits for QEMU. They have arrived, so no lane and no downtime depends on them.
pub const QEMU_SOCKET_BYTES: usize = 1 << 20;

/// Time of the whole line that may be on its way. Long enough for a lane with a tenth of the rate
/// to deliver a chunk that the others wait for. The session keeps less on its way by itself, by what
/// the lanes really carry; this bounds its memory.
pub const WINDOW_TIME: Duration = Duration::from_millis(50);

/// Line rate assumed where a driver tells none.
pub const UNKNOWN_RATE_BITS: u64 = 10_000_000_000;

/// Fewest chunks in a channel's window: one being read, one queued, one on a lane, one to confirm.
pub const WINDOW_CHUNKS_MIN: u16 = 4;

/// Most bytes that the windows of one direction of all channels hold: 50 ms at 20 Gbit/s. It bounds
/// the memory of one migration on one host, as only the main channel carries much in both
/// directions.
pub const BUFFER_BYTES_MAX: u64 = 128 << 20;

/// Most bytes of the chunks that channels read into and lanes receive into, beside the windows: one
/// each of 36 channels and 64 lanes, of 256 KiB. It bounds the size of chunks that a peer may ask for.
pub const SPARE_BYTES_MAX: u64 = 25 << 20;

/// Jobs that a thread does for others before it goes back to its own socket. Each takes the time of
/// one chunk, some 20 µs, and its own socket holds more than eight of QEMU's (208 KiB of 4 KiB pages).
pub const HELP_JOBS: usize = 8;

/// Bytes that a slot of a pipe holds at the least, when they came over Ethernet with an MTU of 1500:
/// the kernel keeps each packet apart. 256 KiB are then 184 slots, made 256, of 40 bytes each.
pub const PIPE_SEGMENT_BYTES: u32 = 1448;

/// Part of the process's descriptors (`RLIMIT_NOFILE`) that the pipes of one session may take. With
/// the 65536 of the agent's unit that is 8192 chunks of up to 256 KiB, far more than [`BUFFER_BYTES_MAX`]
/// both ways; with a shell's 1024 it is 128, and the rest is copied.
pub const PIPES_DESCRIPTORS_PART: u64 = 4;

/// Paths that a session keeps, dead ones with them: each is dialled with a lane of its own at the least.
pub const PATHS_KEPT: usize = LANES_MAX as usize;

/// Interfaces whose placement is known: a session has at most 32 living paths, and meets as many
/// interfaces again where they are replaced while it runs.
pub const NICS_MAX: usize = 64;

/// Connections tried at once to find out what reaches what; each costs a thread for a moment.
pub const PROBES_AT_ONCE: usize = 32;

/// Both ends have this long from the connection to the lane, however many messages it takes: some
/// round trips and two signatures need milliseconds, a host that is busy with a switchover a second.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may be greeted at once, each by a thread: the lanes of four of the largest
/// sessions that begin in the same moment. With 32 KiB each until they have proved who they are,
/// that is 8 MiB.
pub const GREETED_MAX: usize = 256;

/// Those of one address: all lanes of the largest session, over one path. A silent peer holds a
/// place for [`HANDSHAKE_TIMEOUT`], and this leaves three quarters of the places to others.
pub const GREETED_PER_ADDRESS: usize = 64;

/// Those of one IPv6 network (/64), in which a stranger has any address: half of the places, as hosts of
/// a cluster are often neighbours in one, and two of them may open their lanes at once.
pub const GREETED_PER_NETWORK: usize = 128;

/// The log is told of connections that are turned away for one cause this often, and how many there
/// were: whoever can connect could fill a disk otherwise.
pub const TURNED_AWAY_PAUSE: Duration = Duration::from_secs(1);

/// After our farewell the peer has this long to take what is on its way; then all is closed.
pub const FAREWELL_TIME: Duration = Duration::from_millis(500);

/// How often the amount carried is noted, to tell the rate of the bulk phase.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Samples kept. When there are more, every other one is dropped and the interval doubled.
pub const SAMPLES_MAX: usize = 4096;

/// From the closing of a disk's socket to that of the next, when whoever drives QEMU has gone: QEMU ends a copy within some 10 ms of it, and
/// some 100 ms on a machine that is busy. All of 16 disks take 3 s.
pub const BETWEEN_DISKS: Duration = Duration::from_millis(200);

/// After a failed accept, for one because descriptors ran out: the condition would outlast a busy
/// loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A channel that is read only to be thrown away is left when QEMU sends nothing for this long: it
/// closes its channels within milliseconds after a migration failed.
pub const DRAIN_SILENCE: Duration = Duration::from_secs(30);

/// Bytes thrown away at once.
pub const DRAIN_BYTES: usize = 64 << 10;

/// Longest wait for a peer to accept a lane that is dialled again. Shorter than at first, as it is
/// tried again at once: a SYN is sent again by TCP only after 1 s, so a longer wait sends no more of
/// them.
pub const REDIAL_PATIENCE: Duration = Duration::from_secs(1);

/// The same for the first [`QUICK_ATTEMPTS`] after a path was lost: a path that was just there is likely
/// to come back soon, and a SYN that was lost is not sent again before 1 s. Twice the delay of a
/// path around half the world.
pub const QUICK_PATIENCE: Duration = Duration::from_millis(250);

/// Attempts that are given up after [`QUICK_PATIENCE`]; later ones wait longer, as the path may be slow.
pub const QUICK_ATTEMPTS: u32 = 4;

/// Pauses after the first and each further attempt on a path that came to nothing; the last one stays.
/// With [`REDIAL_PATIENCE`], a path that returns without a word is found within some 2 s, and a dead one
/// costs half a SYN a second.
pub const REDIAL_PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1000),
];

/// Sizes of TCP segments tried on a path on which large packets vanish: what fits into the smallest
/// packet of IPv6 (1280 bytes less 60 of headers), and what every IPv4 host takes (RFC 9293, 3.7.1).
pub const SEGMENT_BYTES: [u16; 2] = [1220, 536];

/// A lane that was given payload, lived this long without any of it confirmed, and on which small frames
/// came meanwhile, counts as one on which large packets vanish: more than any round trip and its first
/// retransmissions.
pub const LOST_WITHOUT_USE: Duration = Duration::from_millis(500);

/// Such lanes in a row, each opened after the end of the last, until smaller segments are tried:
/// one can die in a moment in which its path does.
pub const LOST_IN_A_ROW: u32 = 2;

/// Pause before a path is tried again on which nothing but small packets get through.
pub const GIVEN_UP_PAUSE: Duration = Duration::from_secs(30);

/// How often a look is taken at what each path carries, to find out how many lanes it should have:
/// five times in a trial (`drover_session::limits::LANE_TRIAL`).
pub const LANE_LOOK: Duration = Duration::from_millis(100);

/// Until lanes are asked again to leave a full session in which a path waits for one: what they carry
/// takes far less to arrive, unless their path is ailing.
pub const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// What a peer that accepted a connection of ours has to make a lane of it: TLS takes two round trips
/// and some milliseconds of two busy processors. It is tried again after that, so a longer wait only
/// hides for longer that large packets vanish.
pub const GREETING_PATIENCE: Duration = Duration::from_secs(2);

/// From the first open lane to the beginning of the session, for the others to open: less than what
/// the destination takes silence for, which is a second.
pub const OPENING_GRACE: Duration = Duration::from_millis(700);

/// How often the destination looks for pages that were stored since: a thousandth of what a drain of small guests takes.
pub(crate) const STORED_LOOK: Duration = Duration::from_millis(20);

/// Stored pages that are told at once: 64 KiB.
pub(crate) const STORED_TOLD_AT_ONCE: u32 = 4096;

/// Pieces in which stored pages are told that follow each other in their file: 16 bytes each, 1 MiB in all. A file that grows goes on as one
/// piece, and a guest has two files at most, of which one grows: beyond that no more are told.
pub(crate) const STORED_RUNS: usize = 1 << 16;

/// How long a stored page is waited for, in looks of [`STORED_READ_LOOK`]: 10 s. A disk that reads a bad sector again and again says after 7 s
/// that it cannot; one that says nothing by then may never. The migration fails by it, with the guest where it was.
pub(crate) const STORED_READ_LOOKS: u32 = 10;

/// Of these, how long one lasts.
pub(crate) const STORED_READ_LOOK: Duration = Duration::from_secs(1);

/// Bytes of pages that may wait to be stored or recorded, beyond which they are left out, where nobody gives them more: 64 chunks of
/// 256 KiB.
pub const STORED_WAITING_BYTES: u64 = 16 << 20;

/// By how much packing is nicer than all else (`nice(2)`): a guest's processor that wants the same CPU gets three quarters of
/// it.
pub const PACKING_NICE: i32 = 5;
