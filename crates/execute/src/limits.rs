//! The bound of every wait and size of a run, each with its reason.

use std::time::Duration;

/// Times that a guest is tried to be moved in one run. The second goes elsewhere where that can be, the third
/// is for a cluster that was in motion; more would be the same fault again.
pub const ATTEMPTS: u32 = 3;

/// Rounds of planning and moving: [`ATTEMPTS`], and two more, for guests that were started meanwhile and moves
/// that waited for one that failed, or to find out that a guest has no other place than the one that failed.
pub const ROUNDS: u32 = 5;

/// Moves, hosts and guests left in one entry of the journal. The longest of them is a guest that is left,
/// with its reason of 400 characters of 4 bytes: 50 of them are 100 KiB, below the 128 KiB of a value.
pub const PART: usize = 50;

/// How long an agent may be silent to an order or a look before the move counts as unknown: ten times
/// the outage limit of a migration, in which it has ended by itself at either end.
pub const SILENCE: Duration = Duration::from_secs(300);

/// How long an agent may be silent when a run begins or ends there: longer than an agent's restart.
pub const SILENCE_AT_ENDS: Duration = Duration::from_secs(30);

/// How long source and destination may take to be seen as they have to be after a migration was said to
/// be complete: the source's QEMU is told to quit, which takes a second or two on a loaded host.
pub const CONFIRM: Duration = Duration::from_secs(60);

/// Bulk of a migration that is seen before its rate says what the lines carry: TCP has found its rate by
/// then, and the number of lanes has been tried once.
pub const SETTLE: Duration = Duration::from_millis(1500);

/// Time that a migration takes before its first byte, and so the time before the end of another one at
/// which it is worth beginning.
pub const LEAD_MS: u64 = 1000;

/// Of a line, in percent, what has to be free for one more migration to be worth trying.
pub const FULL_PERCENT: u64 = 85;

/// What one more migration at once has to carry in all, in percent of what is carried without it, to be
/// worth its share of the lines: below it, each only takes longer and sends more pages again.
pub const WORTH_PERCENT: u64 = 115;

/// Guests that are stopped at once on one host. Each takes as long as its shutdown, most of that waiting; more
/// would be a storm of writes on one disk.
pub const STOPS_AT_ONCE: usize = 8;

/// Guests that are suspended at once on one host: one fills the disk that they are written to.
pub const SUSPENDS_AT_ONCE: usize = 1;

/// Guests that one run parks, and that are remembered for one host. With a name of 63 characters, an id and
/// how, each is 134 bytes: 400 of them are 54 kB, beside 1000 names of guests that come home, 66 kB, below
/// the 131 kB of a value.
pub const PARKED: usize = 400;

/// How long an order to park a guest may be under way: a shutdown is given an hour at most, and 1 TiB is written at
/// 300 MB/s in another. Beyond it somebody has to look.
pub const PARKING: Duration = Duration::from_secs(2 * 3600);

/// How long a parked guest may take until it runs again: QEMU's start, or 1 TiB read at 300 MB/s.
pub const UNPARKING: Duration = Duration::from_secs(3600);
