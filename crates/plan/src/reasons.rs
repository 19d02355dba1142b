//! Why a guest goes where it goes, and why a guest goes nowhere, from the state that decided.

use std::collections::BTreeMap;

use drover_types::Bytes;

use crate::fits::{self, Obstacle};
use crate::limits::NAMED_UNMOVED;
use crate::model::{HostIx, Model, VmIx};
use crate::plan::{Choice, Why};
use crate::refusal::{NoPlace, RefusedBy, Scarce, Unmovable};
use crate::state::State;
use crate::units::Unit;

/// Why a unit goes to `host`, in the state that has everything where it will be.
pub(crate) fn why(state: &mut State<'_>, unit: &Unit, vm: VmIx, host: HostIx) -> Why {
    let model = state.model;
    let (apart_from, together_with) = company(state, vm, host);
    let free_after = state.free(host).memory;
    for vm in &unit.vms {
        state.lift(*vm, host);
    }
    let fitting = model
        .open()
        .filter(|other| fits::obstacle(state, unit, *other).is_none());
    let candidates: Vec<HostIx> = fitting.collect();
    let wishes = |host: HostIx| fits::wishes_broken(state, unit, host);
    let load = |host: HostIx| state.load_with(host, unit.memory, unit.vcpus);
    let roomier = || candidates.iter().filter(|other| load(**other) < load(host));
    let choice = if candidates.iter().all(|other| *other == host) {
        Choice::OnlyPlace
    } else if roomier().next().is_none() {
        Choice::MostRoom
    } else if roomier().all(|other| wishes(*other) > wishes(host)) {
        Choice::Wishes
    } else {
        Choice::Whole
    };
    let wishes_broken = u32::try_from(wishes(host)).unwrap_or(u32::MAX);
    for vm in &unit.vms {
        state.put(*vm, host);
    }
    Why {
        choice,
        free_after: Bytes(free_after),
        room: Bytes(model.room[host].memory),
        candidates: u32::try_from(candidates.len()).unwrap_or(u32::MAX),
        apart_from,
        together_with,
        wishes_broken,
    }
}

/// Names that are given of a guest's company: more would hide the others.
const NAMED: usize = 3;

type Names = Vec<drover_types::VmName>;

/// Guests that `vm` is kept apart from, and together with, when it is on `host`.
pub(crate) fn company(state: &State<'_>, vm: VmIx, host: HostIx) -> (Names, Names) {
    let model = state.model;
    let mut apart: Vec<&VmIx> = Vec::new();
    for member in &model.apart.of[vm] {
        let elsewhere = (0..model.hosts.len()).filter(|other| *other != host);
        apart.extend(elsewhere.flat_map(|other| state.apart_on(other, member.group)));
    }
    let mut together = Vec::new();
    for member in &model.together.of[vm] {
        let there = state.together_at(member.group).iter();
        together.extend(
            there
                .filter(|(at, with)| *at == host && *with != vm)
                .map(|(_, with)| with),
        );
    }
    let names = |mut vms: Vec<&VmIx>| {
        vms.sort_unstable();
        vms.dedup();
        vms.iter()
            .take(NAMED)
            .map(|vm| model.vms[**vm].name.clone())
            .collect()
    };
    apart.retain(|with| **with != vm);
    (names(apart), names(together))
}

/// Why no host has a place for a unit: `before` has none of the plan's guests placed, `after` all.
pub(crate) struct Reasons<'s, 'm> {
    pub(crate) before: &'s State<'m>,
    pub(crate) after: &'s State<'m>,
    /// Guests that the plan brings to each host.
    pub(crate) brought: &'s [usize],
    /// How many were explained so far.
    pub(crate) explained: usize,
}

impl Reasons<'_, '_> {
    pub(crate) fn of(&mut self, unit: &Unit) -> Unmovable {
        let model = self.before.model;
        let mut by_reason: BTreeMap<(u8, String), RefusedBy> = BTreeMap::new();
        let own = |host: &HostIx| unit.vms.iter().all(|vm| model.at[*vm] == *host);
        for host in (0..model.hosts.len()).filter(|host| !own(host)) {
            let Some(reason) = self.reason(unit, host) else {
                continue;
            };
            let group = by_reason.entry(key(&reason)).or_insert_with(|| RefusedBy {
                reason: reason.clone(),
                count: 0,
                hosts: Vec::new(),
            });
            group.count += 1;
            if nearer(&reason, &group.reason) {
                group.reason = reason;
            }
            if self.explained < NAMED_UNMOVED {
                group.hosts.push(model.hosts[host].name.clone());
            }
        }
        self.explained += 1;
        Unmovable::NoHost {
            hosts: by_reason.into_values().collect(),
        }
    }

