//! Paths between hosts, asked about by datagrams: what is claimed of them, and what crosses.
//!
//! Owns the answerers of this host, and asks one other host at a time. Judges nothing: that is `drover-tune`'s.
//!
//! ```text
//!   cluster ── every host asks every other one ──▶ ask ── the pairs of interfaces that a migration would use
//!                                                   │
//!                                  order, datagrams, end
//!                                                   ▼
//!                                          answerers (of another host)
//! ```
//!
//! # Invariant
//! Whatever dies, nobody answers for longer than was ordered, and what was not answered for certain is unknown, not lost.

mod answerers;
mod ask;
mod asking;
mod cluster;
mod counted;
mod doubts;
mod found;
mod loading;
mod only;
mod pairs;

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

pub use self::answerers::{Answerers, Here};
pub use self::ask::{ask, turn};
pub use self::cluster::cluster;

/// Questions and answers of this host.
#[derive(Debug, Default)]
pub struct Paths {
    /// Those that answer others.
    pub answerers: Answerers,
    /// Held by whoever asks: two at once would be loss to each other.
    asking: Arc<Mutex<()>>,
    /// Held by whoever keeps what was found, for as long as the disk takes.
    pub keeping: Arc<Mutex<()>>,
}

/// Held by whoever asks. To be waited for where its caller can give up: who hangs up while waiting gives its place back.
pub struct Turn {
    _held: OwnedMutexGuard<()>,
}
