//! Hosts to be emptied: every guest in memory goes elsewhere, or its policy says what happens to it.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{Bytes, HostName};

use crate::draft::{self, Draft, Move, assess, memory_of, places, shortage_during};
use crate::inventory::{HostState, Inventory};
use crate::limits::SETTLING_ROUNDS;
use crate::losses::Shortage;
use crate::model::{HostIx, Model, VmIx};
use crate::order::{self, Job};
use crate::place::{self, Placement, Prefer};
use crate::plan::{Choice, Losses, Stay, Staying, Unmoved};
use crate::policy::Spread;
use crate::reasons::{self, host_names};
use crate::refusal::{Closed, Refusal, Unmovable};
use crate::request::{Avoid, Request};
use crate::state::State;
use crate::units::{self, Unit};
use crate::unmoved;

/// What is known of the guests on the hosts before anything is placed.
#[derive(Debug, Default)]
struct Sorted {
    /// To be placed.
    movable: Vec<VmIx>,
    /// Not, whatever room there is.
    unmovable: Vec<(VmIx, Unmovable)>,
    stays: Vec<Stay>,
}

/// A placement that the policy allows, and what follows from it.
struct Settled {
    placement: Placement,
    unmoved: Vec<Unmoved>,
    losses: Losses,
}

/// The draft of a drain of `hosts`.
pub(crate) fn drain<'m>(
    model: &'m Model<'m>,
    inventory: &Inventory,
    hosts: &BTreeSet<HostName>,
) -> Result<Draft<'m>, Refusal> {
    let drained = hosts.iter().map(|name| host_to_drain(model, name));
    let drained: Vec<HostIx> = drained.collect::<Result<_, _>>()?;
    let sorted = sort(model, &drained)?;
    let mut before = State::now(model);
    for vm in &sorted.movable {
        before.lift(*vm, model.at[*vm]);
    }
    if model.open().next().is_none() && !sorted.movable.is_empty() {
        return Err(Refusal::NoHostLeft {
            guests: sorted.movable.len(),
            memory: memory_of(model, &sorted.movable),
            closed: closed(model, &drained),
        });
    }
    let units = units::of(model, &sorted.movable);
    let units: Vec<Unit> = units
        .into_iter()
        .map(|unit| unit.with_bytes(model))
        .collect();
    let settled = settle(model, inventory, &before, &units, &sorted)?;
    Ok(Draft {
        model,
        waves: waves(model, &units, &settled),
        cordon: hosts.iter().cloned().collect(),
        uncordon: Vec::new(),
        stays: sorted.stays,
        unmoved: settled.unmoved,
        losses: settled.losses,
    })
}

/// The hosts that take no guests for other reasons than that they are to be drained.
fn closed(model: &Model<'_>, drained: &[HostIx]) -> Vec<Closed> {
    let others = (0..model.hosts.len()).filter(|host| !drained.contains(host));
    let closed = others.filter_map(|host| {
        Some(Closed {
            host: model.hosts[host].name.clone(),
            why: model.closed[host].clone()?,
        })
    });
    closed.collect()
}

fn host_to_drain(model: &Model<'_>, name: &HostName) -> Result<HostIx, Refusal> {
    let host = named(model, name)?;
    if let Some(vm) = model.moving_to.iter().position(|to| *to == Some(host)) {
        return Err(Refusal::Arriving {
            vm: model.vms[vm].name.clone(),
            host: name.clone(),
        });
    }
    Ok(host)
}

/// A host that a request names: known, answering, with facts that are young enough.
pub(crate) fn named(model: &Model<'_>, name: &HostName) -> Result<HostIx, Refusal> {
    let unknown = || Refusal::UnknownHost { host: name.clone() };
    let host = model.host(name).ok_or_else(unknown)?;
    if model.hosts[host].state == HostState::Unreachable {
        return Err(Refusal::Unreachable { host: name.clone() });
    }
    let age_seconds = model.hosts[host].facts_age_seconds;
    let limit_seconds = model.policy.facts_at_most_seconds;
    if age_seconds > limit_seconds {
        return Err(Refusal::OldFacts {
            host: name.clone(),
            age_seconds,
            limit_seconds,
        });
    }
    Ok(host)
}

