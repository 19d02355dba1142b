//! A plan in the making: where everything will be, and what follows from that.

use std::collections::BTreeMap;

use drover_types::{BitRate, Bytes, HostName, VmName};

use crate::digest::Digest;
use crate::inventory::Vm;
use crate::limits::{EXTRA_LOSS_SETS, LOSS_SETS};
use crate::losses::{self, Moment, Shortage};
use crate::model::{HostIx, Model, VmIx};
use crate::order::{self, Job};
use crate::plan::{
    Afterwards, Expected, Format, HostAfter, Losses, Plan, Stay, Step, StepDisks, Then, TooMuch,
    Unmoved, Why,
};
use crate::precopy::{Range, disk_ms, millis};
use crate::reasons::host_names;
use crate::refusal::Refusal;
use crate::state::State;
use crate::words::Text;

/// A move with its reason.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) job: Job,
    pub(crate) why: Why,
}

#[derive(Debug)]
pub(crate) struct Draft<'m> {
    pub(crate) model: &'m Model<'m>,
    /// In the order in which they start.
    pub(crate) waves: Vec<Vec<Move>>,
    pub(crate) cordon: Vec<HostName>,
    pub(crate) uncordon: Vec<HostName>,
    pub(crate) stays: Vec<Stay>,
    pub(crate) unmoved: Vec<Unmoved>,
    pub(crate) losses: Losses,
}

/// Where each guest is when these moves are done and those that cannot move are dealt with.
pub(crate) fn places(
    model: &Model<'_>,
    moves: impl Iterator<Item = (VmIx, HostIx)>,
    unmoved: &[Unmoved],
) -> Vec<Option<HostIx>> {
    let live = |vm: VmIx| model.is_live(vm).then_some(model.at[vm]);
    let mut at: Vec<Option<HostIx>> = (0..model.vms.len()).map(live).collect();
    for (vm, to) in moves {
        at[vm] = Some(to);
    }
    let gone = |guest: &&Unmoved| matches!(guest.then, Then::Suspended | Then::Stopped);
    for vm in unmoved
        .iter()
        .filter(gone)
        .filter_map(|guest| model.vm(&guest.vm))
    {
        at[vm] = None;
    }
    at
}

/// The state with every guest in its place; one that is on its way already is on both hosts.
pub(crate) fn state_of<'m>(model: &'m Model<'m>, at: &[Option<HostIx>]) -> State<'m> {
    let mut state = State::empty(model);
    for (vm, at) in at.iter().enumerate() {
        let Some(host) = at else { continue };
        for host in std::iter::once(*host).chain(model.moving_to[vm]) {
            state.put(vm, host);
        }
    }
    state
}

/// Guests by the host that they are on.
pub(crate) fn by_host(model: &Model<'_>, at: &[Option<HostIx>]) -> Vec<Vec<VmIx>> {
    let mut guests = vec![Vec::new(); model.hosts.len()];
    for (vm, at) in at.iter().enumerate() {
        if let Some(host) = at {
            guests[*host].push(vm);
        }
    }
    guests
}

/// What the cluster can lose with everything in these places, and what would be too much for the
/// policy, if anything is.
pub(crate) fn assess(
    model: &Model<'_>,
    at: &[Option<HostIx>],
) -> Result<(Losses, Option<Shortage>), Refusal> {
    let guests = at.iter().enumerate();
    let guests = guests.filter_map(|(vm, at)| at.map(|host| (vm, host)));
    let bound = guests
        .filter(|(vm, host)| losses::is_bound(model, *vm, &[*host]))
        .count();
    let mut moment = Moment::new(model, at, &[]);
    let keep = model.policy.keep;
    let mut found = Losses {
        of: keep.of,
        can_lose: 0,
        kept: true,
        too_much: None,
        bound_to_their_host: u32::try_from(bound).unwrap_or(u32::MAX),
    };
    let mut short = None;
    for losses in 1..=keep.losses + 1 {
        let extra = losses > keep.losses;
        let at_most = if extra { EXTRA_LOSS_SETS } else { LOSS_SETS };
        match moment.shortage(losses, keep.of, at_most) {
            Ok(None) => found.can_lose = losses,
            Ok(Some(shortage)) => {
                found.too_much = Some(too_much(model, &shortage));
                found.kept = extra;
                short = (!extra).then_some(shortage);
                break;
            }
            Err(_) if extra => break,
            Err(sets) => return Err(Refusal::TooManyLosses { sets, losses }),
        }
    }
    Ok((found, short))
}

