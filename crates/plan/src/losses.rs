//! What a cluster can lose: whether the guests of any so many hosts, or failure domains, find places on
//! those that are left.
//!
//! A guest's place counts as it would for a start: memory, vCPUs, pins, groups that are hard, and the processor
//! where its definition names one; headroom may be used, for that is what it is there for. Places are looked
//! for in three ways, largest guest first. That a loss can be borne is certain when it is said; that it cannot means
//! that no way found places for all.

use std::collections::BTreeSet;

use crate::draft::{by_host, state_of};
use crate::fits;
use crate::inventory::HostState;
use crate::limits::LOSS_SETS;
use crate::model::{HostIx, Model, VmIx};
use crate::order::Job;
use crate::policy::LossOf;
use crate::state::{Mode, State};
use crate::units::{self, Unit};

/// A moment of a plan: what is in use, and which guests of each host would need another place.
#[derive(Debug, Clone)]
pub(crate) struct Moment<'m> {
    state: State<'m>,
    guests: Vec<Vec<VmIx>>,
    /// Guests of each host that are lost with it, wherever there is room.
    bound: Vec<Vec<VmIx>>,
    /// Guests with a place on two hosts: they need another where both are lost. Where one is, they are on
    /// the other, and their company is not on the lost one.
    between: Vec<(VmIx, [HostIx; 2])>,
    /// Hosts that take guests, those with most room first.
    takers: Vec<HostIx>,
}

/// Hosts whose loss is too much, and the guests that found no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) lost: Vec<HostIx>,
    pub(crate) guests: Vec<VmIx>,
}

impl<'m> Moment<'m> {
    /// With every guest where `at` says, while `jobs` are carried out: those that move take room on both
    /// hosts, and have a place on either. One whose source would not take it counts as arrived: it cannot
    /// go back, and until it has arrived nothing else takes its place.
    pub(crate) fn new(model: &'m Model<'m>, at: &[Option<HostIx>], jobs: &[Job]) -> Self {
        let mut state = state_of(model, at);
        state.mode = Mode::Need;
        let mut guests = by_host(model, at);
        let on_the_way = |vm: VmIx| Some((vm, [at[vm]?, model.moving_to[vm]?]));
        let mut between: Vec<_> = (0..model.vms.len()).filter_map(on_the_way).collect();
        let can_go_back: Vec<bool> = jobs
            .iter()
            .map(|job| can_go_back(&mut state, job))
            .collect();
        let moving: BTreeSet<VmIx> = jobs.iter().map(|job| job.vm).collect();
        for there in &mut guests {
            there.retain(|vm| !moving.contains(vm));
        }
        for (job, can_go_back) in jobs.iter().zip(can_go_back) {
            state.put(job.vm, job.to);
            if can_go_back {
                between.push((job.vm, [job.from, job.to]));
            } else {
                guests[job.to].push(job.vm);
            }
        }
        between.retain(|(vm, ends)| !is_bound(model, *vm, ends));
        let mut bound = vec![Vec::new(); guests.len()];
        for (host, there) in guests.iter_mut().enumerate() {
            there.retain(|vm| model.moving_to[*vm].is_none());
            let is_bound = |vm: &VmIx| is_bound(model, *vm, &[host]);
            (bound[host], *there) = there.iter().copied().partition(is_bound);
        }
        let mut takers: Vec<HostIx> = model.open().collect();
        takers.sort_by_key(|host| (std::cmp::Reverse(state.free(*host).memory), *host));
        Self {
            state,
            guests,
            bound,
            between,
            takers,
        }
    }

    /// The first loss of so many at once that is too much; none if any can be borne.
    ///
    /// # Errors
    /// How many sets of hosts there would be to look at, if that is more than `at_most`.
    pub(crate) fn shortage(
        &mut self,
        losses: u32,
        of: LossOf,
        at_most: u64,
    ) -> Result<Option<Shortage>, u64> {
        let parts = parts(self.state.model, of);
        let wanted = (losses as usize).min(parts.len());
        let sets = choose(parts.len(), wanted);
        if sets > at_most.min(LOSS_SETS) {
            return Err(sets);
        }
        let mut chosen = Vec::with_capacity(wanted);
        Ok(self.each_set(&parts, wanted, 0, &mut chosen))
    }

