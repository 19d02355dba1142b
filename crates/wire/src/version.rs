//! The version of the frame protocol, and how two relays agree on one.

use std::fmt;

/// A version of the frame protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

/// The versions that one relay speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest.
    pub min: Version,
    /// Newest.
    pub max: Version,
}

/// Two relays that share no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no common protocol version: this agent speaks {ours}, the other one {theirs}")]
pub struct NoCommonVersion {
    /// What this relay speaks.
    pub ours: VersionRange,
    /// What the other one speaks.
    pub theirs: VersionRange,
}

impl VersionRange {
    /// What this build speaks.
    pub const SUPPORTED: Self = Self {
        min: Version(3),
        max: Version(3),
    };

    /// The newest version that both speak.
    ///
    /// # Errors
    /// [`NoCommonVersion`] when the ranges do not meet.
    pub fn newest_common(self, theirs: Self) -> Result<Version, NoCommonVersion> {
        let newest = self.max.min(theirs.max);
        if newest >= self.min && newest >= theirs.min {
            Ok(newest)
        } else {
            Err(NoCommonVersion { ours: self, theirs })
        }
    }

    /// Whether `version` lies in the range.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u16, max: u16) -> VersionRange {
        VersionRange {
            min: Version(min),
            max: Version(max),
        }
    }

    #[test]
    fn the_newest_common_version_is_chosen_from_either_side() {
        for (ours, theirs, common) in [
            (range(1, 3), range(2, 5), Some(3)),
            (range(2, 5), range(1, 3), Some(3)),
            (range(1, 1), range(1, 9), Some(1)),
            (range(1, 2), range(3, 4), None),
            (range(3, 4), range(1, 2), None),
        ] {
            assert_eq!(ours.newest_common(theirs).ok(), common.map(Version));
        }
    }

    #[test]
    fn a_refusal_names_both_ranges() {
        let refusal = range(1, 2)
            .newest_common(range(3, 4))
            .unwrap_err()
            .to_string();
        assert!(
            refusal.contains("1 to 2") && refusal.contains("3 to 4"),
            "{refusal}"
        );
    }
}
