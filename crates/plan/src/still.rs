//! Whether a move of a plan may still begin, by what has changed since the plan was made.

use std::collections::BTreeSet;

use drover_types::{HostName, VmName};

use crate::fits;
use crate::invalid;
use crate::inventory::{HostState, Inventory};
use crate::model::Model;
use crate::policy::ClusterPolicy;
use crate::refusal::NoPlace;
use crate::request::Request;
use crate::state::State;
use crate::units::Unit;

/// Whether the rules let a guest be moved to a host now: what the host takes, pins, processors, QEMU's version, groups
/// that are kept apart.
///
/// Room is the destination's own to say. Guests that belong together arrive one after the other, and count so; the
/// `others` that the same plan has yet to move count for no group, since it has a place for them. Nothing is said of a
/// guest that is elsewhere or on its way, of a host that does not answer, and of facts that no plan could be made from.
///
/// # Errors
/// Why it is not to be moved there.
pub fn check_move(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    request: &Request,
    (vm, from, to): (&VmName, &HostName, &HostName),
    others: &BTreeSet<VmName>,
) -> Result<(), NoPlace> {
    let mut inventory = inventory.clone();
    let counts = |name: &VmName| name == vm || !others.contains(name);
    inventory.vms.retain(|one| counts(&one.name));
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
    let unit = Unit::new(&model, vec![guest]);
    let obstacle = fits::always(&model, &unit, host)
        .or_else(|| fits::too_near(&State::now(&model), guest, host));
    obstacle.map_or(Ok(()), |obstacle| Err(obstacle.reason(&model, &unit, host)))
}
