//! The bound of every wait, queue and size of the agent, each with its reason. Those of the API
//! are in `drover_api::limits`.

use std::time::Duration;

use drover_api::limits as api;
use drover_migrate::limits::{GIVING_UP, HAND_OFF_ANSWER, VERDICT_ANSWER};
use drover_types::Bytes;

/// The least memory for reduction that can be configured: enough for 18 channels' smallest windows, and as much again.
pub const REDUCTION_MEMORY_LEAST: Bytes = Bytes(16 << 20);

/// The most: all the pages that can be kept (`drover_reduce::limits::SLOTS_MOST`).
pub const REDUCTION_MEMORY_MOST: Bytes = Bytes(16 << 30);

/// The strictest CPU latency, in microseconds: servers' processors wake from C1 within 1 or 2. With less all of the host's spin that
/// have nothing to do.
pub const CPU_LATENCY_LEAST: u32 = 2;

/// The loosest CPU latency, in microseconds: servers' processors wake from the deepest of their idle states within 100 to 800.
pub const CPU_LATENCY_MOST: u32 = 1000;

/// Largest configuration or definition file: 256 arguments of 4 KiB and their quotes.
pub const FILE_BYTES: u64 = 2 << 20;

/// Between two looks whether a host has a libvirt that is used where there is one: two names in a directory. A libvirtd that is
/// restarted is away for a second.
pub const LIBVIRT_LOOK: Duration = Duration::from_secs(2);

/// For a libvirt of which nothing is known yet, or that was lost, before a guest is refused for that: the first guests may be asked
/// for as soon as a host that was booted answers. To connect takes 10 ms, and 1.5 s where libvirtd has just been started; one that is
/// restarted is looked for a second later.
pub const LIBVIRT_KNOWN: Duration = Duration::from_secs(5);

/// What is looked at of a QEMU's command for its guest's id: libvirt gives it before any device.
pub const COMMAND_BYTES: u64 = 1 << 20;

/// Commands that are read at once, each by a thread: QEMUs that hang may keep as many for as long as they run.
pub const COMMANDS_READ: usize = 32;

/// What a codec remembers of each channel, as a power of two of bytes: 4 MiB, of which all channels have one.
pub const WINDOW_LOG: u32 = 22;

/// The least that is worth having: a chunk.
pub const WINDOW_LOG_LEAST: u32 = 17;

/// This part of the memory for reduction is for knowing the pages that the destination has stored, at the source.
pub const STORED_PART: u64 = 8;

/// What it takes to know one (`drover_pagestore::KnownDigests`): 22 bytes, and what is left of the last block of digests.
pub const STORED_PAGE_BYTES: u64 = 23;

/// How often it is looked whether shared pages are to be given back, which are kept for minutes at the least.
pub const SHARED_PAGES_LOOK: Duration = Duration::from_secs(30);

/// The most memory for shared pages that can be configured: each relay knows what is in it by 22 bytes a page, 44 MiB.
pub const SHARED_PAGES_MOST: Bytes = Bytes(8 << 30);

/// The least, but for none.
pub const SHARED_PAGES_LEAST: Bytes = Bytes(16 << 20);

/// A checkpoint has room for this part of the guest's memory more than that: pages that changed while it left are in it twice.
pub const CHECKPOINT_SPARE: u64 = 4;

/// A baseline has room for this part more: for what its pages are known and sealed by, 36 bytes for each.
pub const BASELINE_SPARE: u64 = 100;

/// And for so much beside: memory of devices, and digests.
pub const CHECKPOINT_BESIDE: Bytes = Bytes(16 << 20);

/// With room for less than this part of a guest's memory, none is kept of it.
pub const CHECKPOINT_PART_LEAST: u64 = 2;

/// The least memory for pages of a guest that wait to be kept: what a relay takes for that in any case.
pub const CHECKPOINT_WAITING_LEAST: Bytes = Bytes(drover_relay::limits::STORED_WAITING_BYTES);

/// And the most: what a disk of 300 MB/s takes before a relay's process ends all the same.
pub const CHECKPOINT_WAITING_MOST: Bytes = Bytes(16 << 30);

/// Of the memory that a host has to give when a guest begins to move, and that others which move were not promised, it is this part at
/// most.
pub const CHECKPOINT_WAITING_PART: u64 = 4;

