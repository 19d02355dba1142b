//! Guests moved from full hosts to emptier ones, one at a time, as long as that gains enough.
//!
//! What is gained is measured as Ganeti's hbal does it: by the standard deviation of the hosts' loads.
//! Each move is the one that takes away most of it. A guest moves once at most, and one that belongs
//! together with others stays.

use std::collections::BTreeSet;

use drover_types::Bytes;

use crate::draft::{Draft, Move, assess, in_waves, places};
use crate::drain::held_before;
use crate::fits;
use crate::inventory::Inventory;
use crate::limits::{LEAST_MOVE_GAIN, REBALANCE_ENDS};
use crate::model::{HostIx, Model, VmIx};
use crate::order::{self, Job};
use crate::plan::{Choice, Why};
use crate::reasons::company;
use crate::refusal::Refusal;
use crate::state::{FULL, State};
use crate::units::Unit;

/// The draft of a rebalancing that gains at least `min_gain`, or of nothing at all.
pub(crate) fn rebalance<'m>(
    model: &'m Model<'m>,
    inventory: &Inventory,
    min_gain: u32,
    most_moves: u32,
) -> Result<Draft<'m>, Refusal> {
    let mut balance = Balance::new(model);
    let held = held_before(inventory, model);
    while balance.jobs.len() < most_moves as usize && balance.step() {}
    let mut jobs = std::mem::take(&mut balance.jobs);
    order::sort(model, &mut jobs);
    let mut waves = vec![jobs];
    if held {
        // Any of the moves is good by itself: those that the policy leaves are made.
        waves = in_waves(model, &waves.concat())?;
    }
    if balance.gain(&waves.concat()) < u64::from(min_gain) {
        waves.clear();
    }
    waves.retain(|wave| !wave.is_empty());
    let moves = waves.iter().flatten().map(|job| (job.vm, job.to));
    let at = places(model, moves, &[]);
    let (losses, _) = assess(model, &at)?;
    Ok(Draft {
        model,
        waves: with_reasons(model, waves),
        cordon: Vec::new(),
        uncordon: Vec::new(),
        stays: Vec::new(),
        unmoved: Vec::new(),
        losses,
    })
}

struct Balance<'m> {
    model: &'m Model<'m>,
    open: Vec<HostIx>,
    /// With each guest where it will be.
    target: State<'m>,
    /// With guests that move on both hosts, as it is while they do.
    both: State<'m>,
    guests: Vec<BTreeSet<VmIx>>,
    jobs: Vec<Job>,
    /// The square sum of the loads' distances from their mean, at the beginning.
    unrest: u128,
}

impl<'m> Balance<'m> {
    fn new(model: &'m Model<'m>) -> Self {
        let now = State::now(model);
        let mut guests = vec![BTreeSet::new(); model.hosts.len()];
        for vm in 0..model.vms.len() {
            let alone = !model.together.of[vm].iter().any(|member| member.hard);
            let free = model.vms[vm].blockers.is_empty() && model.moving_to[vm].is_none();
            if model.is_live(vm) && alone && free {
                guests[model.at[vm]].insert(vm);
            }
        }
        let open: Vec<HostIx> = model.open().collect();
        Self {
            unrest: unrest(&now, &open),
            both: now.clone(),
            target: now,
            open,
            model,
            guests,
            jobs: Vec::new(),
        }
    }

    /// Makes the move that gains most; false if none gains enough.
    fn step(&mut self) -> bool {
        let mut by_load = self.open.clone();
        by_load.sort_by_key(|host| (self.target.load(*host), *host));
        let empty = &by_load[..by_load.len().min(REBALANCE_ENDS)];
        let full = by_load.iter().rev().take(REBALANCE_ENDS);
        let pairs = full.flat_map(|from| empty.iter().map(move |to| (*from, *to)));
        let pairs = pairs.filter(|(from, to)| from != to);
        let moves = pairs.flat_map(|(from, to)| {
            let job = move |vm: &VmIx| Job { vm: *vm, from, to };
            self.guests[from].iter().map(job)
        });
        let gains = moves.filter_map(|job| Some((self.gain_of(&job)?, job)));
        let best = gains.max_by_key(|(gain, job)| (*gain, std::cmp::Reverse((job.vm, job.to))));
        let Some((gain, job)) = best else {
            return false;
        };
        if gain.saturating_mul(LEAST_MOVE_GAIN.into()) < self.unrest {
            return false;
        }
        self.guests[job.from].remove(&job.vm);
        self.target.lift(job.vm, job.from);
        self.target.put(job.vm, job.to);
        self.both.put(job.vm, job.to);
        self.jobs.push(job);
        true
    }

