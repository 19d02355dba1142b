//! The cheapest placement of few units, by trying all that could be cheaper, within a bound.
//!
//! What is placed only adds to each part of the cost, so a partial placement that costs as much as the
//! best one so far is not followed. (A guest beside which a companion is placed later can make a
//! broken wish whole again: there the best may be missed, never a place.)

use crate::limits::{SEARCH_NODES, SEARCH_UNITS};
use crate::model::HostIx;
use crate::place::ledger::{Cost, Ledger};
use crate::place::{Allowed, Prefer};

/// Replaces the whole placement by the cheapest one, where there are few units.
pub(crate) fn search(ledger: &mut Ledger<'_, '_>, allowed: &Allowed, order: &[usize]) {
    if order.len() <= SEARCH_UNITS {
        among(ledger, allowed, order, |_| true, SEARCH_NODES);
    }
}

/// Replaces the places of these units, all others staying where they are, by cheaper ones among the
/// hosts that `may` allows. Gives back how many of the `nodes` were spent.
pub(crate) fn among(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    order: &[usize],
    may: impl Fn(HostIx) -> bool,
    nodes: usize,
) -> usize {
    let places = |ledger: &Ledger<'_, '_>| order.iter().map(|unit| ledger.at[*unit]).collect();
    let best: (Cost, Vec<Option<HostIx>>) = (ledger.cost(), places(ledger));
    order.iter().for_each(|unit| ledger.lift(*unit));
    let all: u64 = order.iter().map(|unit| ledger.units[*unit].weight).sum();
    let others = ledger.cost().unmoved - all;
    let mut search = Search {
        ledger,
        allowed,
        order,
        may,
        best,
        nodes,
    };
    search.place(0, others);
    let (left, best) = (search.nodes, search.best.1);
    for (unit, host) in order.iter().zip(best) {
        if let Some(host) = host {
            ledger.put(*unit, host);
        }
    }
    nodes - left
}

struct Search<'l, 'm, 'u, M> {
    ledger: &'l mut Ledger<'m, 'u>,
    allowed: &'l Allowed,
    order: &'l [usize],
    may: M,
    /// The cost, and the place of each unit of `order`.
    best: (Cost, Vec<Option<HostIx>>),
    nodes: usize,
}

impl<M: Fn(HostIx) -> bool> Search<'_, '_, '_, M> {
    /// Places the units from the `next`-th on; `left_out` weighs those before it without a place.
    fn place(&mut self, next: usize, left_out: u64) {
        let mut cost = self.ledger.cost();
        cost.unmoved = left_out;
        if self.ledger.prefer == Prefer::Full && next < self.order.len() {
            // The one part that gets less by what is placed.
            cost.imbalance = 0;
        }
        if self.nodes == 0 || cost >= self.best.0 {
            return;
        }
        self.nodes -= 1;
        let Some(unit) = self.order.get(next).copied() else {
            let places = self.order.iter().map(|unit| self.ledger.at[*unit]);
            self.best = (cost, places.collect());
            return;
        };
        let weight = self.ledger.units[unit].weight;
        for host in self.by_price(unit) {
            self.ledger.put(unit, host);
            self.place(next + 1, left_out);
            self.ledger.lift(unit);
        }
        self.place(next + 1, left_out + weight);
    }

    fn by_price(&self, unit: usize) -> Vec<HostIx> {
        let hosts = self.allowed.hosts(unit).filter(|host| (self.may)(*host));
        let mut hosts: Vec<HostIx> = hosts.filter(|host| self.ledger.fits(unit, *host)).collect();
        hosts.sort_by_cached_key(|host| self.ledger.price(unit, *host));
        hosts
    }
}
