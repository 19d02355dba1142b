//! Channels in, chunks over lanes, order restored, lanes lost and replaced.
//!
//! The session owns the bookkeeping of one migration's streams on one side: which chunk is where,
//! which buffer holds it, what the peer has confirmed. It never touches a socket, a clock or the
//! bytes themselves: it hands out buffer ids, and the shell moves memory.
//!
//! ```text
//!  QEMU          source session                     destination session         QEMU
//!  main  --Read--> outbound 0 --+   +-- lane 0 --+   +--> inbound 0 --Write--> main
//!  multifd ------> outbound 1 --+-->+-- lane 1 --+-->+--> inbound 1 ---------> multifd
//!  multifd ------> outbound 2 --+   +-- lane 2 --+   +--> inbound 2 ---------> multifd
//!        ^                 ^                                  |
//!        |                 +------------- checkpoints --------+
//!        +-- the return path is the main channel's other direction, carried the same way
//! ```
//!
//! Each direction of each channel numbers its chunks. A chunk stays with the sender until the
//! peer's checkpoint has passed it, that is until the far QEMU's socket took it; a lost lane's
//! chunks go back to the queue, oldest first. Any lane that is free and has credit takes the next
//! chunk, the main channel's before all others, so that each lane's share follows what it carries.
//!
//! Each lane's frames are counted by its receiver, which sends receipts on the same lane. They tell
//! the lane's round trip, its rate, hence its credit; and by their absence that it is silent: such
//! a lane gets nothing more (suspect), its chunks go to the others, and it is given up (lost)
//! when it stays silent. A chunk that is late on a slow lane is sent on an idle one as well.
//!
//! Every direction of every channel has a window of its own. Channels never share buffers: QEMU's
//! channels wait for each other at its sync points, so a shared pool filled by one stalled channel
//! would lock the others out for ever.
//!
//! Use: `handle(now, input)`, then `poll(now)` until it returns [`Output::Wait`], then the next
//! input. Time is the [`std::time::Duration`] since the session began.
//!
//! # Invariant
//! The bytes written at one end of a channel are exactly the bytes read at the other, in order,
//! each once, whatever lanes come and go.

mod buffers;
mod event;
mod flight;
mod gone;
mod inbound;
mod lane;
mod lane_count;
mod limiter;
pub mod limits;
mod outbound;
mod pace;
mod session;
mod stats;

pub use event::{Config, End, Input, Output, Piece, Refused, Role, Violation};
pub use lane_count::{LaneCount, PathSeen};
pub use session::Session;
pub use stats::{ChannelStats, ForgottenStats, LaneHealth, LaneStats, Stats};

/// Number of one of QEMU's byte streams, in the order in which it opened them; 0 is its main
/// channel.
pub type ChannelId = u16;

/// Number of one connection of ours; never used twice within a session.
pub type LaneId = u32;

/// A piece of memory of [`Config::chunk_bytes`] bytes that the shell holds for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);
