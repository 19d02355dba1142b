//! Who is believed, and who is not: real agents on the loopback, with certificates of every kind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod doors;
mod join;
mod place;
mod provision;
mod refusals;
mod removal;
mod renewal;
