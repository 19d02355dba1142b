//! One unit after another to the host where it costs least.

use crate::model::HostIx;
use crate::place::Allowed;
use crate::place::ledger::Ledger;
use crate::state::FULL;
use crate::units::Unit;

/// Those that must move first, then those with the fewest hosts to go to, then the largest: what is
/// placed late finds what is left, so the hard ones come early.
pub(crate) fn order(units: &[Unit], allowed: &Allowed) -> Vec<usize> {
    let most = |size: fn(&Unit) -> u64| units.iter().map(size).max().unwrap_or(1).max(1);
    let (memory, vcpus) = (most(|unit| unit.memory), most(|unit| unit.vcpus));
    let share = |size: u64, of: u64| u128::from(size) * u128::from(FULL) / u128::from(of);
    let size = |unit: &Unit| share(unit.memory, memory).max(share(unit.vcpus, vcpus));
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_cached_key(|index| {
        let unit = &units[*index];
        (
            std::cmp::Reverse(unit.weight),
            allowed.hosts(*index).len(),
            std::cmp::Reverse(size(unit)),
            unit.vms.first().copied(),
        )
    });
    order
}

/// Places each unit that has a place, in that order.
pub(crate) fn place(ledger: &mut Ledger<'_, '_>, allowed: &Allowed, order: &[usize]) {
    for unit in order {
        if let Some(host) = cheapest(ledger, allowed, *unit) {
            ledger.put(*unit, host);
        }
    }
}

/// The host where a unit costs least, the first by name among equals.
pub(crate) fn cheapest(ledger: &Ledger<'_, '_>, allowed: &Allowed, unit: usize) -> Option<HostIx> {
    let fitting = allowed.hosts(unit).filter(|host| ledger.fits(unit, *host));
    fitting.min_by_key(|host| ledger.price(unit, *host))
}
