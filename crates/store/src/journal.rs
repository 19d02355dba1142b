//! Journals: what is only ever appended to, by number.
//!
//! An entry is a document of its own, and an append a transaction with three conditions: the entry
//! is not there, the one before it is, and the one that is too old was pruned. So both back ends
//! have journals without knowing of them, and a step can be journalled together with what it
//! changes ([`Transaction::append`]).

use crate::error::{Invalid, StoreError};
use crate::key::{Key, Name, Scope};
use crate::leadership::Leadership;
use crate::limits;
use crate::transaction::{Expect, Revision, Transaction};
use crate::value::{Document, Value};
use crate::{Order, Store};

/// A journal, and how many entries it may have at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    name: Name,
    room: u64,
}

impl Journal {
    /// The journal of this name with room for [`limits::JOURNAL_ENTRIES`].
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            room: limits::JOURNAL_ENTRIES,
        }
    }

    /// The same journal with less room, at least for two entries.
    #[must_use]
    pub fn with_room(self, entries: u64) -> Self {
        Self {
            room: entries.clamp(2, limits::JOURNAL_ENTRIES),
            ..self
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn room(&self) -> u64 {
        self.room
    }
}

/// Some of a journal's entries, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// Number and document of each.
    pub entries: Vec<(u64, Document)>,
    /// There are more after the last of these.
    pub more: bool,
}

impl Store {
    /// Appends an entry as the `number`th, and nothing else.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if that number is taken or the one before it is missing,
    /// [`StoreError::JournalFull`], and those of [`commit`](Self::commit).
    pub async fn append(
        &self,
        journal: &Journal,
        number: u64,
        entry: Value,
        leadership: &Leadership,
    ) -> Result<Revision, StoreError> {
        let append = Transaction::new().fenced_by(leadership);
        self.commit(&append.append(journal, number, entry)?).await
    }

    /// The entries from this number on, as many as fit a page.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub async fn entries(
        &self,
        journal: &Journal,
        from: u64,
        most: usize,
    ) -> Result<Entries, StoreError> {
        let before = from.checked_sub(1).map(|number| Key::Entry {
            journal: journal.name.clone(),
            number,
        });
        let scope = Scope::journal(&journal.name);
        let page = self.list(&scope, before.as_ref(), most).await?;
        Ok(Entries {
            entries: page.documents.into_iter().filter_map(numbered).collect(),
            more: page.more,
        })
    }

    /// The number that the next entry has.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub async fn next_entry(&self, journal: &Journal) -> Result<u64, StoreError> {
        let scope = Scope::journal(&journal.name);
        let page = self.range(&scope, None, 1, Order::Last).await?;
        let last = page.documents.into_iter().find_map(numbered);
        Ok(last.map_or(1, |(number, _)| number.saturating_add(1)))
    }

    /// Deletes the entries before this number, oldest first, but never the last one: the next append
    /// builds on it. Gives the number of entries deleted.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); what was deleted until then stays deleted.
    pub async fn prune(
        &self,
        journal: &Journal,
        before: u64,
        leadership: Option<&Leadership>,
    ) -> Result<u64, StoreError> {
        let last = self.next_entry(journal).await?.saturating_sub(1);
        self.delete_entries(journal, before.min(last), leadership)
            .await
    }

    /// Deletes a whole journal. Gives the number of entries deleted.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); what was deleted until then stays deleted.
    pub async fn remove_journal(
        &self,
        journal: &Journal,
        leadership: Option<&Leadership>,
    ) -> Result<u64, StoreError> {
        self.delete_entries(journal, u64::MAX, leadership).await
    }

    async fn delete_entries(
        &self,
        journal: &Journal,
        before: u64,
        leadership: Option<&Leadership>,
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let some = self.entries(journal, 0, limits::TRANSACTION_WRITES).await?;
            let old = some
                .entries
                .into_iter()
                .take_while(|(number, _)| *number < before);
            let keys: Vec<Key> = old.map(|(_, document)| document.key).collect();
            if keys.is_empty() {
                return Ok(deleted);
            }
            deleted += keys.len() as u64;
            let fenced = leadership.map_or_else(Transaction::new, |leadership| {
                Transaction::new().fenced_by(leadership)
            });
            let deletes = keys
                .into_iter()
                .fold(fenced, |all, key| all.delete(key, Expect::Anything));
            self.commit(&deletes).await?;
        }
    }
}

fn numbered(document: Document) -> Option<(u64, Document)> {
    match document.key {
        Key::Entry { number, .. } => Some((number, document)),
        Key::Document { .. } => None,
    }
}

impl From<&Journal> for Scope {
    fn from(journal: &Journal) -> Self {
        Self::journal(&journal.name)
    }
}

impl TryFrom<&str> for Journal {
    type Error = Invalid;
    fn try_from(name: &str) -> Result<Self, Invalid> {
        name.parse().map(Self::new)
    }
}
