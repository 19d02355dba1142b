//! Bounds on plans and journals, and for how long things are waited for.

use std::time::Duration;

/// Steps of one plan. The longest has an affinity for each interrupt of some adapters: 2048 each at most, some 64 in practice.
pub const STEPS: usize = 4096;

/// Bytes of a name or a value in a plan: a path of `/sys` has some 100, a mask of 4096 processors 1152.
pub const WORD_BYTES: usize = 4096;

/// Bytes of a plan's file. A step takes some 300, with its comments.
pub const PLAN_BYTES: u64 = 4 << 20;

/// Bytes of an order: a plan, and the paths of 64 interfaces to 64 hosts at some 150 bytes each.
pub const ORDER_BYTES: u64 = 8 << 20;

/// Paths of one order: 64 interfaces to 64 hosts.
pub const PATHS: usize = 4096;

/// Bytes of an interface's name: as many as the kernel takes (`IFNAMSIZ`). What another host calls its own is for it to say.
pub const NIC_BYTES: usize = 15;

/// Paths and hosts that are named one by one, of which it is not known how large packets cross: a person reads some, and each may have 1.6 KiB.
pub const UNTOLD: usize = 256;

/// Bytes of a journal: four records for each of [`STEPS`], twice, at some 100 bytes each, and as much for values that are found and for
/// [`PATHS`] with what crosses them, at some 250 bytes each.
pub const JOURNAL_BYTES: u64 = 8 << 20;

/// From here on a journal takes nothing that begins with anything: the other half is for taking back what was begun.
pub const JOURNAL_BEGIN_BYTES: u64 = JOURNAL_BYTES / 2;

/// For all settings of a plan together, beside what each of them may take: meanwhile nobody knows whether other hosts reach this one.
pub const APPLY: Duration = Duration::from_secs(30);

/// ...for each of them: a slow disk takes some 20 ms for each of its records, and 64 are looked at and set within a second otherwise.
pub const APPLY_EACH: Duration = Duration::from_millis(100);

/// ...and for each that may bounce a link, which is agreed on anew in up to 10 s, with its error correction.
pub const APPLY_BOUNCED: Duration = Duration::from_secs(10);

/// All of that at most. The longest plan in practice, eight adapters with four settings each that bounce them, takes some 160 s.
pub const APPLY_MOST: Duration = Duration::from_mins(5);

/// From the last step until paths are tried: what a driver does to its link after it has answered begins within a second.
pub const SETTLE: Duration = Duration::from_secs(1);

/// The same after a step that may bounce a link.
pub const SETTLE_BOUNCED: Duration = Duration::from_secs(3);

/// For all paths to work again after that, and to carry packets as large as before: no try begins later. A link is agreed on anew in some
/// 4 s, with its error correction in up to 10 s.
pub const PROVE: Duration = Duration::from_secs(20);

/// For finding out how large packets cross, before the first step and in each try after the last one: what takes longer could not be proved
/// afterwards either. 64 hosts that answer take some 10 s; one path on which large packets vanish takes 1.3 s, or 5 s with the patience of
/// later tries. A try that was begun in time comes to its end, so that it is never the time alone of which is told: small packets cross
/// meanwhile, or it would not have been begun.
pub const SIZES: Duration = Duration::from_secs(20);

/// For asking other hosts whether they open connections to this one, before the first step. Each has 8 s, several are asked at once, and those that
/// answer do within a second where all paths are open. After the last step that is a part of [`SIZES`]: what is left of it is for large packets.
pub const OPENED: Duration = Duration::from_secs(20);

/// Between two tries.
pub const PROVE_AGAIN: Duration = Duration::from_millis(500);

/// Times that one step is taken back, and does not stay so. While a driver that resets refuses, or does not tell what is there, it is
/// asked for [`PROVE`]; what is not told by then is set back all the same, and asked for as long again.
pub const TAKE_BACK_TRIES: usize = 3;

/// Between two of them.
pub const TAKE_BACK_AGAIN: Duration = Duration::from_secs(1);
