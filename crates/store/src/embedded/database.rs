//! The thread's side: one connection, and what all orders need of it.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::watch;

use super::schema;
use crate::clock::{Clock, Moment};
use crate::error::{Outcome, StoreError};
use crate::transaction::Revision;

/// The open file.
pub(super) struct Database {
    connection: Connection,
    clock: Box<dyn Clock>,
    changed: watch::Sender<Revision>,
    path: PathBuf,
}

/// Why an order within a transaction of SQLite ends without effect.
pub(super) enum Ends {
    /// SQLite says so.
    Sqlite(rusqlite::Error),
    /// We say so.
    Refused(StoreError),
}

impl From<rusqlite::Error> for Ends {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Ends {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Database {
    pub fn open(
        path: &Path,
        clock: Box<dyn Clock>,
    ) -> Result<(Self, watch::Receiver<Revision>), StoreError> {
        let connection = schema::open(path)?;
        let (changed, receiver) = watch::channel(Revision(0));
        let database = Self {
            connection,
            clock,
            changed,
            path: path.to_owned(),
        };
        Ok((database, receiver))
    }

    /// Reads one state of the file, whatever others write meanwhile.
    pub fn read<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T, Ends>,
    ) -> Result<T, StoreError> {
        let path = self.path.clone();
        let done = self
            .connection
            .transaction()
            .map_err(Ends::from)
            .and_then(|transaction| work(&transaction));
        done.map_err(|ends| in_words(&path, ends, Outcome::NotDone))
    }

    /// Changes the file: all of it, on the disk, or nothing. The time is taken within SQLite's lock,
    /// so that nothing can come between a lease that still runs and what is written under it.
    pub fn write<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>, &dyn Clock) -> Result<T, Ends>,
    ) -> Result<T, StoreError> {
        let Self {
            connection, clock, ..
        } = self;
        let mut outcome = Outcome::NotDone;
        let done = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(Ends::from)
            .and_then(|transaction| {
                let result = work(&transaction, clock.as_ref())?;
                outcome = Outcome::Unknown;
                transaction.commit()?;
                Ok(result)
            });
        done.map_err(|ends| in_words(&self.path, ends, outcome))
    }

    /// This moment, by the clock that leases run by.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Wakes the watches of this process.
    pub fn tell(&self, revision: Revision) {
        self.changed.send_replace(revision);
    }
}

fn in_words(path: &Path, ends: Ends, outcome: Outcome) -> StoreError {
    match ends {
        Ends::Sqlite(error) => schema::problem(path, &error, outcome),
        Ends::Refused(error) => error,
    }
}

/// SQLite's integers are signed; ours never reach the last bit, since each costs a commit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The other way; the schema has no negative number.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
