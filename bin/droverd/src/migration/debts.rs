//! What is still to be done of libvirt's domains whose migration has ended. It is in the journal, and outlives the agent.

use std::sync::Arc;

use drover_api::{DomainHeld, EventKind, MigrationRole, Refusal, Verdict};
use drover_migrate::Migration;
use drover_types::{HostName, with_sources};

use super::amend::Change;
use super::domains;
use super::{Key, Migrations};
use crate::disks;
use crate::libvirt::{Debt, DomainRecord, Ended, Left, ToLeave};
use crate::limits;

const STARTED: &str = "somebody has started the domain here since: its definition is left";

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
enum Paid {
    /// It is done, or not to be done any more; what is told of that.
    Over(String),
    /// Not yet; why.
    NotYet(String),
}

impl Migrations {
    /// Does what is owed, again and again until it is done, for as long as the agent lives.
    pub async fn keep_paying(self: Arc<Self>) {
        let mut tick = tokio::time::interval(limits::PAY_DEBTS);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            for key in self.indebted() {
                self.pay(key).await;
            }
        }
    }

    fn indebted(&self) -> Vec<Key> {
        let known = self.known();
        let owing = known.iter().filter(|(_, known)| known.snapshot().owes());
        let owing = owing.map(|(key, _)| *key);
        let files = disks::recorded(&self.context.config.state);
        owing
            .chain(files.into_iter().map(|id| (id, false)))
            .collect()
    }

    /// Does what is owed by this one.
    pub(super) async fn pay(&self, key: Key) {
        let snapshot = self.known().get(&key).map(super::Known::snapshot);
        let Some(snapshot) = snapshot.filter(|snapshot| snapshot.view.phase.has_ended()) else {
            return;
        };
        let view = snapshot.view;
        let migration = Migration {
            id: view.id,
            vm: view.vm,
            source: view.source,
            destination: view.destination,
        };
        let Some(domain) = snapshot.domain else {
            if !key.1 {
                self.pay_own(&migration).await;
            }
            return;
        };
        for debt in domain.owes.clone() {
            let paid = match debt {
                Debt::Settings => self.give_back(&migration, &domain).await,
                Debt::Definition => self.take_away(&migration, &domain).await,
                Debt::Disks => self.remove_disks(&migration, &domain).await,
            };
            match paid {
                Paid::NotYet(why) => tracing::debug!(id = %migration.id, ?debt, why, "not yet"),
                Paid::Over(what) => self.paid(key, debt, what).await,
            }
        }
    }

    /// Gives a domain that is to move again what it is owed.
    ///
    /// # Errors
    /// libvirt does not do that.
    pub(super) async fn settle_before(&self, leaving: &ToLeave<'_>) -> Result<(), Refusal> {
        let id = leaving.uuid().to_string();
        for (key, domain) in self.owed_to(&id) {
            let given = leaving.settle(&domain).await?;
            let what = given.told().to_owned();
            self.paid(key, Debt::Settings, what).await;
        }
        Ok(())
    }

    fn owed_to(&self, id: &str) -> Vec<(Key, DomainRecord)> {
        let known = self.known();
        let all = known.iter().filter_map(|(key, known)| {
            let domain = known.snapshot().domain?;
            Some((*key, domain))
        });
        let owed = |domain: &DomainRecord| {
            domain.moving.uuid == id && domain.owes.contains(&Debt::Settings)
        };
        all.filter(|(_, domain)| owed(domain)).collect()
    }

    async fn paid(&self, key: Key, debt: Debt, what: String) {
        self.amend(key, |snapshot| {
            let owes = snapshot.domain.as_mut().map(|domain| &mut domain.owes);
            if !owes.is_some_and(|owes| owes.remove(&debt)) {
                return Change::Nothing;
            }
            tracing::info!(id = %snapshot.view.id, ?debt, what, "done");
            if debt == Debt::Definition {
                snapshot.view.next = None;
            }
            snapshot.record(EventKind::Fallback { what });
            Change::Shown
        })
        .await;
    }

    async fn give_back(&self, migration: &Migration, domain: &DomainRecord) -> Paid {
        let reached = Ended::reach(&self.context, migration.id, domain).await;
        let given = match reached {
            Ok(ended) => ended.give_back().await,
            Err(why) => Err(why),
        };
        match given {
            Ok(given) => Paid::Over(given.told().to_owned()),
            Err(why) => Paid::NotYet(why),
        }
    }

    /// Takes a definition away that came with a domain which did not come, once its source is known to keep it.
    async fn take_away(&self, migration: &Migration, domain: &DomainRecord) -> Paid {
        let ended = match Ended::reach(&self.context, migration.id, domain).await {
            Ok(ended) => ended,
            Err(why) => return Paid::NotYet(why),
        };
        match ended.left().await {
            Err(why) => return Paid::NotYet(why),
            Ok(Left::Definition) => {}
            Ok(Left::Nothing) => {
                return Paid::Over("nothing that came of the domain is left here".to_owned());
            }
            Ok(Left::InMemory) => return Paid::Over(STARTED.to_owned()),
        }
        match self.may_go(migration, domain).await {
            Judged::Later(why) => Paid::NotYet(why),
            Judged::Stays(why) => Paid::Over(why),
            Judged::Goes => match ended.undefine().await {
                Err(why) => Paid::NotYet(why),
                Ok(Left::InMemory) => Paid::Over(STARTED.to_owned()),
                Ok(Left::Nothing | Left::Definition) => {
                    let source = &migration.source;
                    Paid::Over(format!(
                        "{source} keeps the domain: the definition that had come with it was taken away here"
                    ))
                }
            },
        }
    }

    /// Takes away what was made for the disks of a domain which did not come, once its source is known to keep it.
    async fn remove_disks(&self, migration: &Migration, domain: &DomainRecord) -> Paid {
        let ended = match Ended::reach(&self.context, migration.id, domain).await {
            Ok(ended) => ended,
            Err(why) => return Paid::NotYet(why),
        };
        match self.may_go(migration, domain).await {
            Judged::Later(why) => Paid::NotYet(why),
            Judged::Stays(why) => {
                ended.keep_disks();
                Paid::Over(format!("{why}; so are its disks here"))
            }
            Judged::Goes => match ended.remove_disks() {
                Ok(what) => Paid::Over(what),
                Err(why) => Paid::NotYet(why),
            },
        }
    }

    /// Takes away what was made for the disks of a guest of the agent's own which did not come, by its source's word alone: what the source
    /// keeps was never anybody's here, and what it handed off may be all that is left of the guest.
    async fn pay_own(&self, migration: &Migration) {
        let (state, id, source) = (&self.context.config.state, migration.id, &migration.source);
        if !disks::is_recorded(state, id) {
            return;
        }
        let last = self.context.peers.addresses(source);
        let client = self.context.peers.client_or_at(source, last);
        let paid = match client.verdict(id).await {
            Err(error) => Paid::NotYet(with_sources(&error)),
            Ok(view) => match view.verdict {
                Verdict::Undecided => Paid::NotYet(format!("{source} has not decided yet")),
                Verdict::Kept => disks::removed(state, id).map_or_else(Paid::NotYet, Paid::Over),
                Verdict::HandedOff | Verdict::CutOff => {
                    disks::forget(state, id);
                    Paid::Over(format!(
                        "{source} handed the guest off: what is in its disks here is the last of it"
                    ))
                }
            },
        };
        match paid {
            Paid::NotYet(why) => tracing::debug!(%id, why, "its disks' files are left for now"),
            Paid::Over(what) => {
                self.amend((id, false), |snapshot| {
                    snapshot.record(EventKind::Fallback { what: what.clone() });
                    Change::Shown
                })
                .await;
            }
        }
    }

    /// Asks its source.
    async fn may_go(&self, migration: &Migration, domain: &DomainRecord) -> Judged {
        let source = &migration.source;
        let Some(id) = domains::id(domain) else {
            return Judged::Later("its id cannot be asked for".to_owned());
        };
        let last = self.context.peers.addresses(source);
        let client = self.context.peers.client_or_at(source, last);
        let verdict = match client.verdict(migration.id).await {
            Ok(view) => view.verdict,
            Err(error) => return Judged::Later(with_sources(&error)),
        };
        let held = match client.held(&id).await {
            Ok(held) => held.domain,
            Err(error) => return Judged::Later(with_sources(&error)),
        };
        Judged::by(source, verdict, held)
    }
}