/// What would be too much for the policy while `jobs` are carried out, in whatever order.
pub(crate) fn shortage_during(
    model: &Model<'_>,
    at: &[Option<HostIx>],
    jobs: &[Job],
) -> Result<Option<Shortage>, Refusal> {
    let keep = model.policy.keep;
    let found = Moment::new(model, at, jobs).shortage(keep.losses, keep.of, LOSS_SETS);
    let losses = keep.losses;
    found.map_err(|sets| Refusal::TooManyLosses { sets, losses })
}

/// Cuts `moves` in waves, each as long as possible, so that the cluster can lose at every moment what
/// the policy wants. A move that finds no wave waits for what the others change, and is left out where that does
/// not help.
pub(crate) fn in_waves(model: &Model<'_>, moves: &[Job]) -> Result<Vec<Vec<Job>>, Refusal> {
    let mut at = places(model, std::iter::empty(), &[]);
    let (mut waves, mut left, mut waiting) = (Vec::new(), moves.to_vec(), Vec::new());
    let mut changed = false;
    while !left.is_empty() {
        let mut length = left.len();
        while length > 0 && shortage_during(model, &at, &left[..length])?.is_some() {
            length /= 2;
        }
        if length == 0 {
            waiting.push(left.remove(0));
        } else {
            let wave: Vec<Job> = left.drain(..length).collect();
            for job in &wave {
                at[job.vm] = Some(job.to);
            }
            waves.push(wave);
            changed = true;
        }
        if left.is_empty() && std::mem::take(&mut changed) {
            left.append(&mut waiting);
        }
    }
    Ok(waves)
}

fn too_much(model: &Model<'_>, shortage: &Shortage) -> TooMuch {
    TooMuch {
        lost: host_names(model, &shortage.lost),
        guests: u32::try_from(shortage.guests.len()).unwrap_or(u32::MAX),
        memory: memory_of(model, &shortage.guests),
    }
}

/// What these guests take.
pub(crate) fn memory_of(model: &Model<'_>, vms: &[VmIx]) -> Bytes {
    vms.iter().map(|vm| model.vms[*vm].memory).sum()
}

