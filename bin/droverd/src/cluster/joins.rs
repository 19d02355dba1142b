//! How often strangers may ask to be let in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use drover_types::network_of;

use crate::limits;

/// Attempts in the present span of time.
#[derive(Debug, Default)]
pub struct Joins {
    since: Option<Instant>,
    all: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl Joins {
    /// Counts an attempt; whether it may be looked at.
    pub fn attempt(&mut self, address: IpAddr, now: Instant) -> bool {
        let fresh = |since: Instant| now.duration_since(since) < limits::JOIN_SPAN;
        if !self.since.is_some_and(fresh) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        // Bounds the table as well.
        if self.all >= limits::JOINS {
            return false;
        }
        let own = self.by_address.entry(network_of(address)).or_default();
        if *own >= limits::JOINS_OF_ONE {
            return false;
        }
        *own += 1;
        self.all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_stopped_before_it_stops_others_and_time_heals() {
        let mut joins = Joins::default();
        let now = Instant::now();
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for _ in 0..limits::JOINS_OF_ONE {
            assert!(joins.attempt(one, now));
        }
        assert!(!joins.attempt(one, now));
        assert!(joins.attempt(other, now));
        assert!(joins.attempt(one, now + limits::JOIN_SPAN));
    }

    #[test]
    fn many_addresses_are_stopped_together() {
        let mut joins = Joins::default();
        let now = Instant::now();
        let let_in = (0..1000u32).filter(|n| joins.attempt(IpAddr::from(n.to_be_bytes()), now));
        assert_eq!(let_in.count(), limits::JOINS as usize);
    }
}
