//! Leaderships in etcd: a key that is bound to a lease, and goes with it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::members::unreadable;
use super::words::{
    Compare, Grant, KeyValue, Lease, LeaseId, Message, Number, Operation, Range, Text, Txn,
};
use super::{Etcd, revision, successor};
use crate::clock::Moment;
use crate::error::{Invalid, StoreError};
use crate::key::Name;
use crate::leadership::{Campaign, Generation, Holding, Leadership};

/// What stands under the key of a leadership.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Leader {
    holder: String,
    since: Timestamp,
    ttl_s: u64,
}

impl Leader {
    pub fn read(stored: &KeyValue) -> Result<Self, StoreError> {
        serde_json::from_str(&stored.value.0).map_err(|error| unreadable(error.to_string()))
    }

    pub fn holder(&self) -> Result<Name, StoreError> {
        self.holder
            .parse()
            .map_err(|error: Invalid| unreadable(error.to_string()))
    }
}

impl Etcd {
    async fn led(&self, name: &Name) -> Result<Option<KeyValue>, StoreError> {
        let found = self.find(&Range::key(self.leader(name))).await?;
        Ok(found.kvs.into_iter().next())
    }

    pub(crate) async fn holding(&self, name: &Name) -> Result<Option<Holding>, StoreError> {
        match self.led(name).await? {
            Some(leader) => self.held(name, &leader).await.map(Some),
            None => Ok(None),
        }
    }

    async fn held(&self, name: &Name, leader: &KeyValue) -> Result<Holding, StoreError> {
        let question = LeaseId { id: leader.lease };
        let lease: Lease = self.members.ask("/v3/lease/timetolive", &question).await?;
        let said = Leader::read(leader)?;
        let ttl = Duration::from_secs(said.ttl_s);
        // Whole seconds, cut off: rounded up, since a holder that is in time must not look silent. A
        // lease that has just lapsed answers -1.
        let left = Duration::from_secs(lease.ttl.unsigned().saturating_add(1)).min(ttl);
        let left = if lease.ttl.0 < 0 {
            Duration::ZERO
        } else {
            left
        };
        Ok(Holding {
            name: name.clone(),
            holder: said.holder()?,
            generation: Generation(leader.mod_revision.unsigned()),
            since: said.since,
            ttl,
            renewed_ago: ttl.saturating_sub(left),
            left,
        })
    }

    pub(crate) async fn campaign(
        &self,
        name: &Name,
        holder: &Name,
        ttl: Duration,
    ) -> Result<Campaign, StoreError> {
        if let Some(holding) = self.holding(name).await? {
            return Ok(Campaign::Held(holding));
        }
        let until = self.moment_after(ttl);
        let seconds = Number::of(ttl.as_secs());
        let grant = Grant { ttl: seconds };
        let lease: Lease = self.members.ask("/v3/lease/grant", &grant).await?;
        let leader = Leader {
            holder: holder.to_string(),
            since: Timestamp::now(),
            ttl_s: ttl.as_secs(),
        };
        let done = self
            .transact(&self.ascent(name, &leader, lease.id)?)
            .await?;
        if !done.succeeded {
            // The lease that is not needed lapses by itself.
            let led = done.found().next().flatten();
            let led = led.ok_or_else(|| unreadable("a leader without a key".to_owned()))?;
            return self.held(name, led).await.map(Campaign::Held);
        }
        Ok(Campaign::Won(Leadership {
            name: name.clone(),
            holder: holder.clone(),
            generation: Generation(revision(done.header.revision).0),
            ttl,
            until,
            lease: lease.id.0,
        }))
    }

    fn ascent(&self, name: &Name, leader: &Leader, lease: Number) -> Result<Txn, StoreError> {
        let key = self.leader(name);
        let value = serde_json::to_string(leader).map_err(|error| Invalid::Json {
            problem: error.to_string(),
        })?;
        Ok(Txn {
            compare: vec![Compare::is(key.clone(), 0)],
            success: vec![Operation::Put {
                key: Text(key.clone()),
                value: Text(value),
                lease,
            }],
            failure: vec![Operation::Range(Range::key(key))],
        })
    }

    /// Counted from before etcd is asked, so that it is never later than etcd's own count.
    fn moment_after(&self, ttl: Duration) -> Moment {
        let now = self.clock.now();
        Moment {
            up: now.up + ttl,
            ..now
        }
    }

    pub(crate) async fn renew(&self, leadership: &mut Leadership) -> Result<(), StoreError> {
        let until = self.moment_after(leadership.ttl);
        let question = LeaseId {
            id: Number(leadership.lease),
        };
        let message: Message<Lease> = self.members.ask("/v3/lease/keepalive", &question).await?;
        let lease = message.result.ok_or_else(|| {
            unreadable(format!("a renewal without a result: {:?}", message.error))
        })?;
        // The lease may run and the key be gone, if it was broken.
        let leader = self.led(&leadership.name).await?;
        let leads = leader
            .as_ref()
            .is_some_and(|leader| leader.mod_revision == Number::of(leadership.generation.0));
        if leads && lease.ttl.0 > 0 {
            leadership.until = until;
            return Ok(());
        }
        Err(StoreError::Fenced {
            name: leadership.name.clone(),
            generation: leadership.generation,
            by: leader
                .as_ref()
                .filter(|_| !leads)
                .map(successor)
                .transpose()?,
        })
    }

    pub(crate) async fn break_leadership(
        &self,
        name: &Name,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        let key = self.leader(name);
        let generation = Number::of(generation.0);
        let done = self
            .transact(&Txn {
                compare: vec![Compare::is(key.clone(), generation.0)],
                success: vec![Operation::Delete { key: Text(key) }],
                failure: Vec::new(),
            })
            .await?;
        Ok(done.succeeded)
    }
}
