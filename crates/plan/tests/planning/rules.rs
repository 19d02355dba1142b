//! The rules, read from the facts by name each time: slow, and plain to see.

use std::collections::BTreeSet;

use drover_plan::Word;
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

/// Pins, what it needs, and a processor that its definition names: what no other guest changes of one that is started anew.
pub fn may_start(inventory: &Inventory, vm: &Vm, to: &HostName) -> bool {
    let to = host_of(inventory, to);
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
        GuestCpu::Passthrough => true,
    };
    let lacks = vm.needs.iter().any(|need| to.lacks.contains_key(need));
    named && labelled && processor && !lacks
}

/// The same of one that runs, and its processor and QEMU.
pub fn may_ever(inventory: &Inventory, policy: &ClusterPolicy, vm: &Vm, to: &HostName) -> bool {
    let starts = may_start(inventory, vm, to);
    let (from, to) = (host_of(inventory, &vm.host), host_of(inventory, to));
    let processor = match &vm.cpu {
        GuestCpu::Named { .. } => true,
        GuestCpu::Passthrough => {
            to.cpu.model == from.cpu.model
                && from
                    .cpu
                    .features
                    .iter()
                    .all(|feature| to.cpu.features.contains(feature))
        }
    };
    starts && processor && (policy.allow_older_qemu || to.qemu >= from.qemu)
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

/// Whether no hard group of `vm` is broken by where it is; who is nowhere breaks none.
pub fn company_is_good(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    places: &Places,
    vm: &Vm,
) -> bool {
    is_apart(inventory, policy, places, vm) && is_together(inventory, places, vm)
}

/// Whether `vm` is kept apart from all others as it has to be.
pub fn is_apart(inventory: &Inventory, policy: &ClusterPolicy, places: &Places, vm: &Vm) -> bool {
    let here = &places[&vm.name];
    let meet = |there: &[HostName], close: &dyn Fn(&HostName, &HostName) -> bool| {
        let mut here = here.iter();
        here.any(|one| there.iter().any(|other| close(one, other)))
    };
    let mut others = inventory.vms.iter().filter(|other| other.name != vm.name);
    others.all(|other| {
        let groups = shared(&vm.policy.apart, &other.policy.apart);
        let there = places.get(&other.name);
        let there = there.filter(|_| groups.iter().any(|(_, hard)| *hard));
        there.is_none_or(|there| {
            let in_domain = policy.spread == Spread::Require
                && meet(there, &|a, b| same_domain(inventory, policy, a, b));
            !in_domain && !meet(there, &|one, other| one == other)
        })
    })
}

/// Whether `vm` is with some of each group that it has to be together with.
pub fn is_together(inventory: &Inventory, places: &Places, vm: &Vm) -> bool {
    let here = &places[&vm.name];
    hard_groups(vm).all(|group| {
        let others = inventory.vms.iter().filter(|other| other.name != vm.name);
        let members = others.filter(|other| is_of(other, group));
        let placed = members.filter_map(|other| places.get(&other.name));
        let placed: BTreeSet<&HostName> = placed.flatten().collect();
        placed.is_empty() || here.iter().any(|host| placed.contains(host))
    })
}

/// Whether `vm` has to be together with one of the others.
pub fn belongs_to(vm: &Vm, others: &[&Vm]) -> bool {
    hard_groups(vm).any(|group| others.iter().any(|other| is_of(other, group)))
}

fn hard_groups(vm: &Vm) -> impl Iterator<Item = &Word> {
    let groups = vm.policy.together.iter();
    groups
        .filter(|member| member.strength == Strength::Hard)
        .map(|member| &member.group)
}

fn is_of(vm: &Vm, group: &Word) -> bool {
    let mut groups = vm.policy.together.iter();
    groups.any(|member| member.group == *group)
}
