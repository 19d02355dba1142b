//! The bound of every wait of the command line, each with its reason.

use std::time::Duration;

/// Between two looks at a migration or a run: four a second read as motion, and cost the agent nothing.
pub const LOOK: Duration = Duration::from_millis(250);

/// How long an agent that stops answering during a migration or a run is asked again: it is restarted by
/// systemd after 1 s and takes up its guests within some seconds.
pub const AGENT_AWAY: Duration = Duration::from_secs(30);

/// How long a change is waited for of which nothing moves, or nothing is told: what crosses is found out for up to 20 s before its first
/// record, a link that tells nothing is waited for 20 s, what it proves takes some 51 s at most (3 s, 20 s, and 8 s for paths and 20 s for
/// sizes in the last round), and to set one step back up to 41 s. An agent that finds its process dead goes on with it 2 s later.
pub const CHANGE_STANDS: Duration = Duration::from_secs(120);

/// How long is waited for the destination's word after a hand-off. The source's agent asks on
/// after that; only the command ends.
pub const HAND_OFF: Duration = Duration::from_secs(60);

/// Lines of paths below the progress bar: more would not fit beside a shell's prompt.
pub const PATH_LINES: usize = 8;

/// Guests that are shown one by one while they move: as many as half a terminal of 24 lines has.
pub const MOVE_LINES: usize = 12;

/// A file with a plan. The largest answer with one is 32 MiB (`drover_api::limits::ANSWER_BYTES`);
/// indented it is some two times as long.
pub const PLAN_FILE_BYTES: u64 = 64 << 20;

/// Migrations that have ended and are shown in the status: those of the last few minutes of work;
/// `drover history` lists the others.
pub const ENDED_SHOWN: usize = 5;

/// Lanes of one migration that are shown one by one: eight paths with two each fill a screen.
pub const LANES_SHOWN: usize = 16;

/// Notes of one migration that are shown in the status.
pub const NOTES_SHOWN: usize = 8;

/// Clusters that are remembered of one user: more than anybody tells apart by their names. Each takes
/// some 600 bytes.
pub const CLUSTERS: usize = 64;

/// The file with them: [`CLUSTERS`] of them with the longest paths that Linux knows (4096 bytes), twice.
pub const RECENT_BYTES: u64 = 1 << 20;

/// Damaged files of that kind that are kept: whoever has so many has another problem.
pub const SET_ASIDE: u32 = 99;

/// Uses of one cluster within this time are one: a script with a command each second does not write a
/// file each second.
pub const SAME_USE: Duration = Duration::from_secs(60);

/// Tries to get the lock of that file, and the pause between two: half a second in all. It is held for the
/// time of one write.
pub const LOCK_TRIES: u32 = 50;
/// See [`LOCK_TRIES`].
pub const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// For one look at a cluster; all are looked at together, so for all of them as well. An agent answers in
/// some milliseconds, a second address is tried after a part of a second.
pub const LOOK_AT_CLUSTER: Duration = Duration::from_secs(3);

/// How long a command that is done waits to learn of which cluster its agent is.
pub const NOTE: Duration = Duration::from_secs(1);

/// Between two looks of `drover top`: often enough to see rates change, and one answer of some KiB.
pub const TOP_LOOK: Duration = Duration::from_secs(1);

/// Rates that are remembered of each thing: a minute of looks.
pub const TOP_HISTORY: usize = 60;

/// Characters of a filter or command: as much as fits beside its sign on 80 columns.
pub const TOP_INPUT: usize = 60;

/// Keys that may wait: more than anybody types while a screen is drawn.
pub const TOP_KEYS: usize = 64;
