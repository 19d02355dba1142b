//! What is done so that a migration ends although its guest keeps writing to its memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a guest is slowed down that writes faster than its memory is carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttle {
    /// Not at all: its migration goes on until it ends by itself, or at the deadline.
    Off,
    /// Its processors stand still for a growing part of the time (QEMU's `auto-converge`).
    #[default]
    AutoConverge,
    /// Only processors that write stand still (QEMU's `dirty-limit`, from 8.1 on, with KVM's dirty ring);
    /// `auto-converge` where that is not to be had.
    DirtyLimit,
}

impl Throttle {
    /// All of them, with their words.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("off", Self::Off),
        ("auto-converge", Self::AutoConverge),
        ("dirty-limit", Self::DirtyLimit),
    ];
}

/// What is done with a migration that has not ended by its deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtDeadline {
    /// It is given up; the guest stays where it is.
    #[default]
    GiveUp,
    /// The guest stands still until the rest is carried, however long that takes.
    StopAndCopy,
    /// Postcopy: the guest goes on at the destination, and the rest follows it. Until it has, the guest is lost
    /// as in a crash if either of its two hypervisors ends.
    Postcopy,
}

impl AtDeadline {
    /// All of them, with their words.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("give-up", Self::GiveUp),
        ("stop-and-copy", Self::StopAndCopy),
        ("postcopy", Self::Postcopy),
    ];
}

/// A number of [`Convergence`] that is out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given} is no {what}: give {least} to {most}")]
pub struct OutOfRange {
    what: &'static str,
    given: i64,
    least: i64,
    most: i64,
}

macro_rules! within {
    ($(#[$doc:meta])* $name:ident($type:ty) in $least:literal..=$most:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "i64")]
        pub struct $name($type);

        impl $name {
            /// The number.
            #[must_use]
            pub fn get(self) -> $type {
                self.0
            }
        }

        impl TryFrom<i64> for $name {
            type Error = OutOfRange;
            fn try_from(given: i64) -> Result<Self, OutOfRange> {
                let (least, most) = ($least, $most);
                match <$type>::try_from(given) {
                    Ok(number) if (least..=most).contains(&given) => Ok(Self(number)),
                    _ => Err(OutOfRange { what: $what, given, least, most }),
                }
            }
        }
    };
}

within! {
    /// The longest stop of a guest to aim at, in milliseconds. QEMU's own limit is 2000 s
    /// (`MAX_MIGRATE_DOWNTIME`).
    DowntimeLimit(u64) in 1..=2_000_000, "downtime limit in milliseconds"
}
within! {
    /// The most of its time, in percent, that a guest stands still while it is slowed down. QEMU's own limit
    /// is 99.
    ThrottleMost(u8) in 1..=99, "percentage of a guest's time"
}
impl Default for ThrottleMost {
    /// QEMU's own (`max-cpu-throttle`).
    fn default() -> Self {
        Self(99)
    }
}

within! {
    /// How long memory may be copied, in seconds; 0 is for ever, and a week the longest.
    Deadline(u64) in 0..=604_800, "deadline in seconds"
}

/// What is wished for one migration, for a guest or for all of a host's. What is missing is for the next of
/// these to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convergence {
    /// The longest stop to aim at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_limit_ms: Option<DowntimeLimit>,
    /// How the guest is slowed down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Throttle>,
    /// How far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_most: Option<ThrottleMost>,
    /// How long memory may be copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<Deadline>,
    /// What is done then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_deadline: Option<AtDeadline>,
}

impl Convergence {
    /// What counts where nobody says: 300 ms and 99 % as QEMU has them, and no deadline.
    #[must_use]
    pub fn defaults() -> Self {
        Self {
            downtime_limit_ms: Some(DowntimeLimit(300)),
            throttle: Some(Throttle::default()),
            throttle_most: Some(ThrottleMost::default()),
            deadline_s: Some(Deadline(0)),
            at_deadline: Some(AtDeadline::default()),
        }
    }

