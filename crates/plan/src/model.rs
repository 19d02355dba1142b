//! The inventory with numbers in place of names, in the order of names: whatever order the facts came
//! in, the same plan is made from them.
//!
//! Owns nothing that changes while a plan is made; that is [`crate::state`].

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{Bytes, HostName, VmName};

use crate::inventory::{GuestCpu, Host, HostState, Inventory, Vm, VmState};
use crate::policy::{ClusterPolicy, Headroom, Strength};
use crate::processor::{Misfit, misfit};
use crate::refusal::NoPlace;
use crate::request::Request;
use crate::words::{Text, Word};

/// A host's number.
pub(crate) type HostIx = usize;
/// A VM's number.
pub(crate) type VmIx = usize;
/// A group's number, among those of its kind.
pub(crate) type GroupIx = usize;

/// What a host has for guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) memory: u64,
    pub(crate) vcpus: u64,
}

/// That a VM belongs to a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) group: GroupIx,
    pub(crate) hard: bool,
}

/// Groups of one kind.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a> {
    /// Of each VM.
    pub(crate) of: Vec<Vec<Member>>,
    /// Of each group.
    pub(crate) names: Vec<&'a Word>,
}

#[derive(Debug)]
pub(crate) struct Model<'a> {
    pub(crate) hosts: Vec<&'a Host>,
    pub(crate) vms: Vec<&'a Vm>,
    pub(crate) policy: &'a ClusterPolicy,
    pub(crate) request: &'a Request,
    /// Where each VM is.
    pub(crate) at: Vec<HostIx>,
    /// Where each VM is being moved to already.
    pub(crate) moving_to: Vec<Option<HostIx>>,
    /// Why a host takes no guests.
    pub(crate) closed: Vec<Option<NoPlace>>,
    /// For guests, with headroom kept.
    pub(crate) room: Vec<Room>,
    /// For guests when others were lost: headroom is for that.
    pub(crate) room_in_need: Vec<Room>,
    pub(crate) apart: Groups<'a>,
    pub(crate) together: Groups<'a>,
    pub(crate) domain: Vec<Option<usize>>,
    pub(crate) domain_names: Vec<&'a Word>,
    /// Hosts to which a move of a VM failed a moment ago, those that are still there.
    avoid: BTreeMap<VmIx, BTreeSet<HostIx>>,
    /// Hosts that lack what a VM needs, in the order of their numbers; none of most VMs.
    lacking: Vec<Vec<HostIx>>,
    cpu_class: Vec<usize>,
    misfits: Vec<Vec<Option<Misfit>>>,
}

impl<'a> Model<'a> {
    /// Of facts that were checked ([`crate::invalid::check`]).
    pub(crate) fn new(
        inventory: &'a Inventory,
        policy: &'a ClusterPolicy,
        request: &'a Request,
    ) -> Self {
        let mut hosts: Vec<&Host> = inventory.hosts.iter().collect();
        hosts.sort_unstable_by_key(|host| &host.name);
        let mut vms: Vec<&Vm> = inventory.vms.iter().collect();
        vms.sort_unstable_by_key(|vm| &vm.name);
        let number = |name: &HostName| {
            let found = hosts.binary_search_by_key(&name, |host| &host.name);
            found.unwrap_or_else(|next| next)
        };
        let at: Vec<_> = vms.iter().map(|vm| number(&vm.host)).collect();
        let moving_to = vms.iter().map(|vm| vm.moving_to.as_ref().map(number));
        let moving_to = moving_to.collect();
        let (domain, domain_names) = domains(&hosts, policy);
        let (cpu_class, misfits) = cpus(&hosts, &vms, &at);
        Self {
            closed: hosts
                .iter()
                .map(|host| closed(host, policy, request))
                .collect(),
            room: hosts.iter().map(|host| room(host, policy, true)).collect(),
            room_in_need: hosts.iter().map(|host| room(host, policy, false)).collect(),
            apart: groups(&vms, |vm| &vm.policy.apart),
            together: hard_for_all(groups(&vms, |vm| &vm.policy.together)),
            avoid: avoided(request, &hosts, &vms),
            lacking: vms.iter().map(|vm| lacking(vm, &hosts)).collect(),
            domain,
            domain_names,
            cpu_class,
            misfits,
            hosts,
            vms,
            policy,
            request,
            at,
            moving_to,
        }
    }