impl Draft<'_> {
    /// The plan, with its order, its forecast and its seal.
    pub(crate) fn finish(self, inputs: Digest) -> Plan {
        let model = self.model;
        let (steps, ms) = self.steps();
        let afterwards = self.afterwards();
        let called = self.called(&steps);
        let mut plan = Plan {
            format: self.format(&called),
            inputs,
            request: model.request.clone(),
            cordon: self.cordon,
            uncordon: self.uncordon,
            expected: expected(model, &steps, ms),
            steps,
            stays: self.stays,
            unmoved: self.unmoved,
            called,
            afterwards,
            seal: Digest::default(),
        };
        plan.seal = Digest::of_plan(&plan);
        plan
    }

    /// The first that has all of it.
    fn format(&self, called: &BTreeMap<VmName, Text>) -> Format {
        if self.model.request.with_disks() {
            return Format::Third;
        }
        let any_lacks = self.model.hosts.iter().any(|host| !host.lacks.is_empty());
        match called.is_empty() && !any_lacks {
            true => Format::First,
            false => Format::Second,
        }
    }

    /// What people call the guests of which something is said here, where that is not their name.
    fn called(&self, steps: &[Step]) -> BTreeMap<VmName, Text> {
        let stays = self.stays.iter().map(|stay| &stay.vm);
        let unmoved = self.unmoved.iter().map(|guest| &guest.vm);
        let all = steps
            .iter()
            .map(|step| &step.vm)
            .chain(stays)
            .chain(unmoved);
        let called = all.filter_map(|vm| {
            let number = self.model.vm(vm)?;
            Some((vm.clone(), self.model.vms[number].called.clone()?))
        });
        called.collect()
    }

    fn steps(&self) -> (Vec<Step>, Range) {
        let model = self.model;
        let mut steps: Vec<Step> = Vec::new();
        let mut ms = Range::default();
        for (wave, moves) in (1..).zip(&self.waves) {
            let jobs: Vec<Job> = moves.iter().map(|one| one.job).collect();
            let (timings, takes) = order::schedule(model, &jobs);
            let mut timed: Vec<_> = moves.iter().zip(timings).collect();
            timed.sort_by_key(|(_, timing)| timing.starts_ms);
            for (one, timing) in timed {
                steps.push(Step {
                    number: u32::try_from(steps.len() + 1).unwrap_or(u32::MAX),
                    wave,
                    vm: model.vms[one.job.vm].name.clone(),
                    from: model.hosts[one.job.from].name.clone(),
                    to: model.hosts[one.job.to].name.clone(),
                    why: one.why.clone(),
                    memory: model.vms[one.job.vm].memory,
                    disks: step_disks(model, model.vms[one.job.vm], timing.bandwidth),
                    starts_ms: ms.expected.saturating_add(timing.starts_ms),
                    bandwidth: timing.bandwidth,
                    forecast: timing.forecast,
                });
            }
            ms = ms.plus(takes);
        }
        (steps, ms)
    }

    fn afterwards(&self) -> Afterwards {
        let model = self.model;
        let moves = self
            .waves
            .iter()
            .flatten()
            .map(|one| (one.job.vm, one.job.to));
        let at = places(model, moves, &self.unmoved);
        let state = state_of(model, &at);
        let guests = by_host(model, &at);
        let host = |host: HostIx| {
            let free = state.free(host);
            HostAfter {
                host: model.hosts[host].name.clone(),
                takes_guests: model.closed[host].is_none(),
                guests: u32::try_from(guests[host].len()).unwrap_or(u32::MAX),
                memory_free: Bytes(free.memory),
                memory_room: Bytes(state.room(host).memory),
                vcpus_free: free.vcpus,
            }
        };
        Afterwards {
            hosts: (0..model.hosts.len()).map(host).collect(),
            losses: self.losses.clone(),
        }
    }
}

/// None where that was not asked for, whatever hosts tell.
fn step_disks(model: &Model<'_>, vm: &Vm, bandwidth: BitRate) -> Option<StepDisks> {
    let disks = vm.disks.filter(|_| model.request.with_disks())?;
    let ms = disk_ms(vm, bandwidth.0);
    Some(StepDisks { disks, ms })
}

fn expected(model: &Model<'_>, steps: &[Step], ms: Range) -> Expected {
    let mut lines = vec![[0_u64; 2]; model.hosts.len()];
    let mut bytes = Range::default();
    for step in steps {
        bytes = bytes.plus(step.forecast.bytes);
        for (name, direction) in [(&step.from, 0), (&step.to, 1)] {
            if let Some(host) = model.host(name) {
                let sum = &mut lines[host][direction];
                *sum = sum.saturating_add(step.forecast.bytes.expected);
            }
        }
    }
    let time = |(host, bytes): (HostIx, &[u64; 2])| {
        let most = bytes.iter().copied().max().unwrap_or(0);
        millis(most, model.hosts[host].bandwidth.0)
    };
    let stops = steps.iter().map(|step| step.forecast.downtime_ms);
    let longest = stops.reduce(Range::longer);
    Expected {
        bytes,
        ms,
        bound_ms: lines.iter().enumerate().map(time).max().unwrap_or(0),
        longest_downtime_ms: longest.unwrap_or_default(),
    }
}
