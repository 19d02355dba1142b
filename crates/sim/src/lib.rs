//! Clock and network simulated from a seed, driving the pure cores.
//!
//! The same seed gives the same run, to the last byte; a failing test names its seed. Nothing here
//! sleeps: time is a number that jumps to the next event.
//!
//! # Invariant
//! A run always ends: every event is bounded in count and time, and [`streams::Report`] says how
//! it ended.

pub mod limits;
pub mod rng;
pub mod streams;