/// How long a disk is waited for on which pages of a guest are to be kept, or are: a disk that has to start first takes some seconds. The
/// guest moves without them then; nothing of it has begun to move before.
pub const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(8);

/// How long, of that, room is waited for that removed files have not given back yet: who asks for it still waits then, and hears why
/// there is none.
pub const CHECKPOINT_ROOM: Duration = Duration::from_secs(CHECKPOINT_PATIENCE.as_secs() - 2);

/// How long an agent that starts waits for that disk, before it takes up the migrations that it was moving.
pub const CHECKPOINT_START: Duration = Duration::from_secs(1);

const _: () = assert!(
    2 * CHECKPOINT_PATIENCE.as_secs() + LIBVIRT_KNOWN.as_secs() < api::START_CALL.as_secs()
);

/// What may wait for that disk at once, each for as long as that: a guest on its way asks for two things, one after the other, and more than
/// some guests at once wait for lines.
pub const CHECKPOINTS_ASKED: usize = 16;

/// What may wait for it when nobody waits for that: files of guests that have come and gone, to be kept or removed. While the disk hangs
/// none are begun, so that they are of guests that were on their way, and of some that came back. As many removed files may wait to be let
/// go of, beside these; who removes more waits for that himself, as he waits for the disk.
pub const CHECKPOINTS_DEFERRED: usize = 256;

/// How long an agent that ends waits for that: what is not kept by then crosses again, and what is not removed may fail one more return.
/// With what migrations may take it is within what systemd gives it (`TimeoutStopSec`, 80 s).
pub const CHECKPOINTS_END: Duration = Duration::from_secs(10);

/// How often it is looked which checkpoints are too old.
pub const CHECKPOINTS_LOOK: Duration = Duration::from_mins(1);

/// At least this part of the memory for reduction is for kept pages.
pub const KEPT_PART_LEAST: u64 = 2;

/// How often it is looked whether there are other adapters to listen at for LLDP though nothing was told of it, and again where it failed.
pub const LLDP_LOOK: Duration = Duration::from_mins(1);

/// How long is waited for more when interfaces come or go: a host with 100 guests that start has 100 taps more.
pub const LLDP_SETTLE: Duration = Duration::from_secs(1);

/// Between two frames of LLDP that are taken in of one adapter: a switch sends one in 30 s, and who floods gets 100 a second, some 1 ms of a
/// processor.
pub const LLDP_PACE: Duration = Duration::from_millis(10);

/// Between two looks for a change whose process has died. One that is carried out is left alone; of one that was left, what it did is
/// taken back that much later.
pub const CHANGES_LOOK: Duration = Duration::from_secs(2);

/// Changes to this host that are kept: of one a day those of four months. Each has an order and a journal of some kilobytes.
pub const CHANGES_KEPT: usize = 128;

/// Folders of changes that are looked at, should somebody have put others there.
pub const CHANGES_LISTED: usize = 1024;

/// A change that is to be undone says within this that it is, or why it is not: 64 settings are looked at and set back within a
/// second. One that takes longer goes on by itself.
pub const UNDO_ANSWER: Duration = Duration::from_secs(20);

const _: () = assert!(UNDO_ANSWER.as_secs() < api::UNDO_CALL.as_secs());
const _: () = assert!(api::CHANGE_PLAN_BYTES as u64 == drover_change::limits::PLAN_BYTES);

/// For one other host to answer on one path: a round trip of a millisecond or two.
pub const CHANGE_PATH: Duration = Duration::from_secs(1);

/// Paths that are tried at once, at the least: a host answers as many handshakes of one address.
pub const CHANGE_PATHS_AT_ONCE: usize = HANDSHAKES_OF_ONE_EXPECTED;

/// Rounds in which all paths are tried, at the most: together they take as many times [`CHANGE_PATH`]. The longest order has 4096 paths,
/// so that 512 sockets are open at once, half of what a process may have.
pub const CHANGE_PATH_ROUNDS: usize = 8;

/// Definition files read: each guest costs a process, and no host runs more than some hundreds.
pub const DEFINITIONS: usize = 4096;

/// Sections for peers: as many as a cluster has hosts.
pub const PEERS: usize = drover_trust::limits::MEMBERS;

/// Longest wait for one peer's answer when all are shown: a connect with one lost SYN.
pub const PEER_PROBE: Duration = Duration::from_secs(3);

