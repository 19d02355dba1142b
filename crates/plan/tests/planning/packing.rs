//! Whether guests find places, by trying all: for small clusters, and not as the planner does it.

use std::collections::BTreeMap;

use drover_plan::inventory::{Inventory, Vm};
use drover_plan::policy::ClusterPolicy;
use drover_types::{HostName, VmName};

use crate::rules;

/// Where each guest takes room: one place, or two while it moves.
pub type Places = BTreeMap<VmName, Vec<HostName>>;

/// Whether all of `homeless` find places among `takers`, beside what is in `places`; headroom may be
/// used.
pub fn all_fit(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    places: &mut Places,
    homeless: &[&Vm],
    takers: &[&HostName],
) -> bool {
    let mut packing = Packing {
        inventory,
        policy,
        places,
        homeless,
        takers,
    };
    packing.fit(homeless)
}

struct Packing<'p> {
    inventory: &'p Inventory,
    policy: &'p ClusterPolicy,
    places: &'p mut Places,
    homeless: &'p [&'p Vm],
    takers: &'p [&'p HostName],
}

impl Packing<'_> {
    /// Whether those that are left fit beside those that were placed before them.
    fn fit(&mut self, left: &[&Vm]) -> bool {
        let Some((vm, rest)) = left.split_first() else {
            let mut homeless = self.homeless.iter();
            return homeless.all(|vm| rules::is_together(self.inventory, self.places, vm));
        };
        for taker in self.takers {
            if !rules::may_start(self.inventory, vm, taker) {
                continue;
            }
            self.places.insert(vm.name.clone(), vec![(*taker).clone()]);
            let found = self.is_good(vm, taker, rest) && self.fit(rest);
            self.places.remove(&vm.name);
            if found {
                return true;
            }
        }
        false
    }

    fn is_good(&self, vm: &Vm, taker: &HostName, rest: &[&Vm]) -> bool {
        // With companions that are still to be placed it is looked at when all are.
        rules::has_room(self.inventory, self.policy, self.places, taker, false)
            && rules::is_apart(self.inventory, self.policy, self.places, vm)
            && (rules::belongs_to(vm, rest) || rules::is_together(self.inventory, self.places, vm))
    }
}
