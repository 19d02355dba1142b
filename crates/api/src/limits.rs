//! The bound of every wait and every allocation at the API, each with its reason.

use std::time::Duration;

use drover_types::BitRate;

/// Largest request body. The largest is a request to receive a guest: a definition of at most
/// 256 arguments of 4 KiB (1 MiB) and some 100 interfaces of 1 KiB; twice that leaves room.
pub const REQUEST_BYTES: usize = 2 << 20;

/// Largest request with a plan to be carried out: as large as an answer with one ([`ANSWER_BYTES`]). 10,000 moves have
/// some 6 MB.
pub const PLAN_BYTES: usize = ANSWER_BYTES;

/// Largest answer that a client reads. A list of 1000 guests with 20 lines of stderr of up to
/// 1 KiB each is 20 MiB.
pub const ANSWER_BYTES: usize = 32 << 20;

/// A reason why a host takes no guests: one line of a terminal.
pub const CORDON_REASON_CHARS: usize = 120;

/// Who asked for a run: one word or two of a table.
pub const RUN_BY_CHARS: usize = 80;

/// Addresses of one peer that a client tries.
pub const PEER_ADDRESSES: usize = 16;

/// Connecting to one address: a SYN lost twice is sent again after 1 s and 3 s.
pub const CONNECT: Duration = Duration::from_secs(4);

/// Largest TCP segment: with its headers it fits the least MTU of IPv6, 1280 (RFC 8200, 5), which every
/// path carries.
pub const SEGMENT_BYTES: u32 = 1220;

/// From a connection to an identity that is verified, at either end: three messages, and some
/// milliseconds of work on a busy host; a lost packet costs a second more.
pub const HANDSHAKE: Duration = Duration::from_secs(5);

/// Before the next address of a host is tried beside the first: an address on a working NIC answers
/// within a millisecond or two, and a NIC that died must not hold up a hand-off.
pub const NEXT_ADDRESS: Duration = Duration::from_millis(40);

/// An answer that only reads state.
pub const READ_CALL: Duration = Duration::from_secs(15);

/// A link that is to be set on another host, by way of this one's agent: its own call, connecting and the handshake fit.
pub const LINK_CALL: Duration = Duration::from_secs(25);

const _: () =
    assert!(LINK_CALL.as_secs() > READ_CALL.as_secs() + CONNECT.as_secs() + HANDSHAKE.as_secs());

/// An answer whose the guest is: its agent believes it for a second more at most. Connecting and the
/// handshake fit.
pub const VERDICT_CALL: Duration = Duration::from_secs(9);

const _: () = assert!(VERDICT_CALL.as_secs() >= CONNECT.as_secs() + HANDSHAKE.as_secs());

/// An answer that starts a QEMU, or has a peer start one. The agent itself gives up on a QEMU
/// after 60 s (huge pages that are allocated first); this leaves it the time to say so.
pub const START_CALL: Duration = Duration::from_secs(90);

/// An answer of a host that joins: its own agent asks the authority's, over every address of it.
pub const JOIN_CALL: Duration = Duration::from_secs(60);

/// A plan: all members are asked side by side (10 s), and the largest cluster is planned within 5 s on an
/// idle processor.
pub const PLAN_CALL: Duration = Duration::from_secs(40);

/// The paths from one host to another: its agent waits 30 s for its turn and asks for 30 s at most; telling the other agent to
/// answer, and to end, are two calls.
pub const PATHS_ASK_CALL: Duration = Duration::from_secs(60 + 2 * READ_CALL.as_secs());

/// The paths of a cluster: whoever asks for all ends after 120 s; members are looked for and read before, given back after loads, and what was
/// found is kept, in 21 s.
pub const PATHS_CALL: Duration = Duration::from_secs(145);

/// The same where several hosts load each other after that: for 120 s at most.
pub const LOADS_CALL: Duration = Duration::from_secs(PATHS_CALL.as_secs() + 120);

/// A host that loads another at the same time as others: it waits for a second, has 3 s to open its connections, and loads for 11 s at
/// most; telling the other agent before and after are two calls.
pub const LOAD_CALL: Duration = Duration::from_secs(15 + 2 * READ_CALL.as_secs());

/// The text of a plan of changes to a host. A step takes some 300 bytes, with its comments; the longest plan has 4096.
pub const CHANGE_PLAN_BYTES: usize = 4 << 20;

/// Taking a change back: its process says within this that it does, or why it does not.
pub const UNDO_CALL: Duration = Duration::from_secs(30);

/// Suspending a guest, or starting one that may be suspended: 1 TiB is written or read at 300 MB/s in an hour.
pub const SAVED_CALL: Duration = Duration::from_secs(3600 + START_CALL.as_secs());

/// How long the agent waits for a guest to obey the power button.
pub const POWERDOWN: Duration = Duration::from_secs(90);

/// Stopping a guest: [`POWERDOWN`] and the end of QEMU after it.
pub const STOP_CALL: Duration = Duration::from_secs(120);

/// Arguments of QEMU in a definition.
pub const ARGS: usize = 256;

/// Bytes of one argument of QEMU in a definition.
pub const ARG_BYTES: usize = 4096;

/// Virtual CPUs of a guest: more than any QEMU machine type takes (4096 for q35 in QEMU 10).
pub const VCPUS: u32 = 4096;

/// Memory of a guest: 64 TiB, beyond the 46 address bits of today's hosts.
pub const MEMORY_BYTES: u64 = 64 << 40;

/// The least limit of a rate. Below it a chunk of 256 KiB takes more than two seconds, and a guest of
/// 1 GiB two hours and a half.
pub const LEAST_LIMIT: BitRate = BitRate(1_000_000);