/// Connections open at once on each listener. The command line opens one, each migration some
/// three; more than this is a fault or an attack, and each costs up to one request body.
pub const CONNECTIONS: usize = 128;

/// Of [`CONNECTIONS`], what one host or operator may hold: all of its migrations and more, and no
/// single one can keep the others out.
pub const CONNECTIONS_OF_ONE: usize = 32;

/// Connections at once of which it is not known yet whose they are. Each costs some 40 KiB and, once,
/// a millisecond of CPU; sixty-four in [`drover_api::limits::HANDSHAKE`] are more than a cluster of
/// 256 hosts needs when all of its agents start together.
pub const HANDSHAKES: usize = 64;

/// The same for addresses at which members are said to be, which strangers cannot take: every migration
/// asks its other host once a second at most, and each such question is one of these for some
/// milliseconds.
pub const HANDSHAKES_EXPECTED: usize = 128;

/// Of them, what one such address may hold.
pub const HANDSHAKES_OF_ONE_EXPECTED: usize = 32;

/// Of [`HANDSHAKES`], what one address (one network of 64 bits in IPv6) may hold: a host that opens
/// several at once gets through, one that opens them for harm leaves room for seven others.
pub const HANDSHAKES_OF_ONE: usize = 8;

/// A connection that was refused is read on for this long, so that the refusal arrives before the
/// connection is reset.
pub const LINGER: Duration = Duration::from_millis(500);

/// Bytes that are read in that time: what a client sends before it reads.
pub const LINGER_BYTES: usize = 64 << 10;

/// The time over which attempts to join are counted.
pub const JOIN_SPAN: Duration = Duration::from_secs(60);

/// Attempts to join in that time from one address: a person who mistypes.
pub const JOINS_OF_ONE: u32 = 10;

/// Attempts to join in that time from all of them: a new rack. A secret of 128 bits is not guessed
/// at any rate; this bounds the work.
pub const JOINS: u32 = 120;

/// Largest question of a host that joins: a request of 1 KiB and 16 addresses.
pub const JOIN_BYTES: usize = 16 << 10;

/// Between two questions to the authority what is new. Changes are told at once; this is for hosts
/// that could not be reached then.
pub const SYNC: Duration = Duration::from_secs(30);

/// Telling one member of a change: a handshake and a file written; one that does not answer hears of
/// it within [`SYNC`] of being back.
pub const NEWS: Duration = Duration::from_secs(5);

/// Listeners that wait to be served: as many as `api.listen` may have.
pub const LISTENERS: usize = 16;

/// A request's head must be complete within this; a sender that is slower holds a connection.
pub const HEAD: Duration = Duration::from_secs(10);

/// A request's body must be complete within this: 2 MiB at 2 Mbit/s.
pub const BODY: Duration = Duration::from_secs(10);

/// Headers of a request, in bytes. Ours need 100.
pub const HEAD_BYTES: usize = 16 << 10;

/// Connections that are still answering when the agent ends get this long.
pub const DRAIN_CONNECTIONS: Duration = Duration::from_secs(5);

/// Migrations get this long to be cancelled or, in hand-off, to finish. systemd's
/// `TimeoutStopSec` in the shipped unit is 20 s longer.
pub const DRAIN_MIGRATIONS: Duration = Duration::from_secs(60);

/// Connecting to our own socket to see whether an agent lives behind it.
pub const SOCKET_PROBE: Duration = Duration::from_secs(2);

/// Finding one running QEMU again: its monitor is connected and asked once.
pub const RECOVER: Duration = Duration::from_secs(20);

/// Things that libvirt's domains need, of all domains of a cluster, of which every host is asked whether it has them: those of some four
/// hundred domains, each once. As many processors, of some 3 KiB each, are 12 MiB.
pub const DOMAIN_NEEDS_ASKED: usize = 4096;

/// Asking a QEMU for its state to show it; a list of guests must not hang on one of them.
pub const SHOW: Duration = Duration::from_secs(2);

/// Longest path of a UNIX socket: `sun_path` of 108 with its closing zero (unix(7)).
pub const SOCKET_PATH_BYTES: usize = 107;

/// From the loss of a monitor to the next try to connect, while a guest is shut down: its process may be ending, which
/// takes as long as giving back its memory.
pub const MONITOR_AGAIN: Duration = Duration::from_secs(1);

/// From a guest's own shutdown to the end of its QEMU, which has only memory to give back then.
pub const AFTER_SHUTDOWN: Duration = Duration::from_secs(5);

