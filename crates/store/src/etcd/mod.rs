//! The store in etcd: for a cluster in which several hosts can coordinate.
//!
//! ```text
//!   drover/CLUSTER/state/host/a          a document
//!   drover/CLUSTER/state/journal/...     an entry
//!   drover/CLUSTER/leader/drain          who leads, bound to a lease: gone when that lapses
//! ```
//! Speaks etcd's JSON gateway over HTTP. A document's revision is etcd's own; a leadership's
//! generation is the revision that wrote its key, so one comparison of etcd's tells in the step that
//! writes whether it still leads. Owns no task and no connection between calls.

mod connection;
#[cfg(test)]
mod corpus;
mod follow;
mod leases;
mod members;
mod tls;
mod words;

use std::fmt;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::{StoreError, Successor};
use crate::key::{Key, Name, Scope};
use crate::leadership::Generation;
use crate::transaction::{Condition, Expect, Revision, Transaction, Write};
use crate::value::{Document, Page, Value};
use crate::{Order, Store};

pub(crate) use follow::Follower;
pub use members::Members;
use members::{Refused, unreadable};
pub use tls::TlsFiles;
use words::{Compare, Done, Found, KeyValue, Number, Operation, Range, Text, Txn};

/// The store of one cluster in etcd. Clones share the members that it is asked of.
#[derive(Clone)]
pub struct Etcd {
    members: Arc<Members>,
    prefix: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.members)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl From<Etcd> for Store {
    fn from(store: Etcd) -> Self {
        Self::Etcd(store)
    }
}

impl Etcd {
    /// The store of the cluster of this name. Nobody is asked yet. The clock says only how long a
    /// leadership is surely left; leases run by etcd's.
    #[must_use]
    pub fn new(members: Members, cluster: &Name, clock: impl Clock) -> Self {
        Self {
            members: Arc::new(members),
            prefix: format!("drover/{cluster}/").into(),
            clock: Arc::new(clock),
        }
    }

    fn path(&self, key: &str) -> String {
        format!("{}state/{key}", self.prefix)
    }

    fn leader(&self, name: &Name) -> String {
        format!("{}leader/{name}", self.prefix)
    }

    fn key(&self, stored: &str) -> Result<Key, StoreError> {
        stored
            .strip_prefix(&*self.prefix)
            .and_then(|rest| rest.strip_prefix("state/"))
            .and_then(Key::from_text)
            .ok_or_else(|| {
                let key = drover_types::in_short(stored.to_owned());
                unreadable(format!("{key:?} is no key of this version"))
            })
    }

    fn document(&self, stored: KeyValue) -> Result<Document, StoreError> {
        Ok(Document {
            key: self.key(&stored.key.0)?,
            revision: revision(stored.mod_revision),
            value: Value::stored(stored.value.0),
        })
    }

    async fn find(&self, range: &Range) -> Result<Found, Refused> {
        self.members.ask("/v3/kv/range", range).await
    }

    async fn transact(&self, txn: &Txn) -> Result<Done, StoreError> {
        Ok(self.members.write("/v3/kv/txn", txn).await?)
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        let range = Range::key(self.path(&key.to_string()));
        let found = self.find(&range).await?.kvs.into_iter().next();
        found.map(|found| self.document(found)).transpose()
    }

    pub(crate) async fn range(
        &self,
        scope: &Scope,
        after: Option<&Key>,
        most: usize,
        order: Order,
    ) -> Result<Page, StoreError> {
        let sort = (order == Order::Last).then_some(("DESCEND", "KEY"));
        let first = after.map_or_else(|| scope.first().to_owned(), |key| format!("{key}\0"));
        let mut range = Range {
            key: Text(self.path(&first)),
            range_end: Some(Text(self.path(&scope.end()))),
            limit: Number::of(most as u64),
            sort_order: sort.map(|(order, _)| order),
            sort_target: sort.map(|(_, target)| target),
            keys_only: false,
        };
        let found = loop {
            match self.find(&range).await {
                // Documents that are too large for one answer come in a smaller page.
                Err(Refused::TooLong) if range.limit.0 > 1 => range.limit.0 /= 2,
                found => break found?,
            }
        };
        Ok(Page {
            at: revision(found.header.revision),
            more: found.more,
            documents: found
                .kvs
                .into_iter()
                .map(|stored| self.document(stored))
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) async fn commit(&self, wanted: &Transaction) -> Result<Revision, StoreError> {
        let fence = wanted.fence.iter();
        let fenced = fence.clone().map(|fence| {
            let generation = Number::of(fence.generation.0);
            Compare::is(self.leader(&fence.name), generation.0)
        });
        let leader = fence.map(|fence| Range::key(self.leader(&fence.name)));
        let keys = wanted.conditions.iter().map(|condition| Range {
            keys_only: true,
            ..Range::key(self.path(&condition.key.to_string()))
        });
        let done = self
            .transact(&Txn {
                compare: fenced
                    .chain(wanted.conditions.iter().map(|one| self.compare(one)))
                    .collect(),
                success: wanted.writes.iter().map(|one| self.write(one)).collect(),
                failure: leader.chain(keys).map(Operation::Range).collect(),
            })
            .await?;
        if done.succeeded {
            return Ok(revision(done.header.revision));
        }
        Err(why(wanted, &done)?)
    }

    fn compare(&self, condition: &Condition) -> Compare {
        let key = self.path(&condition.key.to_string());
        match condition.expect {
            Expect::Absent => Compare::is(key, 0),
            // Never at 0, which is what etcd calls a key that is not there.
            Expect::At(Revision(0)) => Compare::is(key, i64::MAX),
            Expect::At(revision) => Compare::is(key, Number::of(revision.0).0),
            Expect::Present | Expect::Anything => Compare::is_there(key),
        }
    }

    fn write(&self, write: &Write) -> Operation {
        let key = Text(self.path(&write.key.to_string()));
        match &write.value {
            Some(value) => Operation::Put {
                key,
                value: Text(value.as_str().to_owned()),
                lease: Number(0),
            },
            None => Operation::Delete { key },
        }
    }

    pub(crate) fn follow(&self, scope: Scope, after: Revision) -> Follower {
        Follower::new(self.clone(), scope, after)
    }
}

fn revision(number: Number) -> Revision {
    Revision(number.unsigned())
}

/// Why a transaction was refused, by what it found in the same step: its leader first, then each
/// document that it expected something of.
fn why(wanted: &Transaction, done: &Done) -> Result<StoreError, StoreError> {
    let mut found = done.found();
    if let Some(fence) = &wanted.fence {
        let leader = found.next().flatten();
        let leads = leader.map(|leader| Generation(leader.mod_revision.unsigned()));
        if leads != Some(fence.generation) {
            return Ok(StoreError::Fenced {
                name: fence.name.clone(),
                generation: fence.generation,
                by: leader.map(successor).transpose()?,
            });
        }
    }
    for condition in &wanted.conditions {
        let at = found
            .next()
            .flatten()
            .map(|stored| revision(stored.mod_revision));
        if let Err(refused) = condition.check(at) {
            return Ok(refused);
        }
    }
    Err(unreadable(
        "it refused a transaction whose conditions all hold".to_owned(),
    ))
}

fn successor(leader: &KeyValue) -> Result<Successor, StoreError> {
    Ok(Successor {
        generation: Generation(leader.mod_revision.unsigned()),
        holder: leases::Leader::read(leader)?.holder()?,
    })
}
