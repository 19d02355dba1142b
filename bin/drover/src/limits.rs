//! The bound of every wait of the command line, each with its reason.

use std::time::Duration;

/// Between two looks at a migration or a run: four a second read as motion, and cost the agent nothing.
pub const LOOK: Duration = Duration::from_millis(250);

/// How long an agent that stops answering during a migration or a run is asked again: it is restarted by
/// systemd after 1 s and takes up its guests within some seconds.
pub const AGENT_AWAY: Duration = Duration::from_secs(30);

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