fn sort(model: &Model<'_>, drained: &[HostIx]) -> Result<Sorted, Refusal> {
    let mut sorted = Sorted::default();
    let on = |vm: &VmIx| drained.contains(&model.at[*vm]);
    for vm in (0..model.vms.len()).filter(on) {
        let facts = model.vms[vm];
        let stay = |why| Stay {
            vm: facts.name.clone(),
            why,
        };
        if let Some(to) = facts.moving_to.clone() {
            sorted.stays.push(stay(Staying::Moving { to }));
        } else if !model.is_live(vm) {
            sorted.stays.push(stay(Staying::Stopped));
        } else if facts.blockers.is_empty() {
            sorted.movable.push(vm);
        } else {
            let reasons = facts.blockers.clone();
            sorted.unmovable.push((vm, Unmovable::Blockers { reasons }));
        }
    }
    Ok(sorted)
}

/// Places the units so that the cluster can lose what the policy wants, or says why not.
///
/// Hosts that are equally full are preferred. Filling some leaves larger holes on others, so that is
/// tried where guests find no place, or where too little could be lost.
fn settle(
    model: &Model<'_>,
    inventory: &Inventory,
    before: &State<'_>,
    units: &[Unit],
    sorted: &Sorted,
) -> Result<Settled, Refusal> {
    let place = |prefer| place_beside_those_that_stay(before, units, prefer);
    let left_out = |(placement, _): &(Placement, State<'_>)| -> u64 {
        let nowhere = units
            .iter()
            .zip(&placement.at)
            .filter(|(_, at)| at.is_none());
        nowhere.map(|(unit, _)| unit.weight).sum()
    };
    let mut placed = vec![place(Prefer::Even)];
    if left_out(&placed[0]) > 0 {
        placed.push(place(Prefer::Full));
        placed.sort_by_key(left_out);
    }
    let mut placed = placed.into_iter();
    let mut short = None;
    for prefer in [Prefer::Even, Prefer::Full] {
        let (placement, before) = placed.next().unwrap_or_else(|| place(prefer));
        let unmoved = unmoved::of(&before, units, &placement, &sorted.unmovable);
        if unmoved.iter().any(Unmoved::blocks) {
            // The first leaves least: where it blocks, there is no other.
            let blocked = || blocked(model, &before, sorted, unmoved);
            return Err(short.map_or_else(blocked, |short| not_kept(model, inventory, short)));
        }
        let at = places(model, placement.moves(units), &unmoved);
        let (losses, shortage) = assess(model, &at)?;
        let shortage = match shortage {
            None => shortage_while_displacing(model, units, &placement)?,
            found => found,
        };
        match shortage {
            None => {
                return Ok(Settled {
                    placement,
                    unmoved,
                    losses,
                });
            }
            Some(found) => short = short.or(Some(found)),
        }
    }
    let nothing = Shortage {
        lost: Vec::new(),
        guests: Vec::new(),
    };
    Err(not_kept(model, inventory, short.unwrap_or(nothing)))
}

/// A guest without a place stays where it is, and where groups are spread over failure domains others
/// have to keep out of its own. Gives back the state with those that stay.
fn place_beside_those_that_stay<'m>(
    before: &State<'m>,
    units: &[Unit],
    prefer: Prefer,
) -> (Placement, State<'m>) {
    let model = before.model;
    let (mut state, mut units) = (before.clone(), units.to_vec());
    let mut rounds = 0;
    loop {
        let placement = place::place(state.clone(), &units, prefer);
        let is_apart = |unit: &Unit| unit.vms.iter().any(|vm| !model.apart.of[*vm].is_empty());
        let last = rounds == SETTLING_ROUNDS;
        let is_new = |index: &usize| {
            let unit = &units[*index];
            !unit.stays && is_apart(unit) && (last || placement.at[*index].is_none())
        };
        let new: Vec<usize> = (0..units.len()).filter(is_new).collect();
        let all_placed = placement.at.iter().all(Option::is_some);
        if new.is_empty() || all_placed || model.policy.spread != Spread::Require {
            return (placement, state);
        }
        rounds += 1;
        for index in new {
            units[index].stays = true;
            for vm in &units[index].vms {
                state.put(*vm, model.at[*vm]);
            }
        }
    }
}

