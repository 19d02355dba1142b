//! Runs every test with the runner that is there, and ends in that runner's own summary.
//!
//! A test that cannot run on this machine prints a line with `skipped, because` and its reason, and
//! returns. Runners hide the output of tests that pass, so it is collected here and shown, counted,
//! before the summary.

mod harness;
mod nextest;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{steps, tree};

/// What a test prints where the machine lacks something.
const SKIPPED: &str = "skipped, because";

/// Debian 12's own QEMU beside the installed one, where `scripts/setup --for-tests` puts it.
const QEMU_7_2: &str = "/var/cache/drover-lab/qemu-7.2/qemu-system-x86_64";

/// What a runner reported.
#[derive(Debug, Default)]
struct Outcome {
    passed: bool,
    /// Tests that skipped themselves: name and reason.
    skips: Vec<String>,
    /// The runner's own last lines.
    summary: Vec<String>,
}

/// All checks, all tests, what was skipped, the summary.
pub fn test() -> Result<bool> {
    let mut skips = Vec::new();
    let mut passed = steps::run_all(&mut skips)?;
    passed &= documentation_tests()?;
    steps::heading("tests");
    let outcome = if nextest::is_there() {
        nextest::run()?
    } else {
        harness::run()?
    };
    if !passed {
        println!("A check before the tests FAILED: see above.");
    }
    print_skips(&skips, &outcome.skips);
    for line in &outcome.summary {
        println!("{line}");
    }
    Ok(passed && outcome.passed)
}

fn print_skips(steps: &[String], tests: &[String]) {
    for skip in steps {
        println!("{skip}");
    }
    if tests.is_empty() {
        println!("no test skipped itself");
        return;
    }
    println!("{} tests skipped themselves:", tests.len());
    for skip in tests {
        println!("   {skip}");
    }
}

/// cargo with what every test gets.
fn cargo() -> Command {
    let mut command = Command::new(steps::cargo());
    command.current_dir(tree::root());
    // A snapshot that differs fails; it does not leave a file behind.
    command.env("INSTA_UPDATE", "no");
    if std::env::var_os("DROVER_QEMU_7_2").is_none() && Path::new(QEMU_7_2).exists() {
        command.env("DROVER_QEMU_7_2", QEMU_7_2);
    }
    command
}

/// Examples in doc comments, where there are any: looking for them costs a build of its own.
fn documentation_tests() -> Result<bool> {
    let files = tree::files(&tree::root())?;
    let example = |line: &str| matches!(line.trim(), "/// ```" | "//! ```" | "/// ```rust");
    if !files
        .iter()
        .any(|file| file.is(".rs") && file.text.lines().any(example))
    {
        return Ok(true);
    }
    steps::heading("examples in documentation");
    Ok(cargo()
        .args(["test", "--doc", "--workspace", "--locked", "--quiet"])
        .status()?
        .success())
}
