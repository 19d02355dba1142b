//! What a guest's memory is filled with.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use drover_probe::settings::Holds;
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

/// What a guest's memory is filled with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// Pages that the probe fills by the guest's mix.
    #[default]
    Mix,
    /// Programs, libraries and documentation of this machine, in the guest's page cache.
    Userland,
    /// JSON documents in a key-value store.
    Store,
    /// The same, parsed by a Python process.
    Python,
    /// Data that are compressed already, in the guest's page cache.
    Compressed,
    /// As userland, with 70 % of the guest's memory free.
    Idle,
}

/// Memory that documents take in the store, as a part of their own size, in percent. Seen: 120 with
/// Redis 7.0 and 100 MiB of documents.
const STORE_PERCENT: u64 = 122;

/// The same for Python 3.11. Seen: 455.
const PYTHON_PERCENT: u64 = 460;

/// Memory of a program that holds documents without any: Redis with its libraries, and the prose
/// that documents quote from, take some 30 MiB.
const PROGRAM: u64 = 32 << 20;

/// Used memory of an idle guest, in percent.
const IDLE_PERCENT: u64 = 30;

impl Contents {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Mix,
        Self::Userland,
        Self::Store,
        Self::Python,
        Self::Compressed,
        Self::Idle,
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Userland => "userland",
            Self::Store => "store",
            Self::Python => "python",
            Self::Compressed => "compressed",
            Self::Idle => "idle",
        }
    }

    /// Whether they are files, which the guest copies from a disk.
    #[must_use]
    pub fn are_files(self) -> bool {
        matches!(self, Self::Userland | Self::Compressed | Self::Idle)
    }

    /// What the probe is to hold, so that it takes so much memory.
    #[must_use]
    pub fn holds(self, memory: Bytes) -> Holds {
        match self {
            Self::Mix => Holds::Nothing,
            Self::Userland | Self::Compressed | Self::Idle => Holds::Files,
            Self::Store => Holds::Store(memory.0 * 100 / STORE_PERCENT),
            Self::Python => Holds::Python(memory.0 * 100 / PYTHON_PERCENT),
        }
    }

    /// Memory that is needed beside what is held.
    #[must_use]
    pub fn program(self) -> Bytes {
        match self {
            Self::Store | Self::Python => Bytes(PROGRAM),
            _ => Bytes(0),
        }
    }

    /// Memory of an idle guest that is used, its kernel and all.
    #[must_use]
    pub fn used_when_idle(memory: Bytes) -> Bytes {
        Bytes(memory.0 * IDLE_PERCENT / 100)
    }
}

impl FromStr for Contents {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|one| one.name() == text) {
            Some(contents) => Ok(contents),
            None => {
                let words = Self::ALL.map(Self::name).join(", ");
                bail!("{text:?} are no contents of a guest: {words}")
            }
        }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_known_by_their_names_also_in_json() {
        for contents in Contents::ALL {
            assert_eq!(contents.name().parse::<Contents>().unwrap(), contents);
            let json = serde_json::to_value(contents).unwrap();
            assert_eq!(json, contents.name());
        }
        assert!("files".parse::<Contents>().is_err());
    }
}
