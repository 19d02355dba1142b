//! Names of hosts and guests, and the ids of migrations, of moves of disks, of runs, of orders to park a guest, of orders to answer, of
//! loads, and of changes to a host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest name accepted: it becomes a file name and, for hosts, a DNS label.
const NAME_LIMIT: usize = 63;

/// A name that breaks the rules of [`VmName`] and [`HostName`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "name {name:?} is not usable: 1 to {NAME_LIMIT} characters of a-z, A-Z, 0-9, '.', '_' and '-', \
     beginning with a letter or digit"
)]
pub struct InvalidName {
    name: String,
}

fn check_name(name: &str) -> Result<(), InvalidName> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins_well = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if begins_well && name.len() <= NAME_LIMIT && name.chars().all(allowed) {
        Ok(())
    } else {
        // An absurdly long name must not become an absurdly long message.
        Err(InvalidName {
            name: name.chars().take(NAME_LIMIT + 1).collect(),
        })
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                check_name(text).map(|()| Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                check_name(&text).map(|()| Self(text))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type! {
    /// The name of a guest, unique on every host that it can move to. Safe as a file name.
    VmName
}
name_type! {
    /// The name of a host as its agent's configuration gives it. Safe as a file name.
    HostName
}

name_type! {
    /// The name of a person or program that may give orders from afar. Safe as a file name.
    OperatorName
}

/// One attempt to move one guest; both agents, their logs and their files use the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MigrationId(pub Uuid);

impl MigrationId {
    /// Its 16 bytes, as the data connections carry it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id that these 16 bytes are.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

/// What carries out one request of an operator, from its first plan to its end. Ids of version 7 are
/// in the order in which runs began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

/// One order to park a guest, and all that is said of it later: the agent that knows an id carries it out
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParkId(pub Uuid);

/// One order to answer questions about paths, at one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnswererId(pub Uuid);

/// One time that paths of a cluster are loaded, by the order of one agent: each host takes part in one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LoadId(pub Uuid);

/// One plan of changes to a host that is carried out there, and what is left of it afterwards. Ids of version 7 are in the order in
/// which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(pub Uuid);

/// One move of a guest's disk to another file of its host. Ids of version 7 are in the order in which they were ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StorageMoveId(pub Uuid);

macro_rules! text_of_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }
    };
}

text_of_id!(MigrationId);
text_of_id!(RunId);
text_of_id!(ParkId);
text_of_id!(AnswererId);
text_of_id!(LoadId);
text_of_id!(ChangeId);
text_of_id!(StorageMoveId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_their_directory_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "-rf",
            "a b",
            "é",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<VmName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_id_is_the_same_text_everywhere() {
        let text = "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a";
        let id: RunId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(serde_json::to_value(id).unwrap(), text);
        assert!("web".parse::<RunId>().is_err());
    }

    #[test]
    fn names_of_letters_digits_dots_and_dashes_are_accepted() {
        for good in ["a", "web1", "db-2.example", "0_0", &"x".repeat(63)] {
            assert_eq!(
                good.parse::<HostName>().map(String::from).as_deref(),
                Ok(good)
            );
        }
    }
}
