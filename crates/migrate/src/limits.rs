//! Every bound of a migration's control, each with its reason.
//!
//! The transfer itself has no deadline: a large, busy guest may take hours, and a dead or
//! stalled session is found by the relay, which bounds it on its own.

use std::time::Duration;

use drover_types::Bytes;

/// How long the source waits for the destination to be prepared and the paths to be probed.
/// A destination starts a QEMU in 0.1 to 3 s; emulated or swapping hosts were seen at 20 s.
pub const PREPARE: Duration = Duration::from_secs(60);

/// How long opening every lane may take. TCP gives up a lost SYN after 1, 3, 7 and 15 s: four
/// tries fit.
pub const LANES: Duration = Duration::from_secs(20);

/// How long the destination's hypervisor may take to listen: four QMP commands of 5 s each.
pub const LISTEN: Duration = Duration::from_secs(20);

/// How long the `migrate` command and the settings before it may take to be answered. QMP was
/// seen to stall behind a busy main loop for a few seconds.
pub const MIGRATE_ANSWER: Duration = Duration::from_secs(30);

/// How old a look at the hypervisor can be when it is reported: two QMP commands of some
/// milliseconds, on a busy host. Only an end that is seen in the first moments waits for it.
pub const LOOK_AGE: Duration = Duration::from_secs(2);

/// How often a cancel is repeated that the hypervisor has not followed. A yank works at once
/// where the monitor answers, so a repeat means something is stuck; 5 s keeps the log readable.
pub const CANCEL_RETRY: Duration = Duration::from_secs(5);

/// Pause before the destination is told again to run the guest. The guest stands still
/// meanwhile, so it is short; one small request a second harms nobody.
pub const HAND_OFF_RETRY: Duration = Duration::from_secs(1);

/// How long one answer to the hand-off may take before it is sent again: longer than the
/// shell's own timeout of a request (15 s), so that it is a safeguard only.
pub const HAND_OFF_ANSWER: Duration = Duration::from_secs(16);

/// How long the source's word that the guest is the destination's counts at the destination, by its
/// own clock: from where a question for the verdict begins, or a connection that says `run` is
/// accepted. Either is at most milliseconds before the source gives its word, so an older one was
/// held up on its way, and an operator may have decided otherwise since. It is given anew every
/// second; connecting (4 s) and proving who one is (5 s) fit.
pub const WORD_COUNTS: Duration = Duration::from_secs(10);

/// How long the source waits after its last word before an operator may give the guest up:
/// [`WORD_COUNTS`], and a second for clocks that do not run alike.
pub const WORD_OVER: Duration = Duration::from_secs(11);

const _: () = assert!(WORD_OVER.as_millis() > WORD_COUNTS.as_millis());

/// The longest that an operator's wish may take to be decided on: the question that is open, the
/// end of what was said, the last question.
pub const GIVING_UP: Duration =
    Duration::from_secs(2 * HAND_OFF_ANSWER.as_secs() + WORD_OVER.as_secs());

/// Pause before the destination is told again to abandon.
pub const ABANDON_RETRY: Duration = Duration::from_secs(1);

/// How long one answer to an abandon may take: the destination may have to kill a QEMU.
pub const ABANDON_ANSWER: Duration = Duration::from_secs(15);

/// How often the destination is told to abandon. It cleans up by itself when it loses the
/// session or learns the verdict, so telling it only makes that faster.
pub const ABANDON_ATTEMPTS: u32 = 5;

/// How often quitting the source's copy and forgetting its definition are repeated.
pub const LEAVE_RETRY: Duration = Duration::from_secs(5);

/// How often a hypervisor that has not answered is asked again.
pub const OBSERVE_RETRY: Duration = Duration::from_secs(5);

/// Pause before a journal record that could not be written is written again.
pub const JOURNAL_RETRY: Duration = Duration::from_secs(1);

/// How long the destination's QEMU may take to start: [`PREPARE`] less the time for probing.
pub const HYPERVISOR_START: Duration = Duration::from_secs(50);

/// How long a prepared destination waits for the source to open its lanes: [`PREPARE`] for the
/// source to learn that it is ready, [`LANES`], and a margin of 10 s.
pub const PREPARED: Duration = Duration::from_secs(90);

/// How long a destination that listens waits for the first sign of the guest's state: the
/// source starts at once when it hears of it, within [`MIGRATE_ANSWER`]. The session's outage
/// limit comes on top: lanes may be lost right then.
pub const FIRST_BYTES: Duration = Duration::from_secs(60);

/// How long reopening a session may take whose pages are still to follow: ending what is left of the one
/// before at both hosts, agreeing, opening lanes, and the destination's hypervisor to listen. A safeguard, longer
/// than the bounds of all of them together.
pub const REOPEN: Duration =
    Duration::from_secs(2 * PREPARE.as_secs() + LANES.as_secs() + LISTEN.as_secs());

/// How long a session that was opened anew may bring no page before it is closed: the source's hypervisor is told
/// to go on over it within [`MIGRATE_ANSWER`], and does within [`GOES_ON`]. The session's outage limit comes on top.
pub const REOPENED: Duration = Duration::from_secs(MIGRATE_ANSWER.as_secs() + GOES_ON.as_secs());