    fn reason(&self, unit: &Unit, host: HostIx) -> Option<NoPlace> {
        let model = self.before.model;
        if let Some(obstacle) = fits::obstacle(self.before, unit, host) {
            return Some(obstacle.reason(model, unit, host));
        }
        let taken = |of| {
            let by = self.brought[host];
            Some(NoPlace::Taken { by, of })
        };
        match fits::obstacle(self.after, unit, host) {
            Some(Obstacle::Memory(_)) => taken(Scarce::Memory),
            Some(Obstacle::Vcpus(_)) => taken(Scarce::Vcpus),
            Some(obstacle) => Some(obstacle.reason(model, unit, host)),
            // There is a place: the cluster could not lose enough with the guest there.
            None => Some(NoPlace::Losses),
        }
    }
}

/// Hosts with the same key refuse for the same reason; numbers may differ.
fn key(reason: &NoPlace) -> (u8, String) {
    let (kind, detail) = match reason {
        NoPlace::Memory { .. } => (0, String::new()),
        NoPlace::Vcpus { .. } => (1, String::new()),
        NoPlace::Taken { of, .. } => (2, of.to_string()),
        NoPlace::Apart { group, with } => (3, format!("{group} {with}")),
        NoPlace::SameDomain { group, domain, .. } => (4, format!("{group} {domain}")),
        NoPlace::Together { group, with } => (5, format!("{group} {with}")),
        NoPlace::Losses => (6, String::new()),
        NoPlace::MoveFailed { vm } => (7, vm.to_string()),
        NoPlace::Pinned { .. } => (8, String::new()),
        NoPlace::Lacks { what } => (9, format!("{what:?}")),
        NoPlace::CpuModel { model } => (10, model.to_string()),
        NoPlace::CpuFeatures { missing } => (11, format!("{missing:?}")),
        NoPlace::CpuPassthrough { there, .. } => (12, there.to_string()),
        NoPlace::OlderQemu { there, .. } => (13, there.to_string()),
        NoPlace::OldFacts { .. } => (14, String::new()),
        NoPlace::Draining => (15, String::new()),
        NoPlace::Cordoned => (16, String::new()),
        NoPlace::Unreachable => (17, String::new()),
        NoPlace::Disks { folder, .. } => (18, folder.to_string()),
    };
    (kind, detail)
}

/// Whether a host with the reason `one` comes nearer to having a place than one with `other`.
fn nearer(one: &NoPlace, other: &NoPlace) -> bool {
    match (one, other) {
        (NoPlace::Memory { free: one, .. }, NoPlace::Memory { free: other, .. }) => one > other,
        (NoPlace::Vcpus { free: one, .. }, NoPlace::Vcpus { free: other, .. }) => one > other,
        (NoPlace::Disks { free: one, .. }, NoPlace::Disks { free: other, .. }) => one > other,
        (NoPlace::Taken { by: one, .. }, NoPlace::Taken { by: other, .. }) => one < other,
        (
            NoPlace::OldFacts {
                age_seconds: one, ..
            },
            NoPlace::OldFacts {
                age_seconds: other, ..
            },
        ) => one < other,
        _ => false,
    }
}

/// Names in place of numbers.
pub(crate) fn host_names(model: &Model<'_>, hosts: &[HostIx]) -> Vec<drover_types::HostName> {
    hosts
        .iter()
        .map(|host| model.hosts[*host].name.clone())
        .collect()
}

/// That the one host that was thought of has no place.
pub(crate) fn only(model: &Model<'_>, host: HostIx, reason: NoPlace) -> Unmovable {
    let refused = RefusedBy {
        reason,
        count: 1,
        hosts: host_names(model, &[host]),
    };
    Unmovable::NoHost {
        hosts: vec![refused],
    }
}
