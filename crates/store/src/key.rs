//! What documents and journals are called.
//!
//! ```text
//!   host/a                          a document
//!   journal/RUN/00000000000000000007  the seventh entry of a run's journal
//! ```
//! The text is what both back ends store and sort by; names cannot contain its '/'.

use std::fmt;
use std::str::FromStr;

use drover_types::{HostName, RunId, VmName};

use crate::error::Invalid;
use crate::limits;

/// Digits of an entry's number, so that text sorts as numbers do: those of the largest `u64`.
const DIGITS: usize = 20;

const JOURNAL: &str = "journal";

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A host: its capacity, labels and state.
    Host,
    /// A virtual machine: where it is, and its policy.
    Vm,
    /// Who belongs to a host.
    Home,
    /// A plan that is being carried out, or was.
    Run,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Host, Self::Vm, Self::Home, Self::Run];

    /// The word that keys begin with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Vm => "vm",
            Self::Home => "home",
            Self::Run => "run",
        }
    }
}

/// The name of a document, a journal, or of something that can be led.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn invalid_name(name: &str) -> Invalid {
    Invalid::Name {
        name: name.chars().take(limits::NAME + 1).collect(),
    }
}

impl FromStr for Name {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins_well && text.len() <= limits::NAME && text.chars().all(is_allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(invalid_name(text))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Names of hosts and guests follow the same rules, and are shorter.
impl From<&HostName> for Name {
    fn from(name: &HostName) -> Self {
        Self(name.as_str().to_owned())
    }
}

impl From<&VmName> for Name {
    fn from(name: &VmName) -> Self {
        Self(name.as_str().to_owned())
    }
}

// Hexadecimal digits and dashes.
impl From<RunId> for Name {
    fn from(id: RunId) -> Self {
        Self(id.to_string())
    }
}

/// What one document, or one entry of a journal, is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A document.
    Document {
        /// What it is about.
        kind: Kind,
        /// Which one of these.
        name: Name,
    },
    /// An entry of a journal.
    Entry {
        /// Whose journal.
        journal: Name,
        /// Its number, from 1 on.
        number: u64,
    },
}

impl Key {
    /// The document of this kind and name.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<Name>) -> Self {
        Self::Document {
            kind,
            name: name.into(),
        }
    }

    /// The key that this stored text is.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('/')?;
        if first == JOURNAL {
            let (journal, number) = rest.split_once('/')?;
            let right = number.len() == DIGITS && number.bytes().all(|b| b.is_ascii_digit());
            return Some(Self::Entry {
                journal: journal.parse().ok()?,
                number: number.parse().ok().filter(|_| right)?,
            });
        }
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == first)?;
        Some(Self::new(kind, rest.parse::<Name>().ok()?))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document { kind, name } => write!(f, "{}/{name}", kind.as_str()),
            Self::Entry { journal, number } => write!(f, "{JOURNAL}/{journal}/{number:0DIGITS$}"),
        }
    }
}

/// The keys that a list or a watch is about: all that begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(String);

impl Scope {
    /// All documents of a kind.
    #[must_use]
    pub fn kind(kind: Kind) -> Self {
        Self(format!("{}/", kind.as_str()))
    }

    /// The documents of a kind whose names begin so.
    ///
    /// # Errors
    /// [`Invalid::Name`] if no name can begin so.
    pub fn beginning(kind: Kind, beginning: &str) -> Result<Self, Invalid> {
        let name: Name = beginning.parse()?;
        Ok(Self(format!("{}/{name}", kind.as_str())))
    }

    /// The entries of one journal.
    #[must_use]
    pub fn journal(journal: &Name) -> Self {
        Self(format!("{JOURNAL}/{journal}/"))
    }

    /// The text that all its keys begin with.
    pub(crate) fn first(&self) -> &str {
        &self.0
    }

    /// The first text after all its keys.
    pub(crate) fn end(&self) -> String {
        end_of(&self.0)
    }
}

/// The first text after all that begin so: its last character is ASCII and never DEL, so the next
/// one exists.
pub(crate) fn end_of(beginning: &str) -> String {
    let mut end = beginning.to_owned();
    if let Some(last) = end.pop() {
        end.push(char::from_u32(u32::from(last) + 1).unwrap_or(char::MAX));
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_read_back_from_its_text() {
        for key in [
            Key::new(Kind::Host, name("a")),
            Key::new(Kind::Vm, name("db-2.example")),
            Key::Entry {
                journal: name("run-1"),
                number: 7,
            },
            Key::Entry {
                journal: name("r"),
                number: u64::MAX,
            },
        ] {
            assert_eq!(Key::from_text(&key.to_string()), Some(key));
        }
    }

    #[test]
    fn text_that_is_no_key_is_none() {
        for bad in [
            "",
            "host",
            "host/",
            "ghost/a",
            "host/a/b",
            "journal/r/7",
            "vm/é",
            "/",
        ] {
            assert_eq!(Key::from_text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_that_could_be_taken_for_another_key_are_refused() {
        for bad in ["", "a/b", ".", "-a", "a b", "é", "a\0", &"x".repeat(129)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn entries_sort_by_number() {
        let entry = |number| Key::Entry {
            journal: name("r"),
            number,
        };
        assert!(entry(9).to_string() < entry(10).to_string());
    }

    #[test]
    fn a_journals_scope_leaves_out_journals_whose_names_begin_alike() {
        let scope = Scope::journal(&name("r"));
        let other = Key::Entry {
            journal: name("r.1"),
            number: 1,
        }
        .to_string();
        assert!(!(scope.first() <= other.as_str() && other < scope.end()));
    }
}
