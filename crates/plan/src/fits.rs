//! Whether a host has a place for a guest at one moment, and why not.
//!
//! Reasons that never change (the processor, pins) come before those that do (groups, room), so that
//! the reason that is shown is the one that no other move would remove.

use drover_types::Bytes;

use crate::inventory::GuestCpu;
use crate::model::{GroupIx, HostIx, Model, VmIx};
use crate::policy::Spread;
use crate::processor::Misfit;
use crate::refusal::NoPlace;
use crate::state::{Mode, State};
use crate::units::{Unit, is_hard};

/// A [`NoPlace`] without its words: it is made and thrown away by the million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Closed,
    Pinned(VmIx),
    Lacks(VmIx),
    OlderQemu(VmIx),
    Cpu(VmIx, Misfit),
    MoveFailed(VmIx),
    Together(GroupIx, VmIx),
    Apart(GroupIx, VmIx),
    SameDomain(GroupIx, VmIx),
    Memory(u64),
    Vcpus(u64),
    /// The folder's number on the host, what is wanted, what is left.
    Disks(usize, [u64; 2]),
}

/// Why a unit is not moved to a host, whatever else is on it.
pub(crate) fn always(model: &Model<'_>, unit: &Unit, host: HostIx) -> Option<Obstacle> {
    let failed = || unit.vms.iter().find(|vm| model.avoids(**vm, host));
    let moves = |vm: &VmIx| unsuited_to_move(model, *vm, host);
    unsuited(model, unit, host)
        .or_else(|| unit.vms.iter().find_map(moves))
        .or_else(|| failed().map(|vm| Obstacle::MoveFailed(*vm)))
}

/// Why a host has no place for a unit, however it comes there.
fn unsuited(model: &Model<'_>, unit: &Unit, host: HostIx) -> Option<Obstacle> {
    if model.closed[host].is_some() {
        return Some(Obstacle::Closed);
    }
    if let Some((group, with)) = unit.contradiction {
        return Some(Obstacle::Apart(group, with));
    }
    unit.vms
        .iter()
        .find_map(|vm| unsuited_for(model, *vm, host))
}

fn unsuited_for(model: &Model<'_>, vm: VmIx, host: HostIx) -> Option<Obstacle> {
    if !model.pins_allow(vm, host) {
        return Some(Obstacle::Pinned(vm));
    }
    if model.lacks(vm, host) {
        return Some(Obstacle::Lacks(vm));
    }
    let misfit = model.misfit(vm, host);
    let misfit = misfit.filter(|_| matches!(model.vms[vm].cpu, GuestCpu::Named { .. }));
    misfit.map(|misfit| Obstacle::Cpu(vm, misfit))
}

/// What speaks against a guest that runs: one that is started anew has the processor and the QEMU of its new
/// host.
fn unsuited_to_move(model: &Model<'_>, vm: VmIx, host: HostIx) -> Option<Obstacle> {
    let older = model.hosts[host].qemu < model.hosts[model.at[vm]].qemu;
    if older && !model.policy.allow_older_qemu {
        return Some(Obstacle::OlderQemu(vm));
    }
    let misfit = model.misfit(vm, host);
    misfit.map(|misfit| Obstacle::Cpu(vm, misfit))
}

/// Why a host has no place for a unit at this moment: to be moved there, or when others were lost to be
/// started there.
pub(crate) fn obstacle(state: &State<'_>, unit: &Unit, host: HostIx) -> Option<Obstacle> {
    let lasting = match state.mode {
        Mode::Normal => always(state.model, unit, host),
        Mode::Need => unsuited(state.model, unit, host),
    };
    lasting.or_else(|| now(state, unit, host))
}

/// Those obstacles that other guests make.
pub(crate) fn now(state: &State<'_>, unit: &Unit, host: HostIx) -> Option<Obstacle> {
    let room = || {
        let free = state.free(host);
        if free.memory < unit.memory {
            return Some(Obstacle::Memory(free.memory));
        }
        if free.vcpus < unit.vcpus {
            return Some(Obstacle::Vcpus(free.vcpus));
        }
        let short = state.disks_short(&unit.vms, host);
        short.map(|(folder, room)| Obstacle::Disks(folder, room))
    };
    let mut vms = unit.vms.iter();
    vms.find_map(|vm| company(state, unit, *vm, host))
        .or_else(room)
}

fn company(state: &State<'_>, unit: &Unit, vm: VmIx, host: HostIx) -> Option<Obstacle> {
    let model = state.model;
    for member in model.together.of[vm].iter().filter(|member| member.hard) {
        let there = state.together_at(member.group).iter();
        let others = || there.clone().filter(|(_, with)| !unit.vms.contains(with));
        if let Some((_, with)) = others().min_by_key(|(_, with)| *with)
            && !others().any(|(at, _)| *at == host)
        {
            return Some(Obstacle::Together(member.group, *with));
        }
    }
    too_near(state, vm, host)
}

