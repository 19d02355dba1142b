//! What changes, in order: no change missed, none given twice.
//!
//! A watch has no task and no queue of its own: it remembers up to where it has read, and takes what
//! follows from the store when it is asked. A slow reader costs the store nothing but the history
//! that it keeps anyway.

use std::collections::VecDeque;

use crate::embedded::Embedded;
use crate::error::StoreError;
use crate::etcd::Etcd;
use crate::key::{Key, Scope};
use crate::transaction::Revision;
use crate::value::Value;

/// One document that was written or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which document.
    pub key: Key,
    /// What it says now; nothing if it was deleted.
    pub value: Option<Value>,
}

/// All that one transaction changed within a watch's scope, in the order of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The transaction. A watch from it gives what follows.
    pub revision: Revision,
    /// What it changed; never empty.
    pub changes: Vec<Change>,
}

/// Changes from one revision on.
#[derive(Debug)]
pub struct Watch {
    source: Source,
    ready: VecDeque<Changes>,
}

#[derive(Debug)]
enum Source {
    Embedded(crate::embedded::Follower),
    Etcd(Box<crate::etcd::Follower>),
}

impl Watch {
    pub(crate) fn embedded(store: Embedded, scope: Scope, after: Revision) -> Self {
        Self {
            source: Source::Embedded(store.follow(scope, after)),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn etcd(store: Etcd, scope: Scope, after: Revision) -> Self {
        Self {
            source: Source::Etcd(Box::new(store.follow(scope, after))),
            ready: VecDeque::new(),
        }
    }

    /// The next transaction that changed something within the scope; waits until there is one. May be
    /// dropped and called again without losing any.
    ///
    /// # Errors
    /// [`StoreError::Lagged`] when the store has forgotten what follows: list again, and make a new
    /// watch. Others, such as [`StoreError::NoQuorum`], leave the watch where it is: call it again.
    pub async fn next(&mut self) -> Result<Changes, StoreError> {
        loop {
            if let Some(changes) = self.ready.pop_front() {
                return Ok(changes);
            }
            self.ready = match &mut self.source {
                Source::Embedded(follower) => follower.more().await?,
                Source::Etcd(follower) => follower.more().await?,
            };
        }
    }
}

/// Puts the changes of each revision together. `rows` are in the order of their revisions.
pub(crate) fn by_revision(rows: impl IntoIterator<Item = (Revision, Change)>) -> VecDeque<Changes> {
    let mut all: VecDeque<Changes> = VecDeque::new();
    for (revision, change) in rows {
        match all.back_mut() {
            Some(last) if last.revision == revision => last.changes.push(change),
            _ => all.push_back(Changes {
                revision,
                changes: vec![change],
            }),
        }
    }
    for one in &mut all {
        one.changes.sort_by(|a, b| a.key.cmp(&b.key));
    }
    all
}
