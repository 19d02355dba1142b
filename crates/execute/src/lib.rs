//! A run: a plan carried out, step by step, so that whoever carries it out may die at any of them.
//!
//! ```text
//!   journal ─ replay ─▶ Run ─ asks() ──▶ questions and orders to agents, and to the planner
//!                        ▲  ─ decide() ─▶ Entry ─▶ journal ─▶ apply()
//!                        └─ handle(ask, answer) ─▶ entries ─▶ journal ─▶ apply()
//! ```
//!
//! Owns the order in which a run's moves are begun, what a failure means for the rest, and when a run is
//! over. Where a guest goes is the plan's to say ([`drover_plan`]), how it gets there the agents'. Never
//! reads a clock, writes a file or talks to a host.
//!
//! [`Run::asks`] tells what has to be known or done now and not what has changed, and every ask may be
//! repeated without harm: a coordinator that was started again replays the journal, asks the same, and
//! goes on.
//!
//! # Invariants
//! - Nothing is ordered that is not in the journal.
//! - A guest has one migration at a time, and none after a cancel.
//! - A wave begins when all moves of the one before it have arrived.
//! - A guest is parked only when nothing else is left to be moved off its host, and never since its move failed.
//! - A guest counts as moved when its destination has it and its source has not, by their own word at
//!   the end, not by that of the migration.

mod answers;
mod asks;
mod call_back;
mod decide;
pub mod journal;
pub mod limits;
mod measured;
mod pace;
mod park;
mod planned;
mod replay;
mod run;
mod unpark;
mod verdict;

pub use answers::{Answer, Guest, GuestAt, Look, Phase, Place};
pub use asks::Ask;
pub use journal::{Entry, Outcome};
pub use park::{Park, ParkSeen};
pub use planned::Planned;
pub use replay::Inconsistent;
pub use run::{MoveState, Record, Run, Stage};
pub use unpark::{Unpark, UnparkSeen, UnparkState};

use std::time::Duration;

use journal::UnixMillis;

/// What whoever drives a run knows of the time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For people: what entries are dated with.
    pub wall: UnixMillis,
    /// For waits: since a moment of the driver's own, never going back.
    pub elapsed: Duration,
}
