//! What would be changed on a host.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_tune::{Disruption, Finding, NicSetting, Report, Step, disruption};
use drover_types::HostName;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits::{APPLY, APPLY_BOUNCED, APPLY_EACH, APPLY_MOST};
use crate::sizes::Mtu;
use crate::step::{self, ends, named, same_setting};
use crate::value::by_hand;

/// Changes of one host, as it was when the plan was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The host.
    pub host: HostName,
    /// Its boot id. A plan is of no use after a restart.
    pub boot: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// The version of Drover that made it.
    pub version: String,
    /// What is done, in this order.
    pub changes: Vec<Planned>,
    /// What is written that it lasts beyond a restart, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Vec<LastingFile>>,
}

/// A file by which settings last, by the lines that become others: the rest of it is nobody's to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastingFile {
    /// Who reads it when the host comes up.
    pub by: String,
    /// Its path, from the root.
    pub file: String,
    /// What it is until then: the SHA-256 of its bytes, or `none`.
    pub was: String,
    /// Lines that go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goes: Vec<String>,
    /// Lines that come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comes: Vec<String>,
}

/// One change, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// The rule that wants it.
    pub rule: String,
    /// The interface that the finding is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// What it does to others.
    pub disruption: Disruption,
    /// Why it matters to a migration.
    pub why: String,
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// A change that was found, and is not in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The rule that wants it.
    pub rule: String,
    /// The interface that the finding is about.
    pub nic: Option<String>,
    /// Why it is not.
    pub why: String,
}

impl LastingFile {
    /// What one is that is not there.
    pub const NONE: &str = "none";
}

impl Plan {
    /// What a report's findings about one host ask for; and what they ask for that is not in it. Changes that bounce a link only
    /// with `bounce`. The same twice is done once, and of two that want different things the first one is taken. Files of an
    /// interface whose queues become others are left out.
    #[must_use]
    pub fn of(
        report: &Report,
        (host, boot): (&HostName, &str),
        made_at: Timestamp,
        bounce: bool,
    ) -> (Self, Vec<LeftOut>) {
        let mut plan = Self {
            host: host.clone(),
            boot: boot.to_owned(),
            made_at,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            changes: Vec::new(),
            lasting: None,
        };
        let mut left_out = Vec::new();
        let here = |finding: &&Finding| {
            finding.subject.host == host.as_str() && finding.subject.other.is_none()
        };
        for finding in report.findings.iter().filter(here) {
            if let Err(why) = plan.add(finding, bounce) {
                left_out.push(LeftOut {
                    rule: finding.rule.clone(),
                    nic: finding.subject.nic.clone(),
                    why,
                });
            }
        }
        left_out.extend(plan.drop_stale());
        (plan, left_out)
    }

    /// With the number of an adapter's queues its interrupts and their files become others: what is wrong with these is seen then.
    fn drop_stale(&mut self) -> Vec<LeftOut> {
        let requeued = self.steps().filter_map(|step| match step {
            Step::Nic { nic, what, .. } if *what == NicSetting::CombinedChannels => Some(nic),
            _ => None,
        });
        let requeued: BTreeSet<String> = requeued.cloned().collect();
        let is_its_file =
            |step: &Step| matches!(step, Step::File { path, .. } if !path.starts_with("proc/sys/"));
        let stale = self.changes.extract_if(.., |change| {
            let of_it = change
                .nic
                .as_ref()
                .is_some_and(|nic| requeued.contains(nic));
            of_it && change.steps.iter().any(is_its_file)
        });
        let stale = stale.map(|change| LeftOut {
            rule: change.rule,
            nic: change.nic,
            why: "its queues become others: run the doctor again after that".to_owned(),
        });
        stale.collect()
    }

    fn add(&mut self, finding: &Finding, bounce: bool) -> Result<(), String> {
        let Some(change) = &finding.found.change else {
            return Err("it is for people to do".to_owned());
        };
        // Whoever found it may take it for less than it is.
        let least = change.steps.iter().map(disruption).max();
        let disruption = least.map_or(change.disruption, |least| least.max(change.disruption));
        match disruption {
            Disruption::Safe => {}
            Disruption::BouncesLink if bounce => {}
            Disruption::BouncesLink => return Err("it may bounce the link".to_owned()),
            other => return Err(format!("it is {other}")),
        }
        let mut steps = Vec::new();
        for step in &change.steps {
            let mut others = self.steps().chain(&steps);
            let other = others.find(|other| same_setting(step, other)).cloned();
            drop(others);
            match other {
                None => steps.push(step.clone()),
                Some(other) if ends(&other).1 == ends(step).1 => {}
                Some(other) => {
                    let (setting, to) = (named(step), ends(&other).1);
                    return Err(format!(
                        "{setting} becomes {to:?} already, by another change"
                    ));
                }
            }
        }
        if steps.is_empty() {
            return Err("another change does the same".to_owned());
        }
        self.changes.push(Planned {
            rule: finding.rule.clone(),
            nic: finding.subject.nic.clone(),
            disruption,
            why: finding.found.why.clone(),
            steps,
        });
        Ok(())
    }

    /// All steps, in their order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.changes.iter().flat_map(|change| &change.steps)
    }

    /// What it makes of interfaces' largest packets.
    pub(crate) fn mtus(&self) -> impl Iterator<Item = Mtu<'_>> {
        self.steps().filter_map(step::mtu)
    }

    /// Interfaces whose rate or correction it sets by hand: a link that has none now is to have one by that.
    #[must_use]
    pub fn links_by_hand(&self) -> BTreeSet<String> {
        self.steps()
            .filter_map(by_hand)
            .map(str::to_owned)
            .collect()
    }

    /// Whether a link may go for some seconds.
    #[must_use]
    pub fn bounces(&self) -> bool {
        let bounces = |change: &Planned| change.disruption == Disruption::BouncesLink;
        self.changes.iter().any(bounces)
    }

    /// How long its settings may take together, in whole seconds: after that none is begun, and all is taken back. The files by which it
    /// lasts may take as long again.
    #[must_use]
    pub fn within(&self) -> Duration {
        let each = |step: &Step| match step::bounces(step) {
            true => APPLY_EACH + APPLY_BOUNCED,
            false => APPLY_EACH,
        };
        let all = self.steps().map(each).fold(APPLY, Duration::saturating_add);
        let seconds = all.min(APPLY_MOST).as_millis().div_ceil(1000);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))
    }
}
