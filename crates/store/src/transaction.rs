//! Several writes that are done at once or not at all, and what they depend on.

use std::collections::HashSet;
use std::fmt;

use crate::error::{Invalid, StoreError};
use crate::journal::Journal;
use crate::key::{Key, Name};
use crate::leadership::{Generation, Leadership};
use crate::limits;
use crate::value::Value;

/// A state of the whole store. Every transaction makes the next one; a document has that of the
/// transaction that wrote it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {}", self.0)
    }
}

/// How a document has to be for a transaction to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// As it may be.
    Anything,
    /// Not there.
    Absent,
    /// There, at any revision.
    Present,
    /// As it was read.
    At(Revision),
}

impl Expect {
    fn is_met_by(self, found: Option<Revision>) -> bool {
        match self {
            Self::Anything => true,
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::At(revision) => found == Some(revision),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("anything"),
            Self::Absent => f.write_str("nothing"),
            Self::Present => f.write_str("a document"),
            Self::At(revision) => revision.fmt(f),
        }
    }
}

/// What has to hold for one key, and what its failure means.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub key: Key,
    pub expect: Expect,
    /// The key is that of the entry which must have been pruned: the journal has this many.
    pub room: Option<u64>,
}

impl Condition {
    /// Nothing, or why the transaction is refused.
    pub fn check(&self, found: Option<Revision>) -> Result<(), StoreError> {
        if self.expect.is_met_by(found) {
            return Ok(());
        }
        Err(match (self.room, &self.key) {
            (Some(limit), Key::Entry { journal, .. }) => StoreError::JournalFull {
                journal: journal.clone(),
                limit,
            },
            _ => StoreError::Conflict {
                key: self.key.clone(),
                expected: self.expect,
                found,
            },
        })
    }
}

/// A document's next value; none deletes it.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub key: Key,
    pub value: Option<Value>,
}

/// Whose leadership a transaction depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    pub name: Name,
    pub generation: Generation,
}

/// Several writes that are done at once or not at all.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    pub(crate) fence: Option<Fence>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) writes: Vec<Write>,
}

impl Transaction {
    /// A transaction that writes nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refused unless this leadership still counts in the moment in which it is written.
    #[must_use]
    pub fn fenced_by(mut self, leadership: &Leadership) -> Self {
        self.fence = Some(leadership.fence());
        self
    }

    /// Refused unless this document is as expected; it is not written.
    #[must_use]
    pub fn require(mut self, key: Key, expect: Expect) -> Self {
        self.condition(key, expect, None);
        self
    }

    /// Writes a document, if it is as expected.
    #[must_use]
    pub fn put(mut self, key: Key, value: Value, expect: Expect) -> Self {
        self.condition(key.clone(), expect, None);
        self.writes.push(Write {
            key,
            value: Some(value),
        });
        self
    }

    /// Deletes a document, if it is as expected.
    #[must_use]
    pub fn delete(mut self, key: Key, expect: Expect) -> Self {
        self.condition(key.clone(), expect, None);
        self.writes.push(Write { key, value: None });
        self
    }

    /// Appends an entry to a journal as its `number`th. The number is said and not given, so that an
    /// append whose outcome is unknown can be tried again and is never done twice.
    ///
    /// # Errors
    /// [`Invalid::EntryZero`]: the first entry is number 1.
    pub fn append(mut self, journal: &Journal, number: u64, entry: Value) -> Result<Self, Invalid> {
        let key = |number| Key::Entry {
            journal: journal.name().clone(),
            number,
        };
        let before = number.checked_sub(1).ok_or(Invalid::EntryZero)?;
        self.condition(key(number), Expect::Absent, None);
        if before > 0 {
            self.condition(key(before), Expect::Present, None);
        }
        if let Some(oldest @ 1..) = number.checked_sub(journal.room()) {
            self.condition(key(oldest), Expect::Absent, Some(journal.room()));
        }
        self.writes.push(Write {
            key: key(number),
            value: Some(entry),
        });
        Ok(self)
    }

    fn condition(&mut self, key: Key, expect: Expect, room: Option<u64>) {
        if expect != Expect::Anything {
            self.conditions.push(Condition { key, expect, room });
        }
    }

    /// Whether both back ends can do it.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let bytes = self
            .writes
            .iter()
            .filter_map(|write| write.value.as_ref())
            .map(|value| value.as_str().len())
            .sum();
        at_most("writes", self.writes.len(), limits::TRANSACTION_WRITES)?;
        at_most(
            "conditions",
            self.conditions.len(),
            limits::TRANSACTION_CONDITIONS,
        )?;
        at_most("bytes in a transaction", bytes, limits::TRANSACTION_BYTES)?;
        let mut seen = HashSet::new();
        if let Some(write) = self.writes.iter().find(|write| !seen.insert(&write.key)) {
            return Err(Invalid::Twice {
                key: write.key.clone(),
            });
        }
        if self.writes.is_empty() {
            return Err(Invalid::Empty);
        }
        Ok(())
    }
}

fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), Invalid> {
    if found > most {
        return Err(Invalid::TooMuch {
            what,
            found: found as u64,
            most: most as u64,
        });
    }
    Ok(())
}
