//! Limits on what migrations may carry.

use std::fmt;
use std::str::FromStr;

use drover_types::{BitRate, ByteRate, HostName, MigrationId, PathId, VmName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::LEAST_LIMIT;

/// A rate, or a share of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Limit {
    /// Bits per second.
    Rate(BitRate),
    /// Percent of the link's rate.
    Percent(u8),
}

/// Text that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no limit: write 5gbit, 200mbit (1mbit at least) or 1% to 100% of the link")]
pub struct InvalidLimit {
    text: String,
}

impl FromStr for Limit {
    type Err = InvalidLimit;
    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let text = text.trim();
        let limit = match text.strip_suffix('%') {
            Some(percent) => percent.trim_end().parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Rate),
        };
        let usable = |limit: &Self| match limit {
            Self::Rate(rate) => *rate >= LEAST_LIMIT,
            Self::Percent(percent) => (1..=100).contains(percent),
        };
        limit.filter(usable).ok_or_else(|| InvalidLimit {
            text: text.chars().take(40).collect(),
        })
    }
}

impl TryFrom<String> for Limit {
    type Error = InvalidLimit;
    fn try_from(text: String) -> Result<Self, InvalidLimit> {
        text.parse()
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> Self {
        limit.to_string()
    }
}

/// Exact, so that it can be read again.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Rate(BitRate(bits)) = *self else {
            let Self::Percent(percent) = self else {
                return Ok(());
            };
            return write!(f, "{percent}%");
        };
        let units = [
            (1_000_000_000, "gbit"),
            (1_000_000, "mbit"),
            (1_000, "kbit"),
            (1, "bit"),
        ];
        let fits = units.iter().find(|(unit, _)| bits % unit == 0);
        let (unit, name) = fits.unwrap_or(&(1, "bit"));
        write!(f, "{}{name}", bits / unit)
    }
}

/// What is limited.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum LimitScope {
    /// All migrations of this host together; each direction by itself.
    Host,
    /// All migrations over one interface of this host; each direction by itself.
    Nic {
        /// Its name.
        nic: String,
    },
    /// One migration from this host.
    Migration {
        /// Its id.
        #[schema(value_type = String, format = "uuid")]
        migration: MigrationId,
    },
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("this host"),
            Self::Nic { nic } => write!(f, "nic {nic}"),
            Self::Migration { migration } => write!(f, "migration {migration}"),
        }
    }
}

/// Sets a limit or lifts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// Of what.
    pub scope: LimitScope,
    /// Bits per second such as `5gbit`, or `50%` of the link; none: as much as goes.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub limit: Option<Limit>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// Of what.
    pub scope: LimitScope,
    /// The guest, of a limit of a migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub vm: Option<VmName>,
    /// The limit; none when what is configured was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub limit: Option<Limit>,
    /// What the configuration says, where the limit was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub configured: Option<Limit>,
    /// The limit in bits per second; none while the link's rate is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub bits_per_second: Option<BitRate>,
    /// What is carried out of this host under it, in bytes per second, lately.
    #[schema(value_type = u64)]
    pub out: ByteRate,
    /// What is carried into this host under it, in bytes per second, lately.
    #[serde(rename = "in")]
    #[schema(value_type = u64)]
    pub inward: ByteRate,
}

/// Every limit of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitsView {
    /// The host.
    #[schema(value_type = String)]
    pub host: HostName,
    /// The limits.
    pub limits: Vec<LimitView>,
}

/// What a destination can take on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathLimit {
    /// The path.
    #[schema(value_type = u16)]
    pub path: PathId,
    /// Payload in bytes per second; none: as much as goes.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub rate: Option<ByteRate>,
}

/// What a destination can take: the source sends no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathLimits {
    /// For each path that has a limit; a path that is left out has none.
    pub paths: Vec<PathLimit>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rates_or_percent_and_shown_as_they_can_be_read_again() {
        for (text, shown) in [
            ("5gbit", "5gbit"),
            ("1.5 Gbit/s", "1500mbit"),
            ("1000001000", "1000001kbit"),
            ("50%", "50%"),
            ("100 %", "100%"),
        ] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit.to_string(), shown);
            assert_eq!(shown.parse::<Limit>().unwrap(), limit);
        }
    }

    #[test]
    fn what_is_no_limit_or_would_stop_everything_is_refused() {
        for bad in ["", "0", "0%", "101%", "999kbit", "-1gbit", "fast", "%"] {
            let refused = bad.parse::<Limit>().unwrap_err();
            assert!(refused.to_string().contains("5gbit"), "{refused}");
        }
    }
}
