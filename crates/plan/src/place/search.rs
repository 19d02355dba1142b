//! The cheapest placement of few units, by trying all that could be cheaper, within a bound.
//!
//! What is placed only adds to each part of the cost, so a partial placement that costs as much as the
//! best one so far is not followed. (A guest beside which a companion is placed later can make a
//! broken wish whole again: there the best may be missed, never a place.)

use crate::limits::{SEARCH_NODES, SEARCH_UNITS};
use crate::model::HostIx;
use crate::place::ledger::{Cost, Ledger};
use crate::place::{Allowed, Prefer};

/// Replaces the placement by a cheaper one, if one is found.
pub(crate) fn search(ledger: &mut Ledger<'_, '_>, allowed: &Allowed, order: &[usize]) {
    if ledger.units.len() > SEARCH_UNITS {
        return;
    }
    let best = (ledger.cost(), ledger.at.clone());
    clear(ledger);
    let mut search = Search {
        ledger,
        allowed,
        order,
        best,
        nodes: SEARCH_NODES,
    };
    search.place(0, 0);
    let (_, at) = search.best;
    clear(ledger);
    for (unit, host) in at.into_iter().enumerate() {
        if let Some(host) = host {
            ledger.put(unit, host);
        }
    }
}

fn clear(ledger: &mut Ledger<'_, '_>) {
    for unit in 0..ledger.units.len() {
        ledger.lift(unit);
    }
}

struct Search<'l, 'm, 'u> {
    ledger: &'l mut Ledger<'m, 'u>,
    allowed: &'l Allowed,
    order: &'l [usize],
    best: (Cost, Vec<Option<HostIx>>),
    nodes: usize,
}

impl Search<'_, '_, '_> {
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
            self.best = (cost, self.ledger.at.clone());
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
        let fitting = self
            .allowed
            .hosts(unit)
            .filter(|host| self.ledger.fits(unit, *host));
        let mut hosts: Vec<HostIx> = fitting.collect();
        hosts.sort_by_cached_key(|host| self.ledger.price(unit, *host));
        hosts
    }
}
