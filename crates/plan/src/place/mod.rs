//! Where guests go: a greedy placement, mended where guests found no place, then improved.
//!
//! ```text
//!   units ── greedy ──▶ ejections, for those without a place ──▶ improvement ──▶ search, where small
//!            hardest first, then largest                   moves, exchanges,       all, within a bound
//!                                                           regrouping
//! ```
//!
//! What is better is [`ledger::Cost`], compared part by part. Only the guests that are to move are
//! moved, unless the policy allows others to be displaced ([`displace`]).

mod displace;
mod eject;
mod greedy;
mod improve;
pub(crate) mod ledger;
mod regroup;
mod search;

use std::collections::BTreeMap;

use crate::fits;
use crate::model::{HostIx, Model, VmIx};
use crate::state::State;
use crate::units::Unit;
use ledger::Ledger;

/// What is preferred where nothing else decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// Hosts equally full.
    Even,
    /// Full hosts, so that others stay empty.
    Full,
}

/// Where each unit goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// By unit; none has no place.
    pub(crate) at: Vec<Option<HostIx>>,
    /// Guests of other hosts that make room, and where they go.
    pub(crate) displaced: Vec<(VmIx, HostIx)>,
}

impl Placement {
    /// All moves: of the units that have a place, and of guests that make room.
    pub(crate) fn moves(&self, units: &[Unit]) -> impl Iterator<Item = (VmIx, HostIx)> {
        let placed = units.iter().zip(&self.at);
        let placed = placed.filter_map(|(unit, at)| at.map(|host| (unit, host)));
        let placed = placed.flat_map(|(unit, host)| unit.vms.iter().map(move |vm| (*vm, host)));
        placed.chain(self.displaced.iter().copied())
    }
}

/// Hosts that have a place for each unit as far as nothing else is on them. Equal sets are kept once.
#[derive(Debug)]
pub(crate) struct Allowed {
    sets: Vec<Vec<u32>>,
    of: Vec<usize>,
}

impl Allowed {
    pub(crate) fn new(model: &Model<'_>, units: &[Unit]) -> Self {
        let mut numbers: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let mut of = Vec::with_capacity(units.len());
        for unit in units {
            let allowed = model
                .open()
                .filter(|host| !unit.stays && fits::always(model, unit, *host).is_none());
            let set: Vec<u32> = allowed
                .filter_map(|host| u32::try_from(host).ok())
                .collect();
            let next = numbers.len();
            of.push(*numbers.entry(set).or_insert(next));
        }
        let mut sets = vec![Vec::new(); numbers.len()];
        for (set, number) in numbers {
            sets[number] = set;
        }
        Self { sets, of }
    }

    pub(crate) fn hosts(&self, unit: usize) -> impl ExactSizeIterator<Item = HostIx> + '_ {
        self.sets[self.of[unit]].iter().map(|host| *host as HostIx)
    }
}

/// Places `units`, none of which is in `state`.
pub(crate) fn place(state: State<'_>, units: &[Unit], prefer: Prefer) -> Placement {
    let allowed = Allowed::new(state.model, units);
    let mut ledger = Ledger::new(state, units, prefer);
    let order = greedy::order(units, &allowed);
    greedy::place(&mut ledger, &allowed, &order);
    eject::place_rest(&mut ledger, &allowed, &order);
    improve::improve(&mut ledger, &allowed);
    regroup::regroup(&mut ledger, &allowed);
    search::search(&mut ledger, &allowed, &order);
    let displaced = displace::place_rest(&mut ledger, &allowed, &order);
    Placement {
        at: ledger.at,
        displaced,
    }
}
