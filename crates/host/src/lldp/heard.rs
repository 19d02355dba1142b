//! Who was heard at one interface, each for as long as it said that it counts. Knows neither socket nor clock.

use std::collections::BTreeMap;
use std::time::Instant;

use drover_tune::facts::{HeardBy, Neighbour};

use super::frame::said;
use crate::limits::LLDP_NEIGHBOURS;

/// Those who were heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// By who it is and its port, which is what tells one from another (802.1AB, MSAP), with when it is over.
    by_port: BTreeMap<(String, String), (Neighbour, Instant)>,
}

impl Heard {
    /// Takes in what came. What is no frame of LLDP changes nothing; nor does one more than the bound who is not known, until one of these is
    /// over.
    pub fn take(&mut self, frame: &[u8], now: Instant) {
        self.forget_old(now);
        let Some(said) = said(frame, HeardBy::Agent) else {
            return;
        };
        let of = (said.neighbour.switch.clone(), said.neighbour.port.clone());
        let until = now + said.counts_for;
        if until == now {
            self.by_port.remove(&of);
        } else if self.by_port.len() < LLDP_NEIGHBOURS || self.by_port.contains_key(&of) {
            self.by_port.insert(of, (said.neighbour, until));
        }
    }

    /// Those who still count.
    pub fn neighbours(&self, now: Instant) -> impl Iterator<Item = &Neighbour> {
        let all = self.by_port.values();
        let counts = all.filter(move |(_, until)| *until > now);
        counts.map(|(neighbour, _)| neighbour)
    }

    fn forget_old(&mut self, now: Instant) {
        self.by_port.retain(|_, (_, until)| *until > now);
    }
}