/// Pause before such a session is reopened again: the guest may stand still meanwhile.
pub const REOPEN_RETRY: Duration = Duration::from_secs(1);

/// How long a hypervisor that was told to go on over another session may still show that it waits for one:
/// it connects to a socket of its own host, which takes milliseconds, and a look at it is as old as
/// [`LOOK_AGE`]. That the session itself fails counts at once.
pub const GOES_ON: Duration = LOOK_AGE;

/// How often in a row a hypervisor may refuse to go on over a session that was opened anew: it sees within
/// milliseconds that the one before is gone, and a second or more passes between two.
pub const RESUMES_REFUSED: u32 = 10;

/// How often the destination asks the source for its verdict.
pub const VERDICT_RETRY: Duration = Duration::from_secs(1);

/// How often a destination that waits for pages asks whether the source still has them while it knows of
/// nothing wrong: a source that failed says so by itself mostly.
pub const PAGES_ASKED: Duration = Duration::from_secs(15);

/// How long a hypervisor has to show that it lacks nothing, once no page comes any more: one look takes
/// milliseconds, and one that waits for a page answers nothing. An operator who gives the pages up waits for it.
pub const LAST_LOOK: Duration = Duration::from_secs(5);

/// How long one answer to a question for the verdict may take: later it no longer counts.
pub const VERDICT_ANSWER: Duration = WORD_COUNTS;

/// Pause before the guest is told again to run on the destination. It may wait for the source
/// to release a disk's lock.
pub const RESUME_RETRY: Duration = Duration::from_secs(1);

/// How long one answer to `cont` may take.
pub const RESUME_ANSWER: Duration = Duration::from_secs(15);

/// How often taking over the guest's definition, or ending a hypervisor, is repeated.
pub const ADOPT_RETRY: Duration = Duration::from_secs(5);

/// Characters kept of a reason that a peer, a hypervisor or the system gave: enough for a
/// sentence with a path, small in a journal.
pub const REASON_CHARS: usize = 500;

/// Living paths of one session: 32 covers hosts with many NICs and keeps the matching instant.
pub const PATHS: usize = 32;

/// All paths that there ever were in one session. A dead one is dialled for ever, with one lane at a
/// time of the 64 that a session takes (`drover_wire::limits::LANES_MAX`).
pub const PATHS_KNOWN: usize = 64;

/// Interfaces looked at per host, so that what a peer tells cannot grow the matching.
pub const INTERFACES: usize = 64;

/// Addresses looked at per interface.
pub const ADDRESSES: usize = 8;

/// Address pairs probed before a migration: 32 paths with 8 alternatives each.
pub const CANDIDATES: usize = 256;

/// Most multifd channels chosen by ourselves. 8 connections carried 11.5 GiB/s on 100 Gbit/s
/// and 16 were slower (cloud-hypervisor issue 7669).
pub const CHANNELS: u8 = 8;

/// Actions that can be queued behind one journal record. Actions are queued once each, so
/// their kinds bound the queue; this is the assertion of it.
pub const OUTBOX: usize = 64;

/// Samples that the estimate looks back on: 5 s at two samples a second, and as many more.
pub const SAMPLES: usize = 20;

/// How fast QEMU is taken to look at pages that are zero, per second: seen were 2.7 GB/s beside what was carried, on
/// two cores with an emulated guest. What a faster machine does in less is a small part of a guest's time.
pub const ZERO_PAGES: Bytes = Bytes(3 << 30);

/// What stops a guest beside the bytes of the last round: devices' state and the hand-off. Measured: 43 to 106 ms
/// medians with little left to send (docs/measurements/session.md).
pub const HAND_OFF: Duration = Duration::from_millis(60);

/// Part of the downtime limit that the hypervisor is told to aim at first. A guest that dirties a
/// quarter of what is carried gets there within two rounds after the one that the whole limit
/// would have stopped at.
pub const DOWNTIME_AIM_PART: u32 = 8;

/// Least aim: QEMU needs some 30 ms for the devices and the last synchronisation alone, and less
/// memory would not shorten that.
pub const DOWNTIME_AIM_LEAST: Duration = Duration::from_millis(10);

/// The longest stop that a hypervisor can be told (QEMU: `MAX_MIGRATE_DOWNTIME`): at 100 MB/s some 200 GB are
/// carried in it.
pub const DOWNTIME_MOST: Duration = Duration::from_secs(2000);

/// Rounds after one that would have fit the limit: each halves the rest at least, and takes no
/// longer than the limit.
pub const DOWNTIME_EXTRA_ROUNDS: u64 = 3;

/// A flow that uses this part of its share of a limit wants more: rates are measured over some
/// hundred milliseconds, in which single chunks are a fifth of a small share.
pub const SHARE_USED: (u128, u128) = (7, 10);

/// The part of an equal share that a flow keeps that uses nothing: enough to be seen to begin again.
pub const SHARE_LEAST: u64 = 16;