/// Whether a definition that came with a domain may go.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Goes,
    /// It is to stay; why.
    Stays(String),
    /// That is not known yet; why.
    Later(String),
}

impl Judged {
    /// Nothing is taken away that may be the last there is: whoever keeps the domain has to have it.
    fn by(source: &HostName, verdict: Verdict, there: Option<DomainHeld>) -> Self {
        match (verdict, there) {
            (Verdict::HandedOff | Verdict::CutOff, _) => Self::Stays(format!(
                "{source} handed the domain off: its definition here is the one that counts"
            )),
            (Verdict::Undecided, _) => Self::Later(format!("{source} has not decided yet")),
            (Verdict::Kept, Some(DomainHeld::Off | DomainHeld::InMemory)) => Self::Goes,
            (Verdict::Kept, Some(DomainHeld::Absent)) => Self::Stays(format!(
                "{source} keeps the domain, and its libvirt has it no more: its definition is left here, as it may be the last"
            )),
            (Verdict::Kept, Some(DomainHeld::NotKnown) | None) => {
                Self::Later(format!("what libvirt of {source} has of it is not known"))
            }
        }
    }
}

/// What is shown of a migration of which a definition may be left here.
pub(super) fn next(role: MigrationRole, domain: Option<&DomainRecord>) -> Option<String> {
    let owes = domain.is_some_and(|domain| domain.owes.contains(&Debt::Definition));
    (owes && role == MigrationRole::Destination).then(|| {
        "a definition that came with the domain may be left here: do not start it; it goes once the source says that it keeps the domain"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_came_goes_only_where_its_source_keeps_the_domain_and_has_it() {
        use DomainHeld::{Absent, InMemory, NotKnown, Off};
        let a = "a".parse().unwrap();
        let by = |verdict, there| Judged::by(&a, verdict, there);
        for there in [InMemory, Off] {
            assert_eq!(by(Verdict::Kept, Some(there)), Judged::Goes);
        }
        for there in [None, Some(NotKnown)] {
            assert!(matches!(by(Verdict::Kept, there), Judged::Later(_)));
        }
        assert!(matches!(by(Verdict::Kept, Some(Absent)), Judged::Stays(_)));
        for there in [None, Some(Absent), Some(InMemory)] {
            let handed_off = by(Verdict::HandedOff, there);
            assert!(matches!(handed_off, Judged::Stays(_)), "{handed_off:?}");
            let undecided = by(Verdict::Undecided, there);
            assert!(matches!(undecided, Judged::Later(_)), "{undecided:?}");
        }
    }
}
