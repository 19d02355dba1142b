//! Changes of migrations that have ended: what the other host says of them later.

use super::journal::{AnyRecord, Entry};
use super::snapshot::Snapshot;
use super::{Key, Known, Migrations};

/// What a change is about.
pub enum Change {
    /// Nothing.
    Nothing,
    /// What is shown, or is to be done of a domain.
    Shown,
    /// What a new agent may rely on, too.
    Record(AnyRecord),
}

impl Migrations {
    /// Changes what is known of a migration that has ended, here and in the journal. Changes of one
    /// migration come one after the other, each made of what the one before has left.
    pub(super) async fn amend(&self, key: Key, change: impl FnOnce(&mut Snapshot) -> Change) {
        let snapshot = || self.known().get(&key).map(Known::snapshot);
        let Some(amending) = snapshot().map(|snapshot| snapshot.amending) else {
            return;
        };
        let _turn = amending.lock().await;
        // Until it has ended its task writes it down.
        let Some(mut snapshot) = snapshot().filter(|now| now.view.phase.has_ended()) else {
            return;
        };
        let change = change(&mut snapshot);
        if let Change::Nothing = change {
            return;
        }
        let (id, view) = (snapshot.view.id, snapshot.view.clone());
        let events = snapshot.events.list().to_vec();
        let (refusal, domain) = (snapshot.refusal.clone(), snapshot.domain.clone());
        self.add(id, Known::Past(Box::new(snapshot)));
        let written = match change {
            Change::Record(record) => {
                let entry = Entry {
                    record,
                    view,
                    events,
                    refusal,
                    domain,
                };
                self.journal.write(entry).await
            }
            Change::Shown | Change::Nothing => self.journal.amend(view, events, domain).await,
        };
        if let Err(error) = written {
            tracing::error!(%id, %error, "not in the journal: make room there; a new agent will not know of it");
        }
    }
}
