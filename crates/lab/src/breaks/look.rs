//! One look of the doctor, as an operator has it look.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use super::captured::Captured;
use crate::lab::Lab;
use crate::limits;

/// What the doctor ends with: nothing was found, or something.
const LOOKED: [i32; 2] = [0, 2];

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

/// At one host, there.
pub(super) async fn of_one(drover: &Path, lab: &Lab) -> Result<Look> {
    let mut doctor = Command::new(crate::command::find("ip").context("there is no ip")?);
    doctor.args(["netns", "exec", lab.host(0).namespace()]);
    doctor.arg(drover);
    look(doctor, &[]).await
}

/// At all, by their agents, and at what is asked for beside that.
pub(super) async fn of_all(drover: &Path, lab: &Lab, asks: &[&str]) -> Result<Look> {
    let mut doctor = Command::new(drover);
    doctor.arg("--socket").arg(lab.host(0).api_socket());
    look(doctor, &[&["--all"], asks].concat()).await
}

/// At captured hosts.
pub(super) async fn of_captured(drover: &Path, captured: &Captured) -> Result<Look> {
    let folders = captured.folders.iter();
    let words: Vec<_> = folders
        .flat_map(|folder| ["--captured".into(), folder.to_string_lossy()])
        .collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    look(Command::new(drover), &words).await
}

async fn look(mut doctor: Command, words: &[&str]) -> Result<Look> {
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
    Ok(read(&told, took_ms))
}

fn read(told: &Value, took_ms: f64) -> Look {
    let findings = told["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let first = findings.first();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let subject = first.and_then(|first| subject(&first["subject"]));
    Look {
        first: first.and_then(|first| text(&first["rule"])),
        read: first.and_then(|first| text(&first["read"])),
        subject,
        findings: findings.len(),
        took_ms,
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
        let look = read(&told, 1.5);
        assert_eq!(look.first.as_deref(), Some("pair-mtu"));
        assert_eq!(look.subject.as_deref(), Some("a and b nic1"));
        assert_eq!((look.findings, look.took_ms), (2, 1.5));
        assert_eq!(read(&json!({ "findings": [] }), 1.0).first, None);
    }
}