    /// By how much the square sum of both hosts' loads shrinks; none if the guest has no place there.
    fn gain_of(&self, job: &Job) -> Option<u128> {
        let facts = self.model.vms[job.vm];
        let (memory, vcpus) = (facts.memory.0, u64::from(facts.vcpus));
        let square = |load: u64| u128::from(load) * u128::from(load);
        let (from, to) = (self.target.load(job.from), self.target.load(job.to));
        let to_after = self.target.load_with(job.to, memory, vcpus);
        let from_after = self.target.load_without(job.from, memory, vcpus);
        let before = square(from) + square(to);
        let gain = before.checked_sub(square(from_after) + square(to_after))?;
        let unit = || Unit::new(self.model, vec![job.vm]);
        let fits = gain > 0 && fits::obstacle(&self.both, &unit(), job.to).is_none();
        (fits && self.breaks_no_more(job)).then_some(gain)
    }

    /// Evenness is no reason to part what wishes to be together, or to bring together what does not.
    fn breaks_no_more(&self, job: &Job) -> bool {
        let unit = Unit::new(self.model, vec![job.vm]);
        let broken = |host| fits::wishes_broken(&self.target, &unit, host);
        broken(job.to) <= broken(job.from)
    }

    /// What these moves gain, in hundredths of a percentage point of the standard deviation.
    fn gain(&self, jobs: &[Job]) -> u64 {
        let mut after = State::now(self.model);
        for job in jobs {
            after.lift(job.vm, job.from);
            after.put(job.vm, job.to);
        }
        let deviation = |unrest: u128| (unrest / (self.open.len() as u128).max(1)).isqrt();
        let (before, after) = (
            deviation(self.unrest),
            deviation(unrest(&after, &self.open)),
        );
        let hundredth = u128::from(FULL / 10_000);
        u64::try_from(before.saturating_sub(after) / hundredth).unwrap_or(u64::MAX)
    }
}

fn unrest(state: &State<'_>, open: &[HostIx]) -> u128 {
    let loads: Vec<u128> = open.iter().map(|host| state.load(*host).into()).collect();
    let mean = loads.iter().sum::<u128>() / (loads.len() as u128).max(1);
    let squares = loads
        .iter()
        .map(|load| load.abs_diff(mean).saturating_pow(2));
    squares.fold(0, u128::saturating_add)
}

fn with_reasons(model: &Model<'_>, waves: Vec<Vec<Job>>) -> Vec<Vec<Move>> {
    let before = State::now(model);
    let mut after = before.clone();
    for job in waves.iter().flatten() {
        after.lift(job.vm, job.from);
        after.put(job.vm, job.to);
    }
    let with_reason = |job: Job| Move {
        job,
        why: why(&before, &after, &job),
    };
    let wave = |jobs: Vec<Job>| jobs.into_iter().map(with_reason).collect();
    waves.into_iter().map(wave).collect()
}

fn why(before: &State<'_>, after: &State<'_>, job: &Job) -> Why {
    let model = after.model;
    let percent = |host| {
        let of =
            |state: &State<'_>| u32::try_from(state.load(host) / (FULL / 100)).unwrap_or(u32::MAX);
        [of(before), of(after)]
    };
    let unit = Unit::new(model, vec![job.vm]);
    let (apart_from, together_with) = company(after, job.vm, job.to);
    let broken = fits::wishes_broken(after, &unit, job.to);
    let open = model.open();
    let allowed = open.filter(|host| fits::always(model, &unit, *host).is_none());
    Why {
        choice: Choice::Evens {
            from_percent: percent(job.from),
            to_percent: percent(job.to),
        },
        free_after: Bytes(after.free(job.to).memory),
        room: Bytes(model.room[job.to].memory),
        candidates: u32::try_from(allowed.count()).unwrap_or(u32::MAX),
        apart_from,
        together_with,
        wishes_broken: u32::try_from(broken).unwrap_or(u32::MAX),
    }
}
