//! cargo-nextest: a process for each test, time limits, groups (`.config/nextest.toml`).

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Stdio};

use anyhow::{Context, Result};

use super::{Outcome, SKIPPED, cargo, contain};
use crate::tree;

/// Where `.config/nextest.toml` has the output of every test written, in the target folder.
const JUNIT: &str = "nextest/default/junit.xml";

/// Whether it is installed.
pub fn is_there() -> bool {
    let mut question = cargo();
    question
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    question.status().is_ok_and(|status| status.success())
}

/// Every test of the workspace. The summary is held back, to be printed last.
pub fn run() -> Result<Outcome> {
    let junit = tree::target().join(JUNIT);
    if junit.exists() {
        fs::remove_file(&junit).with_context(|| format!("cannot remove {}", junit.display()))?;
    }
    let (key, through) = contain::through()?;
    let mut child = cargo()
        .env(key, through)
        .args([
            "nextest",
            "run",
            "--workspace",
            "--tests",
            "--locked",
            "--no-fail-fast",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo nextest")?;
    let summary = child
        .stderr
        .take()
        .map(show_until_summary)
        .unwrap_or_default();
    let passed = child.wait()?.success();
    let skips = fs::read_to_string(&junit)
        .map(|text| skips(&text))
        .unwrap_or_default();
    Ok(Outcome {
        passed,
        skips,
        summary,
    })
}

/// Shows what the runner prints as it comes, and returns its summary unprinted.
fn show_until_summary(stderr: ChildStderr) -> Vec<String> {
    let mut held: Vec<String> = Vec::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        let in_summary = held.iter().any(|line| is_summary(line));
        let is_rule = line.starts_with('─');
        if !in_summary && !is_summary(&line) {
            // A rule stands before the summary, and elsewhere too.
            held.drain(..).for_each(|line| eprintln!("{line}"));
            if !is_rule {
                eprintln!("{line}");
                continue;
            }
        }
        held.push(line);
    }
    held
}

fn is_summary(line: &str) -> bool {
    line.trim_start().starts_with("Summary [")
}

/// Name and reason of every test in a JUnit report that skipped itself.
fn skips(junit: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut test = String::new();
    for line in junit.lines() {
        if let Some((_, rest)) = line.split_once("<testcase name=\"") {
            test = rest.split('"').next().unwrap_or_default().to_owned();
        }
        if let Some(at) = line.find(SKIPPED) {
            let reason = line[at..].split("</").next().unwrap_or_default();
            found.push(format!("{test}: {}", unescaped(reason)));
        }
    }
    found.dedup();
    found
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_under_the_name_of_its_test() {
        let report = "<testcase name=\"a\" classname=\"x\" time=\"1\">\n</testcase>\n\
            <testcase name=\"m::b\" classname=\"x\">\n  <system-err>skipped, because no &quot;q&quot;\
            </system-err>\n</testcase>";
        assert_eq!(skips(report), ["m::b: skipped, because no \"q\""]);
    }
}
