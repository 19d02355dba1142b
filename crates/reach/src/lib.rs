//! Asks by datagrams what a path between two hosts carries, and answers; [loads](load) it, where that is wanted.
//!
//! Owns a socket on one address of this host for as long as it asks or answers, and a load's connections; judges nothing. What is to
//! be found out is decided by pure parts (`Search`, `Volley`, `Pace`, `Allowance`); [`ask`], [`ask_sizes`] and [`Answerer`] only move datagrams.
//!
//! ```text
//!  ask ── Ask(sequence, size of the answer), padded to its own size ──▶ Answerer
//!      ◀── Answer, padded to the size that was asked for ────────────── (by the kernel's route, as a lane's are)
//!      ◀── TooLarge: my own interface does not take it ───────────────
//! ```
//!
//! # Invariant
//! Nothing is said to an address that was not named with the ticket, nor for a question that was not made with it. Who has recorded one on its way
//! can have it answered once more, to the address that was named, within the bounds of bytes and rate.

mod allowance;
mod answerer;
pub mod limits;
pub mod load;
mod pace;
mod packet;
mod prober;
mod report;
mod round;
mod search;
mod socket;
mod volley;

pub use answerer::{Answered, Answerer, NotAnswering, Order};
pub use packet::Ticket;
pub use prober::{Budget, NotAsked, Question, ask, ask_sizes, knock};
pub use report::{Report, Unfinished};
pub use search::{Beyond, Largest};
pub use volley::{RoundTrip, Trips};
