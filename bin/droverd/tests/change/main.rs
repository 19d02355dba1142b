//! Changes to hosts that are network namespaces, with real settings: carried out, taken back, and killed at every step of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

#[path = "../paths/cluster.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod cluster;
#[path = "../trust/provision.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod provision;
#[path = "../support/mod.rs"]
mod support;

mod agent;
mod deaths;
mod host;
mod lasting;
mod network;
mod opened;
mod profiles;
mod refusals;
mod restart;
mod sizes;
