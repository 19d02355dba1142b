//! Guests of hosts that are drained and that cannot move: why, and what happens to them.
//!
//! That is what their policy wants, with one exception: what does not move because a move failed a moment
//! ago runs on. A guest is not stopped for that, and does not keep the others from moving.

use crate::model::{Model, VmIx};
use crate::place::Placement;
use crate::plan::{Then, Unmoved};
use crate::policy::CannotMove;
use crate::reasons::Reasons;
use crate::refusal::{NoPlace, Unmovable};
use crate::state::State;
use crate::units::Unit;
use crate::words::Text;

/// Those of `unmovable`, whatever room there is, and those of `units` without a place; `before` has none
/// of the units anywhere.
pub(crate) fn of(
    before: &State<'_>,
    units: &[Unit],
    placement: &Placement,
    unmovable: &[(VmIx, Unmovable)],
) -> Vec<Unmoved> {
    let model = before.model;
    let mut after = before.clone();
    let mut brought = vec![0; model.hosts.len()];
    for (vm, _) in &placement.displaced {
        after.lift(*vm, model.at[*vm]);
    }
    for (vm, host) in placement.moves(units) {
        after.put(vm, host);
        brought[host] += 1;
    }
    let mut reasons = Reasons {
        before,
        after: &after,
        brought: &brought,
        explained: 0,
    };
    let unmovable = unmovable.iter();
    let mut unmoved: Vec<(VmIx, Unmoved)> = unmovable
        .map(|(vm, why)| (*vm, one(model, *vm, why.clone(), model.has_failed(*vm))))
        .collect();
    let placed = units.iter().zip(&placement.at);
    for (unit, _) in placed.filter(|(_, at)| at.is_none()) {
        let why = reasons.of(unit);
        let runs_on = unit.failed || is_beside_failed(model, &why);
        let vms = unit.vms.iter();
        unmoved.extend(vms.map(|vm| (*vm, one(model, *vm, why.clone(), runs_on))));
    }
    unmoved.sort_by_key(|(vm, _)| *vm);
    unmoved.into_iter().map(|(_, guest)| guest).collect()
}

/// Added to a hypervisor's reasons for a guest that is to be suspended.
const NOR_SUSPENDED: &str = "nor suspend it, for the same reason";

fn one(model: &Model<'_>, vm: VmIx, mut why: Unmovable, runs_on: bool) -> Unmoved {
    let facts = model.vms[vm];
    let then = match (facts.policy.cannot_move, &mut why) {
        _ if runs_on => Then::RunsOn,
        // What is saved to a disk is migrated there.
        (CannotMove::Suspend, Unmovable::Blockers { reasons }) => {
            reasons.push(Text::from(NOR_SUSPENDED.to_owned()));
            Then::Blocks
        }
        (wanted, _) => Then::from(wanted),
    };
    Unmoved {
        vm: facts.name.clone(),
        host: facts.host.clone(),
        memory: facts.memory,
        why,
        then,
    }
}

/// Whether a guest is kept from a host by where one is of which a move failed.
fn is_beside_failed(model: &Model<'_>, why: &Unmovable) -> bool {
    let Unmovable::NoHost { hosts } = why else {
        return false;
    };
    hosts.iter().any(|hosts| match &hosts.reason {
        NoPlace::Apart { with, .. }
        | NoPlace::SameDomain { with, .. }
        | NoPlace::Together { with, .. } => model.vm(with).is_some_and(|vm| model.has_failed(vm)),
        _ => false,
    })
}
