//! Findings about pairs of which one end is to blame, as one: for people, who would read it of each other host again.
//!
//! Takes no finding away: [`Report::findings`] has all of them, for machines.
//!
//! ```text
//! h01 and h07 nic1 ┐
//! h02 and h07 nic1 ├─▶ h07 nic1 and 15 others
//! h07 and h08 nic1 ┘
//! ```
//!
//! # Invariant
//! An end is blamed only where what it was compared with was compared without it, too, and found right.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::finding::{Finding, Severity, Subject};
use crate::report::Report;

/// Findings that one end has to share. With fewer, each may be read by itself.
const LEAST: usize = 3;

/// Hosts with which it has to share them: of two alone either may be wrong, by however many interfaces.
const HOSTS: usize = 2;

/// A host, and the interface of it that is compared; none of what is about a host as a whole.
type End<'r> = (&'r str, Option<&'r str>);

/// What one end is to blame for: a rule's findings of one severity.
type Kind<'r> = (&'r str, Severity, End<'r>);

/// A finding as people are told it: alone, or for all of its kind that one end is to blame for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded<'r> {
    /// It, or one of them: told from the end that is to blame, if one is.
    pub finding: &'r Finding,
    /// The other hosts of all of them, by name; none of one that stands for itself.
    pub others: BTreeSet<&'r str>,
    end: Option<End<'r>>,
}

impl<'r> Folded<'r> {
    fn alone(finding: &'r Finding) -> Self {
        Self {
            finding,
            others: BTreeSet::new(),
            end: None,
        }
    }

    /// None of no findings.
    fn all(end: End<'r>, findings: &[&'r Finding]) -> Option<Self> {
        let is_near = |finding: &&&Finding| ends(&finding.subject).is_some_and(|it| it[0] == end);
        let told = findings.iter().find(is_near).or(findings.first())?;
        Some(Self {
            finding: told,
            others: others(end, findings),
            end: Some(end),
        })
    }

    /// What it is about: of several `h07 nic1 and 15 others`.
    #[must_use]
    pub fn subject(&self) -> String {
        match self.end {
            None => self.finding.subject.to_string(),
            Some((host, nic)) => {
                let nic = nic.map(|nic| format!(" {nic}")).unwrap_or_default();
                format!("{host}{nic} and {} others", self.others.len())
            }
        }
    }

    /// What was read: of several the one's that is told, and by which host that was, where it is none that is blamed and is not said.
    #[must_use]
    pub fn read(&self) -> String {
        let (near, read) = (&self.finding.subject.host, &self.finding.found.read);
        match self.end {
            Some((host, _)) if host != near && !read.starts_with(&format!("{near} ")) => {
                format!("{near}: {read}")
            }
            _ => read.clone(),
        }
    }
}

/// The other hosts of what one end shares.
fn others<'r>(end: End<'r>, findings: &[&'r Finding]) -> BTreeSet<&'r str> {
    let both = findings
        .iter()
        .filter_map(|finding| ends(&finding.subject))
        .flatten();
    both.map(|(host, _)| host)
        .filter(|host| *host != end.0)
        .collect()
}

/// Both ends of what is about two hosts.
fn ends(subject: &Subject) -> Option<[End<'_>; 2]> {
    let other = subject.other.as_deref()?;
    Some([
        (&subject.host, subject.nic.as_deref()),
        (other, subject.far.as_deref()),
    ])
}

/// What one rule says of each two ends that it compared: whether it found something. Either may be the first of them.
#[derive(Default)]
struct Compared<'r>(BTreeMap<End<'r>, BTreeMap<End<'r>, bool>>);

impl<'r> Compared<'r> {
    fn take(&mut self, subject: &'r Subject, is_found: bool) {
        let Some([near, far]) = ends(subject) else {
            return;
        };
        for (one, other) in [(near, far), (far, near)] {
            let found = self.0.entry(one).or_default().entry(other).or_default();
            *found |= is_found;
        }
    }

    /// Ends of which something is found together with those of several hosts, while of these without it all is right.
    fn to_blame(&self) -> BTreeSet<End<'r>> {
        let ends = self.0.iter();
        let ends = ends.filter(|(_, others)| self.is_to_blame(others));
        ends.map(|(end, _)| *end).collect()
    }

    fn is_to_blame(&self, others: &BTreeMap<End<'r>, bool>) -> bool {
        let found = others.iter().filter(|(_, found)| **found);
        let found: Vec<End<'_>> = found.map(|(other, _)| *other).collect();
        let hosts: BTreeSet<&str> = found.iter().map(|(host, _)| *host).collect();
        hosts.len() >= HOSTS
            && found
                .iter()
                .all(|other| self.with(*other, others).next().is_some())
            && !others
                .keys()
                .any(|other| self.with(*other, others).any(|found| found))
    }

    /// Whether something was found of it and each of these that it was compared with.
    fn with(&self, end: End<'r>, with: &BTreeMap<End<'r>, bool>) -> impl Iterator<Item = bool> {
        let all = self.0.get(&end).into_iter().flatten();
        all.filter(|(far, _)| with.contains_key(*far))
            .map(|(_, found)| *found)
    }
}

impl Report {
    /// The findings, in their order, those as one that one end is to blame for: three or more of one rule and severity share it, with two
    /// other hosts or more, and those that it was compared with are right without it.
    #[must_use]
    pub fn folded(&self) -> Vec<Folded<'_>> {
        let blamed = self.blamed();
        let kind = |finding| kind(finding, &blamed);
        let mut shared: BTreeMap<Kind<'_>, Vec<&Finding>> = BTreeMap::new();
        for finding in &self.findings {
            if let Some(kind) = kind(finding) {
                shared.entry(kind).or_default().push(finding);
            }
        }
        shared.retain(|kind, findings| {
            findings.len() >= LEAST && others(kind.2, findings).len() >= HOSTS
        });
        let told = self.findings.iter().filter_map(|finding| {
            let kind = kind(finding).filter(|kind| shared.contains_key(kind));
            match kind {
                None => Some(Folded::alone(finding)),
                // With the first of them all are told.
                Some(kind) => Folded::all(kind.2, &take(shared.get_mut(&kind)?)),
            }
        });
        told.collect()
    }

    /// By rule.
    fn blamed(&self) -> BTreeMap<&str, BTreeSet<End<'_>>> {
        let mut rules: BTreeMap<&str, Compared<'_>> = BTreeMap::new();
        for finding in &self.findings {
            let compared = rules.entry(&finding.rule).or_default();
            compared.take(&finding.subject, true);
        }
        for right in &self.right {
            if let Some(compared) = rules.get_mut(right.rule.as_str()) {
                compared.take(&right.subject, false);
            }
        }
        let rules = rules.into_iter();
        rules.map(|(rule, all)| (rule, all.to_blame())).collect()
    }
}

/// That of a finding of which an end is to blame.
fn kind<'r>(finding: &'r Finding, blamed: &BTreeMap<&str, BTreeSet<End<'_>>>) -> Option<Kind<'r>> {
    let blamed = blamed.get(finding.rule.as_str())?;
    let mut ends = ends(&finding.subject)?.into_iter();
    let end = ends.find(|end| blamed.contains(end))?;
    Some((&finding.rule, finding.found.severity, end))
}
