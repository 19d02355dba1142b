//! How quickly a host's processors have to wake, and how long they slept.

use serde::{Deserialize, Serialize};

/// Whether the kernel keeps processors out of idle states that they wake from too slowly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuLatency {
    /// Nobody wants that.
    Off,
    /// It does, for as long as a process asks for it.
    Held {
        /// The longest that waking may take, in microseconds.
        us: u32,
    },
    /// It was asked for, and refused.
    Refused {
        /// Why, to be read after "because".
        why: String,
    },
}

/// How long all processors of a host together were in one of their idle states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleTime {
    /// The state as the kernel's driver names it, such as `C1E`.
    pub state: String,
    /// How long waking from it takes, in microseconds, by the driver.
    pub latency_us: u32,
    /// Time in it, in microseconds.
    pub time_us: u64,
}

impl IdleTime {
    /// What was added to each of these since `before`. A processor that came or went meanwhile adds nothing below zero.
    #[must_use]
    pub fn since(now: &[Self], before: &[Self]) -> Vec<Self> {
        let same = |state: &Self, other: &&Self| {
            (&state.state, state.latency_us) == (&other.state, other.latency_us)
        };
        let more = |state: &Self| {
            let earlier = before.iter().find(|other| same(state, other));
            let earlier = earlier.map_or(0, |earlier| earlier.time_us);
            Self {
                time_us: state.time_us.saturating_sub(earlier),
                ..state.clone()
            }
        };
        now.iter().map(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_since_an_earlier_look_and_never_below_zero() {
        let of = |state: &str, latency_us, time_us| IdleTime {
            state: state.into(),
            latency_us,
            time_us,
        };
        let before = [of("C1", 2, 100), of("C6", 133, 900)];
        let now = [of("C1", 2, 350), of("C1", 1, 40), of("C6", 133, 800)];
        let since = IdleTime::since(&now, &before);
        // Cores of two kinds have states of one name.
        assert_eq!(since, [of("C1", 2, 250), of("C1", 1, 40), of("C6", 133, 0)]);
    }
}
