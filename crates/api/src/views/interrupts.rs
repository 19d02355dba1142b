//! Where the interrupts of a NIC are taken while a migration is carried over it.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What became of the interrupts of one of this host's interfaces (`migration.interrupts`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterruptsView {
    /// The interface.
    pub interface: String,
    /// So many were moved near its hardware, for this migration or another that is under way.
    pub moved: u64,
    /// The CPUs that take them since, such as `0-15,32-47`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Why others, or all of them, were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// They were to be moved and could not.
    #[serde(default)]
    pub fallback: bool,
}

impl InterruptsView {
    /// Those of all interfaces in one line.
    #[must_use]
    pub fn list(views: &[Self]) -> String {
        let views: Vec<String> = views.iter().map(Self::to_string).collect();
        views.join("; ")
    }
}

impl fmt::Display for InterruptsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.interface)?;
        match (&self.cpus, &self.why_not) {
            (None, None) => f.write_str("all are taken near it"),
            (None, Some(why)) => write!(f, "not moved, because {why}"),
            (Some(cpus), why) => {
                write!(f, "{} moved to CPUs {cpus}", self.moved)?;
                let mut why = why.iter();
                why.try_for_each(|why| write!(f, ", others not, because {why}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_with_where_they_went_or_with_what_is_in_their_way() {
        let (cpus, why) = (Some("4-7"), Some("it is virtual"));
        let view = |cpus: Option<&str>, why: Option<&str>| InterruptsView {
            interface: "eth1".into(),
            moved: 16,
            cpus: cpus.map(str::to_owned),
            why_not: why.map(str::to_owned),
            fallback: false,
        };
        let told = [view(cpus, None), view(cpus, why), view(None, why)];
        assert_eq!(
            InterruptsView::list(&told),
            "eth1: 16 moved to CPUs 4-7; \
             eth1: 16 moved to CPUs 4-7, others not, because it is virtual; \
             eth1: not moved, because it is virtual"
        );
        assert_eq!(view(None, None).to_string(), "eth1: all are taken near it");
    }
}
