//! Guests of the host whose line takes longest, and of one other, placed anew together by search: where
//! lines are unequal, no single move or exchange may help when several at once do.

use std::cmp::Reverse;

use crate::limits::{REGROUP_HOSTS, REGROUP_NODES, REGROUP_TRY, REGROUP_UNITS};
use crate::model::HostIx;
use crate::place::Allowed;
use crate::place::ledger::Ledger;
use crate::place::search::among;

/// Shortens the time that the lines need, until nothing helps or the bound is spent.
pub(crate) fn regroup(ledger: &mut Ledger<'_, '_>, allowed: &Allowed) {
    let mut nodes = REGROUP_NODES;
    while nodes > 0 {
        let Some(busiest) = ledger.busiest() else {
            return;
        };
        if !with_another(ledger, allowed, busiest, &mut nodes) {
            return;
        }
    }
}

/// Whether one of the other hosts helped.
fn with_another(
    ledger: &mut Ledger<'_, '_>,
    allowed: &Allowed,
    busiest: HostIx,
    nodes: &mut usize,
) -> bool {
    let before = ledger.cost();
    let others: Vec<HostIx> = {
        let mut hosts: Vec<HostIx> = ledger.open().filter(|host| *host != busiest).collect();
        hosts.sort_by_key(|host| (ledger.inbound_ms(*host), *host));
        hosts
    };
    let idle = &others[..others.len().min(REGROUP_HOSTS)];
    for other in &others {
        let mut units = largest(ledger, busiest);
        units.extend(largest(ledger, *other));
        let may = |host| host == busiest || host == *other || idle.contains(&host);
        let spent = among(ledger, allowed, &units, may, REGROUP_TRY.min(*nodes));
        *nodes -= spent;
        if ledger.cost() < before {
            return true;
        }
    }
    false
}

fn largest(ledger: &Ledger<'_, '_>, host: HostIx) -> Vec<usize> {
    let there = |unit: &usize| ledger.at[*unit] == Some(host);
    let mut units: Vec<usize> = (0..ledger.units.len()).filter(there).collect();
    units.sort_by_key(|unit| (Reverse(ledger.units[*unit].total_bytes()), *unit));
    units.truncate(REGROUP_UNITS);
    units
}
