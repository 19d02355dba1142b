//! Room made by guests of hosts that are not to be drained, where the policy allows that.
//!
//! A displaced guest moves first, in a wave of its own, and the guest that needs its room after it.
//!
//! # Invariant
//! A host that gives a guest takes none that is displaced, and the other way round: two waves suffice,
//! and no guest waits for one that waits for it.

use std::collections::BTreeSet;

use crate::fits;
use crate::limits::EJECTION_TRIES;
use crate::model::{HostIx, Model, VmIx};
use crate::place::Allowed;
use crate::place::ledger::Ledger;
use crate::units::Unit;

/// Places what nothing else could place, each by at most one guest that makes room.
pub(crate) fn place_rest(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    order: &[usize],
) -> Vec<(VmIx, HostIx)> {
    let mut displacing = Displacing {
        residents: residents(ledger.state.model),
        ledger,
        givers: BTreeSet::new(),
        takers: BTreeSet::new(),
        displaced: Vec::new(),
        tries: EJECTION_TRIES,
    };
    if displacing.ledger.state.model.policy.allow_displacing {
        for unit in order {
            if displacing.ledger.at[*unit].is_none() {
                displacing.make_room(*unit, allowed);
            }
        }
    }
    displacing.displaced
}

/// Guests of each host that takes guests, which can move and belong to no others; the smallest first.
fn residents(model: &Model<'_>) -> Vec<Vec<VmIx>> {
    let mut residents = vec![Vec::new(); model.hosts.len()];
    for (vm, host) in model.at.iter().enumerate() {
        let alone = !model.together.of[vm].iter().any(|member| member.hard);
        let free = model.vms[vm].blockers.is_empty() && model.moving_to[vm].is_none();
        if model.is_live(vm) && alone && free && model.closed[*host].is_none() {
            residents[*host].push(vm);
        }
    }
    for there in &mut residents {
        there.sort_by_key(|vm| (model.vms[*vm].memory, *vm));
    }
    residents
}

struct Displacing<'l, 'm, 'u> {
    ledger: &'l mut Ledger<'m, 'u>,
    residents: Vec<Vec<VmIx>>,
    givers: BTreeSet<HostIx>,
    takers: BTreeSet<HostIx>,
    displaced: Vec<(VmIx, HostIx)>,
    tries: usize,
}

impl Displacing<'_, '_, '_> {
    fn make_room(&mut self, unit: usize, allowed: &Allowed) {
        for host in allowed.hosts(unit) {
            if self.takers.contains(&host) {
                continue;
            }
            for index in 0..self.residents[host].len() {
                if self.tries == 0 {
                    return;
                }
                self.tries -= 1;
                let vm = self.residents[host][index];
                if self.exchange(unit, vm, host) {
                    self.residents[host].remove(index);
                    return;
                }
            }
        }
    }

    /// Puts `unit` on `host` in the place of `vm`, if that has another.
    fn exchange(&mut self, unit: usize, vm: VmIx, host: HostIx) -> bool {
        self.ledger.state.lift(vm, host);
        if self.ledger.fits(unit, host) {
            self.ledger.put(unit, host);
            if let Some(other) = self.elsewhere(vm, host) {
                self.ledger.state.put(vm, other);
                self.givers.insert(host);
                self.takers.insert(other);
                self.displaced.push((vm, other));
                return true;
            }
            self.ledger.lift(unit);
        }
        self.ledger.state.put(vm, host);
        false
    }

    fn elsewhere(&self, vm: VmIx, host: HostIx) -> Option<HostIx> {
        let state = &self.ledger.state;
        let unit = Unit::new(state.model, vec![vm]);
        let others = state.model.open();
        let others = others.filter(|other| *other != host && !self.givers.contains(other));
        let fitting = others.filter(|other| fits::obstacle(state, &unit, *other).is_none());
        fitting.min_by_key(|other| state.load_with(*other, unit.memory, unit.vcpus))
    }
}
