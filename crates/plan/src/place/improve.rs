//! Single moves and exchanges that make a placement cheaper, until there is none or the tries are spent.

use crate::limits::IMPROVEMENT_TRIES;
use crate::model::HostIx;
use crate::place::Allowed;
use crate::place::ledger::{Cost, Ledger};

/// Moves units one at a time to a host where the whole costs less, and exchanges pairs where that does.
pub(crate) fn improve(ledger: &mut Ledger<'_, '_>, allowed: &Allowed) {
    let mut tries = IMPROVEMENT_TRIES;
    let mut best = ledger.cost();
    loop {
        let before = best;
        for unit in by_load(ledger) {
            best = relocate(ledger, allowed, unit, best, &mut tries);
        }
        if best == before {
            best = exchange(ledger, allowed, best, &mut tries);
        }
        if best == before || tries == 0 {
            return;
        }
    }
}

/// Units on the fullest hosts first: there is most to be gained, should the tries not suffice for all.
fn by_load(ledger: &Ledger<'_, '_>) -> Vec<usize> {
    let mut units: Vec<(u64, usize)> = placed(ledger)
        .map(|(unit, host)| (u64::MAX - ledger.state.load(host), unit))
        .collect();
    units.sort_unstable();
    units.into_iter().map(|(_, unit)| unit).collect()
}

fn placed<'a>(ledger: &'a Ledger<'_, '_>) -> impl Iterator<Item = (usize, HostIx)> + 'a {
    let at = ledger.at.iter().enumerate();
    at.filter_map(|(unit, at)| Some((unit, (*at)?)))
}

fn relocate(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    unit: usize,
    mut best: Cost,
    tries: &mut usize,
) -> Cost {
    let Some(mut home) = ledger.at[unit] else {
        return best;
    };
    for host in allowed.hosts(unit) {
        if host == home || *tries == 0 {
            continue;
        }
        *tries -= 1;
        ledger.lift(unit);
        if ledger.fits(unit, host) {
            ledger.put(unit, host);
            let cost = ledger.cost();
            if cost < best {
                (best, home) = (cost, host);
                continue;
            }
            ledger.lift(unit);
        }
        ledger.put(unit, home);
    }
    best
}

fn exchange(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    mut best: Cost,
    tries: &mut usize,
) -> Cost {
    let units: Vec<usize> = placed(ledger).map(|(unit, _)| unit).collect();
    for (index, one) in units.iter().enumerate() {
        for other in &units[index + 1..] {
            if *tries == 0 {
                return best;
            }
            *tries -= 1;
            if let Some(cost) = exchanged(ledger, allowed, *one, *other, best) {
                best = cost;
            }
        }
    }
    best
}

/// The lower cost with two units exchanged; without one, they are where they were.
fn exchanged(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    one: usize,
    other: usize,
    best: Cost,
) -> Option<Cost> {
    let (here, there) = (ledger.at[one]?, ledger.at[other]?);
    let may = |unit, host| allowed.hosts(unit).any(|allowed| allowed == host);
    if here == there || !may(one, there) || !may(other, here) {
        return None;
    }
    ledger.lift(one);
    ledger.lift(other);
    if ledger.fits(one, there) {
        ledger.put(one, there);
        if ledger.fits(other, here) {
            ledger.put(other, here);
            let cost = ledger.cost();
            if cost < best {
                return Some(cost);
            }
            ledger.lift(other);
        }
        ledger.lift(one);
    }
    ledger.put(one, here);
    ledger.put(other, there);
    None
}