    /// This, and what it does not say from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            downtime_limit_ms: self.downtime_limit_ms.or(other.downtime_limit_ms),
            throttle: self.throttle.or(other.throttle),
            throttle_most: self.throttle_most.or(other.throttle_most),
            deadline_s: self.deadline_s.or(other.deadline_s),
            at_deadline: self.at_deadline.or(other.at_deadline),
        }
    }

    /// Whether it leaves all to others.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// The longest stop to aim at.
    #[must_use]
    pub fn downtime_limit(&self) -> Duration {
        Duration::from_millis(self.downtime_limit_ms.map_or(300, DowntimeLimit::get))
    }

    /// How the guest is slowed down, and the most of its time that it stands still; none where it is not.
    #[must_use]
    pub fn throttle(&self) -> Option<(Throttle, ThrottleMost)> {
        let most = self.throttle_most.unwrap_or_default();
        match self.throttle.unwrap_or_default() {
            Throttle::Off => None,
            throttle => Some((throttle, most)),
        }
    }

    /// How long memory may be copied, and what is done then; none where it is for ever, as where nobody says.
    #[must_use]
    pub fn deadline(&self) -> Option<(Duration, AtDeadline)> {
        let seconds = self.deadline_s.map_or(0, Deadline::get);
        (seconds > 0).then(|| {
            let then = self.at_deadline.unwrap_or_default();
            (Duration::from_secs(seconds), then)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Convergence, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn who_says_nothing_has_qemus_defaults_is_slowed_down_and_has_no_deadline() {
        let nothing = read("{}").unwrap();
        assert!(nothing.is_silent());
        assert_eq!(nothing.downtime_limit(), Duration::from_millis(300));
        let slowed = nothing.throttle().map(|(how, most)| (how, most.get()));
        assert_eq!(slowed, Some((Throttle::AutoConverge, 99)));
        assert_eq!(nothing.deadline(), None);
        assert_eq!(serde_json::to_string(&nothing).unwrap(), "{}");
    }

    #[test]
    fn the_nearer_word_counts_and_the_rest_is_from_the_next() {
        let order = read(r#"{"deadline_s": 60, "throttle": "off"}"#).unwrap();
        let guest = read(r#"{"deadline_s": 9, "at_deadline": "stop-and-copy"}"#).unwrap();
        let host = read(r#"{"downtime_limit_ms": 50, "throttle_most": 40}"#).unwrap();
        let all = order.or(guest).or(host);
        assert_eq!(all.downtime_limit(), Duration::from_millis(50));
        assert_eq!(all.throttle(), None);
        let minute = Duration::from_secs(60);
        assert_eq!(all.deadline(), Some((minute, AtDeadline::StopAndCopy)));
        let slowed = guest.or(host).throttle();
        let slowed = slowed.map(|(how, most)| (how, most.get()));
        assert_eq!(slowed, Some((Throttle::AutoConverge, 40)));
        let never = read(r#"{"deadline_s": 0}"#).unwrap().or(guest);
        assert_eq!(never.deadline(), None, "it takes a guest's deadline away");
    }

    #[test]
    fn words_are_the_same_in_files_and_elsewhere() {
        for (word, value) in Throttle::WORDS {
            assert_eq!(serde_json::to_value(value).unwrap(), word);
        }
        for (word, value) in AtDeadline::WORDS {
            assert_eq!(serde_json::to_value(value).unwrap(), word);
        }
    }

    #[test]
    fn numbers_out_of_range_and_unknown_words_are_refused_with_what_would_be_right() {
        for (text, part) in [
            (r#"{"downtime_limit_ms": 0}"#, "give 1 to 2000000"),
            (r#"{"throttle_most": 100}"#, "100 is no percentage"),
            (r#"{"throttle_most": -1}"#, "give 1 to 99"),
            (r#"{"deadline_s": 604801}"#, "give 0 to 604800"),
            (r#"{"throttle": "postcopy"}"#, "`auto-converge`"),
            (r#"{"at_deadline": "kill"}"#, "`give-up`"),
            (r#"{"dead_line": 1}"#, "unknown field"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
