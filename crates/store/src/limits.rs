//! Every size, count and wait of the store, each with its reason.

use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Characters of a name. The longest of ours are a host's and a guest's, 63 each, joined.
pub const NAME: usize = 128;

/// Bytes of one value. A host with 200 guests and its NICs is some 40 KiB of JSON; a plan is one
/// document for each host.
pub const VALUE_BYTES: usize = 128 * KIB;

/// Writes of one transaction: a step in the journal, a run, and the hosts and guests it concerns.
/// Each may need a condition, and etcd takes 128 of either (`--max-txn-ops`).
pub const TRANSACTION_WRITES: usize = 40;

/// Conditions of one transaction: an appended entry has three, and 3 x [`TRANSACTION_WRITES`] and
/// the fence are 121, below etcd's 128.
pub const TRANSACTION_CONDITIONS: usize = 3 * TRANSACTION_WRITES;

/// Bytes of the values of one transaction. etcd refuses a request of more than 1.5 MiB
/// (`--max-request-bytes`); keys and framing of 40 writes and 120 conditions are below 64 KiB.
pub const TRANSACTION_BYTES: usize = MIB;

/// Documents of one page: 10,000 guests are 20 pages.
pub const PAGE_DOCUMENTS: usize = 500;

/// Bytes of the values of one page, after which it ends early; 32 of the largest documents.
pub const PAGE_BYTES: usize = 4 * MIB;

/// Entries of one journal. A drain of 10,000 guests writes some 8 steps for each: 80,000.
pub const JOURNAL_ENTRIES: u64 = 100_000;

/// The shortest lease. etcd gives none below 2 s (1.5 x its election timeout of 1 s, in whole
/// seconds), and a coordinator that is slow for a moment must not lose its own.
pub const LEASE_LEAST: Duration = Duration::from_secs(2);

/// The longest lease: so long a dead coordinator keeps others out at most.
pub const LEASE_MOST: Duration = Duration::from_secs(300);

/// A lease is renewed this often within its length, so that two renewals may fail in a row.
pub const RENEWALS_A_LEASE: u32 = 3;

/// Changes that the embedded store remembers for its watches. At 100 changes a second a reader may
/// be behind by 100 s before it has to list again.
pub const HISTORY_CHANGES: i64 = 10_000;

/// Bytes of the values of these changes, so that large documents do not fill the disk with history.
pub const HISTORY_BYTES: i64 = 64 << 20;

/// Changes that a watch takes from the store at once. More than [`TRANSACTION_WRITES`], since those
/// of one transaction are never given in parts; 128 of the largest are 16 MiB.
pub const WATCH_ROWS: usize = 128;

/// How soon a watch sees what another process wrote into the same file. It costs one look at an
/// index for each watch.
pub const FOREIGN_POLL: Duration = Duration::from_millis(500);

/// Orders that wait for the embedded store's thread; a commit takes a few milliseconds, so the last
/// of them waits about a second.
pub const ORDERS_WAITING: usize = 256;

/// How long the embedded store waits for another process that is writing to the same file.
pub const BUSY: Duration = Duration::from_secs(5);

/// Pause before the file is tried again while another process makes it, which takes some 20 ms.
pub const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How long an order may take in the embedded store before its outcome is called unknown: longer than
/// [`BUSY`] and than a disk that hangs for a moment.
pub const EMBEDDED_ANSWER: Duration = Duration::from_secs(30);

/// Pages of 4 KiB of the embedded store's file: 1 GiB. 10,000 guests and 500 hosts are 30 MiB, a full
/// journal 30 MiB, the history of changes 64 MiB.
pub const FILE_PAGES: i64 = 262_144;

/// How long one etcd member may take: a read or a write takes milliseconds, an election between
/// members one to two seconds.
pub const MEMBER_ANSWER: Duration = Duration::from_secs(2);

/// How long all members together are asked before there is said to be no quorum: four silent
/// members, or the end of an election.
pub const QUORUM_WAIT: Duration = Duration::from_secs(8);

/// How long a write that was sent may take before its outcome is called unknown. etcd itself gives up
/// after 5 s and two elections.
pub const WRITE_ANSWER: Duration = Duration::from_secs(7);

/// Pause after every member was asked once without success.
pub const QUORUM_PAUSE: Duration = Duration::from_millis(100);

/// etcd members that can be named; more than seven make a cluster slower, not safer.
pub const ETCD_MEMBERS: usize = 16;

/// Bytes of one answer of etcd: a page whose documents are all of the largest would be 62 MiB, and
/// is asked for in smaller parts instead; 4/3 for base64, and the rest for keys.
pub const ANSWER_BYTES: usize = 8 * MIB;

/// Bytes of one message of a watch. etcd cuts them at 2 MiB (request limit and 512 KiB of framing);
/// base64 makes that 2.7 MiB.
pub const WATCH_MESSAGE_BYTES: usize = 4 * MIB;

/// Bytes of one file with certificates or a key: the bundle of a whole system's authorities has 220 KiB.
pub const TLS_FILE_BYTES: u64 = 1 << 20;

/// A watch that has heard nothing for so long asks the next etcd member from where it was: the one
/// that it listens to may be cut off from the others, or stopped.
pub const WATCH_SILENCE: Duration = Duration::from_secs(3);
