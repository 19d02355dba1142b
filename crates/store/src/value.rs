//! What a document says: JSON text of bounded length.

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::error::{Invalid, StoreError};
use crate::key::Key;
use crate::limits;
use crate::transaction::Revision;

/// JSON text, not longer than [`limits::VALUE_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// What this is as JSON.
    ///
    /// # Errors
    /// [`Invalid::Json`] if it cannot be written as JSON, [`Invalid::TooMuch`] if it is too long.
    pub fn of<T: Serialize + ?Sized>(what: &T) -> Result<Self, Invalid> {
        serde_json::to_string(what)
            .map_err(|problem| no_json(&problem))
            .and_then(short_enough)
    }

    /// This JSON text.
    ///
    /// # Errors
    /// [`Invalid::Json`] if it is none, [`Invalid::TooMuch`] if it is too long.
    pub fn from_json(text: String) -> Result<Self, Invalid> {
        let value = short_enough(text)?;
        serde_json::from_str::<IgnoredAny>(&value.0).map_err(|problem| no_json(&problem))?;
        Ok(value)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Text that the store gave back, and that was checked when it was written.
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }
}

fn no_json(problem: &serde_json::Error) -> Invalid {
    Invalid::Json {
        problem: problem.to_string(),
    }
}

fn short_enough(text: String) -> Result<Value, Invalid> {
    if text.len() > limits::VALUE_BYTES {
        return Err(Invalid::TooMuch {
            what: "bytes of a value",
            found: text.len() as u64,
            most: limits::VALUE_BYTES as u64,
        });
    }
    Ok(Value(text))
}

/// A value under its key, as it was at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What it is called.
    pub key: Key,
    /// The transaction that wrote it: what a compare-and-set expects.
    pub revision: Revision,
    /// What it says.
    pub value: Value,
}

impl Document {
    /// What it says, as a type of ours.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] if it says something else.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(self.value.as_str()).map_err(|problem| StoreError::Unreadable {
            what: self.key.to_string(),
            problem: drover_types::in_short(problem.to_string()),
        })
    }
}

/// A part of what a list is about, in the order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The documents.
    pub documents: Vec<Document>,
    /// The store's revision at which they were read. A watch from the first page's revision gives
    /// every change that a later page may or may not show.
    pub at: Revision,
    /// There are more after the last of these.
    pub more: bool,
}
