//! Reading documents.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::database::{Database, Ends, signed, unsigned};
use crate::Order;
use crate::error::StoreError;
use crate::key::{Key, Scope};
use crate::limits;
use crate::transaction::Revision;
use crate::value::{Document, Page, Value};

impl Database {
    pub fn get(&mut self, key: Key) -> Result<Option<Document>, StoreError> {
        self.read(|transaction| {
            let found = transaction
                .prepare_cached("SELECT value, revision FROM document WHERE key = ?1")?
                .query_row([key.to_string()], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
                })
                .optional()?;
            Ok(found.map(|(value, revision)| Document {
                key,
                revision: Revision(unsigned(revision)),
                value: Value::stored(value),
            }))
        })
    }

    pub fn range(
        &mut self,
        scope: &Scope,
        after: Option<&str>,
        most: usize,
        order: Order,
    ) -> Result<Page, StoreError> {
        self.read(|transaction| {
            let at = revision(transaction)?;
            let (documents, more) = documents(transaction, scope, after, most, order)?;
            Ok(Page {
                documents,
                at,
                more,
            })
        })
    }
}

/// The state that the file is in.
pub(super) fn revision(transaction: &Transaction<'_>) -> Result<Revision, Ends> {
    let number: i64 = transaction
        .prepare_cached("SELECT revision FROM store")?
        .query_row([], |row| row.get(0))?;
    Ok(Revision(unsigned(number)))
}

fn documents(
    transaction: &Transaction<'_>,
    scope: &Scope,
    after: Option<&str>,
    most: usize,
    order: Order,
) -> Result<(Vec<Document>, bool), Ends> {
    let mut select = transaction.prepare_cached(match order {
        Order::First => {
            "SELECT key, value, revision FROM document
             WHERE key >= ?1 AND key < ?2 AND key > ?3 ORDER BY key LIMIT ?4"
        }
        Order::Last => {
            "SELECT key, value, revision FROM document
             WHERE key >= ?1 AND key < ?2 AND key > ?3 ORDER BY key DESC LIMIT ?4"
        }
    })?;
    let one_more = signed(most as u64) + 1;
    let after = after.unwrap_or_default();
    let mut rows = select.query(params![scope.first(), scope.end(), after, one_more])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if found.len() == most || bytes >= limits::PAGE_BYTES {
            return Ok((found, true));
        }
        let document = document(row)?;
        bytes += document.value.as_str().len();
        found.push(document);
    }
    Ok((found, false))
}

fn document(row: &Row<'_>) -> Result<Document, Ends> {
    Ok(Document {
        key: key(&row.get::<_, String>(0)?)?,
        value: Value::stored(row.get(1)?),
        revision: Revision(unsigned(row.get(2)?)),
    })
}

/// A stored key; another version may have kinds that this one does not know, but they are in no
/// scope that it can name.
pub(super) fn key(text: &str) -> Result<Key, StoreError> {
    Key::from_text(text).ok_or_else(|| StoreError::Unreadable {
        what: format!("key {:?}", drover_types::in_short(text.to_owned())),
        problem: "this version writes no such key".to_owned(),
    })
}
