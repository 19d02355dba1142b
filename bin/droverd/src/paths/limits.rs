//! The bound of every wait and every order of questions about paths and of loads, each with its reason.

use std::time::Duration;

use drover_api::limits as api;
use drover_reach::limits::LOAD_TIME_MOST;

use crate::limits::{INVENTORY, KEEP, PEER_PROBE};

/// Orders to answer questions about paths that are carried out at once: whoever asks a whole cluster has one host answer one other
/// at a time, so these are four people who do. Each may have [`ANSWER_ADDRESSES`] sockets.
pub const ANSWERERS: usize = 4;

/// Of them, those of one host or operator: one that lost the answer to its first order gives another.
pub const ANSWERERS_OF_ONE: usize = 2;

/// Addresses that one such order is answered at: twice as many as a session has paths.
pub const ANSWER_ADDRESSES: usize = 2 * drover_migrate::limits::PATHS;

/// From how many addresses such questions may come: all that a host may have in use.
pub const ASKERS: usize = drover_migrate::limits::INTERFACES * drover_migrate::limits::ADDRESSES;

const _: () = assert!(ASKERS <= drover_reach::limits::ASKERS);

/// Asking all paths to one host takes so long at most. 32 of them on one interface are asked one after another, in 0.3 s each where
/// nothing is wrong; one over which much is lost takes 7 s.
pub const ASKING: Duration = Duration::from_secs(30);

/// Pairs of addresses in different networks at which it is knocked at the same time: each is a socket, and silent for 2.5 s at most.
/// 256 pairs, all that there may be, take 10 s.
pub const KNOCKING_AT_ONCE: usize = 64;

/// Nobody is answered for longer, should nobody end it: [`ASKING`], and what ordering takes on a busy host.
pub const ANSWERING: Duration = Duration::from_secs(ASKING.as_secs() + 5);

const _: () = assert!(ANSWERING.as_secs() <= drover_reach::limits::ANSWER_TIME_MOST.as_secs());

/// Hosts that a change asks at once how large packets cross: each takes a tenth of 1 Gbit/s for some milliseconds.
pub const SIZES_AT_ONCE: usize = 8;

/// One of them has so long, with all that orders it to answer: 4 s until the first of its addresses is silent, some 20 ms to order it by the next one, 0.1 s
/// for each pair on which all is well. One on which large packets vanish takes 1.3 s, or 5 s with the patience of later tries; several one after the
/// other share it.
pub const SIZES_HOST: Duration = Duration::from_secs(8);

const _: () = assert!(SIZES_HOST.as_secs() < drover_change::limits::SIZES.as_secs());
const _: () = assert!(SIZES_HOST.as_secs() < ANSWERING.as_secs());

/// An answer is waited for so long at most by later attempts: a queue of 16 MB on a line of 1 Gbit/s, which a migration of others keeps full, takes
/// 130 ms.
pub const SIZES_PATIENCE: Duration = Duration::from_millis(200);

/// A search in which large packets vanish has some 26 such waits, both ways; with a fifth more for what crosses, and for ordering it.
pub const SIZES_WAITS: u32 = 32;

const _: () = assert!(SIZES_WAITS as u128 * SIZES_PATIENCE.as_millis() < SIZES_HOST.as_millis());

/// A host that answers too many others is ordered to answer again after so long: each of these is done within some 100 ms.
pub const SIZES_AGAIN: Duration = Duration::from_millis(200);

/// How long it is waited for a host to hear that it need answer no longer: it does in some 20 ms, and in less than this where it is busy. What
/// it has counted, which nobody needs here, it tells up to [`COUNTERS_LATE`] later.
pub const SIZES_END: Duration = Duration::from_secs(1);

/// Connections that one host has another open: from 64 interfaces with four addresses each. With [`CHANGE_PATH`] for each they take 8 s at most,
/// which is what a host has to tell in.
///
/// [`CHANGE_PATH`]: crate::limits::CHANGE_PATH
pub const OPENED_OF_HOST: usize = 256;

