//! What is still to be done of libvirt's domains whose migration has ended. It is in the journal, and outlives the agent. Of the agent's
//! own guests that is only to take files of disks away (`own::owed`).

use std::sync::Arc;

use drover_api::{DomainHeld, EventKind, MigrationRole, Refusal, Verdict};
use drover_migrate::Migration;
use drover_types::{HostName, with_sources};

use super::amend::Change;
use super::domains;
use super::{Key, Migrations};
use crate::libvirt::{Debt, DomainRecord, Ended, Left, ToLeave};
use crate::limits;

const STARTED: &str = "somebody has started the domain here since: its definition is left";
const DISKS_STARTED: &str =
    "somebody has started the domain here since, which writes to its disks here";

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Paid {
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
        let mut all = self.with_files();
        let known = self.known();
        let owing = known.iter().filter(|(_, known)| known.snapshot().owes());
        all.extend(owing.map(|(key, _)| *key));
        all
    }

    /// Does what is owed by this one.
    pub(super) async fn pay(&self, key: Key) {
        let snapshot = self.known().get(&key).map(super::Known::snapshot);
        let Some(snapshot) = snapshot else {
            return;
        };
        if snapshot.may_have_files() {
            return self.pay_own(snapshot.view).await;
        }
        if !snapshot.owes() {
            return;
        }
        let view = snapshot.view;
        let migration = Migration {
            id: view.id,
            vm: view.vm,
            source: view.source,
            destination: view.destination,
        };
        let Some(domain) = snapshot.domain else {
            return;
        };
        for debt in domain.owes.clone() {
            let paid = match debt {
                Debt::Settings => self.give_back(&migration, &domain).await,
                Debt::Definition => self.take_away(&migration, &domain).await,
                Debt::Disks => self.remove_disks(&migration, &domain).await,
            };
            match paid {
                Paid::NotYet(why) => {
                    tracing::debug!(id = %migration.id, ?debt, why, "not yet");
                    self.not_yet(key, debt, &why).await;
                }
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
            if debt != Debt::Settings {
                snapshot.view.next = next(snapshot.view.role, snapshot.domain.as_ref(), false);
            }
            snapshot.record(EventKind::Fallback { what });
            Change::Shown
        })
        .await;
    }

    /// Shows why, where that is another reason than before.
    async fn not_yet(&self, key: Key, debt: Debt, why: &str) {
        self.amend(key, |snapshot| {
            let Some(next) = next(snapshot.view.role, snapshot.domain.as_ref(), false) else {
                return Change::Nothing;
            };
            // Of two the first one's: both would be written down in turn, for ever.
            let mut owes = snapshot.domain.iter().flat_map(|domain| &domain.owes);
            let shown = owes.find(|owed| **owed != Debt::Settings) == Some(&debt);
            let next = Some(format!("{next}. Not yet, because: {why}"));
            if !shown || snapshot.view.next == next {
                return Change::Nothing;
            }
            tracing::info!(id = %snapshot.view.id, ?debt, why, "not yet");
            snapshot.view.next = next;
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
        let left = match ended.left().await {
            Ok(left) => left,
            Err(why) => return Paid::NotYet(why),
        };
        if let Err(why) = ended.settle_disks().await {
            return Paid::NotYet(why);
        }
        let judged = match Judged::of_disks(left) {
            None => self.may_go(migration, domain).await,
            Some(judged) => judged,
        };
        match judged {
            Judged::Later(why) => Paid::NotYet(why),
            Judged::Stays(why) => {
                ended.keep_disks();
                Paid::Over(format!("{why}; its disks here stay"))
            }
            Judged::Goes => match ended.remove_disks().await {
                Ok(Some(what)) => Paid::Over(what),
                // The next time it is judged anew.
                Ok(None) => Paid::NotYet(DISKS_STARTED.to_owned()),
                Err(why) => Paid::NotYet(why),
            },
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
    /// Of what was made for its disks, by what is here of it; none where that depends on the source. What a domain that somebody started
    /// here writes to is its own, whoever else keeps one.
    fn of_disks(here: Left) -> Option<Self> {
        match here {
            Left::InMemory => Some(Self::Stays(DISKS_STARTED.to_owned())),
            Left::Nothing | Left::Definition => None,
        }
    }

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

/// What is shown of a migration of which a definition, or files for disks, may be left here; the latter also of a guest of the agent's own.
pub(super) fn next(
    role: MigrationRole,
    domain: Option<&DomainRecord>,
    of_own: bool,
) -> Option<String> {
    let owes = |debt| domain.is_some_and(|domain| domain.owes.contains(&debt));
    let left = match (owes(Debt::Definition), of_own || owes(Debt::Disks)) {
        (true, true) => {
            "a definition that came with the domain, and files that were made for its disks,"
        }
        (true, false) => "a definition that came with the domain",
        (false, true) => "files that were made for its disks",
        (false, false) => return None,
    };
    (role == MigrationRole::Destination).then(|| {
        format!(
            "{left} may be left here: do not start it; that goes once the source says that it keeps the guest"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_for_disks_stays_where_somebody_started_the_domain_whatever_its_source_says() {
        let started = Judged::of_disks(Left::InMemory);
        assert_eq!(started, Some(Judged::Stays(DISKS_STARTED.to_owned())));
        for off in [Left::Nothing, Left::Definition] {
            assert_eq!(Judged::of_disks(off), None, "{off:?}");
        }
    }

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
