//! A placement in the making, and what it costs.
//!
//! # Invariant
//! Each unit is in the state exactly where `at` says, or nowhere.

use crate::fits;
use crate::model::HostIx;
use crate::place::Prefer;
use crate::precopy::millis;
use crate::state::{FULL, State};
use crate::units::Unit;

/// What a placement costs; compared part by part, the first that differs decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// Weights of units without a place.
    pub(crate) unmoved: u64,
    /// Wishes that are broken.
    pub(crate) wishes: u64,
    /// The least time in which the lines can carry it: the longest of all bytes in or out of a host
    /// over its line, in milliseconds.
    pub(crate) bound_ms: u64,
    /// Sum of the squares of the loads of the hosts that take guests: least where they are equally
    /// full. For [`Prefer::Full`], what is missing to the most that it can be.
    pub(crate) imbalance: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Ledger<'m, 'u> {
    pub(crate) state: State<'m>,
    pub(crate) units: &'u [Unit],
    pub(crate) at: Vec<Option<HostIx>>,
    pub(crate) prefer: Prefer,
    open: Vec<HostIx>,
    inbound: Vec<u64>,
    /// Of each host, kept up to date with what is put and lifted: the cost is asked for far more often.
    inbound_ms: Vec<u64>,
    squares: Vec<u64>,
    outbound_ms: u64,
    /// Units of which a wish can be broken.
    wishing: Vec<usize>,
}

impl<'m, 'u> Ledger<'m, 'u> {
    pub(crate) fn new(state: State<'m>, units: &'u [Unit], prefer: Prefer) -> Self {
        let model = state.model;
        let mut outbound = vec![0_u64; model.hosts.len()];
        for (from, bytes) in units.iter().flat_map(|unit| &unit.bytes) {
            outbound[*from] = outbound[*from].saturating_add(*bytes);
        }
        let time = |(host, bytes): (usize, &u64)| millis(*bytes, model.hosts[host].bandwidth.0);
        let has_wishes = |unit: &Unit| {
            let mut vms = unit.vms.iter();
            vms.any(|vm| !model.apart.of[*vm].is_empty() || !model.together.of[*vm].is_empty())
        };
        Self {
            open: model.open().collect(),
            inbound: vec![0; model.hosts.len()],
            inbound_ms: vec![0; model.hosts.len()],
            squares: (0..model.hosts.len())
                .map(|host| square(&state, host))
                .collect(),
            outbound_ms: outbound.iter().enumerate().map(time).max().unwrap_or(0),
            wishing: (0..units.len())
                .filter(|unit| has_wishes(&units[*unit]))
                .collect(),
            at: vec![None; units.len()],
            state,
            units,
            prefer,
        }
    }

    /// Puts a unit that is nowhere on a host.
    pub(crate) fn put(&mut self, unit: usize, host: HostIx) {
        let (units, model) = (self.units, self.state.model);
        for vm in &units[unit].vms {
            self.state.put(*vm, host);
        }
        self.inbound[host] = self.inbound[host].saturating_add(carried(&units[unit], host));
        self.refresh(host);
        self.at[unit] = Some(host);
        debug_assert!(model.closed[host].is_none());
    }

    /// Takes a unit from where it is.
    pub(crate) fn lift(&mut self, unit: usize) {
        let Some(host) = self.at[unit].take() else {
            return;
        };
        let units = self.units;
        for vm in &units[unit].vms {
            self.state.lift(*vm, host);
        }
        self.inbound[host] = self.inbound[host].saturating_sub(carried(&units[unit], host));
        self.refresh(host);
    }

    fn refresh(&mut self, host: HostIx) {
        let line = self.state.model.hosts[host].bandwidth.0;
        self.inbound_ms[host] = millis(self.inbound[host], line);
        self.squares[host] = square(&self.state, host);
    }

    /// Whether a host that is allowed for a unit has a place for it at this moment.
    pub(crate) fn fits(&self, unit: usize, host: HostIx) -> bool {
        fits::now(&self.state, &self.units[unit], host).is_none()
    }

    /// What it would cost to put a unit on a host, to be compared among hosts.
    pub(crate) fn price(&self, unit: usize, host: HostIx) -> (u64, u64, u64) {
        let facts = &self.units[unit];
        let bytes = self.inbound[host].saturating_add(carried(facts, host));
        let inbound_ms = millis(bytes, self.state.model.hosts[host].bandwidth.0);
        let load = self.state.load_with(host, facts.memory, facts.vcpus);
        let load = match self.prefer {
            Prefer::Even => load,
            Prefer::Full => FULL.saturating_sub(load),
        };
        let wishes = fits::wishes_broken(&self.state, facts, host);
        (wishes, inbound_ms.max(self.outbound_ms), load)
    }

    pub(crate) fn cost(&self) -> Cost {
        let nowhere = self
            .units
            .iter()
            .zip(&self.at)
            .filter(|(_, at)| at.is_none());
        Cost {
            unmoved: nowhere.map(|(unit, _)| unit.weight).sum(),
            wishes: self.wishes(),
            bound_ms: self.bound_ms(),
            imbalance: self.imbalance(),
        }
    }

    fn wishes(&self) -> u64 {
        let broken = |unit: &usize| {
            let host = self.at[*unit]?;
            Some(fits::wishes_broken(&self.state, &self.units[*unit], host))
        };
        self.wishing.iter().filter_map(broken).sum()
    }

    fn bound_ms(&self) -> u64 {
        let inbound = self.open.iter().map(|host| self.inbound_ms(*host));
        inbound.max().unwrap_or(0).max(self.outbound_ms)
    }

    /// The least time in which a host's line can carry what comes to it.
    pub(crate) fn inbound_ms(&self, host: HostIx) -> u64 {
        self.inbound_ms[host]
    }

    /// Hosts that take guests.
    pub(crate) fn open(&self) -> impl Iterator<Item = HostIx> + '_ {
        self.open.iter().copied()
    }

    /// The host whose inbound line takes longest, if no outbound line takes as long.
    pub(crate) fn busiest(&self) -> Option<HostIx> {
        let busiest = self
            .open()
            .max_by_key(|host| (self.inbound_ms(*host), *host))?;
        (self.inbound_ms(busiest) > self.outbound_ms).then_some(busiest)
    }

    fn imbalance(&self) -> u64 {
        let sum: u64 = self.open.iter().map(|host| self.squares[*host]).sum();
        match self.prefer {
            Prefer::Even => sum,
            Prefer::Full => u64::MAX - sum,
        }
    }
}

/// The square of a load in ten-thousandths: the sum of those of 2000 hosts stays far below 64 bits.
fn square(state: &State<'_>, host: HostIx) -> u64 {
    let load = (state.load(host) / (FULL / 10_000)).min(100_000);
    load * load
}

/// What a unit's move to `host` carries: guests that are there already are not carried.
fn carried(unit: &Unit, host: HostIx) -> u64 {
    let others = unit.bytes.iter().filter(|(from, _)| *from != host);
    others.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}
