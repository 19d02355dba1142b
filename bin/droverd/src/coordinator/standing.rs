//! Whether this agent still leads, as far as it can know by itself.
//!
//! # Invariant
//! No order is given once another agent may lead: the lease is counted by this host's own clock, from before
//! it was renewed. What is on its way by then is refused by agents that have heard of the newer leadership.

use std::sync::{Arc, Mutex, PoisonError};

use drover_plan::Text;
use drover_store::{Clock, HostClock, Leadership};

/// The leadership under which a run's orders are given. Clones share it.
#[derive(Debug, Clone)]
pub struct Standing {
    clock: HostClock,
    /// What orders carry, where others may lead as well.
    generation: Option<u64>,
    leadership: Arc<Mutex<Leadership>>,
}

impl Standing {
    pub fn new(clock: HostClock, is_shared: bool, leadership: Leadership) -> Self {
        Self {
            clock,
            generation: is_shared.then(|| leadership.generation().0),
            leadership: Arc::new(Mutex::new(leadership)),
        }
    }

    /// What its orders carry.
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// It was renewed.
    pub fn renewed(&self, leadership: &Leadership) {
        let place = self.leadership.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = leadership.clone();
    }

    /// Whether an order may be given now.
    ///
    /// # Errors
    /// Another agent may lead by now.
    pub fn check(&self) -> Result<(), Text> {
        let leadership = self.leadership.lock();
        let leadership = leadership.unwrap_or_else(PoisonError::into_inner);
        if leadership.surely_left(self.clock.now()).is_zero() {
            let why = "the lease of this coordinator may have lapsed: it gives no orders until it leads again";
            return Err(Text::from(why.to_owned()));
        }
        Ok(())
    }
}
