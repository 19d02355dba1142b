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
    let Some((vm, rest)) = homeless.split_first() else {
        return true;
    };
    for taker in takers {
        if !rules::may_ever(inventory, policy, vm, taker) {
            continue;
        }
        places.insert(vm.name.clone(), vec![(*taker).clone()]);
        let room = rules::has_room(inventory, policy, places, taker, false);
        let good = room && rules::company_is_good(inventory, policy, places, vm, homeless);
        if good && all_fit(inventory, policy, places, rest, takers) {
            places.remove(&vm.name);
            return true;
        }
        places.remove(&vm.name);
    }
    false
}
