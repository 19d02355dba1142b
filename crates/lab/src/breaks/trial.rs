//! Each thing that can be wrong, on a lab of its own, and what the doctor says of it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use super::captured::{Captured, capture};
use super::catalogue::{Break, CATALOGUE, chosen};
use super::hand::break_hosts;
use crate::compare::Say;
use crate::lab::{Lab, State};
use crate::limits;
use crate::machine::Machine;
use crate::require;
use crate::settings::{AgentSettings, LabName, LabSettings, nic_rates};
use crate::unite::start_united;

/// NICs of the hosts, and their largest packet: those of a lab of which nothing is said.
const RATES: &str = "1gbit,1gbit";
const MTU: u32 = 9000;

/// What the doctor ends with: nothing was found, or something.
const LOOKED: [i32; 2] = [0, 2];

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

/// One look of the doctor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The rule of its first finding.
    pub first: Option<String>,
    /// What that finding is about.
    pub subject: Option<String>,
    /// What was read.
    pub read: Option<String>,
    /// How many findings there are.
    pub findings: usize,
    /// From the program's start to its end, in milliseconds.
    pub took_ms: f64,
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
    /// Its rule was the first to speak, each time.
    #[must_use]
    pub fn holds(&self) -> bool {
        let first = |look: &Look| look.first.as_deref() == Some(self.rule.as_str());
        !self.looks.is_empty() && self.looks.iter().all(first)
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
        true => CATALOGUE.iter().collect(),
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
async fn fresh(plan: &Plan) -> Result<Lab> {
    let lab = LabSettings {
        name: plan.name.clone(),
        hosts: 2,
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
    let lab = fresh(plan).await?;
    let one = of_one(plan, &lab).await?;
    let all = of_all(plan, &lab).await?;
    let captured = capture(&plan.name, &[], &plan.drover).await?;
    let captured = of_captured(plan, &captured).await?;
    lab.remove().await?;
    Ok(vec![
        ("one host", one),
        ("both hosts", all),
        ("both captured", captured),
    ])
}

async fn look_at(plan: &Plan, broken: &Break) -> Result<Look> {
    let lab = fresh(plan).await?;
    let done = break_hosts(lab.settings(), &[broken], &plan.drover).await?;
    let look = match &done.captured {
        Some(captured) => of_captured(plan, captured).await?,
        None => of_all(plan, &lab).await?,
    };
    lab.remove().await?;
    Ok(look)
}

async fn of_one(plan: &Plan, lab: &Lab) -> Result<Look> {
    let mut doctor = Command::new(crate::command::find("ip").context("there is no ip")?);
    doctor.args(["netns", "exec", lab.host(0).namespace()]);
    doctor.arg(&plan.drover);
    look(doctor, &[]).await
}

async fn of_all(plan: &Plan, lab: &Lab) -> Result<Look> {
    let mut doctor = Command::new(&plan.drover);
    doctor.arg("--socket").arg(lab.host(0).api_socket());
    look(doctor, &["--all"]).await
}

async fn of_captured(plan: &Plan, captured: &Captured) -> Result<Look> {
    let folders = captured.folders.iter();
    let words: Vec<_> = folders
        .flat_map(|folder| ["--captured".into(), folder.to_string_lossy()])
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    look(Command::new(&plan.drover), &words).await
}

async fn look(mut doctor: Command, words: &[&str]) -> Result<Look> {
    doctor.arg("doctor").args(words).arg("--json");
    doctor.kill_on_drop(true);
    let began = Instant::now();
    let output = tokio::time::timeout(limits::DOCTOR, doctor.output()).await;
    let late = || {
        format!(
            "the doctor did not end within {} s",
            limits::DOCTOR.as_secs()
        )
    };
    let output = output
        .with_context(late)?
        .context("cannot run the doctor")?;
    let took_ms = began.elapsed().as_secs_f64() * 1000.0;
    if !output
        .status
        .code()
        .is_some_and(|code| LOOKED.contains(&code))
    {
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        bail!(
            "the doctor could not look ({}): {}",
            output.status,
            words.trim()
        );
    }
    let told: Value = serde_json::from_slice(&output.stdout).context("the doctor's answer")?;
    Ok(read(&told, took_ms))
}

fn read(told: &Value, took_ms: f64) -> Look {
    let findings = told["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let first = findings.first();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let subject = first.map(|first| {
        let parts = ["host", "other", "nic"].map(|part| first["subject"][part].as_str());
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        parts.join(" ")
    });
    Look {
        first: first.and_then(|first| text(&first["rule"])),
        read: first.and_then(|first| text(&first["read"])),
        subject,
        findings: findings.len(),
        took_ms,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_finding_is_read_with_what_it_is_about() {
        let told = json!({ "findings": [
            { "rule": "pair-mtu", "subject": { "host": "a", "other": "b", "nic": "nic1" }, "read": "9000" },
            { "rule": "nic-ring", "subject": { "host": "a", "other": null, "nic": "nic1" }, "read": "64" },
        ]});
        let look = read(&told, 1.5);
        assert_eq!(look.first.as_deref(), Some("pair-mtu"));
        assert_eq!(look.subject.as_deref(), Some("a b nic1"));
        assert_eq!((look.findings, look.took_ms), (2, 1.5));
        assert_eq!(read(&json!({ "findings": [] }), 1.0).first, None);
    }

    #[test]
    fn it_holds_only_when_its_rule_was_the_first_each_time() {
        let look = |first: &str| Look {
            first: Some(first.to_owned()),
            subject: None,
            read: None,
            findings: 1,
            took_ms: 1.0,
        };
        let found = |looks: Vec<Look>| Found {
            looks,
            ..nothing_yet(&CATALOGUE[0])
        };
        let rule = CATALOGUE[0].rule;
        assert!(found(vec![look(rule), look(rule)]).holds());
        assert!(!found(vec![look(rule), look("nic-ring")]).holds());
        assert!(!found(Vec::new()).holds());
    }
}
