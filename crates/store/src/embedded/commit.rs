//! Writing: conditions, documents, and the history that watches read, in one transaction.

use rusqlite::{OptionalExtension, Transaction as Sql, params};

use super::database::{Database, Ends, signed, unsigned};
use super::documents::revision;
use super::leases;
use crate::error::StoreError;
use crate::limits;
use crate::transaction::{Revision, Transaction, Write};

impl Database {
    pub fn commit(&mut self, wanted: &Transaction) -> Result<Revision, StoreError> {
        let done = self.write(|sql, clock| {
            if let Some(fence) = &wanted.fence {
                leases::check(sql, fence, clock.now())?;
            }
            for condition in &wanted.conditions {
                condition.check(found(sql, &condition.key.to_string())?)?;
            }
            let next = advance(sql)?;
            for write in &wanted.writes {
                apply(sql, next, write)?;
            }
            forget(sql)?;
            Ok(next)
        })?;
        self.tell(done);
        Ok(done)
    }
}

fn found(sql: &Sql<'_>, key: &str) -> Result<Option<Revision>, Ends> {
    let number: Option<i64> = sql
        .prepare_cached("SELECT revision FROM document WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(number.map(|number| Revision(unsigned(number))))
}

/// The file's next state.
pub(super) fn advance(sql: &Sql<'_>) -> Result<Revision, Ends> {
    let next = Revision(revision(sql)?.0 + 1);
    sql.prepare_cached("UPDATE store SET revision = ?1")?
        .execute([signed(next.0)])?;
    Ok(next)
}

fn apply(sql: &Sql<'_>, next: Revision, write: &Write) -> Result<(), Ends> {
    let key = write.key.to_string();
    let at = signed(next.0);
    let value = write.value.as_ref().map(crate::Value::as_str);
    let changed = match value {
        Some(value) => sql
            .prepare_cached(
                "INSERT INTO document (key, value, revision) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET value = ?2, revision = ?3",
            )?
            .execute(params![key, value, at])?,
        None => sql
            .prepare_cached("DELETE FROM document WHERE key = ?1")?
            .execute([&key])?,
    };
    if changed > 0 {
        remember(sql, at, &key, value)?;
    }
    Ok(())
}

fn remember(sql: &Sql<'_>, at: i64, key: &str, value: Option<&str>) -> Result<(), Ends> {
    let size = key.len() + value.map_or(0, str::len);
    sql.prepare_cached("UPDATE store SET bytes = bytes + ?1")?
        .execute([signed(size as u64)])?;
    sql.prepare_cached(
        "INSERT INTO change (revision, key, value, bytes)
         SELECT ?1, ?2, ?3, bytes FROM store",
    )?
    .execute(params![at, key, value])?;
    Ok(())
}

/// Lets the oldest changes go when there are too many or they are too large.
fn forget(sql: &Sql<'_>) -> Result<(), Ends> {
    let last: Option<i64> = sql
        .prepare_cached(
            "SELECT max(revision) FROM change
             WHERE number <= (SELECT max(number) FROM change) - ?1
                OR bytes <= (SELECT bytes FROM store) - ?2",
        )?
        .query_row([limits::HISTORY_CHANGES, limits::HISTORY_BYTES], |row| {
            row.get(0)
        })?;
    if let Some(last) = last {
        sql.prepare_cached("DELETE FROM change WHERE revision <= ?1")?
            .execute([last])?;
        sql.prepare_cached("UPDATE store SET forgotten = ?1")?
            .execute([last])?;
    }
    Ok(())
}