    fn each_set(
        &mut self,
        parts: &[Vec<HostIx>],
        wanted: usize,
        from: usize,
        chosen: &mut Vec<usize>,
    ) -> Option<Shortage> {
        if chosen.len() == wanted {
            let lost = chosen.iter().flat_map(|part| parts[*part].iter().copied());
            return self.without(lost.collect());
        }
        for part in from..parts.len() {
            chosen.push(part);
            let found = self.each_set(parts, wanted, part + 1, chosen);
            chosen.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether the guests of these hosts find places on others.
    fn without(&mut self, lost: Vec<HostIx>) -> Option<Shortage> {
        let mut gone: Vec<(VmIx, HostIx)> = Vec::new();
        for host in &lost {
            gone.extend(self.guests[*host].iter().map(|vm| (*vm, *host)));
        }
        let mut homeless: Vec<VmIx> = gone.iter().map(|(vm, _)| *vm).collect();
        for (vm, ends) in &self.between {
            let lost_ends = ends.iter().filter(|end| lost.contains(end));
            if lost_ends.clone().count() == ends.len() {
                homeless.push(*vm);
            }
            gone.extend(lost_ends.map(|end| (*vm, *end)));
        }
        if homeless.is_empty() {
            return None;
        }
        for host in &lost {
            gone.extend(self.bound[*host].iter().map(|vm| (*vm, *host)));
        }
        for (vm, host) in &gone {
            self.state.lift(*vm, *host);
        }
        let mut units = units::of(self.state.model, &homeless);
        units.sort_by_key(|unit| (std::cmp::Reverse(unit.memory), unit.vms.first().copied()));
        let left: Vec<HostIx> = {
            let takers = self.takers.iter().copied();
            takers.filter(|host| !lost.contains(host)).collect()
        };
        let mut missing = self.pack(&units, &left, Self::first);
        if !missing.is_empty() {
            missing = self.pack(&units, &left, Self::last);
        }
        if !missing.is_empty() {
            missing = self.pack(&units, &left, Self::emptiest);
        }
        for (vm, host) in gone {
            self.state.put(vm, host);
        }
        missing.sort_unstable();
        (!missing.is_empty()).then_some(Shortage {
            lost,
            guests: missing,
        })
    }

    fn has_place(&self, unit: &Unit, host: HostIx) -> bool {
        fits::obstacle(&self.state, unit, host).is_none()
    }

    fn first(&self, unit: &Unit, hosts: &[HostIx]) -> Option<HostIx> {
        let mut hosts = hosts.iter().copied();
        hosts.find(|host| self.has_place(unit, *host))
    }

    fn last(&self, unit: &Unit, hosts: &[HostIx]) -> Option<HostIx> {
        let mut hosts = hosts.iter().rev().copied();
        hosts.find(|host| self.has_place(unit, *host))
    }

    fn emptiest(&self, unit: &Unit, hosts: &[HostIx]) -> Option<HostIx> {
        let hosts = hosts.iter().copied();
        hosts
            .filter(|host| self.has_place(unit, *host))
            .max_by_key(|host| (self.state.free(*host).memory, std::cmp::Reverse(*host)))
    }

    /// Each unit to the host that is chosen for it; gives back those without a place, and changes nothing.
    fn pack(
        &mut self,
        units: &[Unit],
        hosts: &[HostIx],
        choose: impl Fn(&Self, &Unit, &[HostIx]) -> Option<HostIx>,
    ) -> Vec<VmIx> {
        let mut placed = Vec::with_capacity(units.len());
        let mut missing = Vec::new();
        for unit in units {
            let Some(host) = choose(self, unit, hosts) else {
                missing.extend(&unit.vms);
                continue;
            };
            for vm in &unit.vms {
                self.state.put(*vm, host);
                placed.push((*vm, host));
            }
        }
        for (vm, host) in placed {
            self.state.lift(vm, host);
        }
        missing
    }
}

/// Whether a guest that has moved would be taken by its source again. One that takes no guests does not,
/// and neither does one that has more guests than it has room for.
fn can_go_back(state: &mut State<'_>, job: &Job) -> bool {
    let unit = Unit::new(state.model, vec![job.vm]);
    state.lift(job.vm, job.from);
    let can = fits::obstacle(state, &unit, job.from).is_none();
    state.put(job.vm, job.from);
    can
}

/// Whether no host that takes guests may take this one beside those it is on: their loss is its own,
/// whatever room there is.
pub(crate) fn is_bound(model: &Model<'_>, vm: VmIx, on: &[HostIx]) -> bool {
    let facts = model.vms[vm];
    let pins = &facts.policy.pinned;
    let choosy = !pins.hosts.is_empty() || !pins.labels.is_empty() || !facts.needs.is_empty();
    let may = |host: HostIx| model.pins_allow(vm, host) && !model.lacks(vm, host);
    let others = || model.open().filter(|host| !on.contains(host));
    // Disks that only their host has are lost with it.
    let is_held = !facts.blockers.is_empty() || facts.disks.is_some();
    is_held || (choosy && !others().any(may))
}

/// Hosts that are lost at once. One that does not answer may be lost already.
fn parts(model: &Model<'_>, of: LossOf) -> Vec<Vec<HostIx>> {
    let answers = |host: &HostIx| model.hosts[*host].state != HostState::Unreachable;
    let hosts = (0..model.hosts.len()).filter(answers);
    match of {
        LossOf::Host => hosts.map(|host| vec![host]).collect(),
        LossOf::FailureDomain => {
            let mut domains = vec![Vec::new(); model.domain_names.len()];
            let mut alone = Vec::new();
            for host in hosts {
                match model.domain[host] {
                    Some(domain) => domains[domain].push(host),
                    None => alone.push(vec![host]),
                }
            }
            domains.retain(|domain| !domain.is_empty());
            domains.append(&mut alone);
            domains
        }
    }
}

/// How many sets of `wanted` out of `from`.
fn choose(from: usize, wanted: usize) -> u64 {
    let (from, wanted) = (from as u64, wanted as u64);
    let step = |sets: u64, index: u64| sets.saturating_mul(from - index) / (index + 1);
    (0..wanted).fold(1, step)
}
