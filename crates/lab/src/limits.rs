//! Every bound of the lab: how long each wait lasts, and how much is kept.

use std::time::Duration;

/// One `ip`, `tc` or `dpkg` command. They take milliseconds; a machine that compiles on every
/// core at the same time was seen to take 2 s.
pub const COMMAND: Duration = Duration::from_secs(60);

/// Downloading the kernel's package of 34 MB: 60 s at 5 Mbit/s.
pub const DOWNLOAD: Duration = Duration::from_secs(300);

/// Between two looks for something that the kernel gives no event for (a socket that another
/// process will make, an agent's answer).
pub const POLL: Duration = Duration::from_millis(5);

/// An agent's first answer. It starts in some 50 ms.
pub const AGENT_START: Duration = Duration::from_secs(20);

/// A libvirtd's first answer. It starts in a second.
pub const LIBVIRT_START: Duration = Duration::from_secs(60);

/// One word to a libvirtd. The first domain of a lab waits until QEMU was asked what it can do, which takes 3 s.
pub const LIBVIRT: Duration = Duration::from_secs(120);

/// A started QEMU's monitor.
pub const QEMU_START: Duration = Duration::from_secs(30);

/// The guest's first heartbeat, and its fill: an emulated guest boots in 3 s and fills 640 MiB in
/// 4 s on an idle core, 10 times that on a busy machine. A store with as much was not full after
/// 180 s on one where six others wanted each core.
pub const BOOT: Duration = Duration::from_secs(600);

/// Until what a guest left behind is on its host's disk: a GiB at 20 MiB/s.
pub const KEPT: Duration = Duration::from_secs(60);

/// One complete move. 1 GiB over a line of 100 Mbit/s takes 90 s.
pub const MOVE: Duration = Duration::from_secs(600);

/// From the destination's arrival to the first heartbeat from there.
pub const FIRST_HEARTBEAT: Duration = Duration::from_secs(30);

/// The guest's verification of every page: 640 MiB take 1.5 s emulated.
pub const VERIFY: Duration = Duration::from_secs(180);

/// Comparing a disk of two hosts, both read whole: 4 GiB at 50 MiB/s.
pub const COMPARED: Duration = Duration::from_secs(180);

/// From `SIGKILL` to the end of the last process of a lab: freeing a guest's memory takes 0.1 s
/// for each GiB.
pub const KILL: Duration = Duration::from_secs(20);

/// Between two readings of the NICs' counters: 5 s of transfer give 250 samples, each reading
/// costs some 30 microseconds.
pub const SAMPLE: Duration = Duration::from_millis(20);

/// Samples of counters that one move keeps: [`MOVE`] at one each [`SAMPLE`].
pub const SAMPLES: usize = 30_000;

/// Heartbeats that are kept: 20 minutes of one each 10 ms.
pub const HEARTBEATS: usize = 120_000;

/// Longest line from the guest that is looked at, in bytes; the probe's have some 100.
pub const LINE: usize = 1000;

/// Network interfaces of a lab host, as many as drover's own limit of paths.
pub const NICS: usize = 32;

/// Real file contents that go into the guest, in bytes: enough that 320 MiB cut from it at any
/// offset hold no page twice, and small enough that an emulated guest unpacks it in 0.2 s.
pub const CORPUS: usize = 12 << 20;

/// Taken from one file at most, so that the corpus is of many.
pub const CORPUS_FILE: usize = 256 << 10;

/// Last lines of a log that an error repeats.
pub const LOG_LINES: usize = 8;

/// Shortest period of a fault that comes and goes: each change starts two programs, some 10 ms on
/// an idle machine.
pub const PERIOD: Duration = Duration::from_millis(50);

/// Between two looks whether a fault's moment has come: at 2 Gbit/s 500 kB pass meanwhile, and one
/// look at the counters costs some 30 microseconds.
pub const MOMENT: Duration = Duration::from_millis(2);

/// A move by QEMU itself that carried nothing for so long hangs, and is given up. TCP itself would
/// retransmit for a quarter of an hour (tcp_retries2). Drover's agents are given what they are
/// promised: their outage limit is 30 s.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// From the cancelling of a move that hangs to QEMU's agreement, and its guest's next heartbeat.
pub const CANCEL: Duration = Duration::from_secs(20);

/// Changes to NICs that one move keeps: [`MOVE`] at four each [`PERIOD`].
pub const CHANGES: usize = 50_000;

/// Between two looks whether a move by QEMU still goes on.
pub const STALL_LOOK: Duration = Duration::from_millis(500);

/// For what is given back after a move: threads for files that had nothing to do for 10 s, and
/// connections that are kept for a next request.
pub const GIVE_BACK: Duration = Duration::from_secs(20);

/// Between two looks at what agents and hosts hold.
pub const HELD_LOOK: Duration = Duration::from_millis(500);

/// Memory that an agent leaves free on its host, and refuses to start a guest in: its default
/// (`memory_headroom`), in bytes.
pub const HEADROOM: u64 = 512 << 20;

/// Between two looks for a QEMU of each guest on each host: 6 guests on 4 hosts are 1000 looks a second,
/// of some microseconds each.
pub const FLEET_LOOK: Duration = Duration::from_millis(25);

/// One run that moves all guests of a host: ten minutes for each of [`MOVE`]'s largest guests are more than
/// any lab takes.
pub const RUN: Duration = Duration::from_secs(1800);

/// Between two questions to the coordinator how far a run is.
pub const RUN_LOOK: Duration = Duration::from_millis(100);

/// One look of the doctor: 33 ms without paths, which take 15 s each at most.
pub const DOCTOR: Duration = Duration::from_secs(180);

/// Folders below each other that are looked into for a guest's files.
pub const FOLDER_DEPTH: usize = 12;

/// Files of one place that are considered; `/usr/share` of a machine with everything has some
/// 200,000.
pub const FOLDER_FILES: usize = 400_000;

/// The largest file that a guest is given, in bytes: it is read in one piece.
pub const CONTENT_FILE: u64 = 64 << 20;

/// Files of a userland that are looked at to be compressed, in bytes: more than any `/usr` has.
pub const RAW: u64 = 64 << 30;

/// Text for documents to quote from, in bytes: 100 times the longest quotation of 500 documents,
/// so that few quote the same.
pub const PROSE: usize = 4 << 20;

/// Taken from one file at most, so that it is of many.
pub const PROSE_FILE: usize = 32 << 10;

/// Before a move, in which the guest's everyday rate of rewriting is taken: what it is given to settle.
pub const BEFORE: Duration = Duration::from_millis(500);

/// What the program of an emulated host says that is kept, in bytes: tests that fail say some 10 KiB each.
pub const EMULATED_OUTPUT: usize = 1 << 20;

/// Longest line of that, in bytes: a value that a test shows in one is some 10 KiB.
pub const EMULATED_LINE: usize = 64 << 10;

/// Taken from its serial port at once, in bytes.
pub const EMULATED_PIECE: usize = 4096;

/// Where the program of an emulated host says nothing for so long it is looked whether its kernel stands still: no test takes half of it.
pub const EMULATED_SILENCE: Duration = Duration::from_secs(120);

/// From the start of an emulated host to its program's: 10 s on two idle cores, 40 s where six others want each of them. Two of five kernels
/// of four processors were seen to stand still on such a machine, before they kept their timers ticking: it is started anew then, and has
/// longer each time, as it may be this machine that is slow.
pub const EMULATED_STARTS: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(180),
];
