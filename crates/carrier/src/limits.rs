//! Bounds of a relay's process and of what it and its agent say to each other, each with its reason.

use std::time::Duration;

/// Longest line. A report of 1,088 lanes (64, and 1,024 that are gone and remembered) of some 700 bytes
/// each fits, with what 64 paths carried before.
pub const LINE_BYTES: usize = 1 << 20;

/// Bytes that may wait for an agent that does not read. More than one report and the events that are
/// kept, far below 2 MiB, wait only for one that asks and does not hear the answers: it is let go of.
/// Four of the longest lines.
pub const UNREAD_BYTES: usize = 4 * LINE_BYTES;

/// Events that are kept for an agent that is not there, or does not read. A path that flaps tells of itself every
/// second or so: the last quarter of an hour. All 64 lanes that are lost and come back at once are
/// a fifth of it. Some 200 bytes each.
pub const EVENTS_KEPT: usize = 1024;

/// Descriptors that may have come ahead of the lines that they belong to, and lanes that may be in
/// their opening at once.
pub const LANES_OPENING: usize = 64;

/// Largest record of a process (`process.json`): a pid and a start time of at most 20 digits, and the
/// names of both, many times over.
pub const RECORD_BYTES: u64 = 4096;

/// How often an agent is told the counters: five a second move a progress bar smoothly.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// How often it is looked how long processors slept, beside the last look. Hosts of 512 processors need some 20 ms for it, in
/// which the agent is not answered: 0.4 % of one of them.
pub const IDLE_LOOKS: Duration = Duration::from_secs(5);

/// A process that was started has this long to hear what it is to carry.
pub const BEGIN: Duration = Duration::from_secs(30);

/// The process greets within this, as it has nothing else to do first: starting a program on a host
/// that swaps.
pub const GREETING: Duration = Duration::from_secs(10);

/// Most requests are answered within microseconds; this is for a host that swaps.
pub const ANSWER: Duration = Duration::from_secs(5);

/// Opening lanes: one connect and one handshake, all lanes at once, and a margin.
pub const OPEN_ANSWER: Duration = Duration::from_secs(20);

/// A line to the process is taken within this: its socket holds 208 KiB, and it always reads.
pub const SEND: Duration = Duration::from_secs(5);

/// Limits that a process holds: of each path that it may know, and of all together.
pub const LIMITS_HELD: usize = drover_relay::limits::PATHS_KEPT + 1;

/// After its session was closed a process stays as long as QEMU still writes into the closed channels
/// (`drover_relay::limits::DRAIN_SILENCE`), and no longer than this.
pub const CLOSING: Duration = Duration::from_secs(60);

/// A session that was closed says so within `drover_relay::limits::FAREWELL_TIME`; one that does not is
/// let go of after this.
pub const FAREWELL: Duration = Duration::from_secs(1);

/// The last lines for the agent, before the process ends.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// From `SIGKILL` to the end of a process, whose memory has to be given back.
pub const KILLED: Duration = Duration::from_secs(10);
