//! Which interfaces carry a migration, and how those of two hosts are paired.
//!
//! ```text
//! select(source)       ─┐
//!                       ├─▶ candidates ─▶ (the shell probes) ─▶ choose ─▶ paths, left out
//! select(destination)  ─┘
//! ```
//!
//! Every answer that is not "used" carries its reason, so that a NIC that stays idle is shown
//! with why.
//!
//! # Invariant
//!
//! The same interfaces and the same answers give the same paths in the same order.

mod joining;
mod matching;
mod pairing;
mod selection;

pub use joining::{Trouble, joining, trouble, unknown};
pub use pairing::{Candidate, Pairing, candidates, choose};
pub use selection::{Endpoint, InvalidPattern, Pattern, Selected, Selection, select};

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A host's side in a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The host that the guest leaves.
    Source,
    /// The host that it goes to.
    Destination,
}

/// An interface, or one of its addresses, that is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// On which host.
    pub side: Side,
    /// The interface's name.
    pub interface: String,
    /// The address, where only that is left out.
    pub address: Option<IpAddr>,
    /// Why.
    pub reason: LeftOutReason,
}

/// Why an interface or address is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LeftOutReason {
    /// The loopback interface reaches no other host.
    #[error("it is the loopback interface")]
    Loopback,
    /// Down, or without carrier.
    #[error("it is down or has no carrier")]
    Down,
    /// It has no address.
    #[error("it has no address")]
    NoAddress,
    /// A link-local or multicast address, or one of all zeros.
    #[error("the address is not one that a peer can connect to")]
    NotRoutable,
    /// The configuration excludes it.
    #[error("the configuration excludes it by {pattern}")]
    Excluded {
        /// By this pattern.
        pattern: Pattern,
    },
    /// The configuration includes others only.
    #[error("the configuration includes other networks only")]
    NotIncluded,
    /// No probe between it and the other host was answered.
    #[error("it reaches no interface of the other host")]
    NoPeer,
    /// The other host has the same address: what is sent there arrives here.
    #[error("both hosts have its address {address}: give one of them another")]
    SameAddress {
        /// The address.
        address: IpAddr,
    },
    /// More than the bound.
    #[error("there are more than {limit}")]
    OverLimit {
        /// The bound.
        limit: usize,
    },
}
