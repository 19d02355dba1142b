//! Facts of paths at two times.

use std::collections::{BTreeMap, BTreeSet};

use super::{Difference, Trend};
use crate::facts::{Answers, Crossing, Path};
use crate::finding::Subject;

/// A round trip has changed if it is twice as long as the other, and so many microseconds longer: so late an agent is woken on a busy host.
const TRIP_MORE: u64 = 200;

/// Loss has changed if there is twice as much, and so many packets of a hundred more: where 5 % are lost, 2 to 8 of a hundred are.
const LOST_MORE: u64 = 4;

/// What a path carries has changed if it differs by so many percent of the larger rate.
const CARRIED_MORE: u64 = 20;

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
pub(super) fn compare(before: &[Path], now: &[Path]) -> Vec<Difference> {
    let (before, now) = (by_ends(before), by_ends(now));
    let hosts = |paths: &BTreeMap<Ends<'_>, &Path>, hosts: &(&str, &str)| {
        let mut all = paths.keys();
        all.any(|(these, _)| these == hosts)
    };
    let all: BTreeSet<&Ends<'_>> = before.keys().chain(now.keys()).collect();
    let mut differences = Vec::new();
    for ends in all {
        match (before.get(ends), now.get(ends)) {
            (Some(before), Some(now)) => compare_one(before, now, &mut differences),
            (Some(gone), None) if hosts(&now, &ends.0) => {
                differences.push(difference(gone, Trend::Other, "path", ASKED, NONE));
            }
            (None, Some(new)) if hosts(&before, &ends.0) => {
                differences.push(difference(new, Trend::Other, "path", NONE, ASKED));
            }
            _ => {}
        }
    }
    differences.sort_by_key(|difference| difference.trend);
    differences
}

const ASKED: &str = "asked";
const NONE: &str = "there is none";

fn difference(path: &Path, trend: Trend, what: &str, before: &str, now: &str) -> Difference {
    Difference {
        trend,
        subject: Subject::path(path),
        what: what.to_owned(),
        before: before.to_owned(),
        now: now.to_owned(),
    }
}

/// What is told of a path in words, each compared as such, and a rank that is the higher the better; nothing where it is not known.
struct Told {
    what: &'static str,
    words: fn(&Path) -> Option<String>,
    rank: fn(&Path) -> u64,
}

const TOLD: &[Told] = &[
    Told {
        what: "addresses",
        words: |path| Some(format!("{} to {}", path.near.address, path.far.address)),
        rank: |_| 0,
    },
    Told {
        what: "answers",
        words: |path| Some(if answers(path)? { "some" } else { "none" }.to_owned()),
        rank: |path| u64::from(answers(path) == Some(true)),
    },
    Told {
        what: "route",
        words: |path| path.route.known().cloned(),
        rank: |path| u64::from(path.route.known() == Some(&path.near.nic)),
    },
    Told {
        what: "arrivals",
        words: |path| {
            let nics = path.arrivals.known().filter(|nics| !nics.is_empty())?;
            let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
            Some(nics.join(" and "))
        },
        rank: |path| {
            let nics = path.arrivals.known();
            u64::from(nics.is_some_and(|nics| nics.iter().all(|nic| *nic == path.near.nic)))
        },
    },
    Told {
        what: "largest there",
        words: |path| path.there.known().map(size),
        rank: |path| path.there.known().map_or(0, rank),
    },
    Told {
        what: "largest back",
        words: |path| path.back.known().map(size),
        rank: |path| path.back.known().map_or(0, rank),
    },
];

/// What is counted of a path, the less the better, how much more is a change, and its unit.
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

fn compare_one(before: &Path, now: &Path, differences: &mut Vec<Difference>) {
    for Told { what, words, rank } in TOLD {
        if let (Some(was), Some(is)) = (words(before), words(now))
            && was != is
        {
            let trend = Trend::of(rank(before), rank(now));
            differences.push(difference(now, trend, what, &was, &is));
        }
    }
    for (what, counted, more, unit) in COUNTED {
        if let (Some(was), Some(is)) = (counted(before), counted(now))
            && !near(was, is, *more)
        {
            let shown = |count: u64| format!("{count} {unit}");
            let trend = Trend::of(is, was);
            differences.push(difference(now, trend, what, &shown(was), &shown(is)));
        }
    }
    compare_carried(before, now, differences);
}

/// In Mbit/s; where one was held to another limit than the other they say nothing of each other.
fn compare_carried(before: &Path, now: &Path, differences: &mut Vec<Difference>) {
    let known = |path: &Path| {
        path.carried
            .as_ref()
            .and_then(|carried| carried.known().copied())
    };
    let (Some(was), Some(is)) = (known(before), known(now)) else {
        return;
    };
    let more = was.rate.abs_diff(is.rate);
    if was.allowed != is.allowed || more <= was.rate.max(is.rate) / 100 * CARRIED_MORE {
        return;
    }
    let shown = |rate: u64| format!("{} Mbit/s", rate / 1_000_000);
    let trend = Trend::of(was.rate, is.rate);
    differences.push(difference(
        now,
        trend,
        "carries",
        &shown(was.rate),
        &shown(is.rate),
    ));
}

/// Neither is twice the other and so much more.
fn near(one: u64, other: u64, more: u64) -> bool {
    one.max(other) < one.min(other).saturating_mul(2).saturating_add(more)
}

/// Whether any question was answered.
fn answers(path: &Path) -> Option<bool> {
    let answered = path.answers.known().map(|answers| answers.answered > 0);
    path.refused.as_ref().map(|_| false).or(answered)
}

fn size(crossing: &Crossing) -> String {
    let beyond = if crossing.vanish {
        ", larger ones vanish"
    } else {
        ""
    };
    format!("{} bytes{beyond}", crossing.size)
}

/// The larger the better; of one size it is better that nothing vanishes.
fn rank(crossing: &Crossing) -> u64 {
    u64::from(crossing.size) * 2 + u64::from(!crossing.vanish)
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
