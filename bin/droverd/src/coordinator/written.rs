//! What is written with an entry of a run's journal, and told of it.

use drover_execute::Run;
use drover_execute::journal::{Entry, Move, Outcome, ParkedGuest, UnparkOutcome};
use drover_plan::{Account, Request};
use drover_types::{HostName, RunId};

use super::keep::Follows;

/// What an entry changes in what is remembered of hosts.
pub fn follows(run: &Run, entry: &Entry) -> Option<Follows> {
    match entry {
        // Before it is ordered: whether it has moved may never be known.
        Entry::Ordered { number, .. } => {
            let planned = planned(run, *number)?;
            is_drained(run, &planned.from).then(|| Follows::Leaves {
                vm: planned.vm.clone(),
                from: planned.from.clone(),
            })
        }
        Entry::Ended {
            number,
            outcome: Outcome::Moved { .. },
            ..
        } => {
            let planned = planned(run, *number)?;
            Some(Follows::Moved {
                vm: planned.vm.clone(),
                to: planned.to.clone(),
                from: planned.from.clone(),
                stays: matches!(
                    &run.began().request,
                    Request::Resume { .. } | Request::Rebalance { .. }
                ),
            })
        }
        Entry::Ended {
            number,
            outcome: Outcome::Failed { .. } | Outcome::Cancelled,
            ..
        } => {
            let planned = planned(run, *number)?;
            is_drained(run, &planned.from).then(|| Follows::Remains {
                vm: planned.vm.clone(),
                on: planned.from.clone(),
            })
        }
        // Before it is ordered, and until its host is resumed, whatever becomes of the order: what is not heard
        // of any more may be done all the same, and an earlier one may have stopped the guest.
        Entry::Parking(order) => Some(Follows::Parks {
            guest: ParkedGuest {
                park: order.park,
                vm: order.vm.clone(),
                how: order.how,
            },
            on: order.host.clone(),
        }),
        Entry::Unparked {
            number,
            outcome: UnparkOutcome::Runs | UnparkOutcome::Settled { .. },
            ..
        } => {
            let mut unparks = run.unparks().iter();
            let unpark = unparks.find(|unpark| unpark.number == *number)?;
            Some(Follows::Settled {
                vm: unpark.guest.vm.clone(),
                on: run.unparked_on()?.clone(),
            })
        }
        _ => None,
    }
}

fn planned(run: &Run, number: u32) -> Option<&Move> {
    let mut moves = run.moves().iter();
    let record = moves.find(|record| record.number == number)?;
    Some(&record.planned)
}

fn is_drained(run: &Run, host: &HostName) -> bool {
    matches!(&run.began().request, Request::Drain { hosts, .. } if hosts.contains(host))
}

/// An entry that was written down, for who reads the agent's log.
pub fn log(run: RunId, entry: &Entry) {
    match entry {
        Entry::Ordered {
            number, migration, ..
        } => {
            tracing::info!(%run, number, %migration, "a move begins");
        }
        Entry::KeptBack { number, why, .. } => {
            tracing::info!(%run, number, %why, "a move does not begin");
        }
        Entry::Ended {
            number, outcome, ..
        } => {
            tracing::info!(%run, number, ?outcome, "a move has ended");
        }
        Entry::Parking(order) => {
            let (vm, host, park) = (&order.vm, &order.host, order.park);
            tracing::info!(%run, %vm, %host, how = ?order.how, %park, "a guest is to be parked");
        }
        Entry::Parked {
            number, outcome, ..
        } => {
            tracing::info!(%run, number, ?outcome, "an order to park a guest is over");
        }
        Entry::Unparked {
            number, outcome, ..
        } => {
            tracing::info!(%run, number, ?outcome, "a guest that was parked runs again, or not");
        }
        Entry::Finished { result, why, .. } => {
            let why = why.as_ref().map(Account::as_str);
            tracing::info!(%run, ?result, why, "the run has ended");
        }
        entry => tracing::debug!(%run, ?entry, "written down"),
    }
}