/// Hosts that gave a guest: who goes there waits for the second wave.
fn givers(model: &Model<'_>, placement: &Placement) -> BTreeSet<HostIx> {
    placement
        .displaced
        .iter()
        .map(|(vm, _)| model.at[*vm])
        .collect()
}

/// While guests are displaced they take room on both hosts. Without any, the state in which all guests
/// have arrived has the most on each host that takes guests, and it has been looked at.
fn shortage_while_displacing(
    model: &Model<'_>,
    units: &[Unit],
    placement: &Placement,
) -> Result<Option<Shortage>, Refusal> {
    if placement.displaced.is_empty() {
        return Ok(None);
    }
    let givers = givers(model, placement);
    let first = placement
        .moves(units)
        .filter(|(_, to)| !givers.contains(to));
    let first = first.map(|(vm, to)| Job {
        vm,
        from: model.at[vm],
        to,
    });
    let now = places(model, std::iter::empty(), &[]);
    shortage_during(model, &now, &first.collect::<Vec<_>>())
}

fn blocked(
    model: &Model<'_>,
    before: &State<'_>,
    sorted: &Sorted,
    unmoved: Vec<Unmoved>,
) -> Refusal {
    let unmovable: Vec<VmIx> = sorted.unmovable.iter().map(|(vm, _)| *vm).collect();
    let free = model.open().map(|host| Bytes(before.free(host).memory));
    Refusal::Blocked {
        unmoved,
        wanted: memory_of(model, &sorted.movable) + memory_of(model, &unmovable),
        free: free.sum(),
    }
}

fn not_kept(model: &Model<'_>, inventory: &Inventory, short: Shortage) -> Refusal {
    let name = |vm: &VmIx| model.vms[*vm].name.clone();
    Refusal::LossesNotKept {
        wanted: model.policy.keep,
        lost: host_names(model, &short.lost),
        guests: short.guests.iter().map(name).collect(),
        memory: memory_of(model, &short.guests),
        held_before: held_before(inventory, model),
    }
}

/// Whether the policy's wish is kept while nothing has been asked for.
pub(crate) fn held_before(inventory: &Inventory, model: &Model<'_>) -> bool {
    let nothing = Request::Rebalance {
        min_gain: 0,
        most_moves: 1,
        avoid: Avoid::new(),
        with_disks: false,
    };
    let now = Model::new(inventory, model.policy, &nothing);
    let at = places(&now, std::iter::empty(), &[]);
    assess(&now, &at).is_ok_and(|(losses, _)| losses.kept)
}

fn waves(model: &Model<'_>, units: &[Unit], settled: &Settled) -> Vec<Vec<Move>> {
    let placement = &settled.placement;
    let at = places(model, placement.moves(units), &settled.unmoved);
    let mut state = draft::state_of(model, &at);
    let mut whys = BTreeMap::new();
    for (unit, host) in units.iter().zip(&placement.at) {
        let Some(host) = host else { continue };
        for vm in &unit.vms {
            whys.insert(*vm, reasons::why(&mut state, unit, *vm, *host));
        }
    }
    let givers = givers(model, placement);
    for (vm, host) in &placement.displaced {
        let unit = Unit::new(model, vec![*vm]);
        let mut why = reasons::why(&mut state, &unit, *vm, *host);
        let first = placement.moves(units).find(|(_, to)| *to == model.at[*vm]);
        if let Some((other, _)) = first {
            let vm = model.vms[other].name.clone();
            why.choice = Choice::MakesRoom { vm };
        }
        whys.insert(*vm, why);
    }
    let mut waves = [Vec::new(), Vec::new()];
    for (vm, to) in placement.moves(units) {
        let from = model.at[vm];
        waves[usize::from(givers.contains(&to))].push(Job { vm, from, to });
    }
    let waves = waves.map(|mut jobs| {
        order::sort(model, &mut jobs);
        let job = |job: Job| {
            whys.get(&job.vm).map(|why| Move {
                job,
                why: why.clone(),
            })
        };
        jobs.into_iter().filter_map(job).collect::<Vec<_>>()
    });
    waves.into_iter().filter(|wave| !wave.is_empty()).collect()
}