    /// The number of a host.
    pub(crate) fn host(&self, name: &HostName) -> Option<HostIx> {
        let found = self.hosts.binary_search_by_key(&name, |host| &host.name);
        found.ok()
    }

    /// The number of a VM.
    pub(crate) fn vm(&self, name: &VmName) -> Option<VmIx> {
        self.vms.binary_search_by_key(&name, |vm| &vm.name).ok()
    }

    /// Whether a VM is in memory.
    pub(crate) fn is_live(&self, vm: VmIx) -> bool {
        self.vms[vm].state != VmState::Stopped
    }

    /// Hosts that take guests.
    pub(crate) fn open(&self) -> impl Iterator<Item = HostIx> + '_ {
        (0..self.hosts.len()).filter(|host| self.closed[*host].is_none())
    }

    /// Why the processor of `host` is not one for `vm`.
    pub(crate) fn misfit(&self, vm: VmIx, host: HostIx) -> Option<Misfit> {
        self.misfits[self.cpu_class[vm]][host]
    }

    /// Whether `host` lacks what `vm` needs.
    pub(crate) fn lacks(&self, vm: VmIx, host: HostIx) -> bool {
        self.lacking[vm].binary_search(&host).is_ok()
    }

    /// What disks of `vm` take on `host` if it comes there, by folder. What those of one take that is on its way its host has told as
    /// taken already.
    pub(crate) fn disks_wanted(
        &self,
        vm: VmIx,
        host: HostIx,
    ) -> impl Iterator<Item = (&'a Text, Bytes)> + use<'a> {
        let comes = self.at[vm] != host && self.moving_to[vm].is_none();
        let disks = &self.hosts[host].disks;
        let wanted = disks.wanted.get(&self.vms[vm].name).filter(|_| comes);
        let wanted = wanted.into_iter().flatten();
        wanted.map(|(folder, bytes)| (folder, *bytes))
    }

    /// Whether `vm` may be on `host` by its pins.
    pub(crate) fn pins_allow(&self, vm: VmIx, host: HostIx) -> bool {
        let (pins, host) = (&self.vms[vm].policy.pinned, self.hosts[host]);
        let mut labels = pins.labels.iter();
        (pins.hosts.is_empty() || pins.hosts.contains(&host.name))
            && labels.all(|(key, value)| host.labels.get(key) == Some(value))
    }

    /// Whether `vm` is on its way from `host`, which is drained: it takes room there until it has arrived,
    /// and its company is where it goes, for it does not stay there in any case.
    pub(crate) fn is_leaving(&self, vm: VmIx, host: HostIx) -> bool {
        self.moving_to[vm].is_some()
            && self.at[vm] == host
            && self.closed[host] == Some(NoPlace::Draining)
    }

    /// Whether a move of `vm` failed a moment ago.
    pub(crate) fn has_failed(&self, vm: VmIx) -> bool {
        self.avoid.contains_key(&vm)
    }

    /// Whether a move of `vm` to `host` failed a moment ago.
    pub(crate) fn avoids(&self, vm: VmIx, host: HostIx) -> bool {
        let hosts = self.avoid.get(&vm);
        hosts.is_some_and(|hosts| hosts.contains(&host))
    }

    /// The line of a migration between two hosts: the slower end, and what one guest can fill.
    pub(crate) fn line(&self, from: HostIx, to: HostIx) -> u64 {
        let ends = self.hosts[from].bandwidth.min(self.hosts[to].bandwidth);
        self.policy
            .guest_bandwidth
            .map_or(ends, |most| ends.min(most))
            .0
    }
}

/// By number; a VM whose every host is gone, or that may be tried everywhere again, is still one of which a
/// move failed.
fn avoided(request: &Request, hosts: &[&Host], vms: &[&Vm]) -> BTreeMap<VmIx, BTreeSet<HostIx>> {
    let host = |name| hosts.binary_search_by_key(&name, |host| &host.name).ok();
    let avoid = request.avoid().iter().filter_map(|(vm, names)| {
        let vm = vms.binary_search_by_key(&vm, |vm| &vm.name).ok()?;
        Some((vm, names.iter().filter_map(host).collect()))
    });
    avoid.collect()
}

fn lacking(vm: &Vm, hosts: &[&Host]) -> Vec<HostIx> {
    let lacks = |host: &Host| vm.needs.iter().any(|need| host.lacks.contains_key(need));
    let numbered = hosts.iter().enumerate();
    let lacking = numbered.filter(|(_, host)| lacks(host));
    lacking.map(|(number, _)| number).collect()
}

