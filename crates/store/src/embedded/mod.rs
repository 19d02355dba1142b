//! The store in one SQLite file: for a cluster that one coordinator at a time looks after.
//!
//! ```text
//!   callers ── orders, bounded ──▶ one thread ── one connection ──▶ store.db (+ -wal, -shm)
//!      ▲                              │
//!      └── revision of each commit ◀──┘  wakes the watches
//! ```
//! Owns the file and the thread. Every commit is on the disk before it is answered. Other processes
//! may have the same file open: whatever is decided is decided within one transaction of SQLite, so
//! they cannot come between, and their changes reach the watches here through the same table.
//! Nothing else in this process may open the file: to close it would end SQLite's locks on it.
//! The file belongs on a disk of this host: leases run by this host's clock, and locks of network
//! file systems cannot be relied on.

mod commit;
mod database;
mod documents;
mod follow;
mod leases;
mod schema;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::error::{Outcome, StoreError};
use crate::key::{Key, Name, Scope};
use crate::leadership::{Campaign, Generation, Holding, Leadership};
use crate::limits;
use crate::transaction::{Revision, Transaction};
use crate::value::{Document, Page};
use crate::{Order, Store};

use database::Database;
pub(crate) use follow::Follower;

type Work = Box<dyn FnOnce(&mut Database) + Send>;

/// Whether an order changes something, which decides what is known when no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
}

/// The store in a file. Clones share its thread, which ends with the last of them.
#[derive(Clone)]
pub struct Embedded {
    orders: mpsc::Sender<Work>,
    changed: watch::Receiver<Revision>,
    path: Arc<PathBuf>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Embedded").field(&self.path).finish()
    }
}

impl From<Embedded> for Store {
    fn from(store: Embedded) -> Self {
        Self::Embedded(store)
    }
}

impl Embedded {
    /// Opens the file, makes it if it is not there (mode 0600), and checks all of it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if it is damaged, of a newer version, of another program, or may not
    /// be written; [`StoreError::Full`]; [`StoreError::Unavailable`] if another process keeps it
    /// locked.
    pub async fn open(path: &Path, clock: impl Clock) -> Result<Self, StoreError> {
        let (opened, opening) = oneshot::channel();
        let (orders, inbox) = mpsc::channel(limits::ORDERS_WAITING);
        let file = path.to_owned();
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || work(&file, Box::new(clock), opened, inbox))
            .map_err(|error| unusable(path, format!("cannot start its thread: {error}")))?;
        let changed = opening
            .await
            .map_err(|_| unusable(path, "its thread ended while opening it".to_owned()))??;
        Ok(Self {
            orders,
            changed,
            path: Arc::new(path.to_owned()),
        })
    }

    async fn order<T: Send + 'static>(
        &self,
        does: Does,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let order: Work = Box::new(move |database| {
            // Who asked may be gone: what was done is done all the same.
            let _ = answer.send(work(database));
        });
        timeout(limits::EMBEDDED_ANSWER, self.orders.send(order))
            .await
            .map_err(|_| self.unavailable(Does::Read, "too much is waiting for it"))?
            .map_err(|_| self.unavailable(Does::Read, "its thread has ended"))?;
        timeout(limits::EMBEDDED_ANSWER, answered)
            .await
            .map_err(|_| self.unavailable(does, "its disk has not answered in time"))?
            .map_err(|_| self.unavailable(does, "its thread has ended"))?
    }

    fn unavailable(&self, does: Does, why: &str) -> StoreError {
        let seconds = limits::EMBEDDED_ANSWER.as_secs();
        StoreError::Unavailable {
            path: self.path.display().to_string(),
            outcome: match does {
                Does::Read => Outcome::NotDone,
                Does::Write => Outcome::Unknown,
            },
            detail: format!("{why} (it has {seconds} s)"),
        }
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        let key = key.clone();
        self.order(Does::Read, move |database| database.get(key))
            .await
    }

    pub(crate) async fn range(
        &self,
        scope: &Scope,
        after: Option<&Key>,
        most: usize,
        order: Order,
    ) -> Result<Page, StoreError> {
        let (scope, after) = (scope.clone(), after.map(Key::to_string));
        self.order(Does::Read, move |database| {
            database.range(&scope, after.as_deref(), most, order)
        })
        .await
    }

    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        self.order(Does::Write, move |database| database.commit(&transaction))
            .await
    }

    pub(crate) async fn campaign(
        &self,
        name: &Name,
        holder: &Name,
        ttl: Duration,
    ) -> Result<Campaign, StoreError> {
        let (name, holder) = (name.clone(), holder.clone());
        self.order(Does::Write, move |database| {
            database.campaign(name, holder, ttl)
        })
        .await
    }

    pub(crate) async fn renew(&self, leadership: &mut Leadership) -> Result<(), StoreError> {
        let asked = leadership.clone();
        leadership.until = self
            .order(Does::Write, move |database| database.renew(&asked))
            .await?;
        Ok(())
    }

    pub(crate) async fn holding(&self, name: &Name) -> Result<Option<Holding>, StoreError> {
        let name = name.clone();
        self.order(Does::Read, move |database| database.holding(&name))
            .await
    }

    pub(crate) async fn break_leadership(
        &self,
        name: &Name,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        let name = name.clone();
        self.order(Does::Write, move |database| {
            database.break_leadership(&name, generation)
        })
        .await
    }

    pub(crate) fn follow(&self, scope: Scope, after: Revision) -> Follower {
        Follower::new(self.clone(), scope, after)
    }
}

/// The thread: opens the file, then does one order after the other until nobody is left to give any.
fn work(
    path: &Path,
    clock: Box<dyn Clock>,
    opened: oneshot::Sender<Result<watch::Receiver<Revision>, StoreError>>,
    mut inbox: mpsc::Receiver<Work>,
) {
    let (mut database, changed) = match Database::open(path, clock) {
        Ok(both) => both,
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    if opened.send(Ok(changed)).is_err() {
        return;
    }
    while let Some(order) = inbox.blocking_recv() {
        order(&mut database);
    }
}

fn unusable(path: &Path, problem: String) -> StoreError {
    StoreError::Unusable {
        path: path.display().to_string(),
        problem,
    }
}
