//! Every bound of this crate: sizes of what a hypervisor may send, and how long each wait lasts.

use std::time::Duration;

/// Longest line read from a monitor, in bytes.
///
/// The longest answer that QEMU gives is `query-qmp-schema`: 235,944 bytes in 10.0.2, so this
/// leaves 8 times the room. Parsed, a line of the worst shape (`{"":0},` again and again) takes 98
/// times its length in memory: 196 MiB.
pub const LINE_BYTES: usize = 2 << 20;

/// Longest line of an event whose data is kept, in bytes; of a longer one only the name is.
///
/// Events carry names, paths and states: a few hundred bytes. Times [`EVENTS_KEPT`] this is what a
/// reader that never reads can hold back: 32 MiB.
pub const EVENT_BYTES: usize = 64 << 10;

/// Events kept for a reader that is slow; the oldest go first and it is told how many it missed.
///
/// Even rounds of 2 ms, an event each, stay below it where they are read once a second.
pub const EVENTS_KEPT: usize = 512;

/// Commands of one monitor that may wait for their answer at once.
///
/// QEMU reads at most 8 ahead (`QMP_REQ_QUEUE_LEN_MAX` in its
/// `include/monitor/monitor.h`); more than this
/// many waiting means that it answers nothing, and one more would not be answered either.
pub const COMMANDS_WAITING: usize = 32;

/// Longest text of somebody else that is repeated in an error or a log line, in characters.
pub const EXCERPT_CHARS: usize = 200;

/// Longest name of a node of QEMU's block layer, in bytes (`node_name` in its `include/block/block_int-common.h`, with its zero).
pub const NODE_NAME: usize = 31;

/// From connecting to a monitor to the end of the capabilities negotiation.
pub const CONNECT: Duration = Duration::from_secs(5);

/// For a command's answer. An idle QEMU answers in 0.05 ms, the schema in 30 ms; one whose main
/// loop is held up on a loaded machine, in seconds. One that hangs on a migration's socket does
/// not for minutes: not worth waiting for, [`Movable::yank_migration`](crate::Movable) is the way
/// out.
pub const COMMAND: Duration = Duration::from_secs(15);

/// For an out-of-band command's answer, given by a thread that waits for nothing: 0.1 ms.
pub const OOB_COMMAND: Duration = Duration::from_secs(5);

/// The times over which it is sampled what a guest dirties, in whole seconds: the least that QEMU takes, and one that
/// shows whether it writes to the same pages again.
pub const DIRTY_SAMPLES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Pages of each GiB that are compared by their hash, for a guest of so many bytes: 16,384 in all, 64 MiB to be read
/// twice, some 0.1 s of a processor, of which a part of 2 % is known within a tenth. QEMU takes 128 to 16,384
/// for each GiB (`MIN_SAMPLE_PAGE_COUNT`, `MAX_SAMPLE_PAGE_COUNT`), so that from 128 GiB on it is more.
#[must_use]
pub fn dirty_sample_pages(memory: u64) -> u64 {
    let gibibytes = memory.div_ceil(1 << 30).max(1);
    (16_384 / gibibytes).max(128)
}

/// Between two looks whether a dirty rate is there.
pub const DIRTY_POLL: Duration = Duration::from_millis(200);

/// For a dirty rate to be there after its sample: hashing 10 TiB's samples, 20 GiB, at 2 GiB/s.
pub const DIRTY_WAIT: Duration = Duration::from_secs(10);

/// Network cards of one guest that are looked at: each takes four questions of 0.1 ms.
pub const CARDS: usize = 64;

/// Reasons against a migration that are told: devices of one guest.
pub const BLOCKERS: usize = 16;

/// From QEMU's start to its monitors' answer: 30 ms. What takes long is memory that is filled
/// beforehand (`prealloc=on`): 8 GiB took 5.1 s on one thread, so 180 GiB fit.
pub const START: Duration = Duration::from_secs(120);

/// Between two looks whether a starting QEMU's monitor is there yet.
pub const START_POLL: Duration = Duration::from_millis(10);

/// From `quit` or `SIGKILL` to the end of the process. Giving back 8 GiB of touched memory took
/// 20 ms; what takes long is a disk that still writes.
pub const EXIT: Duration = Duration::from_secs(30);

/// Stack of the thread that watches one guest's process, in bytes. It reads a log's end of
/// [`STDERR_BYTES`] onto the heap. 128 guests reserve 32 MiB of address space.
pub const WATCH_STACK_BYTES: usize = 256 << 10;

/// After a process could not be watched for the moment: rare, and nobody waits for it.
pub const WATCH_AGAIN: Duration = Duration::from_millis(100);

/// For `-machine help`, which starts no guest: 30 ms.
pub const MACHINE_HELP: Duration = Duration::from_secs(10);

/// Longest output of `-machine help` that is looked at, in bytes: 10.0.2 prints 4,164.
pub const MACHINE_HELP_BYTES: u64 = 256 << 10;

/// For what a QEMU offers as processors, which starts no guest: 0.2 s with KVM.
pub const PROCESSORS: Duration = Duration::from_secs(10);

/// Longest answer to that, in bytes: 10.0.2 says 75 KiB where many models lack something.
pub const PROCESSORS_BYTES: u64 = 1 << 20;

/// Last lines of QEMU's stderr that are kept with its exit.
pub const STDERR_LINES: usize = 20;

/// Longest line of them, in characters.
pub const STDERR_LINE_CHARS: usize = 500;

/// How much of the end of QEMU's stderr is looked at for them, in bytes.
pub const STDERR_BYTES: u64 = 16 << 10;

/// Longest path of a UNIX socket, in bytes: `sun_path` of 108 with its closing zero (unix(7)).
pub const SOCKET_PATH_BYTES: usize = 107;

/// How much is read of a file in `/proc` or of a pid file, in bytes. What is looked for in a command
/// line stands near its beginning; one argument may have 128 KiB (`MAX_ARG_STRLEN`, execve(2)).
pub const SMALL_FILE_BYTES: u64 = 128 << 10;

/// Longest stop of a guest to aim at, where nobody says otherwise: QEMU's own default
/// (`DEFAULT_MIGRATE_SET_DOWNTIME`).
pub const DOWNTIME_LIMIT: Duration = Duration::from_millis(300);
