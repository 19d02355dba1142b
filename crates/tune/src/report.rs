//! All rules, asked about all hosts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::facts::{Definition, Guest, Host, Path};
use crate::finding::{Answer, Because, Finding, Severity, Subject, Verdict};
use crate::rules::{Asks, Placed, RULES, Rule, each};

/// In place of a host's name, of which none has a space in it.
const ALL_HOSTS: &str = "all hosts";

/// A rule that could not look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Name of the rule.
    pub rule: String,
    /// What it was to look at.
    pub subject: Subject,
    /// Why it could not.
    pub because: String,
}

/// A rule that found all as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Right {
    /// Name of the rule.
    pub rule: String,
    /// What it looked at.
    pub subject: Subject,
}

/// What the rules say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What is not as it should be, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub skipped: Vec<Skipped>,
    /// What is as it should be.
    pub right: Vec<Right>,
}

impl Report {
    /// How many findings there are of each severity, the worst first.
    #[must_use]
    pub fn counts(&self) -> [(Severity, usize); 3] {
        [Severity::Critical, Severity::Warning, Severity::Notice].map(|severity| {
            let of = |finding: &&Finding| finding.found.severity == severity;
            (severity, self.findings.iter().filter(of).count())
        })
    }

    /// Says once that no path between these hosts was asked, so that rules about paths are not right by silence.
    pub fn skip_paths(&mut self, hosts: &[&str]) {
        let subject = match hosts {
            [] => return,
            [one] => Subject::host(one),
            _ => Subject::host(ALL_HOSTS),
        };
        let of_paths = |rule: &&Rule| matches!(rule.asks, Asks::Path(_));
        let first = RULES.iter().find(of_paths);
        let because =
            "paths were not asked (--all --paths); nor do other rules about them say anything";
        self.skipped.extend(first.map(|rule| Skipped {
            rule: rule.name.to_owned(),
            subject,
            because: because.to_owned(),
        }));
    }

    fn take(&mut self, rule: &Rule, subject: Subject, verdict: Verdict) {
        match verdict {
            Ok(Answer::NotAbout) => {}
            Ok(Answer::Right) => self.right.push(Right {
                rule: rule.name.to_owned(),
                subject,
            }),
            Ok(Answer::Found(found)) => self.findings.push(Finding {
                rule: rule.name.to_owned(),
                subject,
                disruption: found.disruption(),
                documentation: rule.documentation(),
                found,
            }),
            Err(Because(because)) => self.skipped.push(Skipped {
                rule: rule.name.to_owned(),
                subject,
                because,
            }),
        }
    }

    /// Asks about the guests of each host, beside the other ones.
    fn of_guests(
        &mut self,
        rule: &Rule,
        hosts: &[Host],
        ask: impl Fn(Placed<'_>) -> Vec<(Option<String>, Verdict)>,
    ) {
        for (at, host) in hosts.iter().enumerate() {
            let others = hosts.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<&Host> = others.map(|(_, other)| other).collect();
            let (guests, unknown) = all_guests(host);
            for why in unknown {
                self.take(rule, about(host), Err(why.into()));
            }
            for guest in guests {
                let others = others.as_slice();
                for (nic, verdict) in ask(Placed {
                    guest,
                    host,
                    others,
                }) {
                    let subject = Subject {
                        nic,
                        ..about_guest(host, guest)
                    };
                    self.take(rule, subject, verdict);
                }
            }
        }
    }
}

/// Drover's and libvirt's, and why some are not known, which is said once.
fn all_guests(host: &Host) -> (Vec<&Guest>, BTreeSet<&str>) {
    let (mut guests, mut unknown) = (Vec::new(), BTreeSet::new());
    for told in [&host.guests, &host.domains] {
        match told.get() {
            Ok(told) => guests.extend(told),
            Err(why) => {
                unknown.insert(why);
            }
        }
    }
    (guests, unknown)
}

fn about_guest(host: &Host, guest: &Guest) -> Subject {
    let name = Some(guest.name.clone());
    match guest.definition {
        Definition::Own(_) => Subject {
            guest: name,
            ..about(host)
        },
        Definition::Libvirt(_) => Subject {
            domain: name,
            ..about(host)
        },
    }
}

/// Asks all rules about these hosts: each alone, each of its interfaces and guests, and every two together, and each path that was asked
/// and all of these.
#[must_use]
pub fn examine(hosts: &[Host], paths: &[Path]) -> Report {
    let mut report = Report::default();
    for rule in RULES {
        match rule.asks {
            Asks::Host(ask) => {
                for host in hosts {
                    report.take(rule, about(host), ask(host));
                }
            }
            Asks::Nic(ask) => {
                for host in hosts {
                    for nic in &host.nics {
                        let subject = Subject {
                            nic: Some(nic.name.clone()),
                            ..about(host)
                        };
                        report.take(rule, subject, ask(host, nic));
                    }
                }
            }
            Asks::Pair(ask) => {
                for (at, host) in hosts.iter().enumerate() {
                    for other in &hosts[at + 1..] {
                        for (ends, verdict) in ask(host, other) {
                            let subject = Subject {
                                other: Some(other.name.clone()),
                                nic: ends.near,
                                far: ends.far,
                                ..about(host)
                            };
                            report.take(rule, subject, verdict);
                        }
                    }
                }
            }
            Asks::Path(ask) => {
                for path in paths {
                    report.take(rule, Subject::path(path), ask(path));
                }
            }
            Asks::Paths(ask) => {
                for (subject, verdict) in ask(paths) {
                    report.take(rule, subject, verdict);
                }
            }
            Asks::Guest(ask) => report.of_guests(rule, hosts, |placed| vec![(None, ask(placed))]),
            Asks::Card(ask) => report.of_guests(rule, hosts, |placed| each(placed, ask)),
        }
    }
    // The worst first, and of each severity in the order of the table.
    report
        .findings
        .sort_by_key(|finding| finding.found.severity);
    report
}

fn about(host: &Host) -> Subject {
    Subject::host(&host.name)
}
