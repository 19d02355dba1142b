//! What has changed of paths between two times at which they were asked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::facts::{Answers, Crossing, Path};
use crate::finding::Subject;

/// A round trip has changed if it is twice as long as the other, and so many microseconds longer: so late an agent is woken on a busy host.
const TRIP_MORE: u64 = 200;

/// Loss has changed if there is twice as much, and so many packets of a hundred more: where 5 % are lost, 2 to 8 of a hundred are.
const LOST_MORE: u64 = 4;

/// One thing that was otherwise before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// The path, by the end that asks.
    pub subject: Subject,
    /// What of it.
    pub what: String,
    /// As it was.
    pub before: String,
    /// As it is.
    pub now: String,
}

/// Both hosts, then both interfaces. Addresses may change.
type Ends<'a> = ((&'a str, &'a str), (&'a str, &'a str));

fn by_ends(paths: &[Path]) -> BTreeMap<Ends<'_>, &Path> {
    let mut by_ends = BTreeMap::new();
    for path in paths {
        let (near, far) = (&path.near, &path.far);
        let ends = (
            (near.host.as_str(), far.host.as_str()),
            (near.nic.as_str(), far.nic.as_str()),
        );
        by_ends.insert(ends, path);
    }
    by_ends
}

/// What has changed of the paths between hosts that asked each other both times. What is not known at one of the times has not changed.
#[must_use]
pub fn compare(before: &[Path], now: &[Path]) -> Vec<PathChange> {
    let (before, now) = (by_ends(before), by_ends(now));
    let hosts = |paths: &BTreeMap<Ends<'_>, &Path>, hosts: &(&str, &str)| {
        let mut all = paths.keys();
        all.any(|(these, _)| these == hosts)
    };
    let all: BTreeSet<&Ends<'_>> = before.keys().chain(now.keys()).collect();
    let mut changes = Vec::new();
    for ends in all {
        match (before.get(ends), now.get(ends)) {
            (Some(before), Some(now)) => compare_one(before, now, &mut changes),
            (Some(gone), None) if hosts(&now, &ends.0) => {
                changes.push(change(gone, "path", "asked".into(), "there is none".into()));
            }
            (None, Some(new)) if hosts(&before, &ends.0) => {
                changes.push(change(new, "path", "there was none".into(), "asked".into()));
            }
            _ => {}
        }
    }
    changes
}

fn change(path: &Path, what: &str, before: String, now: String) -> PathChange {
    PathChange {
        subject: Subject {
            other: Some(path.far.host.clone()),
            nic: Some(path.near.nic.clone()),
            ..Subject::host(&path.near.host)
        },
        what: what.to_owned(),
        before,
        now,
    }
}

/// What is told of a path in words, each compared as such; nothing where it is not known.
type Told = fn(&Path) -> Option<String>;

const TOLD: &[(&str, Told)] = &[
    ("addresses", |path| {
        Some(format!("{} to {}", path.near.address, path.far.address))
    }),
    ("answers", |path| {
        let answered = path.answers.known().map(|answers| answers.answered > 0);
        let answered = path.refused.as_ref().map(|_| false).or(answered)?;
        Some(if answered { "some" } else { "none" }.to_owned())
    }),
    ("route", |path| path.route.known().cloned()),
    ("arrivals", |path| {
        let nics = path.arrivals.known().filter(|nics| !nics.is_empty())?;
        let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
        Some(nics.join(" and "))
    }),
    ("largest there", |path| path.there.known().map(size)),
    ("largest back", |path| path.back.known().map(size)),
];

/// What is counted of a path, how much more is a change, and its unit.
type Counted = fn(&Path) -> Option<u64>;

const COUNTED: &[(&str, Counted, u64, &str)] = &[
    ("loss", lost, LOST_MORE, "%"),
    (
        "round trip",
        |path| path.round_trip.known().copied(),
        TRIP_MORE,
        "µs",
    ),
];

fn compare_one(before: &Path, now: &Path, changes: &mut Vec<PathChange>) {
    for (what, told) in TOLD {
        if let (Some(was), Some(is)) = (told(before), told(now))
            && was != is
        {
            changes.push(change(now, what, was, is));
        }
    }
    for (what, counted, more, unit) in COUNTED {
        if let (Some(was), Some(is)) = (counted(before), counted(now))
            && !near(was, is, *more)
        {
            let shown = |count: u64| format!("{count} {unit}");
            changes.push(change(now, what, shown(was), shown(is)));
        }
    }
}

/// Neither is twice the other and so much more.
fn near(one: u64, other: u64, more: u64) -> bool {
    one.max(other) < one.min(other).saturating_mul(2).saturating_add(more)
}

fn size(crossing: &Crossing) -> String {
    let beyond = if crossing.vanish {
        ", larger ones vanish"
    } else {
        ""
    };
    format!("{} bytes{beyond}", crossing.size)
}

/// Of a hundred packets; not where nothing is answered, which is told otherwise.
fn lost(path: &Path) -> Option<u64> {
    let Answers { asked, answered } = *path.answers.known()?;
    if answered == 0 {
        return None;
    }
    let lost = u64::from(asked.saturating_sub(answered));
    Some(lost * 100 / u64::from(asked.max(1)))
}
