//! What is kept of runs in the cluster's store.
//!
//! ```text
//!   run/under-way        the one run that is under way
//!   run/ID               that there is a run, and who carries it out
//!   journal/ID/...       what it wrote down
//!   home/NAME            the guests that left a host in runs, and those that are parked there, in their order
//!   host/NAME, vm/NAME   what members said last (`remember.rs`)
//! ```
//!
//! # Invariant
//! A run and its place as the one under way are made and removed in one transaction with its first and its
//! last entry, so that there is never a second one; a guest's place in the list of those that left is
//! written with the entry that says that it moved.

use drover_execute::journal::{Began, Entry, ParkedGuest};
use drover_execute::limits as execute;
use drover_store::{
    Campaign, Document, Expect, HostClock, Journal, Key, Kind, Leadership, Name, Scope, Store,
    StoreError, Transaction, Value,
};
use drover_types::{HostName, RunId, VmName};
use serde::{Deserialize, Serialize};

use super::standing::Standing;
use crate::limits;

/// The store, as runs use it.
#[derive(Debug, Clone)]
pub struct Keep {
    store: Store,
    own: HostName,
    clock: HostClock,
    /// Whether other hosts may lead as well.
    is_shared: bool,
    /// What is led by whoever writes of runs.
    leads: Name,
    /// Where the run that is under way is named.
    under_way: Key,
}

/// That a run is under way, or was.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunDocument {
    run: RunId,
    coordinator: HostName,
}

/// What follows from an entry for what is remembered of hosts.
#[derive(Debug)]
pub enum Follows {
    /// A guest is about to leave a host that is being emptied. It belongs there, unless it belongs to one that it had
    /// left before.
    Leaves { vm: VmName, from: HostName },
    /// It has not left.
    Remains { vm: VmName, on: HostName },
    /// A guest has moved.
    Moved {
        vm: VmName,
        from: HostName,
        to: HostName,
        /// It belongs where it was moved to, and to no other host any more.
        stays: bool,
    },
    /// A guest is about to be parked on its host.
    Parks { guest: ParkedGuest, on: HostName },
    /// A guest is no longer one that a run has to run again.
    Settled { vm: VmName, on: HostName },
}

/// Guests that left a host and have not come home, and those that are parked there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Homes {
    /// In the order in which they left.
    pub left: Vec<VmName>,
    /// In the order in which they were parked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<ParkedGuest>,
}

impl Homes {
    fn leaves(&mut self, vm: &VmName, has_other_home: bool) {
        if has_other_home {
            return;
        }
        self.left.retain(|known| known != vm);
        self.left.push(vm.clone());
        let excess = self.left.len().saturating_sub(limits::HOMES);
        self.left.drain(..excess);
    }

    fn comes(&mut self, vm: &VmName) {
        self.settled(vm);
        self.forgets(vm);
    }

    fn forgets(&mut self, vm: &VmName) {
        self.left.retain(|known| known != vm);
    }

    fn parks(&mut self, guest: &ParkedGuest) {
        self.settled(&guest.vm);
        self.parked.push(guest.clone());
        let excess = self.parked.len().saturating_sub(execute::PARKED);
        self.parked.drain(..excess);
    }

    fn settled(&mut self, vm: &VmName) {
        self.parked.retain(|known| known.vm != *vm);
    }
}

