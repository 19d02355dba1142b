//! Every bound of questions and answers, each with its reason.

use std::time::Duration;

use drover_types::{ByteRate, Bytes};

/// Largest packet of IP, header included: its length has 16 bits.
pub const PACKET_MOST: u32 = 65_535;

/// Sizes that are asked for at once. 9000 bytes are narrowed to 560, 37, 2 and 1.
pub const SIZES: usize = 16;

/// How often a size is asked for that nothing comes back of. Where each way loses a tenth, one that crosses is silent three times in
/// 0.7 % of cases, and larger ones that cross speak for it.
pub const TRIES: u32 = 3;

/// How often the smallest size that does not cross is asked for in the end: where each way loses a tenth, one that does cross is
/// silent so often once in 600 000 times.
pub const CONFIRM: usize = 8;

/// How often a size that is known to cross is asked for beside it. One of them answered is enough; where each way loses a tenth, both
/// are silent once in 28 times, and the confirmation is begun anew.
pub const CONTROLS: usize = 2;

/// Rounds of a search: 4 narrow any size down, each is tried [`TRIES`] times, and a confirmation that is answered begins it anew. A path
/// whose answers change all the time ends it.
pub const ROUNDS: u32 = 48;

/// How often it is asked whether anybody is there, each time for [`PATIENCE_MOST`]: the kernel looks for a neighbour three times, a
/// second apart, and what it has lost of that is no loss of the path. Where each way loses a tenth, all three are lost once in 150 times.
pub const KNOCKS: u32 = 5;

/// Small packets that are counted for loss and round trips: one of them lost is one in a hundred.
pub const VOLLEY: usize = 100;

/// Datagrams that are read at the end of a round without waiting: all answers of the largest one, and as many strangers' again.
pub const DRAINED: usize = 2 * (VOLLEY + KNOCKS as usize);

/// Time between two of them: 100 take 0.2 s, and are no burst to any queue.
pub const VOLLEY_GAP: Duration = Duration::from_millis(2);

/// Longest wait for an answer while no round trip is known. Half of the way around the world takes some 300 ms.
pub const PATIENCE_MOST: Duration = Duration::from_millis(500);

/// Least wait for one: a host that is busy wakes an agent later than that only now and then.
pub const PATIENCE_LEAST: Duration = Duration::from_millis(50);

/// How many of the longest round trips an answer may take.
pub const PATIENCE_TRIPS: u32 = 4;

/// Of a link's rate, what questions may have: the tenth part.
pub const OF_RATE: u64 = 10;

/// What a link of unknown rate counts as: 1 Gbit/s, as slow as those between hosts are.
pub const RATE_UNKNOWN: u64 = 1_000_000_000;

/// How long one path may be asked: it takes 2.5 s until nobody is there, a search over a path that loses some 3 s each way.
pub const ASK_TIME: Duration = Duration::from_secs(15);

/// Longest time that one path may be asked, whatever is given.
pub const ASK_TIME_MOST: Duration = Duration::from_secs(120);

/// Bytes that asking one path may cost, both ways: two searches over packets of 9000 bytes in which every size is tried three times cost
/// 1.5 MiB.
pub const ASK_BYTES: Bytes = Bytes(4 << 20);

/// Longest time for which answers may be ordered. A cluster's paths are asked in less.
pub const ANSWER_TIME_MOST: Duration = Duration::from_secs(120);

/// Most bytes of answers on one address, for one order: 16 paths at [`ASK_BYTES`].
pub const ANSWER_BYTES: Bytes = Bytes(64 << 20);

/// Most bytes of answers in a second: a tenth of 1 Gbit/s. What comes faster is left unanswered.
pub const ANSWER_RATE: ByteRate = ByteRate(12_500_000);

/// How far answers may be ahead of that rate: 16 sizes of 9000 bytes, asked over a fast link at once, and as much for a second asker.
pub const ANSWER_AHEAD: Duration = Duration::from_millis(25);

/// Addresses that may ask one answerer: those of the interfaces of as many hosts as a cluster has.
pub const ASKERS: usize = 1024;

/// Connections that load a path together: several, as a migration may have lanes on several members of a LAG, and as one core sends
/// some 20 to 40 Gbit/s by one of them.
pub const LOAD_CONNECTIONS: usize = 4;

/// How long a load runs before it is measured: slow start doubles each round trip, and reaches 10 Gbit/s over 10 ms in 11 of them.
pub const LOAD_WARM_UP: Duration = Duration::from_millis(400);

/// Longest time that a path may be measured.
pub const LOAD_TIME_MOST: Duration = Duration::from_secs(10);

/// Shortest time: what is sent in less is mostly on its way.
pub const LOAD_TIME_LEAST: Duration = Duration::from_millis(100);

/// How much later than it was to begin a load may that is made together with others: with what its order was late less than [`LOAD_WARM_UP`], so that
/// all run while any is measured.
pub const LOAD_LATE: Duration = Duration::from_millis(150);

/// How long an order to load, and its answer, may take on their ways: the order was no later than that. Two handshakes take some 20 ms.
pub const LOAD_ORDERED: Duration = Duration::from_millis(200);

/// How long a load that is made together with others goes on after it was measured: those that began late are measured until then.
pub const LOAD_REST: Duration = Duration::from_millis(400);

const _: () = assert!(LOAD_LATE.as_millis() + LOAD_ORDERED.as_millis() < LOAD_WARM_UP.as_millis());
const _: () = assert!(LOAD_LATE.as_millis() + LOAD_ORDERED.as_millis() < LOAD_REST.as_millis());

/// A load that is to be given up is given up within this time, and it is looked as often whether it is to be.
pub const LOAD_LOOK: Duration = Duration::from_millis(20);

/// How long opening all connections of a load may take: as a lane's greeting.
pub const LOAD_GREETING: Duration = Duration::from_secs(3);

/// Bytes that are written at once: what a core's second-level cache holds.
pub const LOAD_BUFFER: usize = 256 << 10;

/// Bytes that are dropped at once.
pub const SINK_BYTES: usize = 1 << 20;

/// Connections that load one order at the same time: those of 32 paths, as many as a session has.
pub const LOADS_AT_ONCE: usize = 32 * LOAD_CONNECTIONS;

/// The far end held a load up if its sockets had no room for more than this part of the time.
pub const PEER_FULL_SHARE: f64 = 0.5;

/// The near end held a load up if nothing was there to send for more than this part of the time.
pub const UNFED_SHARE: f64 = 0.2;
