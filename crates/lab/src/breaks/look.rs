//! One look of the doctor, as an operator has it look.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use super::captured::Captured;
use super::machine::OfMachine;
use crate::lab::Lab;
use crate::limits;

/// What the doctor ends with: nothing was found, or something.
const LOOKED: [i32; 2] = [0, 2];

/// One look of the doctor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// The rule of its first finding that is not the machine's.
    pub first: Option<String>,
    /// What that finding is about.
    pub subject: Option<String>,
    /// What was read.
    pub read: Option<String>,
    /// How many findings there are, those that are the machine's left out.
    pub findings: usize,
    /// From the program's start to its end, in milliseconds.
    pub took_ms: f64,
}

/// The program that looks, and what it finds of the machine whatever hosts are like.
#[derive(Debug)]
pub(super) struct Doctor<'a> {
    program: &'a Path,
    machine: OfMachine,
}

impl<'a> Doctor<'a> {
    /// One that knows what it finds of the machine, by a look at a lab with nothing wrong.
    pub(super) async fn new(program: &'a Path, clean: &Lab) -> Result<Self> {
        let all = of_all(program, clean, &[]).await?;
        let machine = OfMachine::of(&all.told);
        Ok(Self { program, machine })
    }

    pub(super) fn machine(&self) -> &OfMachine {
        &self.machine
    }

    /// At one host, there.
    pub(super) async fn of_one(&self, lab: &Lab) -> Result<Look> {
        let mut doctor = Command::new(crate::command::find("ip").context("there is no ip")?);
        doctor.args(["netns", "exec", lab.host(0).namespace()]);
        doctor.arg(self.program);
        Ok(look(doctor, &[]).await?.read(&self.machine))
    }

    /// At all, by their agents, and at what is asked for beside that.
    pub(super) async fn of_all(&self, lab: &Lab, asks: &[&str]) -> Result<Look> {
        let all = of_all(self.program, lab, asks).await?;
        Ok(all.read(&self.machine))
    }

    /// At captured hosts, which have nothing of the machine that is found.
    pub(super) async fn of_captured(&self, captured: &Captured) -> Result<Look> {
        let folders = captured.folders.iter();
        let words: Vec<_> = folders
            .flat_map(|folder| ["--captured".into(), folder.to_string_lossy()])
            .collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let looked = look(Command::new(self.program), &words).await?;
        Ok(looked.read(&OfMachine::default()))
    }
}

/// What the doctor told, and how long that took.
struct Looked {
    told: Value,
    took_ms: f64,
}

async fn of_all(program: &Path, lab: &Lab, asks: &[&str]) -> Result<Looked> {
    let mut doctor = Command::new(program);
    doctor.arg("--socket").arg(lab.host(0).api_socket());
    look(doctor, &[&["--all"], asks].concat()).await
}

async fn look(mut doctor: Command, words: &[&str]) -> Result<Looked> {
    doctor.arg("doctor").args(words).arg("--json");
    // Another agent that was meant for all commands is not meant here.
    for other in ["DROVER_AGENT", "DROVER_CLUSTER", "DROVER_IDENTITY"] {
        doctor.env_remove(other);
    }
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
    let looked = output.status.code().filter(|code| LOOKED.contains(code));
    let told = serde_json::from_slice(&output.stdout);
    // Wrong usage has the same exit code as a finding.
    let (Some(_), Ok(told)) = (looked, told) else {
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8_lossy(&words);
        bail!(
            "the doctor could not look ({}): {}",
            output.status,
            words.trim()
        );
    };
    Ok(Looked { told, took_ms })
}

impl Looked {
    /// Without what is the machine's.
    fn read(&self, machine: &OfMachine) -> Look {
        let all = self.told["findings"].as_array();
        let all = all.map_or(&[][..], Vec::as_slice).iter();
        let findings: Vec<&Value> = all.filter(|finding| !machine.has(finding)).collect();
        let first = findings.first();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Look {
            first: first.and_then(|first| text(&first["rule"])),
            read: first.and_then(|first| text(&first["read"])),
            subject: first.and_then(|first| subject(&first["subject"])),
            findings: findings.len(),
            took_ms: self.took_ms,
        }
    }
}

/// In the words that the doctor has for a person.
fn subject(told: &Value) -> Option<String> {
    let mut words = told["host"].as_str()?.to_owned();
    let (near, far) = (told["nic"].as_str(), told["far"].as_str());
    let differ = far.filter(|far| near.is_some_and(|near| near != *far));
    if let Some(near) = near.filter(|_| differ.is_some()) {
        words = format!("{words} {near}");
    }
    if let Some(other) = told["other"].as_str() {
        words = format!("{words} and {other}");
    }
    if let Some(guest) = told["guest"].as_str() {
        words = format!("{words} guest {guest}");
    }
    if let Some(last) = differ.or(near) {
        words = format!("{words} {last}");
    }
    Some(words)
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
        let read = |told: &Value, machine: &OfMachine| {
            let told = told.clone();
            Looked { told, took_ms: 1.5 }.read(machine)
        };
        let nothing = OfMachine::default();
        let look = read(&told, &nothing);
        assert_eq!(look.first.as_deref(), Some("pair-mtu"));
        assert_eq!(look.subject.as_deref(), Some("a and b nic1"));
        assert_eq!((look.findings, look.took_ms), (2, 1.5));
        assert_eq!(read(&json!({ "findings": [] }), &nothing).first, None);
        let slow =
            json!({ "rule": "cpu-governor", "subject": { "host": "a" }, "read": "ondemand" });
        let machine = OfMachine::of(&json!({ "findings": [slow] }));
        let told = json!({ "findings": [slow, told["findings"][0]] });
        let look = read(&told, &machine);
        assert_eq!(
            (look.first.as_deref(), look.findings),
            (Some("pair-mtu"), 1)
        );
        let of_card = json!({ "host": "b", "other": null, "guest": "web1", "nic": "net0" });
        assert_eq!(subject(&of_card).as_deref(), Some("b guest web1 net0"));
    }
}
