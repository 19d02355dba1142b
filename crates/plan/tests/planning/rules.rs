//! The rules, read from the facts by name each time: slow, and plain to see.

use std::collections::BTreeSet;

use drover_plan::inventory::{GuestCpu, Host, Inventory, Vm};
use drover_plan::policy::{ClusterPolicy, Headroom, Membership, Spread, Strength};
use drover_types::HostName;

use crate::packing::Places;

pub fn host_of<'i>(inventory: &'i Inventory, name: &HostName) -> &'i Host {
    inventory
        .hosts
        .iter()
        .find(|host| host.name == *name)
        .unwrap()
}

fn vm_of<'i>(inventory: &'i Inventory, name: &drover_types::VmName) -> &'i Vm {
    inventory.vms.iter().find(|vm| vm.name == *name).unwrap()
}

/// Pins, processor and QEMU: what no other guest changes.
pub fn may_ever(inventory: &Inventory, policy: &ClusterPolicy, vm: &Vm, to: &HostName) -> bool {
    let (from, to) = (host_of(inventory, &vm.host), host_of(inventory, to));
    let pins = &vm.policy.pinned;
    let named = pins.hosts.is_empty() || pins.hosts.contains(&to.name);
    let labelled = pins
        .labels
        .iter()
        .all(|(key, value)| to.labels.get(key) == Some(value));
    let processor = match &vm.cpu {
        GuestCpu::Named { model, features } => {
            model.iter().all(|model| to.cpu.models.contains(model))
                && features
                    .iter()
                    .all(|feature| to.cpu.features.contains(feature))
        }
        GuestCpu::Passthrough => {
            to.cpu.model == from.cpu.model
                && from
                    .cpu
                    .features
                    .iter()
                    .all(|feature| to.cpu.features.contains(feature))
        }
    };
    named && labelled && processor && (policy.allow_older_qemu || to.qemu >= from.qemu)
}

/// Whether what is on or on its way to or from a host fits into it.
pub fn has_room(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    places: &Places,
    name: &HostName,
    keep_headroom: bool,
) -> bool {
    let host = host_of(inventory, name);
    let there = places.iter().filter(|(_, hosts)| hosts.contains(name));
    let there: Vec<&Vm> = there.map(|(vm, _)| vm_of(inventory, vm)).collect();
    let memory: u64 = there.iter().map(|vm| vm.memory.0).sum();
    let vcpus: u64 = there.iter().map(|vm| u64::from(vm.vcpus)).sum();
    let headroom = match policy.headroom {
        _ if !keep_headroom => 0,
        Headroom::Size { bytes } => bytes.0,
        Headroom::Percent { percent } => (host.memory.0 * u64::from(percent)).div_ceil(100),
    };
    memory + headroom + host.memory_for_host.0 <= host.memory.0
        && vcpus * 100 <= u64::from(host.cpus) * u64::from(policy.vcpus_percent)
}

fn shared<'m>(one: &'m [Membership], other: &[Membership]) -> Vec<(&'m Membership, bool)> {
    let hard = |m: &Membership| m.strength == Strength::Hard;
    let both = |m: &'m Membership| {
        let twin = other.iter().find(|twin| twin.group == m.group)?;
        Some((m, hard(m) || hard(twin)))
    };
    one.iter().filter_map(both).collect()
}

fn same_domain(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    one: &HostName,
    other: &HostName,
) -> bool {
    let domain = |name| {
        let label = policy.failure_domain.as_ref()?;
        host_of(inventory, name).labels.get(label)
    };
    one == other || (domain(one).is_some() && domain(one) == domain(other))
}

/// Whether no hard group of `vm` is broken by where it is; companions in `absent` have no place yet.
pub fn company_is_good(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    places: &Places,
    vm: &Vm,
    absent: &[&Vm],
) -> bool {
    let here = &places[&vm.name];
    let others = inventory.vms.iter().filter(|other| other.name != vm.name);
    for other in others {
        let Some(there) = places.get(&other.name) else {
            continue;
        };
        let meet = |close: &dyn Fn(&HostName, &HostName) -> bool| {
            here.iter()
                .any(|one| there.iter().any(|other| close(one, other)))
        };
        let apart = shared(&vm.policy.apart, &other.policy.apart);
        if apart.iter().any(|(_, hard)| *hard) {
            if meet(&|one, other| one == other) {
                return false;
            }
            if policy.spread == Spread::Require
                && meet(&|a, b| same_domain(inventory, policy, a, b))
            {
                return false;
            }
        }
    }
    let mut hard = vm
        .policy
        .together
        .iter()
        .filter(|m| m.strength == Strength::Hard);
    hard.all(|group| {
        let members = inventory.vms.iter().filter(|other| other.name != vm.name);
        let members =
            members.filter(|other| other.policy.together.iter().any(|m| m.group == group.group));
        let placed: BTreeSet<&HostName> = members
            .filter(|other| {
                !absent
                    .iter()
                    .any(|gone| gone.name == other.name && !places.contains_key(&gone.name))
            })
            .filter_map(|other| places.get(&other.name))
            .flatten()
            .collect();
        placed.is_empty() || here.iter().any(|host| placed.contains(host))
    })
}
