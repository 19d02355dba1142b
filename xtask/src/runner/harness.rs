//! Plain `cargo test`, for machines without cargo-nextest: no limit on a test's time, one summary
//! for each test program, which are added up here.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};

use anyhow::{Context, Result};

use super::{Outcome, SKIPPED, cargo};

/// The sums over all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// What has been read so far of what the test programs print.
#[derive(Debug, Default)]
struct Reader {
    totals: Totals,
    skips: Vec<String>,
    test: String,
    /// Inside the output of tests that passed, which is shown only to find reasons in it.
    in_successes: bool,
}

/// Every test of the workspace.
pub fn run() -> Result<Outcome> {
    let mut child = cargo()
        .args([
            "test",
            "--workspace",
            "--tests",
            "--locked",
            "--no-fail-fast",
        ])
        .args(["--", "--show-output"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    let reader = child.stdout.take().map(read).unwrap_or_default();
    let passed = child.wait()?.success();
    if reader.totals == Totals::default() {
        return Ok(Outcome::default());
    }
    let Totals {
        passed: ran,
        failed,
        ignored,
    } = reader.totals;
    let skipped = reader.skips.len();
    let summary = vec![format!(
        "{} passed, {failed} failed, {} skipped",
        ran.saturating_sub(skipped),
        ignored + skipped
    )];
    Ok(Outcome {
        passed,
        skips: reader.skips,
        summary,
    })
}

fn read(stdout: ChildStdout) -> Reader {
    let mut reader = Reader::default();
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if reader.take(&line) {
            println!("{line}");
        }
    }
    reader
}

impl Reader {
    /// Learns from one line; whether it is worth showing.
    fn take(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_successes = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            self.in_successes = false;
        }
        if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.split(' ').next())
        {
            test.clone_into(&mut self.test);
        }
        if let Some(at) = line.find(SKIPPED) {
            self.skips.push(format!("{}: {}", self.test, &line[at..]));
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.totals.add(counts);
        }
        !self.in_successes
    }
}

impl Totals {
    /// Adds `ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, counts: &str) {
        for part in counts.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) =
                (words.next().map(str::parse::<usize>), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_up_and_reasons_collected() {
        let printed = "\
test a ... ok
successes:

---- a stdout ----
skipped, because there is no KVM

successes:
    a
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s
test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut reader = Reader::default();
        let shown: Vec<&str> = printed.lines().filter(|line| reader.take(line)).collect();
        assert_eq!(
            reader.totals,
            Totals {
                passed: 3,
                failed: 3,
                ignored: 1
            }
        );
        assert_eq!(reader.skips, ["a: skipped, because there is no KVM"]);
        assert_eq!(shown.len(), 3, "{shown:?}");
    }
}
