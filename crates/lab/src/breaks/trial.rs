//! Each thing that can be wrong, and what the doctor says of it: on a lab of its own, or on one for all that leave hosts as they were.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::captured::capture;
use super::catalogue::{Break, LOADS, PATHS, WHOLE_GUEST};
use super::hand::{break_hosts, of_guests, undo};
use super::look::{Doctor, Look};
use super::machine::{OfMachine, obstacle};
use crate::compare::Say;
use crate::lab::{Lab, State};
use crate::machine::Machine;
use crate::settings::{AgentSettings, LabName, LabSettings, nic_rates};
use crate::unite::start_united;

/// NICs of the hosts, and their largest packet: those of a lab of which nothing is said.
const RATES: &str = "1gbit,1gbit";
const MTU: u32 = 9000;

/// Hosts of those labs, where nothing that is wrong takes more.
const HOSTS: usize = 2;

/// A guest with nothing wrong.
const GUEST: &str = "whole";

/// What to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The lab's name.
    pub name: LabName,
    /// Only these were asked for; all when empty.
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
    /// What is found of the machine itself, and left out of every look.
    pub of_machine: OfMachine,
    /// What was wrong, in the order of the table.
    pub breaks: Vec<Found>,
    /// What was not tried.
    pub left_out: Vec<LeftOut>,
}

/// Something that cannot be tried on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why it cannot.
    pub because: String,
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
    /// Whether something was wrong, all of it was found, and nothing else.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.breaks.is_empty()
            && self.clean.iter().all(Clean::holds)
            && self.breaks.iter().all(Found::holds)
    }
}

/// Tries these; the caller has asked for what they [`require`](super::require), and removes the lab of that name.
///
/// # Errors
/// A lab that cannot be made, or a doctor that does not look.
pub async fn try_all(
    plan: &Plan,
    breaks: &[&Break],
    command: &str,
    say: Say<'_>,
) -> Result<Trials> {
    let machine = Machine::look(Path::new("")).await;
    say("what is found of this machine itself");
    let lab = fresh(plan, HOSTS).await?;
    let doctor = Doctor::new(&plan.drover, &lab).await?;
    lab.remove().await?;
    let (breaks, left_out) = possible(breaks, doctor.machine());
    let mut clean: Vec<Clean> = Vec::new();
    let mut found: Vec<Found> = breaks.iter().map(|broken| nothing_yet(broken)).collect();
    let trial = Trial { plan, doctor };
    for repeat in 1..=plan.repeats {
        let round = format!("{repeat} of {}", plan.repeats);
        say(&format!("{round}: nothing wrong"));
        add(&mut clean, trial.look_at_clean().await?);
        let loaded = breaks.iter().filter(|broken| broken.needs_loads());
        if let Some(hosts) = loaded.map(|broken| broken.hosts).max() {
            say(&format!("{round}: nothing wrong, loaded"));
            add(&mut clean, trial.look_at_loaded(hosts).await?);
        }
        let tries = breaks.iter().copied().zip(&mut found);
        trial.try_each(&round, tries.collect(), say).await?;
    }
    Ok(Trials {
        command: command.to_owned(),
        at: jiff::Timestamp::now(),
        machine,
        settings: plan.clone(),
        clean,
        of_machine: trial.doctor.machine().clone(),
        breaks: found,
        left_out,
    })
}

/// Those that can be told apart from what this machine is, and why the others cannot.
fn possible<'b>(all: &[&'b Break], machine: &OfMachine) -> (Vec<&'b Break>, Vec<LeftOut>) {
    let (mut breaks, mut left_out) = (Vec::new(), Vec::new());
    for broken in all {
        match obstacle(broken).or_else(|| machine.hides(broken)) {
            None => breaks.push(*broken),
            Some(because) => left_out.push(LeftOut {
                name: broken.name.to_owned(),
                because,
            }),
        }
    }
    (breaks, left_out)
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

struct Trial<'a> {
    plan: &'a Plan,
    doctor: Doctor<'a>,
}