/// From a request to its answer: more than the longest operation, stopping a guest (90 s for the
/// power button and 30 s for the end of QEMU).
pub const REQUEST: Duration = Duration::from_secs(150);

/// The same where the paths of a cluster are asked, as several hosts may load each other after that.
pub const PATHS_REQUEST: Duration = Duration::from_secs(api::LOADS_CALL.as_secs() + 10);

/// Before accepting again when the system has no file descriptor left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Migrations that have ended and are still shown; older ones are removed at the next start. Each
/// is a file of some kilobytes.
pub const HISTORY: usize = 200;

/// Orders to migrate that were refused before there was a migration, kept with their ids in case that
/// the answer was lost: whoever gave one asks again within minutes, and has no more under way than it
/// has connections. Each is some hundred bytes.
pub const ORDERS: usize = 256;

/// Between two looks at a QEMU that migrates, beside those at each of its events: five a second
/// move a progress bar smoothly and cost two small commands each.
pub const OBSERVE: Duration = Duration::from_millis(200);

/// The same while a guest that goes on by postcopy stands still for its switch: each look late adds to its
/// downtime.
pub const OBSERVE_SWITCH: Duration = Duration::from_millis(5);

/// Before asking a QEMU again that is about to change its state by itself.
pub const SOON: Duration = Duration::from_millis(50);

/// A lane's rate is taken over at least this time.
pub const RATE_SPAN: Duration = Duration::from_millis(400);

/// Notes shown of one migration, each a line of some 100 bytes; all of them are in its history.
pub const NOTES: usize = 200;

/// Messages that wait for a migration's task. It handles each in microseconds; the journal's disk
/// may hold it up for a moment.
pub const INBOX: usize = 256;

/// The source is answered within this whether the guest runs; if not yet, it asks again.
pub const RUN_ANSWER: Duration = Duration::from_secs(8);

/// An operator's decision waits this long for the last questions to the other host, as the state
/// machine bounds them.
pub const RESOLVE_ASKS: Duration = Duration::from_secs(GIVING_UP.as_secs() + 2);

// The state machines' bounds on questions are safeguards: those of the calls themselves come first.
const _: () = assert!(HAND_OFF_ANSWER.as_secs() > api::READ_CALL.as_secs());
const _: () = assert!(VERDICT_ANSWER.as_secs() > api::VERDICT_CALL.as_secs());
const _: () = assert!(GIVING_UP.as_secs() > 2 * VERDICT_ANSWER.as_secs());
const _: () = assert!(RESOLVE_ASKS.as_secs() + RESOLVE_DOES.as_secs() < api::START_CALL.as_secs());

/// And then this long for what follows from it: a guest that runs, or a QEMU that has ended.
pub const RESOLVE_DOES: Duration = Duration::from_secs(20);

/// How often a host that was decided for is told so, until it has let go: one small request.
pub const TELL_RESOLVED: Duration = Duration::from_secs(5);

/// Until libvirt is told again to have a domain run that stays. The domain stands still meanwhile.
pub const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// Until copies of disks that were given up, or whose migration was cut off, are cut off: two have 32 MiB on their way, 3 s at 100 Mbit/s.
pub const CUT_COPIES: Duration = Duration::from_secs(10);

/// From one that was cut off to the next, where QEMU does not tell that nothing of it is on its way any more, which takes milliseconds.
pub const CUT_NEXT: Duration = Duration::from_secs(1);

/// Until copies of disks have ended that were given up: 16 of them are cut off by 26 s, and each takes milliseconds then.
pub const CLEAR_COPIES: Duration = Duration::from_secs(30);

/// How often it is tried to do what is owed to a domain whose migration has ended: libvirtd may have been restarted, or the other
/// host's agent be back.
pub const PAY_DEBTS: Duration = Duration::from_secs(10);

/// Asking the other agent why a session ended, before that is shown without its answer.
pub const WHY: Duration = Duration::from_millis(1500);

/// A guest that stays gets this long to leave the last moments of a migration that failed.
pub const KEEP_GUEST: Duration = Duration::from_secs(30);

/// A QEMU whose sockets were closed before it had everything ends by itself within this; one that
/// had everything stays.
pub const SETTLE: Duration = Duration::from_secs(2);

