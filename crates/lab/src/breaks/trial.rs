//! Each thing that can be wrong, on a lab of its own, and what the doctor says of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::captured::capture;
use super::catalogue::{Break, LOADS, PATHS, catalogue, chosen};
use super::hand::break_hosts;
use super::look::{Look, of_all, of_captured, of_one};
use crate::compare::Say;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::require;
use crate::settings::{AgentSettings, LabName, LabSettings, nic_rates};
use crate::unite::start_united;

/// NICs of the hosts, and their largest packet: those of a lab of which nothing is said.
const RATES: &str = "1gbit,1gbit";
const MTU: u32 = 9000;

/// Hosts of those labs, where nothing that is wrong takes more.
const HOSTS: usize = 2;

/// What to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The lab's name.
    pub name: LabName,
    /// Only these; all when empty.
    pub only: Vec<String>,
    /// How often each.
    pub repeats: usize,
    /// The program that is the doctor.
    pub drover: PathBuf,
}

/// Hosts with nothing wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clean {
    /// What was looked at.
    pub what: String,
    /// The looks.
    pub looks: Vec<Look>,
}

/// What was wrong, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// What was wrong.
    pub what: String,
    /// The rule that is to find it.
    pub rule: String,
    /// What that finding is to be about.
    pub about: String,
    /// It was written into what was captured of a host, and not done to it.
    pub written: bool,
    /// The looks.
    pub looks: Vec<Look>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// The command that made it.
    pub command: String,
    /// When it ended.
    pub at: jiff::Timestamp,
    /// The machine.
    pub machine: Machine,
    /// What was asked for.
    pub settings: Plan,
    /// Hosts with nothing wrong.
    pub clean: Vec<Clean>,
    /// What was wrong, in the order of the table.
    pub breaks: Vec<Found>,
}

impl Clean {
    /// Nothing was found.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.looks.iter().all(|look| look.findings == 0)
    }
}

impl Found {
    /// Its rule was the first to speak, each time, and of what is wrong.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.looks.is_empty() && self.looks.iter().all(|look| self.is_found_by(look))
    }

    pub(super) fn is_found_by(&self, look: &Look) -> bool {
        let first = (look.first.as_deref(), look.subject.as_deref());
        first == (Some(&self.rule), Some(&self.about))
    }
}

impl Trials {
    /// Whether all that was wrong was found, and nothing else.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.clean.iter().all(Clean::holds) && self.breaks.iter().all(Found::holds)
    }
}

/// Tries all of it; the caller removes the lab of that name.
///
/// # Errors
/// A name that is none, a lab that cannot be made, or a doctor that does not look.
pub async fn try_all(plan: &Plan, command: &str, say: Say<'_>) -> Result<Trials> {
    let breaks: Vec<&Break> = match plan.only.is_empty() {
        true => catalogue().collect(),
        false => chosen(&plan.only)?,
    };
    require::check_hosts()?;
    require::check_faults()?;
    let machine = Machine::look(Path::new("")).await;
    let mut clean: Vec<Clean> = Vec::new();
    let mut found: Vec<Found> = breaks.iter().map(|broken| nothing_yet(broken)).collect();
    for repeat in 1..=plan.repeats {
        say(&format!("{repeat} of {}: nothing wrong", plan.repeats));
        add(&mut clean, look_at_clean(plan).await?);
        let loaded = breaks.iter().filter(|broken| broken.needs_loads());
        if let Some(hosts) = loaded.map(|broken| broken.hosts).max() {
            say(&format!(
                "{repeat} of {}: nothing wrong, loaded",
                plan.repeats
            ));
            add(&mut clean, look_at_loaded(plan, hosts).await?);
        }
        for (broken, found) in breaks.iter().zip(&mut found) {
            say(&format!("{repeat} of {}: {}", plan.repeats, broken.name));
            let look = look_at(plan, broken).await;
            found.looks.push(look.with_context(|| broken.name)?);
        }
    }
    Ok(Trials {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        clean,
        breaks: found,
    })
}

fn nothing_yet(broken: &Break) -> Found {
    Found {
        name: broken.name.to_owned(),
        what: broken.what.to_owned(),
        rule: broken.rule.to_owned(),
        about: broken.about.to_owned(),
        written: broken.is_written(),
        looks: Vec::new(),
    }
}

fn add(all: &mut Vec<Clean>, looks: Vec<(&str, Look)>) {
    for (what, look) in looks {
        match all.iter_mut().find(|clean| clean.what == what) {
            Some(clean) => clean.looks.push(look),
            None => all.push(Clean {
                what: what.to_owned(),
                looks: vec![look],
            }),
        }
    }
}

/// A lab as `drover lab up --no-guest` makes it.
async fn fresh(plan: &Plan, hosts: usize) -> Result<Lab> {
    let lab = LabSettings {
        name: plan.name.clone(),
        hosts,
        nics: nic_rates(RATES, None)?,
        addressing: Vec::new(),
        mtu: MTU,
        agents: AgentSettings::default(),
    };
    let guests = Vec::new();
    let lab = Lab::create(State { lab, guests }).await?;
    start_united(&lab).await?;
    Ok(lab)
}

async fn look_at_clean(plan: &Plan) -> Result<Vec<(&'static str, Look)>> {
    let lab = fresh(plan, HOSTS).await?;
    let one = of_one(&plan.drover, &lab).await?;
    let all = of_all(&plan.drover, &lab, &[]).await?;
    let paths = of_all(&plan.drover, &lab, PATHS).await?;
    let captured = capture(&plan.name, &[], &plan.drover).await?;
    let captured = of_captured(&plan.drover, &captured).await?;
    lab.remove().await?;
    Ok(vec![
        ("one host", one),
        ("both hosts", all),
        ("hosts and paths", paths),
        ("both captured", captured),
    ])
}

async fn look_at_loaded(plan: &Plan, hosts: usize) -> Result<Vec<(&'static str, Look)>> {
    let lab = fresh(plan, hosts).await?;
    let loaded = of_all(&plan.drover, &lab, LOADS).await?;
    lab.remove().await?;
    Ok(vec![("hosts that load each other", loaded)])
}

async fn look_at(plan: &Plan, broken: &Break) -> Result<Look> {
    let lab = fresh(plan, broken.hosts).await?;
    let done = break_hosts(lab.settings(), &[broken], &plan.drover).await?;
    let look = match &done.captured {
        Some(captured) => of_captured(&plan.drover, captured).await?,
        None => of_all(&plan.drover, &lab, broken.asks()).await?,
    };
    lab.remove().await?;
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_only_when_its_rule_was_the_first_each_time() {
        let broken = || catalogue().next().unwrap();
        let about = broken().about;
        let look = |first: &str| Look {
            first: Some(first.to_owned()),
            subject: Some(about.to_owned()),
            read: None,
            findings: 1,
            took_ms: 1.0,
        };
        let found = |looks: Vec<Look>| Found {
            looks,
            ..nothing_yet(broken())
        };
        let rule = broken().rule;
        assert!(found(vec![look(rule), look(rule)]).holds());
        assert!(!found(vec![look(rule), look("nic-ring")]).holds());
        assert!(!found(Vec::new()).holds());
        let elsewhere = Look {
            subject: Some("c nic7".to_owned()),
            ..look(rule)
        };
        assert!(!found(vec![elsewhere]).holds());
    }
}
