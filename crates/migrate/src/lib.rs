//! The phases of one migration on both sides, which paths it takes, and when it will end.
//!
//! Owns the decisions: who may run the guest, what is done next, when to give up. Never touches
//! a clock, a socket, a file or a hypervisor: a shell performs the actions that come out and
//! reports what became of them.
//!
//! ```text
//!            shell (droverd)                                   this crate
//!   events, answers, the operator ──── handle(now, input) ───▶ phase x input
//!   perform, in this order        ◀─── poll(now) ───────────── Journal, Do(action), Wait(until)
//! ```
//!
//! [`source::Source`] runs on the host that the guest leaves, [`destination::Destination`] on the
//! host that it goes to. The source decides: from the moment at which its hypervisor has said
//! `completed` the guest belongs to the destination, before it to the source.
//! [`storage_move`] is of a guest that stays, and of which one disk goes to another file.
//!
//! # Invariant
//!
//! At most one host ever runs the guest. The source never runs it after the hand-off; the
//! destination never runs it before. Held by `tests/simulation.rs`.

mod cause;
mod channels;
pub mod convergence;
pub mod destination;
pub mod downtime;
pub mod estimate;
mod journal;
pub mod limits;
pub mod mirrors;
mod observation;
mod outbox;
pub mod paths;
pub mod precopy;
mod question;
mod resolution;
mod session;
pub mod share;
pub mod source;
pub mod storage_move;
mod waiting;

pub use cause::{CancelledBy, Cause, GivenUpOn, KeptGuest, Outcome, Reason, Refused};
pub use channels::{ChannelCount, ChannelLimit, channels};

pub use journal::{
    DestinationRecord, DestinationStep, JournalVersion, Migration, SourceRecord, SourceStep,
    UnknownJournalVersion,
};
pub use observation::{GuestSeen, HandOffAnswer, MigrationSeen, Observation, Verdict};
pub use outbox::Output;
pub use question::Question;
pub use resolution::{Ambiguity, Claimed, LastQuestion, Resolution, Resolving, claimed};
pub use session::Session;
pub use waiting::{Waiting, WaitingOn};

/// Monotonic time since an origin that the shell chooses once, such as the agent's start.
pub type Time = std::time::Duration;