/// A destination's QEMU that has ended is told of so much later: where its session failed, which ends it, the relay's word of that comes
/// first. That takes some milliseconds, and was seen to take 25 on a host whose processors were all busy.
pub const SESSION_IS_WHY: Duration = Duration::from_millis(250);

/// Before a QEMU is looked for again that runs and does not answer.
pub const REACH_AGAIN: Duration = Duration::from_secs(2);

/// Events that are kept of one migration; more are merged and counted. 32 paths with each kind of
/// event of their lanes, and every other kind, are 150; each is some 200 bytes in the journal.
pub const EVENTS: usize = 256;

/// Chunks are no longer late when none was sent twice for this long.
pub const HEDGING_OVER: Duration = Duration::from_secs(1);

/// Lanes of one path that are gone and still shown. One that flaps four times a second loses
/// hundreds in a minute.
pub const GONE_LANES: usize = 8;

/// Connections for metrics at once: a pair of Prometheus servers, and somebody who looks.
pub const SCRAPERS: usize = 8;

/// Longest life of a connection for metrics: some scrapes at the usual 15 s; a new one is opened
/// then.
pub const SCRAPE: Duration = Duration::from_secs(120);

/// Link events that wait for a migration. One that has missed some looks at all links anew.
pub const LINK_EVENTS: usize = 64;

/// Between two looks for a guest whose dirty rate is to be sampled, which takes 5 s: of 8 guests each has its turn
/// in a minute, of more less often.
pub const SAMPLE_LOOK: Duration = Duration::from_secs(2);

/// Before a guest's dirty rate is sampled again: what it does changes over minutes, and plans take facts of one.
pub const SAMPLE_AGAIN: Duration = Duration::from_secs(60);

/// The same after one for the shortest time only, as the first of a guest that boots, or has just arrived, is.
pub const SAMPLE_SOON: Duration = Duration::from_secs(5);

/// How long an agent that begins waits for another's lock, and a change for that of one that is at its end. Milliseconds are enough for a process that is being
/// started to close what it has inherited; on a busy host some more.
pub const LOCK_LET_GO: Duration = Duration::from_secs(1);

/// Between two looks at it.
pub const LOCK_LOOK: Duration = Duration::from_millis(20);

/// How long a sample of the inventory may be in the way of one that a migration wants: the 5 s that it takes, and
/// some for QEMU's answers.
pub const SAMPLE_UNDER_WAY: Duration = Duration::from_secs(6);

/// Pages of a guest's memory that are looked at before it is moved: the part of it that is zero is then known to
/// within 2 % in 99 of 100 cases, in some 10 ms whatever its size.
pub const SAMPLED_PAGES: u64 = 4096;

/// Threads of a guest's process whose names are read: one for each of its processors, and some for disks and a migration.
pub const THREADS_READ: usize = 4096;

/// Processes of guests and domains that are read at once: of each the kernel walks through the tables of its memory, 0.2 s for 64 GiB.
pub const GUESTS_READ: usize = 4;

/// Descriptors of a guest's process that are looked at: each of 1024 disks and queues may have several.
pub const DESCRIPTORS_READ: usize = 16_384;

/// Longest answer of an agent inside a guest, in bytes: some 500 for each of its interfaces and their addresses.
pub const GUEST_AGENT_BYTES: u64 = 256 << 10;

/// Answers of it to what was asked before, which are passed by.
pub const GUEST_AGENT_STALE: usize = 16;

/// How much of what it says where it refuses is repeated, in characters.
pub const GUEST_AGENT_SAID: usize = 200;

/// Waiting for one host's inventory: two QEMUs are started the first time, each guest's is asked, and a
/// connect may lose a SYN.
pub const INVENTORY: Duration = Duration::from_secs(10);

const _: () = assert!(INVENTORY.as_secs() < api::READ_CALL.as_secs());

/// Notes of one member's inventory that are shown with a plan: one for each of its interfaces, QEMU binaries and
/// definitions that are not as they should be, each of 400 characters at most.
pub const HOST_NOTES: usize = 32;

/// For what was found of the cluster to be on the disk: 16 MiB and a sync take a busy disk a second or two. Who asked is answered by then.
pub const KEEP: Duration = Duration::from_secs(5);

/// Reports about a cluster that are kept whatever their distance: a day's, one an hour.
pub const KEPT_NEWEST: usize = 24;

