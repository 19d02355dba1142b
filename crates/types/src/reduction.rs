//! What is done so that fewer bytes of a guest cross.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is done to what a guest's hypervisor sends. In text one word: `auto`, `off`, `pages`, `lz4`,
/// `zstd:1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ReductionMode {
    /// What is fastest, by what is measured while the guest moves.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// Pages that the destination has, and what changed of them.
    Pages,
    /// The same, and the rest is compressed by lz4.
    Lz4,
    /// The same by zstd, with this level: -7 to 6, not 0.
    Zstd(i8),
}

/// No word of [`ReductionMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no way to reduce: write auto, off, pages, lz4, or zstd: with a level from -7 to 6, such as zstd:1"
)]
pub struct InvalidReduction(String);

impl FromStr for ReductionMode {
    type Err = InvalidReduction;

    fn from_str(text: &str) -> Result<Self, InvalidReduction> {
        let level = || {
            let level = text.strip_prefix("zstd:")?.parse().ok()?;
            ((-7..=6).contains(&level) && level != 0).then_some(Self::Zstd(level))
        };
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "pages" => Ok(Self::Pages),
            "lz4" => Ok(Self::Lz4),
            _ => level().ok_or_else(|| InvalidReduction(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ReductionMode {
    type Error = InvalidReduction;

    fn try_from(text: String) -> Result<Self, InvalidReduction> {
        text.parse()
    }
}

impl From<ReductionMode> for String {
    fn from(mode: ReductionMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for ReductionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Pages => f.pad("pages"),
            Self::Lz4 => f.pad("lz4"),
            Self::Zstd(level) => f.pad(&format!("zstd:{level}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_shown_and_others_are_refused_with_what_there_is() {
        for word in ["auto", "off", "pages", "lz4", "zstd:1", "zstd:-7", "zstd:6"] {
            let mode: ReductionMode = word.parse().unwrap();
            assert_eq!(mode.to_string(), word);
            let json = serde_json::to_string(&mode).unwrap();
            assert_eq!(serde_json::from_str::<ReductionMode>(&json).unwrap(), mode);
        }
        for word in [
            "", "on", "zstd", "zstd:0", "zstd:7", "zstd:-8", "zstd:x", "LZ4",
        ] {
            let refused = word.parse::<ReductionMode>().unwrap_err().to_string();
            assert!(refused.contains("zstd:1"), "{refused}");
        }
    }
}