/// Another guest from which this one is to be kept apart.
pub(crate) fn too_near(state: &State<'_>, vm: VmIx, host: HostIx) -> Option<Obstacle> {
    let model = state.model;
    for member in &model.apart.of[vm] {
        let forbids =
            |with: &&VmIx| **with != vm && (member.hard || is_hard(model, **with, member.group));
        let there = state.apart_on(host, member.group).iter();
        if let Some(with) = there.filter(forbids).min() {
            return Some(Obstacle::Apart(member.group, *with));
        }
        if model.policy.spread == Spread::Require {
            let there = state.apart_in_domain_of(host, member.group).iter();
            if let Some(with) = there.filter(forbids).min() {
                return Some(Obstacle::SameDomain(member.group, *with));
            }
        }
    }
    None
}

/// How many wishes a unit breaks on a host: groups that are soft, failure domains that are preferred.
pub(crate) fn wishes_broken(state: &State<'_>, unit: &Unit, host: HostIx) -> u64 {
    unit.vms.iter().map(|vm| broken_by(state, *vm, host)).sum()
}

fn broken_by(state: &State<'_>, vm: VmIx, host: HostIx) -> u64 {
    let model = state.model;
    let others = |there: &[VmIx]| there.iter().any(|with| *with != vm);
    let mut broken = 0;
    for member in &model.apart.of[vm] {
        if others(state.apart_on(host, member.group)) {
            broken += 1;
        } else if model.policy.spread != Spread::Ignore {
            broken += u64::from(others(state.apart_in_domain_of(host, member.group)));
        }
    }
    for member in model.together.of[vm].iter().filter(|member| !member.hard) {
        let there = state.together_at(member.group).iter();
        let mut others = there.filter(|(_, with)| *with != vm).peekable();
        let any = others.peek().is_some();
        broken += u64::from(any && !others.any(|(at, _)| *at == host));
    }
    broken
}

impl Obstacle {
    /// In words, with the numbers.
    pub(crate) fn reason(self, model: &Model<'_>, unit: &Unit, host: HostIx) -> NoPlace {
        let name = |vm: VmIx| model.vms[vm].name.clone();
        match self {
            Self::Closed => model.closed[host].clone().unwrap_or(NoPlace::Cordoned),
            Self::Pinned(vm) => NoPlace::Pinned { vm: name(vm) },
            Self::Lacks(vm) => {
                let lacks = &model.hosts[host].lacks;
                let needs = model.vms[vm].needs.iter();
                NoPlace::Lacks {
                    what: needs.filter_map(|need| lacks.get(need)).cloned().collect(),
                }
            }
            Self::OlderQemu(vm) => NoPlace::OlderQemu {
                here: model.hosts[model.at[vm]].qemu,
                there: model.hosts[host].qemu,
            },
            Self::Cpu(vm, misfit) => {
                let (here, there) = (model.hosts[model.at[vm]], model.hosts[host]);
                misfit.reason(&model.vms[vm].cpu, &here.cpu, &there.cpu)
            }
            Self::MoveFailed(vm) => NoPlace::MoveFailed { vm: name(vm) },
            Self::Together(group, with) => NoPlace::Together {
                group: model.together.names[group].clone(),
                with: name(with),
            },
            Self::Apart(group, with) => NoPlace::Apart {
                group: model.apart.names[group].clone(),
                with: name(with),
            },
            Self::SameDomain(group, with) => same_domain(model, group, with, host),
            Self::Memory(free) => NoPlace::Memory {
                wanted: Bytes(unit.memory),
                free: Bytes(free),
            },
            Self::Vcpus(free) => NoPlace::Vcpus {
                wanted: unit.vcpus,
                free,
            },
            Self::Disks(folder, [wanted, free]) => {
                let mut folders = model.hosts[host].disks.free.keys();
                NoPlace::Disks {
                    folder: folders.nth(folder).cloned().unwrap_or_default(),
                    wanted: Bytes(wanted),
                    free: Bytes(free),
                }
            }
        }
    }
}

fn same_domain(model: &Model<'_>, group: GroupIx, with: VmIx, host: HostIx) -> NoPlace {
    let (group, with) = (
        model.apart.names[group].clone(),
        model.vms[with].name.clone(),
    );
    match model.domain[host] {
        Some(domain) => NoPlace::SameDomain {
            group,
            with,
            domain: model.domain_names[domain].clone(),
        },
        None => NoPlace::Apart { group, with },
    }
}
