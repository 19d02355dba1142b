//! Paths between hosts, asked about by datagrams, and loaded: what is claimed of them, and what crosses.
//!
//! Owns the answerers of this host, and asks one other host at a time, or loads it. Judges nothing: that is `drover-tune`'s.
//!
//! ```text
//!   cluster ── every host asks every other one ──▶ ask ── the pairs of interfaces that a migration would use
//!                                                   │
//!                                  order, datagrams, end
//!                                                   ▼
//!                                          answerers (of another host)
//!
//!   measure, sizes ── before and after a change to this host ──▶ answerers (of all other hosts)
//!   opened ────────── the same ──▶ open, on these
//!
//!   together ── sets of paths, one after the other ──▶ carry, of several hosts at the same moment ──▶ answerers
//! ```
//!
//! # Invariant
//! Whatever dies, nobody answers for longer than was ordered, and what was not answered for certain is unknown, not lost.

mod answerers;
mod ask;
mod asking;
mod carry;
mod cluster;
mod counted;
mod doubts;
mod found;
mod hold;
mod limits;
mod loading;
mod only;
mod opened;
mod opens;
mod ordered;
mod outcome;
mod pairs;
mod sets;
mod sizes;
mod taken;
mod together;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

pub use self::answerers::{Answerers, Here};
pub use self::ask::{Wanted, ask, turn};
pub use self::carry::carry;
pub use self::cluster::cluster;
pub use self::opened::opened;
pub use self::opens::{Opening, Opens, open, open_all};
pub use self::sizes::{measure, sizes};
pub use self::taken::{Taken, give_back, take};

/// Questions and answers of this host.
#[derive(Debug, Default)]
pub struct Paths {
    /// Those that answer others.
    pub answerers: Answerers,
    /// Held by whoever asks: two at once would be loss to each other.
    asking: Arc<Mutex<()>>,
    /// For whom connections are opened.
    pub opens: Opens,
    /// For which load this host is taken.
    pub taken: Taken,
    /// Held by whoever keeps what was found, for as long as the disk takes.
    pub keeping: Arc<Mutex<()>>,
}

/// Held by whoever asks. To be waited for where its caller can give up: who hangs up while waiting gives its place back.
pub struct Turn {
    _held: OwnedMutexGuard<()>,
    /// When it was begun to be waited for.
    since: Instant,
}

/// As it is told.
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