impl Keep {
    pub fn new(
        store: Store,
        own: HostName,
        clock: HostClock,
        is_shared: bool,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            store,
            own,
            clock,
            is_shared,
            leads: "runs".parse()?,
            under_way: Key::new(Kind::Run, "under-way".parse::<Name>()?),
        })
    }

    /// Leads what runs are written under, if nobody else does. An agent that leads already was started
    /// again: there is one on this host at a time.
    pub async fn lead(&self) -> Result<Campaign, StoreError> {
        let (name, own) = (&self.leads, Name::from(&self.own));
        let ttl = limits::LEASE;
        match self.store.campaign(name, &own, ttl).await? {
            Campaign::Held(holding) if holding.holder == own => {
                self.store
                    .break_leadership(name, holding.generation)
                    .await?;
                self.store.campaign(name, &own, ttl).await
            }
            campaign => Ok(campaign),
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Whether other hosts may lead as well.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Under what orders are given.
    pub fn standing(&self, leadership: &Leadership) -> Standing {
        Standing::new(self.clock, self.is_shared, leadership.clone())
    }

    pub async fn renew(&self, leadership: &mut Leadership) -> Result<(), StoreError> {
        self.store.renew(leadership).await
    }

    pub async fn resign(&self, leadership: Leadership) {
        if let Err(error) = self.store.resign(leadership).await {
            tracing::debug!(%error, "the leadership lapses by itself");
        }
    }

    /// The run that is under way.
    pub async fn under_way(&self) -> Result<Option<RunId>, StoreError> {
        let document = self.store.get(&self.under_way).await?;
        let read = document.map(|document| document.read::<RunDocument>());
        Ok(read.transpose()?.map(|document| document.run))
    }

    /// Has this host, which leads, carry out the run that is under way; and who did before, if it was another.
    pub async fn take_over(
        &self,
        leadership: &Leadership,
    ) -> Result<Option<(RunId, Option<HostName>)>, StoreError> {
        let Some(document) = self.store.get(&self.under_way).await? else {
            return Ok(None);
        };
        let RunDocument { run, coordinator } = document.read()?;
        if coordinator == self.own {
            return Ok(Some((run, None)));
        }
        let now = Value::of(&RunDocument {
            run,
            coordinator: self.own.clone(),
        })?;
        let at = Expect::At(document.revision);
        let put = Transaction::new()
            .fenced_by(leadership)
            .put(self.under_way.clone(), now.clone(), at)
            .put(key(run), now, Expect::Present);
        self.store.commit(&put).await?;
        Ok(Some((run, Some(coordinator))))
    }

    /// Begins a run: its first entry.
    pub async fn begin(&self, began: &Began, leadership: &Leadership) -> Result<(), StoreError> {
        let document = RunDocument {
            run: began.run,
            coordinator: self.own.clone(),
        };
        let document = Value::of(&document)?;
        let entry = Value::of(&Entry::Began(began.clone()))?;
        let begin = Transaction::new()
            .fenced_by(leadership)
            .put(self.under_way.clone(), document.clone(), Expect::Absent)
            .put(key(began.run), document, Expect::Absent)
            .append(&journal(began.run), 1, entry)?;
        self.store.commit(&begin).await?;
        self.prune(began.run, leadership).await;
        Ok(())
    }

    /// Writes a run's next entry, and what follows from it for what is remembered of hosts. One that is
    /// there already, since the answer to it was lost, counts as written.
    pub async fn write(
        &self,
        run: RunId,
        number: u64,
        entry: &Entry,
        follows: Option<&Follows>,
        leadership: &Leadership,
    ) -> Result<(), StoreError> {
        let value = Value::of(entry)?;
        let mut write = Transaction::new().fenced_by(leadership).append(
            &journal(run),
            number,
            value.clone(),
        )?;
        match follows {
            Some(Follows::Leaves { vm, from }) => {
                let has_home = !self.homes_of(vm, &[from]).await?.is_empty();
                let leaves = |homes: &mut Homes| homes.leaves(vm, has_home);
                write = self.change(write, from, leaves).await?;
            }
            Some(Follows::Remains { vm, on }) => {
                write = self.change(write, on, |homes| homes.forgets(vm)).await?;
            }
            Some(Follows::Moved {
                vm,
                from,
                to,
                stays,
            }) => {
                // What was stopped there once is not started there any more.
                let left = |homes: &mut Homes| {
                    homes.settled(vm);
                    if *stays {
                        homes.forgets(vm);
                    }
                };
                write = self.change(write, from, left).await?;
                write = self.change(write, to, |homes| homes.comes(vm)).await?;
                if *stays {
                    for home in self.homes_of(vm, &[from, to]).await? {
                        write = self
                            .change_at(write, &home, |homes| homes.forgets(vm))
                            .await?;
                    }
                }
            }
            Some(Follows::Parks { guest, on }) => {
                write = self.change(write, on, |homes| homes.parks(guest)).await?;
            }
            Some(Follows::Settled { vm, on }) => {
                write = self.change(write, on, |homes| homes.settled(vm)).await?;
            }
            None => {}
        }
        if matches!(entry, Entry::Finished { .. }) {
            write = write.delete(self.under_way.clone(), Expect::Present);
        }
        match self.store.commit(&write).await {
            Err(StoreError::Conflict { .. }) if self.is_there(run, number, &value).await? => Ok(()),
            written => written.map(drop),
        }
    }

    async fn is_there(&self, run: RunId, number: u64, value: &Value) -> Result<bool, StoreError> {
        let found = self.store.entries(&journal(run), number, 1).await?;
        let mut entries = found.entries.iter();
        Ok(entries.any(|(found, document)| *found == number && document.value == *value))
    }

    async fn change(
        &self,
        write: Transaction,
        host: &HostName,
        change: impl FnOnce(&mut Homes),
    ) -> Result<Transaction, StoreError> {
        self.change_at(write, &homes(host), change).await
    }

    async fn change_at(
        &self,
        write: Transaction,
        key: &Key,
        change: impl FnOnce(&mut Homes),
    ) -> Result<Transaction, StoreError> {
        let document = self.store.get(key).await?;
        let before = read_homes(document.as_ref())?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(write);
        }
        let expect = document.map_or(Expect::Absent, |document| Expect::At(document.revision));
        Ok(write.put(key.clone(), Value::of(&after)?, expect))
    }

    /// Hosts but these that a guest left and has not come home to: one at most, unless an earlier version wrote more.
    async fn homes_of(&self, vm: &VmName, but: &[&HostName]) -> Result<Vec<Key>, StoreError> {
        let but: Vec<Key> = but.iter().map(|host| homes(host)).collect();
        let mut found = Vec::new();
        for document in self.all(Kind::Home).await? {
            let left = document.read::<Homes>()?.left;
            if left.contains(vm) && !but.contains(&document.key) {
                found.push(document.key);
            }
        }
        Ok(found)
    }

    /// Every document of a kind, in the order of their names.
    pub(super) async fn all(&self, kind: Kind) -> Result<Vec<Document>, StoreError> {
        let scope = Scope::kind(kind);
        let mut all: Vec<Document> = Vec::new();
        loop {
            let after = all.last().map(|document| document.key.clone());
            let most = drover_store::limits::PAGE_DOCUMENTS;
            let page = self.store.list(&scope, after.as_ref(), most).await?;
            all.extend(page.documents);
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// What is remembered of a host.
    pub async fn homes(&self, host: &HostName) -> Result<Homes, StoreError> {
        let document = self.store.get(&homes(host)).await?;
        read_homes(document.as_ref())
    }

    /// Every entry of a run.
    pub async fn entries(&self, run: RunId) -> Result<Vec<Entry>, StoreError> {
        let journal = journal(run);
        let mut all = Vec::new();
        loop {
            let from = all.len() as u64 + 1;
            let page = self
                .store
                .entries(&journal, from, drover_store::limits::PAGE_DOCUMENTS)
                .await?;
            for (_, document) in &page.entries {
                all.push(document.read::<Entry>()?);
            }
            if !page.more {
                return Ok(all);
            }
        }
    }

    /// Who carries a run out, or did; none for one that is not remembered.
    pub async fn coordinator_of(&self, run: RunId) -> Result<Option<HostName>, StoreError> {
        let document = self.store.get(&key(run)).await?;
        let read = document.map(|document| document.read::<RunDocument>());
        Ok(read.transpose()?.map(|document| document.coordinator))
    }

    /// The runs that are remembered, newest first.
    pub async fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let mut runs = Vec::new();
        for document in self.all(Kind::Run).await? {
            if document.key != self.under_way {
                runs.push(document.read::<RunDocument>()?.run);
            }
        }
        // Ids are ordered by time.
        runs.sort_by_key(|run| std::cmp::Reverse(*run));
        Ok(runs)
    }

    /// Forgets the oldest runs. What cannot be forgotten now is at the next one's beginning.
    /// The one that has just begun may have an old id, where the clock was set back.
    async fn prune(&self, begun: RunId, leadership: &Leadership) {
        let forget = async {
            let runs = self.runs().await?.into_iter();
            for run in runs.filter(|run| *run != begun).skip(limits::RUNS) {
                // First what would have it shown, so that nothing is shown that is not whole.
                let delete = Transaction::new()
                    .fenced_by(leadership)
                    .delete(key(run), Expect::Anything);
                self.store.commit(&delete).await?;
                self.store
                    .remove_journal(&journal(run), Some(leadership))
                    .await?;
            }
            Ok::<(), StoreError>(())
        };
        if let Err(error) = forget.await {
            tracing::warn!(%error, "old runs not forgotten");
        }
    }
}

fn read_homes(document: Option<&Document>) -> Result<Homes, StoreError> {
    let homes = document.map(|document| document.read::<Homes>());
    Ok(homes.transpose()?.unwrap_or_default())
}

fn homes(host: &HostName) -> Key {
    Key::new(Kind::Home, Name::from(host))
}

fn key(run: RunId) -> Key {
    Key::new(Kind::Run, Name::from(run))
}

fn journal(run: RunId) -> Journal {
    Journal::new(Name::from(run))
}

#[cfg(test)]
mod tests {
    use drover_execute::journal::{Began, UnixMillis};
    use drover_plan::{Request, Text};
    use drover_store::Embedded;
    use uuid::Uuid;

    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    struct Kept {
        keep: Keep,
        leadership: Leadership,
        run: RunId,
        entries: u64,
        _directory: tempfile::TempDir,
    }

    impl Kept {
        async fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let clock = HostClock::new().unwrap();
            let store = Embedded::open(&directory.path().join("db"), clock).await;
            let keep = Keep::new(store.unwrap().into(), name("a"), clock, false).unwrap();
            let Campaign::Won(leadership) = keep.lead().await.unwrap() else {
                panic!("somebody else leads");
            };
            let run = RunId(Uuid::from_u128(1));
            let began = Began {
                run,
                request: Request::Rebalance {
                    min_gain: 1,
                    most_moves: 1,
                    avoid: Default::default(),
                    with_disks: false,
                },
                parked: Vec::new(),
                exactly: None,
                by: Text::from("a test".to_owned()),
                at: UnixMillis(0),
            };
            keep.begin(&began, &leadership).await.unwrap();
            Self {
                keep,
                leadership,
                run,
                entries: 1,
                _directory: directory,
            }
        }

        async fn write(&mut self, follows: Follows) {
            self.entries += 1;
            let entry = Entry::RoundEnded { round: 1 };
            let written = self.keep.write(
                self.run,
                self.entries,
                &entry,
                Some(&follows),
                &self.leadership,
            );
            written.await.unwrap();
        }

        async fn leaves(&mut self, from: &str) {
            let (vm, from) = ("web".parse().unwrap(), name(from));
            self.write(Follows::Leaves { vm, from }).await;
        }

        async fn moved(&mut self, from: &str, to: &str, stays: bool) {
            let moved = Follows::Moved {
                vm: "web".parse().unwrap(),
                from: name(from),
                to: name(to),
                stays,
            };
            self.write(moved).await;
        }

        async fn drained(&mut self, from: &str, to: &str) {
            self.leaves(from).await;
            self.moved(from, to, false).await;
        }

        /// Hosts that it is to come home to.
        async fn homes(&self) -> Vec<&'static str> {
            let mut homes = Vec::new();
            for host in ["a", "b", "c"] {
                let left = self.keep.homes(&name(host)).await.unwrap().left;
                homes.extend((!left.is_empty()).then_some(host));
            }
            homes
        }
    }

    #[tokio::test]
    async fn a_guest_whose_hosts_are_emptied_one_after_the_other_belongs_to_the_first() {
        let mut kept = Kept::new().await;
        kept.drained("a", "b").await;
        kept.drained("b", "c").await;
        assert_eq!(kept.homes().await, ["a"]);
        kept.moved("c", "a", true).await;
        assert_eq!(kept.homes().await, [""; 0]);
    }

    #[tokio::test]
    async fn a_guest_that_is_drained_to_its_home_belongs_nowhere_else() {
        let mut kept = Kept::new().await;
        kept.drained("a", "b").await;
        kept.drained("b", "a").await;
        assert_eq!(kept.homes().await, [""; 0]);
    }

    #[tokio::test]
    async fn what_a_rebalance_moves_belongs_where_it_was_moved_to() {
        let mut kept = Kept::new().await;
        kept.drained("a", "b").await;
        kept.moved("b", "c", true).await;
        assert_eq!(kept.homes().await, [""; 0]);
    }

    #[tokio::test]
    async fn a_guest_of_which_nobody_knows_whether_it_moved_is_remembered_and_one_that_did_not_is_not()
     {
        let mut kept = Kept::new().await;
        kept.leaves("a").await;
        assert_eq!(kept.homes().await, ["a"]);
        let (vm, on) = ("web".parse().unwrap(), name("a"));
        kept.write(Follows::Remains { vm, on }).await;
        assert_eq!(kept.homes().await, [""; 0]);
    }
}
