//! Room for a unit that found none: another unit of this plan goes elsewhere, which may ask a further
//! one, at most [`EJECTIONS`] deep.

use crate::limits::{EJECTION_TRIES, EJECTIONS};
use crate::model::HostIx;
use crate::place::Allowed;
use crate::place::greedy::cheapest;
use crate::place::ledger::Ledger;

/// Places what the greedy placement left, as far as that is possible.
pub(crate) fn place_rest(ledger: &mut Ledger<'_, '_>, allowed: &Allowed, order: &[usize]) {
    let mut search = Ejection {
        residents: residents(ledger),
        ledger,
        allowed,
        tries: EJECTION_TRIES,
    };
    for unit in order {
        if search.ledger.at[*unit].is_none() {
            // Few ejections are looked for first: they change least, and cost least to look for.
            let placed = (1..=EJECTIONS).any(|depth| search.insert(*unit, depth, &mut Vec::new()));
            debug_assert_eq!(placed, search.ledger.at[*unit].is_some());
        }
    }
}

fn residents(ledger: &Ledger<'_, '_>) -> Vec<Vec<usize>> {
    let mut residents = vec![Vec::new(); ledger.state.model.hosts.len()];
    for (unit, at) in ledger.at.iter().enumerate() {
        if let Some(host) = at {
            residents[*host].push(unit);
        }
    }
    residents
}

struct Ejection<'l, 'm, 'u> {
    ledger: &'l mut Ledger<'m, 'u>,
    allowed: &'l Allowed,
    /// Units of this plan on each host.
    residents: Vec<Vec<usize>>,
    tries: usize,
}

impl Ejection<'_, '_, '_> {
    fn put(&mut self, unit: usize, host: HostIx) {
        self.ledger.put(unit, host);
        self.residents[host].push(unit);
    }

    fn lift(&mut self, unit: usize, host: HostIx) {
        self.ledger.lift(unit);
        self.residents[host].retain(|there| *there != unit);
    }

    /// Places a unit, ejecting others from hosts that are not in `passed`. Changes nothing if that
    /// fails.
    fn insert(&mut self, unit: usize, depth: usize, passed: &mut Vec<HostIx>) -> bool {
        if let Some(host) = cheapest(self.ledger, self.allowed, unit) {
            self.put(unit, host);
            return true;
        }
        if depth == 0 {
            return false;
        }
        let allowed = self.allowed;
        for host in allowed.hosts(unit) {
            if passed.contains(&host) {
                continue;
            }
            for other in self.by_size(host) {
                if self.tries == 0 {
                    return false;
                }
                self.tries -= 1;
                if self.swap(unit, other, host, depth, passed) {
                    return true;
                }
            }
        }
        false
    }

    fn swap(
        &mut self,
        unit: usize,
        other: usize,
        host: HostIx,
        depth: usize,
        passed: &mut Vec<HostIx>,
    ) -> bool {
        self.lift(other, host);
        if self.ledger.fits(unit, host) {
            self.put(unit, host);
            passed.push(host);
            let found = self.insert(other, depth - 1, passed);
            passed.pop();
            if found {
                return true;
            }
            self.lift(unit, host);
        }
        self.put(other, host);
        false
    }

    /// The smallest first: it finds another place most easily.
    fn by_size(&self, host: HostIx) -> Vec<usize> {
        let mut units = self.residents[host].clone();
        units.sort_by_key(|unit| (self.ledger.units[*unit].memory, *unit));
        units
    }
}