fn closed(host: &Host, policy: &ClusterPolicy, request: &Request) -> Option<NoPlace> {
    let resumed = matches!(request, Request::Resume { .. }) && request.is_about(&host.name);
    let drained = matches!(request, Request::Drain { .. }) && request.is_about(&host.name);
    let limit_seconds = policy.facts_at_most_seconds;
    match host.state {
        HostState::Unreachable => Some(NoPlace::Unreachable),
        _ if drained => Some(NoPlace::Draining),
        HostState::Cordoned if !resumed => Some(NoPlace::Cordoned),
        _ if host.facts_age_seconds > limit_seconds => Some(NoPlace::OldFacts {
            age_seconds: host.facts_age_seconds,
            limit_seconds,
        }),
        _ => None,
    }
}

fn room(host: &Host, policy: &ClusterPolicy, keep_headroom: bool) -> Room {
    let memory = host.memory.0;
    let headroom = match policy.headroom {
        _ if !keep_headroom => 0,
        Headroom::Size { bytes } => bytes.0,
        Headroom::Percent { percent } => {
            let part = u128::from(memory) * u128::from(percent);
            u64::try_from(part.div_ceil(100)).unwrap_or(u64::MAX)
        }
    };
    let memory = memory.saturating_sub(host.memory_for_host.0);
    Room {
        memory: memory.saturating_sub(headroom),
        vcpus: u64::from(host.cpus) * u64::from(policy.vcpus_percent) / 100,
    }
}

fn groups<'a>(
    vms: &[&'a Vm],
    list: impl Fn(&'a Vm) -> &'a Vec<crate::policy::Membership>,
) -> Groups<'a> {
    let mut numbers: BTreeMap<&Word, GroupIx> = BTreeMap::new();
    for member in vms.iter().flat_map(|vm| list(vm)) {
        numbers.entry(&member.group).or_default();
    }
    let names: Vec<&Word> = numbers.keys().copied().collect();
    numbers
        .values_mut()
        .enumerate()
        .for_each(|(number, group)| *group = number);
    let member = |member: &crate::policy::Membership| Member {
        group: numbers[&member.group],
        hard: member.strength == Strength::Hard,
    };
    let of = vms.iter().map(|vm| list(vm).iter().map(member).collect());
    Groups {
        of: of.collect(),
        names,
    }
}

/// A group that is hard for one is hard for all: one cannot stay with those that go.
fn hard_for_all(mut groups: Groups<'_>) -> Groups<'_> {
    let mut hard = vec![false; groups.names.len()];
    for member in groups.of.iter().flatten() {
        hard[member.group] |= member.hard;
    }
    for member in groups.of.iter_mut().flatten() {
        member.hard = hard[member.group];
    }
    groups
}

fn domains<'a>(hosts: &[&'a Host], policy: &ClusterPolicy) -> (Vec<Option<usize>>, Vec<&'a Word>) {
    let value = |host: &&'a Host| host.labels.get(policy.failure_domain.as_ref()?);
    let mut names: Vec<&Word> = hosts.iter().filter_map(value).collect();
    names.sort_unstable();
    names.dedup();
    let number = |host: &&'a Host| names.binary_search(&value(host)?).ok();
    (hosts.iter().map(number).collect(), names)
}

/// Guests with the same needs are one class: the sets are compared once for each class and kind of
/// processor, not for each guest and host.
fn cpus(hosts: &[&Host], vms: &[&Vm], at: &[HostIx]) -> (Vec<usize>, Vec<Vec<Option<Misfit>>>) {
    let mut classes: BTreeMap<(&GuestCpu, Option<HostIx>), usize> = BTreeMap::new();
    let mut misfits = Vec::new();
    let mut class_of = Vec::with_capacity(vms.len());
    for (vm, at) in vms.iter().zip(at) {
        let source = (vm.cpu == GuestCpu::Passthrough).then_some(*at);
        let class = *classes.entry((&vm.cpu, source)).or_insert_with(|| {
            let source = hosts[*at];
            misfits.push(
                hosts
                    .iter()
                    .map(|host| misfit(&vm.cpu, &source.cpu, &host.cpu))
                    .collect(),
            );
            misfits.len() - 1
        });
        class_of.push(class);
    }
    (class_of, misfits)
}
