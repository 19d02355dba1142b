//! What is otherwise than at another time: findings, and facts of paths and hosts.
//!
//! Both times are judged by the rules of now, so that a rule that is new makes nothing new.
//!
//! # Invariant
//! What was not looked at, or is not known, at one of the times has not changed.

mod findings;
mod hosts;
mod paths;

use serde::{Deserialize, Serialize};

use crate::facts::{Host, Path};
use crate::finding::Subject;

/// What was read and asked at one time.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The hosts that were read.
    pub hosts: &'a [Host],
    /// The paths that were asked.
    pub paths: &'a [Path],
}

/// Where something went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trend {
    /// It is found now, and was not before.
    New,
    /// It is worse for migrations than before.
    Worse,
    /// It is otherwise, and that need not matter.
    Other,
    /// It is better for them.
    Better,
    /// It was found before, and is not now.
    Gone,
}

impl Trend {
    /// By a rank that is the higher the better.
    fn of<T: Ord>(before: T, now: T) -> Self {
        match now.cmp(&before) {
            std::cmp::Ordering::Less => Self::Worse,
            std::cmp::Ordering::Equal => Self::Other,
            std::cmp::Ordering::Greater => Self::Better,
        }
    }
}

impl std::fmt::Display for Trend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Worse => "worse",
            Self::Other => "other",
            Self::Better => "better",
            Self::Gone => "gone",
        })
    }
}

/// One thing that was otherwise before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Where it went.
    pub trend: Trend,
    /// What it is about; of a path it is the end that asks.
    pub subject: Subject,
    /// What of that: a rule, or a fact of a path, a host or an interface.
    pub what: String,
    /// As it was.
    pub before: String,
    /// As it is.
    pub now: String,
}

/// All that is otherwise, the worst first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// Findings that came, went, or matter more or less.
    pub findings: Vec<Difference>,
    /// Facts of paths, found or not.
    pub paths: Vec<Difference>,
    /// Facts of hosts and their interfaces, found or not, and what was counted meanwhile.
    pub hosts: Vec<Difference>,
    /// Findings of one time about what was not looked at the other time.
    pub not_compared: usize,
}

/// What is otherwise now.
#[must_use]
pub fn differences(before: Known<'_>, now: Known<'_>) -> Differences {
    let (findings, not_compared) = findings::compare(before, now);
    Differences {
        findings,
        paths: paths::compare(before.paths, now.paths),
        hosts: hosts::compare(before.hosts, now.hosts),
        not_compared,
    }
}
