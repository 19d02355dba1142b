//! The cluster's state: documents, journals, leaderships, and the changes of all these.
//!
//! ```text
//!              ┌──────────── Store ────────────┐
//!   documents  │ get, list, commit(transaction)│   each write conditional, several at once
//!   journals   │ append, entries, prune        │   documents, numbered
//!   leadership │ campaign, renew, resign       │   a lease, and a generation that fences writes
//!   changes    │ watch                         │   in order, none missed, none twice
//!              └──────┬─────────────────┬──────┘
//!                 Embedded            Etcd
//!              SQLite, one file     members of a cluster
//! ```
//! It knows no host, no guest and no plan: it keeps JSON under names. It decides nothing, starts
//! nothing again by itself and never guesses what became of a write: an answer that did not come is
//! an error that says so ([`Outcome::Unknown`]).
//!
//! Nothing secret belongs here: no key, no token, no password. Who can read the file or ask etcd can
//! read everything.
//!
//! # Invariant
//! A transaction whose leadership was superseded, lapsed, was given up or broken writes nothing: the
//! generation is compared in the same step that writes.

mod clock;
mod embedded;
mod error;
mod etcd;
mod journal;
mod key;
mod leadership;
pub mod limits;
mod transaction;
mod value;
mod watch;

use std::time::Duration;

pub use clock::{Clock, HostClock, Moment};
pub use embedded::Embedded;
pub use error::{Invalid, Outcome, StoreError, Successor};
pub use etcd::{Etcd, Members, TlsFiles};
pub use journal::{Entries, Journal};
pub use key::{Key, Kind, Name, Scope};
pub use leadership::{Campaign, Generation, Holding, Leadership};
pub use transaction::{Expect, Revision, Transaction};
pub use value::{Document, Page, Value};
pub use watch::{Change, Changes, Watch};

/// From which end keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    First,
    Last,
}

/// The cluster's state, wherever it is kept. Clones share it.
#[derive(Debug, Clone)]
pub enum Store {
    /// In a file of this host.
    Embedded(Embedded),
    /// In etcd, for a cluster in which several hosts can coordinate.
    Etcd(Etcd),
}

impl Store {
    /// A document as it is now, or nothing.
    ///
    /// # Errors
    /// [`StoreError::NoQuorum`] and [`StoreError::Unavailable`] when the store does not answer,
    /// [`StoreError::Unreadable`] when it answers nonsense.
    pub async fn get(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        match self {
            Self::Embedded(store) => store.get(key).await,
            Self::Etcd(store) => store.get(key).await,
        }
    }

    /// A page of documents in the order of their keys, from the first one after `after` on: at most
    /// `most`, [`limits::PAGE_DOCUMENTS`] and about [`limits::PAGE_BYTES`].
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn list(
        &self,
        scope: &Scope,
        after: Option<&Key>,
        most: usize,
    ) -> Result<Page, StoreError> {
        self.range(scope, after, most, Order::First).await
    }

    pub(crate) async fn range(
        &self,
        scope: &Scope,
        after: Option<&Key>,
        most: usize,
        order: Order,
    ) -> Result<Page, StoreError> {
        let most = most.clamp(1, limits::PAGE_DOCUMENTS);
        match self {
            Self::Embedded(store) => store.range(scope, after, most, order).await,
            Self::Etcd(store) => store.range(scope, after, most, order).await,
        }
    }

    /// Does all writes of a transaction, or none. What it gives back is durable, and it is the
    /// revision of each document that was written.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Conflict`] and [`StoreError::JournalFull`] when it is
    /// refused; [`StoreError::Invalid`] beyond a limit; [`StoreError::Full`]; as for
    /// [`get`](Self::get), and then the [`Outcome`] says whether it may have been done.
    pub async fn commit(&self, transaction: &Transaction) -> Result<Revision, StoreError> {
        transaction.check()?;
        match self {
            Self::Embedded(store) => store.commit(transaction.clone()).await,
            Self::Etcd(store) => store.commit(transaction).await,
        }
    }

    /// Writes one document if it is as expected.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit).
    pub async fn put(
        &self,
        key: &Key,
        value: Value,
        expect: Expect,
    ) -> Result<Revision, StoreError> {
        let put = Transaction::new().put(key.clone(), value, expect);
        self.commit(&put).await
    }

    /// Deletes one document if it is as expected.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit).
    pub async fn delete(&self, key: &Key, expect: Expect) -> Result<Revision, StoreError> {
        let delete = Transaction::new().delete(key.clone(), expect);
        self.commit(&delete).await
    }

    /// The changes after this revision, and all that follow. A reader lists first, and watches from
    /// the revision of its first page.
    #[must_use]
    pub fn watch(&self, scope: &Scope, after: Revision) -> Watch {
        match self {
            Self::Embedded(store) => Watch::embedded(store.clone(), scope.clone(), after),
            Self::Etcd(store) => Watch::etcd(store.clone(), scope.clone(), after),
        }
    }

    /// Tries to lead `name` for `ttl`, whole seconds. A holder that asks again while its own lease
    /// runs does not get it either: it may be the ghost of its earlier self.
    ///
    /// # Errors
    /// [`Invalid::Lease`], and as for [`commit`](Self::commit). A leadership whose outcome is unknown
    /// lapses by itself.
    pub async fn campaign(
        &self,
        name: &Name,
        holder: &Name,
        ttl: Duration,
    ) -> Result<Campaign, StoreError> {
        leadership::check_ttl(ttl)?;
        match self {
            Self::Embedded(store) => store.campaign(name, holder, ttl).await,
            Self::Etcd(store) => store.campaign(name, holder, ttl).await,
        }
    }

    /// Extends a leadership by its full length from now on.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] when it has ended, and as for [`get`](Self::get): then it may run on
    /// for as long as [`Leadership::surely_left`] says, and should be tried again.
    pub async fn renew(&self, leadership: &mut Leadership) -> Result<(), StoreError> {
        match self {
            Self::Embedded(store) => store.renew(leadership).await,
            Self::Etcd(store) => store.renew(leadership).await,
        }
    }

    /// Gives a leadership up, so that another one can be won at once. One that has ended already
    /// stays as it is.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit), except [`StoreError::Fenced`].
    pub async fn resign(&self, leadership: Leadership) -> Result<(), StoreError> {
        self.break_leadership(&leadership.name, leadership.generation)
            .await
            .map(|_| ())
    }

    /// Who leads, if anybody does.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn holding(&self, name: &Name) -> Result<Option<Holding>, StoreError> {
        match self {
            Self::Embedded(store) => store.holding(name).await,
            Self::Etcd(store) => store.holding(name).await,
        }
    }

    /// Ends somebody's leadership before its lease does: for an operator who knows that the holder
    /// is gone, or a holder that was started again. Gives whether that generation still led.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit), except [`StoreError::Fenced`].
    pub async fn break_leadership(
        &self,
        name: &Name,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Embedded(store) => store.break_leadership(name, generation).await,
            Self::Etcd(store) => store.break_leadership(name, generation).await,
        }
    }
}
