//! Whether a migration keeps its host's processors from sleeping deeply, and how long they slept.

use std::fmt;

use drover_types::{CpuLatency, IdleTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest that this host's processors may take to wake while a migration's bytes are carried.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuLatencyView {
    /// That, in microseconds, where the kernel holds them to it; of a migration that has ended, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_us: Option<u32>,
    /// Why they may sleep as they like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// They may although they were to be held.
    #[serde(default)]
    pub fallback: bool,
}

/// How long a host's processors were in one of their idle states, all together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdleStateView {
    /// The state, such as `C1E`.
    pub state: String,
    /// How long waking from it takes, in microseconds, as the kernel's driver says.
    pub latency_us: u32,
    /// Time in it while the migration's bytes were carried, in milliseconds.
    pub time_ms: u64,
}

impl From<&CpuLatency> for CpuLatencyView {
    fn from(latency: &CpuLatency) -> Self {
        match latency {
            CpuLatency::Held { us } => Self {
                held_us: Some(*us),
                ..Self::default()
            },
            CpuLatency::Off => Self {
                why_not: Some("`migration.cpu_latency` is \"off\"".to_owned()),
                ..Self::default()
            },
            CpuLatency::Refused { why } => Self {
                why_not: Some(why.clone()),
                fallback: true,
                ..Self::default()
            },
        }
    }
}

impl From<&IdleTime> for IdleStateView {
    fn from(time: &IdleTime) -> Self {
        Self {
            state: time.state.clone(),
            latency_us: time.latency_us,
            time_ms: time.time_us / 1000,
        }
    }
}

impl IdleStateView {
    /// All of them in one line.
    #[must_use]
    pub fn list(states: &[Self]) -> String {
        let states: Vec<String> = states.iter().map(Self::to_string).collect();
        states.join(", ")
    }
}

impl fmt::Display for CpuLatencyView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(us) = self.held_us {
            return write!(f, "held at {us} us");
        }
        f.write_str("not held")?;
        let mut why = self.why_not.iter();
        why.try_for_each(|why| write!(f, ", because {why}"))
    }
}

impl fmt::Display for IdleStateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, tenths) = (self.time_ms / 1000, self.time_ms % 1000 / 100);
        write!(
            f,
            "{} ({} us) {seconds}.{tenths} s",
            self.state, self.latency_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_told_with_its_value_or_with_what_is_in_its_way() {
        for (latency, told, fallback) in [
            (CpuLatency::Held { us: 20 }, "held at 20 us", false),
            (
                CpuLatency::Off,
                "not held, because `migration.cpu_latency` is \"off\"",
                false,
            ),
            (
                CpuLatency::Refused {
                    why: "there is no device".into(),
                },
                "not held, because there is no device",
                true,
            ),
        ] {
            let view = CpuLatencyView::from(&latency);
            assert_eq!((view.to_string().as_str(), view.fallback), (told, fallback));
        }
    }

    #[test]
    fn the_time_in_a_state_is_told_with_how_long_waking_takes() {
        let time = IdleTime {
            state: "C6".into(),
            latency_us: 133,
            time_us: 12_380_000,
        };
        assert_eq!(IdleStateView::from(&time).to_string(), "C6 (133 us) 12.3 s");
    }
}
