//! Findings of two times.

use std::collections::{BTreeMap, BTreeSet};

use super::{Difference, Known, Trend};
use crate::facts::Path;
use crate::finding::{Found, Severity, Subject};
use crate::report::{Report, examine};
use crate::rules::{Asks, RULES};

/// A rule and what it was asked about.
type Key = (String, Subject);

/// What the rules said at one time.
struct Judged<'a> {
    known: Known<'a>,
    found: BTreeMap<Key, Found>,
    skipped: BTreeSet<Key>,
    right: BTreeSet<Key>,
}

/// What one of them said of one subject.
enum Said<'a> {
    Found(&'a Found),
    Right,
    /// It had nothing to say of it, or that was not there.
    Nothing,
    /// It was not looked at, or could not be.
    Unknown,
}

/// What came, went, or changed its weight; and how many were not looked at one of the times.
pub(super) fn compare(before: Known<'_>, now: Known<'_>) -> (Vec<Difference>, usize) {
    let (before, now) = (Judged::of(before), Judged::of(now));
    let mut differences: Vec<(Severity, Difference)> = Vec::new();
    let mut not_compared = 0;
    let keys: BTreeSet<&Key> = before.found.keys().chain(now.found.keys()).collect();
    for key in keys {
        let (was, is) = (before.said(key), now.said(key));
        let (trend, weight) = match (&was, &is) {
            (Said::Unknown, _) | (_, Said::Unknown) => {
                not_compared += 1;
                continue;
            }
            // The worst is the least.
            (Said::Found(was), Said::Found(is)) if was.severity != is.severity => (
                Trend::of(was.severity, is.severity),
                was.severity.min(is.severity),
            ),
            (Said::Found(_), Said::Found(_)) => continue,
            (Said::Found(was), _) => (Trend::Gone, was.severity),
            (_, Said::Found(is)) => (Trend::New, is.severity),
            _ => continue,
        };
        let difference = Difference {
            trend,
            subject: key.1.clone(),
            what: key.0.clone(),
            before: told(&was),
            now: told(&is),
        };
        differences.push((weight, difference));
    }
    differences.sort_by_key(|(weight, difference)| (difference.trend, *weight));
    let differences = differences.into_iter().map(|(_, difference)| difference);
    (differences.collect(), not_compared)
}

fn told(said: &Said<'_>) -> String {
    match said {
        Said::Found(found) => format!("{}: {}", found.severity, found.read),
        Said::Right => "as it should be".to_owned(),
        Said::Nothing | Said::Unknown => "nothing to say of it".to_owned(),
    }
}

impl<'a> Judged<'a> {
    fn of(known: Known<'a>) -> Self {
        let Report {
            findings,
            skipped,
            right,
        } = examine(known.hosts, known.paths);
        let mut found: BTreeMap<Key, Found> = BTreeMap::new();
        // The worst come first: of several about one subject that one counts.
        for finding in findings {
            let key = (finding.rule, finding.subject);
            found.entry(key).or_insert(finding.found);
        }
        let skipped = skipped.into_iter().map(|it| (it.rule, it.subject));
        let right = right.into_iter().map(|it| (it.rule, it.subject));
        Self {
            known,
            found,
            skipped: skipped.collect(),
            right: right.collect(),
        }
    }

    fn said(&self, key: &Key) -> Said<'_> {
        if let Some(found) = self.found.get(key) {
            return Said::Found(found);
        }
        if self.is_skipped(key) || !self.looked_at(key) {
            return Said::Unknown;
        }
        if self.right.contains(key) {
            Said::Right
        } else {
            Said::Nothing
        }
    }

    /// Whether the rule was skipped of it, or of all that it is a part of, such as its host, whose guests nobody told of.
    fn is_skipped(&self, (rule, subject): &Key) -> bool {
        let of_it = |one: &Option<String>, whole: &Option<String>| whole.is_none() || one == whole;
        let mut skipped = self.skipped.iter();
        skipped.any(|(of, whole)| {
            of == rule
                && whole.host == subject.host
                && of_it(&subject.other, &whole.other)
                && of_it(&subject.guest, &whole.guest)
                && of_it(&subject.domain, &whole.domain)
                && of_it(&subject.nic, &whole.nic)
                && of_it(&subject.far, &whole.far)
        })
    }

    /// Whether what the rule asks about was there to be asked about.
    fn looked_at(&self, (rule, subject): &Key) -> bool {
        let rule = RULES.iter().find(|known| known.name == rule);
        if rule.is_some_and(|rule| matches!(rule.asks, Asks::Path(_))) {
            let loaded = rule.is_some_and(|rule| rule.name == RATE);
            let mut paths = self.known.paths.iter();
            return paths
                .any(|path| is_about(subject, path) && (!loaded || path.carried.is_some()));
        }
        if rule.is_some_and(|rule| matches!(rule.asks, Asks::Paths(_))) {
            let mut paths = self.known.paths.iter();
            return paths.any(|path| path.together.is_some() && is_an_end(subject, path));
        }
        let read = |host: &String| self.known.hosts.iter().any(|read| read.name == *host);
        read(&subject.host) && subject.other.as_ref().is_none_or(read)
    }
}

/// The rule about what a path carries, which is measured only where that is wanted.
const RATE: &str = "path-rate";

/// Of paths that were loaded together, whether the subject is one of its ends, or the whole host there.
fn is_an_end(subject: &Subject, path: &Path) -> bool {
    [&path.near, &path.far].into_iter().any(|end| {
        end.host == subject.host && subject.nic.as_ref().is_none_or(|nic| *nic == end.nic)
    })
}

fn is_about(subject: &Subject, path: &Path) -> bool {
    *subject == Subject::path(path)
}