/// How old the others may be, of which one a day is kept: a quarter.
pub const KEPT_AGE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Most reports that are kept: the newest, and one for each day.
pub const KEPT_REPORTS: usize = KEPT_NEWEST + 91;

/// Most bytes of one. A path has some 550, and a host with two interfaces some 10,000: 64 hosts with 8064 paths have 5 MiB.
/// It fits an answer.
pub const KEPT_BYTES: u64 = 16 << 20;

/// Most bytes of all of them.
pub const KEPT_ALL_BYTES: u64 = 256 << 20;

const _: () = assert!(KEPT_BYTES < api::ANSWER_BYTES as u64);

/// Before the kernel's socket for link events is opened again.
pub const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// From a link event to the look for paths that could join: an interface that comes up gets its
/// addresses within this. IPv6 addresses take longer, and are an event of their own.
pub const LINK_SETTLES: Duration = Duration::from_millis(100);

/// Between two looks for paths that could join, beside those after link events of this host: the
/// destination's interfaces are learnt by asking. One small request.
pub const JOIN_LOOK: Duration = Duration::from_secs(5);

/// A path without a lane for this long no longer keeps its interfaces from other pairings.
pub const PATH_DEAD: Duration = Duration::from_secs(5);

/// Before the same interfaces are probed again that did not reach each other: a switch's port may
/// take 30 s until it forwards, and a probe is a SYN for each pair.
pub const PROBE_AGAIN: Duration = Duration::from_secs(10);

/// Between two divisions of limits among those that send: a share that is not used goes to others
/// before anybody has noticed.
pub const DIVIDE: Duration = Duration::from_millis(200);

/// Before the rates of links are read again for limits in percent: links are renegotiated by hand.
pub const LINKS_AGAIN: Duration = Duration::from_secs(5);

/// Telling another agent what it may send; if it does not answer it is told at the next division.
pub const TELL_LIMITS: Duration = Duration::from_secs(1);

/// Before another agent is told again what it may send, changed or not: it or this one may have been
/// restarted. One small request for each guest that arrives.
pub const TELL_AGAIN: Duration = Duration::from_secs(5);

/// What begins to carry waits no longer than this for its share of limits: one call to an agent that
/// does not answer, and the division.
pub const DIVIDED: Duration = Duration::from_secs(TELL_LIMITS.as_secs() + 1);

/// Paths that a destination may tell limits of: all that a session may know, as a dead one may come back.
pub const LIMITED_PATHS: usize = drover_migrate::limits::PATHS_KNOWN;

const _: () = assert!(drover_migrate::limits::PATHS_KNOWN <= drover_relay::limits::PATHS_KEPT);

/// A relay that an earlier agent left, and that nothing goes on with, gets this long to say farewell.
pub const RELAY_ENDS: Duration = Duration::from_secs(2);

/// Between tries to end a relay's process on a host that has no descriptors left for it.
pub const RELAY_END_AGAIN: Duration = Duration::from_millis(100);

/// From closing a relay to the end of its process, which bounds that by itself.
pub const RELAY_ENDED: Duration =
    Duration::from_secs(drover_carrier::limits::CLOSING.as_secs() + 10);

/// Orders to park one guest that are remembered, so that none of them begins when it is heard once more. A message that
/// was held up is older than a run or two.
pub const PARK_ORDERS: usize = 16;

/// Runs that are remembered: a year of weekly rounds. The journal of one with 1000 moves is 1 MiB.
pub const RUNS: usize = 50;

/// Guests that are remembered as having left one host. Their names are at most 64 KiB, half of what a
/// document may have.
pub const HOMES: usize = 1000;

/// How long nobody else can take a run from an agent that is silent. It is renewed three times in that time,
/// and one that is started again need not wait for it.
pub const LEASE: Duration = Duration::from_secs(10);

/// Orders to a run that wait to be written down: each takes a few milliseconds, and there is one operator.
pub const RUN_ORDERS: usize = 8;

/// Between two looks at a move: what is shown of it, and how soon the next one can begin after it. Each is
/// one small request, and there are as many moves at once as the policy says.
pub const RUN_LOOK: Duration = Duration::from_millis(250);

/// Before an agent that did not do what it was asked is asked the same again.
pub const RUN_AGAIN: Duration = Duration::from_secs(1);

/// Before a further round is planned for what failed: most of what is in a guest's way for a moment has gone
/// by then.
pub const RUN_ROUND: Duration = Duration::from_secs(5);

