//! Files that were made here for disks of a guest of the agent's own which did not come: their ledger outlives the agent, and is what is owed.

use drover_api::{EventKind, MigrationRole, MigrationView, Verdict};
use drover_types::{HostName, with_sources};

use crate::disks;
use crate::migration::amend::Change;
use crate::migration::debts::{self, Paid};
use crate::migration::{Key, Known, Migrations};

impl Migrations {
    /// The migrations of which any are left.
    pub(in crate::migration) fn with_files(&self) -> Vec<Key> {
        let files = disks::recorded(&self.context.config.state).into_iter();
        let known = self.known();
        let ended = |key: &Key| {
            let snapshot = known.get(key).map(Known::snapshot);
            snapshot.is_some_and(|snapshot| snapshot.may_have_files())
        };
        files.map(|id| (id, false)).filter(ended).collect()
    }

    /// Takes them away, by the source's word alone.
    pub(in crate::migration) async fn pay_own(&self, view: MigrationView) {
        if !disks::is_recorded(&self.context.config.state, view.id) {
            return;
        }
        let id = view.id;
        let paid = self.remove_files(view).await;
        self.amend((id, false), |snapshot| {
            let left = debts::next(MigrationRole::Destination, None, true);
            let next = match &paid {
                Paid::Over(_) => None,
                Paid::NotYet(why) => left.map(|left| format!("{left}. Not yet, because: {why}")),
            };
            match paid {
                Paid::NotYet(_) if snapshot.view.next == next => return Change::Nothing,
                Paid::NotYet(why) => tracing::info!(%id, why, "its disks' files are left for now"),
                Paid::Over(what) => {
                    tracing::info!(%id, what, "done");
                    snapshot.record(EventKind::Fallback { what });
                }
            }
            snapshot.view.next = next;
            Change::Shown
        })
        .await;
    }

    async fn remove_files(&self, view: MigrationView) -> Paid {
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let keep = |why: String| {
            disks::give(state, view.id);
            Paid::Over(format!("{why}; its disks here stay"))
        };
        let started = || self.context.registry.was_started(&view.vm);
        if started() {
            return keep(STARTED.to_owned());
        }
        if let Err(why) = disks::settle(works, state, view.id).await {
            return Paid::NotYet(why);
        }
        let last = self.context.peers.addresses(&view.source);
        let client = self.context.peers.client_or_at(&view.source, last);
        let verdict = match client.verdict(view.id).await {
            Ok(view) => view.verdict,
            Err(error) => return Paid::NotYet(with_sources(&error)),
        };
        match judged(&view.source, verdict) {
            Err(Stays::ForNow(why)) => Paid::NotYet(why),
            Err(Stays::ForGood(why)) => keep(why),
            // Somebody may have started it while its source was asked: the next time it is judged anew.
            Ok(()) if started() => Paid::NotYet(STARTED.to_owned()),
            Ok(()) => match disks::remove(works, state, view.id).await {
                Ok(removed) => Paid::Over(removed.told()),
                Err(why) => Paid::NotYet(why),
            },
        }
    }
}

const STARTED: &str = "somebody has started the guest here since, which writes to its disks here";

#[derive(Debug, PartialEq, Eq)]
enum Stays {
    ForNow(String),
    ForGood(String),
}

/// Whether they may go: what the source keeps was never anybody's here, and what it handed off may be all that is left of the guest.
fn judged(source: &HostName, verdict: Verdict) -> Result<(), Stays> {
    match verdict {
        Verdict::Kept => Ok(()),
        Verdict::Undecided => Err(Stays::ForNow(format!("{source} has not decided yet"))),
        Verdict::HandedOff | Verdict::CutOff => Err(Stays::ForGood(format!(
            "{source} handed the guest off: what is in its disks here is the last of it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_for_disks_goes_only_where_its_source_keeps_the_guest() {
        let a = "a".parse().unwrap();
        assert_eq!(judged(&a, Verdict::Kept), Ok(()));
        let undecided = judged(&a, Verdict::Undecided);
        assert!(matches!(undecided, Err(Stays::ForNow(_))), "{undecided:?}");
        for verdict in [Verdict::HandedOff, Verdict::CutOff] {
            let over = judged(&a, verdict);
            assert!(matches!(over, Err(Stays::ForGood(_))), "{over:?}");
        }
    }
}
