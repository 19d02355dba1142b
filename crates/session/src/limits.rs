//! Bounds of a session, each with its reason.

use std::time::Duration;

/// Longest time for which a written chunk goes unconfirmed. A checkpoint is sent earlier when a
/// quarter of the window was written. Small against the window, which holds some 25 ms of the
/// line, and large enough that a slow trickle does not cost a frame per chunk.
pub const CHECKPOINT_DELAY: Duration = Duration::from_millis(5);

/// A checkpoint is sent at the latest when this part of the window was written.
pub const CHECKPOINT_WINDOW_PART: u64 = 4;

/// Most bytes of a chunk where not every lane is known to be quick. Its time on the slowest lane is
/// what the other lanes may have to wait for: 5 ms at 200 Mbit/s. Twice the size cost 6 % of the
/// throughput over 1000, 500 and 200 Mbit/s.
pub const USUAL_CHUNK_BYTES: u32 = 128 << 10;

/// A chunk has up to the agreed size where the slowest lane carries that within this time. With
/// chunks of 256 KiB that is 1.05 Gbit/s for each lane, so that a lane on a line of 1 Gbit/s never
/// gets them.
pub const CHUNK_TIME: Duration = Duration::from_millis(2);

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

/// Shortest time between two receipts on a lane while frames keep coming; the first of a burst is
/// answered at once. Small against the delays that silence is judged by, and at most 500 small
/// frames a second.
pub const RECEIPT_INTERVAL: Duration = Duration::from_millis(2);

/// A lane that has nothing to carry is asked for a receipt this often: 160 bytes a second, and a
/// lane that fails is known before it is needed.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// A lane from which no receipt came for its expected delay, but at least this long, gets nothing
/// more, and what it carried goes to the others. Being wrong costs some chunks sent twice; being
/// late costs the guest. Above what a busy host needs now and then to run a thread (50 ms seen on
/// two cores under an emulated guest).
pub const SUSPECT_AFTER_MIN: Duration = Duration::from_millis(100);

/// The same at most: with 25 ms on the way, half a second means that the path fails its users.
pub const SUSPECT_AFTER_MAX: Duration = Duration::from_millis(500);

/// The same before the first receipt: a round trip around the world.
pub const SUSPECT_AFTER_UNMEASURED: Duration = Duration::from_millis(300);

/// Most often that the time before a suspicion is doubled because the last ones were wrong.
pub const PATIENCE_MAX: u32 = 4;

/// How long a wrong suspicion is remembered.
pub const PATIENCE_KEPT: Duration = Duration::from_secs(5);

/// A lane is given up after this many expected delays of silence, within the two bounds below.
/// Until then its connection may still come back; a new one is quicker than TCP's doubled
/// retransmission timers.
pub const LOST_DELAYS: u32 = 8;

/// Least silence after which a lane is given up: three of TCP's least retransmission timers
/// (200 ms, doubled twice) have passed.
pub const LOST_AFTER_MIN: Duration = Duration::from_secs(1);

/// Most silence, below TCP's own limit in `drover_lanes::limits`, so that the cause shown is ours.
pub const LOST_AFTER_MAX: Duration = Duration::from_secs(8);

/// A new lane whose first ping goes unanswered for this long is given up.
pub const LOST_AFTER_UNMEASURED: Duration = Duration::from_secs(2);

/// Time in which something was under way, after which a lane's rate is measured anew: a NIC that
/// slows down is known by its new rate within five of these.
pub const RATE_INTERVAL: Duration = Duration::from_millis(20);

/// A lane's rate is measured only while this part of a chunk is on its way on it. Checkpoints, pings and
/// the main channel's small writes take a round trip however quick the lane is: of 20 ms, they made a
/// lane of 200 Mbit/s one of 269 bytes per second, and it was never given a chunk.
pub const RATE_CHUNK_PART: u32 = 4;

/// An idle lane's rate is forgotten after this, so that it is tried again.
pub const RATE_KEPT: Duration = Duration::from_millis(500);

/// Bytes per second assumed of a lane before it was measured: 1 Gbit/s.
pub const UNMEASURED_RATE: u64 = 125_000_000;

/// Time of a lane's own rate that may be on its way on it, beside two of its shortest round trips:
/// what waits there cannot go over another lane. Below [`QUEUE_TIME`], so that no lane takes a whole
/// window.
pub const LANE_QUEUE_TIME: Duration = Duration::from_millis(20);

/// Chunks that may be on their way on a lane whose rate is not known.
pub const START_CREDIT_CHUNKS: u64 = 4;

/// A lane takes no chunk that would arrive later than this, unless every lane is slow: the others
/// would have to hold what follows it, and the window bounds that.
pub const LATE: Duration = Duration::from_millis(50);

/// A lane may be this much slower than the quickest for the main channel's chunks, whose delay is
/// felt in the guest's downtime.
pub const URGENT_SLACK: Duration = Duration::from_millis(2);

/// An idle lane sends another's chunk as well if it arrives sooner by more than this and the other is
/// late with it: by more than this beyond what was expected when it was given, or because it would
/// take longer than [`LATE`]. That an idle lane is quicker is not enough: each lane queues up to
/// [`LANE_QUEUE_TIME`], and over 32 equal lines 2 to 12 % were sent twice for nothing (simulated), ...
pub const HEDGE_MARGIN: Duration = Duration::from_millis(5);

/// ... looking every so often while nothing else happens, ...
pub const HEDGE_CHECK: Duration = Duration::from_millis(10);

/// ... at this many of the oldest on each lane.
pub const HEDGE_SCAN: usize = 8;

/// Chunks by which a lane may leave the oldest waiting one behind to stay with its channel: the
/// fewer lanes a channel uses, the less is held for its order.
pub const FLOWLET_CHUNKS: usize = 8;

/// Over which a limit holds, wherever it begins: limits are rates per second.
pub const LIMIT_HOLDS_OVER: Duration = Duration::from_secs(1);

/// Unused time that a limit gives back: 1 % of a second, so that the limit holds over any second.
pub const LIMIT_BURST: Duration = Duration::from_millis(10);

/// Time at a limit's rate that a chunk takes: 2 % of a second, which with [`LIMIT_BURST`] is the most
/// that a second holds beyond the limit.
pub const LIMITED_CHUNK_TIME: Duration = Duration::from_millis(20);

/// Least that a chunk may hold under a limit, whatever time that takes: at 1 Mbit/s 31 chunks go in a
/// second, and their headers are half a percent.
pub const LIMITED_CHUNK_LEAST: u32 = 4 << 10;

/// What a second may be filled with by whole chunks that take long: 1 % less than is allowed.
pub const LIMIT_FULL_SECOND: Duration = Duration::from_millis(1040);

/// Lanes that are gone whose counters are kept one by one. A path that flaps loses one in a second or
/// so; those before them are summed up by path.
pub const LOST_LANES_KEPT: usize = 1024;

/// Paths whose forgotten lanes are summed up: all that a session knows, dead ones included. Numbers that a
/// peer makes up beyond those take no memory.
pub const FORGOTTEN_PATHS: usize = 64;

/// How long a number of lanes is measured: many of TCP's round trips, and short in a migration of
/// some seconds.
pub const LANE_TRIAL: Duration = Duration::from_millis(500);

/// After a trial that did not help; doubled each time.
pub const LANE_TRIAL_REST: Duration = Duration::from_secs(10);

/// Longest pause between two trials.
pub const LANE_TRIAL_REST_MAX: Duration = Duration::from_secs(120);