/// Drivers that ask their hardware what it has counted do so once a second (tg3, be2net, bnxt); an interface that has not counted what
/// crossed after two has not carried it.
pub const COUNTERS_LATE: Duration = Duration::from_secs(2);

/// How often it is looked at by then.
pub const COUNTERS_STEP: Duration = Duration::from_millis(100);

/// A request to ask paths waits so long for the one before it.
pub const ASK_TURN: Duration = Duration::from_secs(30);

const _: () = assert!(
    ASK_TURN.as_secs() + ASKING.as_secs() + 2 * api::READ_CALL.as_secs()
        <= api::PATHS_ASK_CALL.as_secs()
);

/// Hosts that ask at the same time when the paths of a cluster are asked: each is a connection, and each asks and answers at a
/// tenth of 1 Gbit/s at most.
pub const ASKING_AT_ONCE: usize = 32;

/// One host asks another for so long at most when the paths of a cluster are asked: [`ASKING`], and what ordering and ending take on
/// busy hosts. Who is silent after that is asked no more.
pub const ASKED_IN_CLUSTER: Duration = Duration::from_secs(ASKING.as_secs() + 10);

const _: () = assert!(ASKED_IN_CLUSTER.as_secs() < api::PATHS_ASK_CALL.as_secs());

/// Asking the paths of a cluster takes so long at most; two hosts with two paths take half a second. 16 hosts take some 15 s.
pub const CLUSTER_PATHS: Duration = Duration::from_secs(120);

/// Taking hosts for a load, one after the other, takes so long at most, of [`CLUSTER_PATHS`]: some 20 ms for each that answers, and
/// [`PEER_PROBE`] for one that does not.
pub const LOADS_BEGIN: Duration = Duration::from_secs(20);

/// What two hosts take that ask their paths and load them, beside the time of the load: 3 s until it is certain that one is silent, as long to
/// open connections, and what is needed to warm up and to tell. Later than so long before the end no two begin.
pub const LOADED_PAIR: Duration = Duration::from_secs(8);

const _: () = assert!(
    LOADS_BEGIN.as_secs() + LOADED_PAIR.as_secs() + LOAD_TIME_MOST.as_secs()
        < CLUSTER_PATHS.as_secs()
);

/// Loading paths of several hosts at once takes so long at most, after [`CLUSTER_PATHS`]: 2 n - 1 times 3 s for n hosts. 16 take 93 s.
pub const LOADS_TOGETHER: Duration = Duration::from_secs(120);

/// From an order to load until all begin: two handshakes and some round trips take some 50 ms, and a second on hosts that are busy.
pub const LOAD_LEAD: Duration = Duration::from_secs(1);

/// The most that such an order may ask for: nobody waits with open connections for longer.
pub const LOAD_LEAD_MOST: Duration = Duration::from_secs(5);

/// A host that loads tells so long after its end what came of it, or takes no part in what follows.
pub const LOAD_TOLD: Duration = Duration::from_secs(5);

// Its far host was asked by then what it says at the end.
const _: () = assert!(PEER_PROBE.as_secs() < LOAD_TOLD.as_secs());

/// A host is taken for a load for so long at most, should nobody end it: for both, and some that its order may take.
pub const LOAD_TAKEN: Duration =
    Duration::from_secs(CLUSTER_PATHS.as_secs() + LOADS_TOGETHER.as_secs() + 20);

/// Hosts that may load one at the same time: a thread each at the far end for a moment, and four for as long as it takes.
pub const LOADERS: usize = 64;

// Members are looked for, and their facts read; paths are asked; hosts that were taken are given back, all at once; and it is kept.
const _: () = assert!(
    PEER_PROBE.as_secs()
        + INVENTORY.as_secs()
        + CLUSTER_PATHS.as_secs()
        + PEER_PROBE.as_secs()
        + KEEP.as_secs()
        < api::PATHS_CALL.as_secs()
        && api::PATHS_CALL.as_secs() + LOADS_TOGETHER.as_secs() <= api::LOADS_CALL.as_secs()
);