/// A run looks at itself this often, whatever happens.
pub const RUN_IDLE: Duration = Duration::from_secs(1);

/// Between two looks at what all members say while a run moves guests: of 500 members 50 small requests a second.
pub const RUN_FACTS: Duration = Duration::from_secs(10);

/// How long a move waits for that where nothing is known, as when a run was just taken over: less than a third of
/// [`LEASE`], in which nothing is renewed.
pub const RUN_FACTS_WAIT: Duration = Duration::from_secs(3);

/// How old that may be for a move to be kept back by it: a silent member delays the others' answers by [`INVENTORY`].
pub const RUN_FACTS_USABLE: Duration = Duration::from_secs(60);

/// Between two looks of a coordinator at what all members say, to be remembered: one small request to each.
pub const REMEMBER: Duration = Duration::from_secs(120);

/// How old the time at which a member was heard of may be in the store while it goes on answering: with a few kB for
/// each member, a cluster of 500 writes 50 MB a day into etcd for it.
pub const REMEMBER_AGAIN: Duration = Duration::from_secs(3600);

/// How long any ask may take, as a last resort: each request has a bound of its own below it.
pub const RUN_ASK: Duration = Duration::from_secs(api::START_CALL.as_secs() + 10);

/// Before a write that the store did not take is tried again.
pub const RUN_WRITE_AGAIN: Duration = Duration::from_secs(1);

/// Notes of the plans of one run that are kept: some for each host of a large cluster.
pub const RUN_NOTES: usize = 200;

/// How long whoever cancels a run waits until that is written down: a disk that is slow for a moment.
pub const RUN_CANCEL: Duration = Duration::from_secs(10);

/// How long a run that is asked for waits for the coordinator of one that has just ended to let go: that is one
/// write, which a disk may keep for a moment. One that died before it let go holds on for up to [`LEASE`].
pub const RUN_LET_GO: Duration = Duration::from_secs(3);

/// Between two looks whether a run is under way that nobody leads: one small read for each host that may
/// coordinate. With [`LEASE`], and as long for what it takes over to be read, another host goes on within 15 s.
pub const RUN_STAND_BY: Duration = Duration::from_secs(2);

/// How old an order to stop a guest may be to be given to the guest once more by an agent that was started again
/// meanwhile: twice the 5 min for which a coordinator waits for an agent that does not answer. An older one is
/// of a drain that nobody waits for any more.
pub const PARK_AGAIN: Duration = Duration::from_secs(600);

/// How long after it was told to shut down a guest that runs on may yet obey: twice the hour that a policy can give
/// it. Then it has ignored its power button.
pub const PARK_OBEYS: Duration = Duration::from_secs(2 * 3600);

/// What is read and written at once of a saved state: enough that calls cost nothing beside the bytes.
pub const SAVED_COPY: usize = 1 << 20;

/// How long nothing may move on from a guest's QEMU to the disk of saved states, or back: a disk array that fails over
/// takes some 30 s.
pub const SAVED_STALL: Duration = Duration::from_secs(60);

/// How long a disk may take until what it was given is on it: the page cache of 256 GiB at 75 MB/s. Whoever gives up
/// meanwhile does not wait for it.
pub const SAVED_SYNC: Duration = Duration::from_secs(3600);

/// How long a destination's QEMU may take to notice that the connection of its postcopy is closed: until then
/// it does not listen for another.
pub const POSTCOPY_PAUSES: Duration = Duration::from_secs(5);

/// Between two looks at states that were left by an agent, or by a QEMU that did not answer.
pub const SAVED_SETTLE: Duration = Duration::from_secs(10);

/// Room for a saved state: the guest's memory, 8 bytes for each page of 4096, 128 MiB for the memory of devices, of which
/// a display has 16 to 64 MiB, and as much to stay free: journals may be on the same disk.
pub const fn saved_most(memory: Bytes) -> Bytes {
    Bytes(memory.0.saturating_add(memory.0 / 512 + (256 << 20)))
}

/// From a request to its answer where a guest is suspended or started: 1 TiB at 300 MB/s, and QEMU's start.
pub const SAVED_REQUEST: Duration = drover_api::limits::SAVED_CALL;

/// How often it is looked how far QEMU is once all bytes of a state are there.
pub const SAVED_POLL: Duration = Duration::from_millis(20);
