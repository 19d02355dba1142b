//! A command that is to end with its agent, here with a shell in the agent's place.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DROVERD: &str = env!("CARGO_BIN_EXE_droverd");

/// The program that a process runs; none where it has ended.
fn runs(pid: &str) -> Option<String> {
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let program = words.split('\0').next()?.to_owned();
    (!program.is_empty()).then_some(program)
}

#[test]
fn a_command_that_was_started_to_end_with_its_agent_does_when_that_is_killed() {
    let script = "\"$0\" end-with $$ sleep 1000 & echo $!; wait";
    let mut shell = Command::new("sh")
        .args(["-c", script, DROVERD])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    let mut told = BufReader::new(shell.stdout.take().unwrap());
    told.read_line(&mut pid).unwrap();
    let (pid, deadline) = (pid.trim(), Instant::now() + Duration::from_secs(10));
    while runs(pid).as_deref() != Some("sleep") {
        assert!(Instant::now() < deadline, "{:?}", runs(pid));
        std::thread::yield_now();
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
    while runs(pid).is_some() {
        assert!(Instant::now() < deadline, "it runs on");
        std::thread::yield_now();
    }
}

#[test]
fn what_cannot_end_with_an_agent_or_cannot_be_executed_says_so() {
    let said = |agent: u32, program: &str| {
        let agent = agent.to_string();
        let output = Command::new(DROVERD)
            .args(["end-with", &agent, program, "--an-option"])
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(1, "true").contains("process 1, has ended"));
    let said = said(std::process::id(), "/no/such/program");
    assert!(
        said.contains("/no/such/program") && said.contains("No such file"),
        "{said}"
    );
}
