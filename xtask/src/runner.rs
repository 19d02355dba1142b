//! Runs every test with the runner that is there, and ends in that runner's own summary.
//!
//! A test that cannot run on this machine prints a line with `skipped, because` and its reason, and
//! returns. Runners hide the output of tests that pass, so it is collected here and shown, counted,
//! before the summary.

pub mod contain;
mod harness;
mod nextest;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::skips::SKIPPED;
use crate::{skips, steps, tree};

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
    let mut checked = steps::run_all()?;
    checked.add("examples in documentation", documentation_tests()?);
    steps::heading("tests");
    let outcome = if nextest::is_there() {
        nextest::run()?
    } else {
        harness::run()?
    };
    checked.print();
    for ignored in skips::ignored(&tree::files(&tree::root())?) {
        println!("{ignored}");
    }
    print_skips(&outcome.skips);
    if outcome.summary.is_empty() {
        println!("the test runner ended without a summary: see above");
    }
    for line in &outcome.summary {
        println!("{line}");
    }
    Ok(checked.passed() && outcome.passed)
}

fn print_skips(skips: &[String]) {
    if skips.is_empty() {
        println!("no test skipped itself");
        return;
    }
    println!("{} tests skipped themselves:", skips.len());
    for skip in skips {
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
    if !files
        .iter()
        .any(|file| file.is(".rs") && has_example(&file.text))
    {
        return Ok(true);
    }
    steps::heading("examples in documentation");
    let arguments = ["test", "--doc", "--workspace", "--locked", "--quiet"];
    Ok(cargo().args(arguments).status()?.success())
}

/// Whether a doc comment opens a fence without saying that it is text.
fn has_example(source: &str) -> bool {
    let mut open = false;
    for line in source.lines().map(str::trim) {
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        if let Some(language) = comment.and_then(|comment| comment.trim().strip_prefix("```")) {
            if !open && matches!(language, "" | "rust" | "no_run" | "should_panic") {
                return true;
            }
            open = !open;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_told_from_a_picture() {
        assert!(has_example("/// ```\n/// let x = 1;\n/// ```\n"));
        assert!(!has_example("//! ```text\n//! a -> b\n//! ```\n"));
    }
}
