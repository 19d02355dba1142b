//! What watches read: the history of changes, from where they are.

use std::collections::VecDeque;

use rusqlite::params;
use tokio::time::timeout;

use super::database::{Database, signed, unsigned};
use super::documents::{key, revision};
use super::{Does, Embedded};
use crate::error::StoreError;
use crate::key::Scope;
use crate::limits;
use crate::transaction::Revision;
use crate::value::Value;
use crate::watch::{Change, Changes, by_revision};

/// Where a watch is in the history.
#[derive(Debug)]
pub(crate) struct Follower {
    store: Embedded,
    scope: Scope,
    after: Revision,
}

impl Follower {
    pub(super) fn new(store: Embedded, scope: Scope, after: Revision) -> Self {
        Self {
            store,
            scope,
            after,
        }
    }

    /// What follows; waits until there is something.
    pub async fn more(&mut self) -> Result<VecDeque<Changes>, StoreError> {
        loop {
            self.store.changed.borrow_and_update();
            let (scope, after) = (self.scope.clone(), self.after);
            let (changes, up_to) = self
                .store
                .order(Does::Read, move |database| database.changes(&scope, after))
                .await?;
            self.after = up_to;
            if !changes.is_empty() {
                return Ok(changes);
            }
            // Woken by a commit of this process; another one's are found by looking again. Neither
            // the time that passed nor a thread that has ended is an answer: the next look is.
            let _ = timeout(limits::FOREIGN_POLL, self.store.changed.changed()).await;
        }
    }
}

impl Database {
    /// Changes after a revision, and up to which revision these are all.
    fn changes(
        &mut self,
        scope: &Scope,
        after: Revision,
    ) -> Result<(VecDeque<Changes>, Revision), StoreError> {
        self.read(|sql| {
            let now = revision(sql)?;
            let forgotten: i64 = sql
                .prepare_cached("SELECT forgotten FROM store")?
                .query_row([], |row| row.get(0))?;
            let oldest = Revision(unsigned(forgotten));
            // Later than now is a revision of another file, or of one that was restored.
            if after < oldest || after > now {
                return Err(StoreError::Lagged { after, oldest }.into());
            }
            let mut select = sql.prepare_cached(
                "SELECT revision, key, value FROM change
                 WHERE revision > ?1 AND key >= ?2 AND key < ?3 ORDER BY number LIMIT ?4",
            )?;
            let most = signed(limits::WATCH_ROWS as u64);
            let mut rows =
                select.query(params![signed(after.0), scope.first(), scope.end(), most])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let change = Change {
                    key: key(&row.get::<_, String>(1)?)?,
                    value: row.get::<_, Option<String>>(2)?.map(Value::stored),
                };
                found.push((Revision(unsigned(row.get(0)?)), change));
            }
            Ok(whole_revisions(found, now))
        })
    }
}

/// The limit may have cut the last revision off in its middle: it is left for the next look.
fn whole_revisions(found: Vec<(Revision, Change)>, now: Revision) -> (VecDeque<Changes>, Revision) {
    let cut = found.len() == limits::WATCH_ROWS;
    let mut all = by_revision(found);
    if cut && all.len() > 1 {
        all.pop_back();
        let last = all.back().map_or(now, |changes| changes.revision);
        return (all, last);
    }
    (all, now)
}
