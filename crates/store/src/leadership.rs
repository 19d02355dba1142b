//! Who coordinates: a lease on a name, and the generation that fences every write.
//!
//! ```text
//!   campaign ──▶ Won(Leadership, generation 7) ── renew, renew ──▶ lapses, is resigned or broken
//!                  │ fenced_by                                        │
//!                  ▼                                                  ▼
//!             writes count                         writes of generation 7 are Fenced for ever
//! ```

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Moment;
use crate::error::Invalid;
use crate::key::Name;
use crate::limits;
use crate::transaction::Fence;

/// Orders the leaderships of a name: a later one has a larger generation, and writes of an earlier
/// one are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}", self.0)
    }
}

/// What came of a campaign.
#[derive(Debug)]
pub enum Campaign {
    /// The name is led by the one who asked.
    Won(Leadership),
    /// Somebody else leads it.
    Held(Holding),
}

/// The right to write in a name, for as long as it is renewed.
#[derive(Debug, Clone)]
pub struct Leadership {
    pub(crate) name: Name,
    pub(crate) holder: Name,
    pub(crate) generation: Generation,
    pub(crate) ttl: Duration,
    pub(crate) until: Moment,
    /// etcd's own id of the lease; the embedded store needs none.
    pub(crate) lease: i64,
}

impl Leadership {
    /// What is led.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Who leads.
    #[must_use]
    pub fn holder(&self) -> &Name {
        &self.holder
    }

    /// What its writes carry.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How often it should be renewed.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.ttl / limits::RENEWALS_A_LEASE
    }

    /// How long nobody else can have taken it yet, if it is not broken: counted from before its last
    /// renewal was asked for, by this host's clock. With nothing left, begin nothing new. Writes
    /// need no such look, the store refuses them.
    #[must_use]
    pub fn surely_left(&self, now: Moment) -> Duration {
        now.until(self.until).unwrap_or_default()
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence {
            name: self.name.clone(),
            generation: self.generation,
        }
    }
}

/// Who leads a name, as the store sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// What is led.
    pub name: Name,
    /// Who leads.
    pub holder: Name,
    /// What its writes carry, and what [`break_leadership`](crate::Store::break_leadership) needs.
    pub generation: Generation,
    /// Since when, by the holder's own clock: to be shown, never to be reckoned with.
    pub since: Timestamp,
    /// How long the lease is.
    pub ttl: Duration,
    /// How long ago it was renewed.
    pub renewed_ago: Duration,
    /// How long it still runs if it is not renewed; etcd tells it in whole seconds.
    pub left: Duration,
}

impl Holding {
    /// The holder has missed a renewal, as a dead, paused or cut off one does.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        // One renewal that is late by half of its interval is no sign yet.
        self.renewed_ago > self.ttl / limits::RENEWALS_A_LEASE * 3 / 2
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), Invalid> {
    let right =
        (limits::LEASE_LEAST..=limits::LEASE_MOST).contains(&ttl) && ttl.subsec_nanos() == 0;
    if right {
        Ok(())
    } else {
        Err(Invalid::Lease { ttl })
    }
}
