//! Interrupts of the NICs that carry one migration: moved as its paths come, given back at its end, and shown.

use std::collections::BTreeSet;

use drover_api::{EventKind, InterruptsView};
use drover_migrate::paths::Side;
use drover_types::Path;
use tokio::sync::mpsc;

use super::carrier::Carrier;
use super::snapshot::Snapshot;
use crate::interrupts::{GivenBack, Share};
use crate::limits::JOIN_LOOK;

/// Has interrupts of the interfaces that carry taken near these, also of those that join, for ever; tells the migration's task
/// what came of it.
pub async fn keep_near<M: Send + 'static>(
    share: Share,
    carrier: Carrier,
    side: Side,
    inbox: mpsc::Sender<M>,
    message: fn(Vec<InterruptsView>) -> M,
) {
    loop {
        let here = |path: &Path| match side {
            Side::Source => path.source.interface.clone(),
            Side::Destination => path.destination.interface.clone(),
        };
        let interfaces: BTreeSet<String> = carrier.paths().iter().map(here).collect();
        let (share, inbox) = (share.clone(), inbox.clone());
        let look = async move {
            let new = share.hold(interfaces).await;
            if !new.is_empty() {
                // A task that has ended gives them back.
                let _ = inbox.send(message(new)).await;
            }
        };
        // What is moved is told, also where this is begun anew in the middle.
        if tokio::spawn(look).await.is_err() {
            return;
        }
        tokio::time::sleep(JOIN_LOOK).await;
    }
}

/// Shows what came of interfaces, and tells it in the history where it was not told before.
pub fn show(snapshot: &mut Snapshot, views: Vec<InterruptsView>) {
    for interrupts in views {
        let all = &mut snapshot.view.interrupts;
        if all.contains(&interrupts) {
            continue;
        }
        all.retain(|known| known.interface != interrupts.interface);
        all.push(interrupts.clone());
        snapshot.record(EventKind::InterruptsMoved { interrupts });
    }
}

/// What is told of what was given back, if there was anything.
pub fn told(given: GivenBack) -> Option<EventKind> {
    let GivenBack { count, left } = given;
    (count > 0 || !left.is_empty()).then_some(EventKind::InterruptsGivenBack {
        interrupts: count as u64,
        left,
    })
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::samples::{leaving, told_since};
    use super::*;

    fn of(interface: &str, moved: u64, fallback: bool) -> InterruptsView {
        InterruptsView {
            interface: interface.into(),
            moved,
            cpus: (moved > 0).then(|| "4-7".to_owned()),
            why_not: fallback.then(|| "irqbalance is running".to_owned()),
            fallback,
        }
    }

    #[test]
    fn history_tells_of_each_interface_once_and_again_when_that_changes() {
        let mut snapshot = leaving();
        let both = || vec![of("eth1", 16, false), of("eth2", 8, false)];
        show(&mut snapshot, both());
        // As another agent finds them.
        show(&mut snapshot, both());
        show(&mut snapshot, vec![of("eth2", 9, false)]);
        assert_eq!(
            told_since(&snapshot),
            [
                "interrupts of eth1: 16 moved to CPUs 4-7",
                "interrupts of eth2: 8 moved to CPUs 4-7",
                "interrupts of eth2: 9 moved to CPUs 4-7",
            ]
        );
        assert_eq!(snapshot.view.interrupts.len(), 2);
        assert_eq!(snapshot.view.notes, Vec::<String>::new());
    }

    #[test]
    fn what_was_to_be_moved_and_could_not_or_is_not_given_back_is_a_note() {
        let mut snapshot = leaving();
        show(&mut snapshot, vec![of("eth1", 0, true)]);
        assert_eq!(told(GivenBack::default()), None);
        for left in [vec![], vec!["interrupt 11 stays on CPUs 2".to_owned()]] {
            let event = told(GivenBack { count: 3, left }).unwrap();
            snapshot.record(event);
        }
        assert_eq!(
            snapshot.view.notes,
            [
                "interrupts of eth1: not moved, because irqbalance is running",
                "3 interrupts are given back; interrupt 11 stays on CPUs 2",
            ]
        );
    }
}
