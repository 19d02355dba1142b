//! Whether a move of a plan may still begin, by what has changed since the plan was made.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{HostName, VmName};

use crate::fits;
use crate::invalid;
use crate::inventory::{HostState, Inventory, Vm};
use crate::model::Model;
use crate::policy::{ClusterPolicy, Strength};
use crate::refusal::NoPlace;
use crate::request::Request;
use crate::state::State;
use crate::units::Unit;

/// How far another move of the same round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It has not begun.
    Waits,
    /// It has begun, or the guest has arrived.
    Begun,
    /// The guest stays where it is.
    Failed,
}

/// The other moves of a round: where each guest goes, and how far that is.
pub type Round = BTreeMap<VmName, (HostName, Progress)>;

/// Whether the rules let a guest be moved to a host now: what the host takes, pins, processors, QEMU's version, groups
/// that are kept apart. Guests that must be together arrive one after the other: so none of them begins where one that
/// is still to follow may not.
///
/// Room is the destination's own to say. What the same round moves, or has moved since the facts were told, counts for
/// no group, since the plan has a place for it. Nothing is said of a guest that is elsewhere or on its way, of a host
/// that does not answer, and of facts that no plan could be made from.
///
/// # Errors
/// Why it is not to be moved there.
pub fn check_move(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    request: &Request,
    (vm, from, to): (&VmName, &HostName, &HostName),
    round: &Round,
) -> Result<(), NoPlace> {
    let company = company(inventory, vm, to, round);
    let mut inventory = inventory.clone();
    inventory.vms.retain(|one| {
        let moves = round.get(&one.name);
        company.contains(&one.name)
            || moves.is_none_or(|(_, progress)| *progress == Progress::Failed)
    });
    if invalid::check(&inventory, policy, request).is_err() {
        return Ok(());
    }
    let model = Model::new(&inventory, policy, request);
    let (Some(guest), Some(source), Some(host)) = (model.vm(vm), model.host(from), model.host(to))
    else {
        return Ok(());
    };
    let is_as_planned = model.at[guest] == source && model.moving_to[guest].is_none();
    let answers = model.hosts[host].state != HostState::Unreachable
        && model.hosts[host].facts_age_seconds <= policy.facts_at_most_seconds;
    if !is_as_planned || !answers {
        return Ok(());
    }
    let together: Vec<_> = company.iter().filter_map(|name| model.vm(name)).collect();
    let unit = Unit::new(&model, together);
    let state = State::now(&model);
    let too_near = || {
        unit.vms
            .iter()
            .find_map(|vm| fits::too_near(&state, *vm, host))
    };
    let obstacle = fits::always(&model, &unit, host).or_else(too_near);
    obstacle.map_or(Ok(()), |obstacle| Err(obstacle.reason(&model, &unit, host)))
}

/// The guest, and those that must be where it is and have still to go there.
fn company(inventory: &Inventory, vm: &VmName, to: &HostName, round: &Round) -> BTreeSet<VmName> {
    let follows = |one: &&Vm| {
        let moves = round.get(&one.name);
        moves.is_some_and(|(there, progress)| there == to && *progress != Progress::Begun)
    };
    let mut left: Vec<&Vm> = inventory.vms.iter().filter(follows).collect();
    let mut found: Vec<&Vm> = inventory.vms.iter().filter(|one| one.name == *vm).collect();
    let mut looked_at = 0;
    while let Some(one) = found.get(looked_at).copied() {
        looked_at += 1;
        let (with, others) = left
            .into_iter()
            .partition(|other| must_be_together(one, other));
        left = others;
        found.extend::<Vec<&Vm>>(with);
    }
    found.into_iter().map(|one| one.name.clone()).collect()
}

fn must_be_together(one: &Vm, other: &Vm) -> bool {
    one.policy.together.iter().any(|membership| {
        let mut theirs = other.policy.together.iter();
        theirs.any(|their| {
            let is_hard = Strength::Hard == membership.strength || Strength::Hard == their.strength;
            their.group == membership.group && is_hard
        })
    })
}