impl Trial<'_> {
    /// Each once: first those that take a lab of their own, since only one lab has the name.
    async fn try_each(
        &self,
        round: &str,
        tries: Vec<(&Break, &mut Found)>,
        say: Say<'_>,
    ) -> Result<()> {
        let all = tries.into_iter();
        let (shared, alone): (Vec<_>, Vec<_>) = all.partition(|(broken, _)| broken.leaves_hosts());
        for (broken, found) in alone {
            say(&format!("{round}: {}", broken.name));
            let look = self.look_alone(broken).await;
            found.looks.push(look.with_context(|| broken.name)?);
        }
        if shared.is_empty() {
            return Ok(());
        }
        let lab = fresh(self.plan, HOSTS).await?;
        for (broken, found) in shared {
            say(&format!("{round}: {}", broken.name));
            let look = self.look_and_undo(&lab, broken).await;
            found.looks.push(look.with_context(|| broken.name)?);
        }
        lab.remove().await
    }

    async fn look_at_clean(&self) -> Result<Vec<(&'static str, Look)>> {
        let doctor = &self.doctor;
        let lab = fresh(self.plan, HOSTS).await?;
        let one = doctor.of_one(&lab).await?;
        let all = doctor.of_all(&lab, &[]).await?;
        let paths = doctor.of_all(&lab, PATHS).await?;
        WHOLE_GUEST
            .define(&of_guests(lab.settings()), GUEST)
            .await?;
        let guest = doctor.of_all(&lab, &[]).await?;
        let captured = capture(&self.plan.name, &[], &self.plan.drover).await?;
        let captured = doctor.of_captured(&captured).await?;
        lab.remove().await?;
        Ok(vec![
            ("one host", one),
            ("both hosts", all),
            ("hosts and paths", paths),
            ("hosts with a guest that is defined", guest),
            ("both captured", captured),
        ])
    }

    async fn look_at_loaded(&self, hosts: usize) -> Result<Vec<(&'static str, Look)>> {
        let lab = fresh(self.plan, hosts).await?;
        let loaded = self.doctor.of_all(&lab, LOADS).await?;
        lab.remove().await?;
        Ok(vec![("hosts that load each other", loaded)])
    }

    async fn look_alone(&self, broken: &Break) -> Result<Look> {
        let lab = fresh(self.plan, broken.hosts).await?;
        let look = self.look_at(&lab, broken).await?;
        lab.remove().await?;
        Ok(look)
    }

    /// In a lab that others are tried in as well.
    async fn look_and_undo(&self, lab: &Lab, broken: &Break) -> Result<Look> {
        let look = self.look_at(lab, broken).await?;
        undo(lab.settings(), broken).await?;
        Ok(look)
    }

    async fn look_at(&self, lab: &Lab, broken: &Break) -> Result<Look> {
        let done = break_hosts(lab.settings(), &[broken], &self.plan.drover).await?;
        match &done.captured {
            Some(captured) => self.doctor.of_captured(captured).await,
            None => self.doctor.of_all(lab, broken.asks()).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::catalogue::{catalogue, named};
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
    #[test]
    fn what_a_machine_has_itself_is_not_tried_and_it_is_said_why() {
        let buffers = json!({ "rule": "tcp-buffers", "subject": { "host": "a" }, "read": "small" });
        let machine = OfMachine::of(&json!({ "findings": [buffers] }));
        let both = ["send-buffer", "window"].map(|name| named(name).unwrap());
        let (tried, left_out) = possible(&both, &machine);
        let tried: Vec<_> = tried.iter().map(|broken| broken.name).collect();
        assert_eq!(tried, ["window"]);
        assert_eq!(left_out[0].name, "send-buffer");
        assert_eq!(left_out[0].because, "this machine itself has tcp-buffers");
    }
}
