//! The checks that other programs make. One that is not installed is skipped, and says so.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::tree;

/// One program to run: it passes when it exits with 0.
struct Step {
    title: &'static str,
    program: &'static str,
    arguments: Vec<String>,
    /// How to ask whether the tool is there, and what to do where it is not.
    tool: Option<(&'static [&'static str], &'static str)>,
}

/// The cargo that runs this program.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What did not pass, and what could not be run.
#[derive(Debug, Default)]
pub struct Checked {
    failed: Vec<&'static str>,
    skips: Vec<String>,
}

impl Checked {
    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        self.failed.is_empty()
    }

    /// What has scrolled away by now.
    pub fn print(&self) {
        if !self.passed() {
            println!("FAILED, see above: {}", self.failed.join("; "));
        }
        for skip in &self.skips {
            println!("{skip}");
        }
    }

    /// Remembers a verdict.
    pub fn add(&mut self, title: &'static str, passed: bool) {
        if !passed {
            self.failed.push(title);
        }
    }
}

/// All checks without the tests.
pub fn lint() -> Result<bool> {
    let checked = run_all()?;
    checked.print();
    Ok(checked.passed())
}

/// All checks; goes on after a failure, so that one run shows everything.
pub fn run_all() -> Result<Checked> {
    let mut checked = Checked::default();
    let title = "crate arrows, purity, documentation, markers";
    heading(title);
    checked.add(title, crate::check()?);
    for step in steps()? {
        heading(step.title);
        if let Some(skip) = step.skip() {
            println!("{skip}");
            checked.skips.push(skip);
        } else {
            checked.add(step.title, step.run()?);
        }
    }
    Ok(checked)
}

/// A line that is found when scrolling back.
pub fn heading(title: &str) {
    println!("== {title}");
}

fn steps() -> Result<Vec<Step>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Ok(vec![
        Step {
            title: "formatting",
            program: "cargo",
            arguments: words("fmt --all --check"),
            tool: Some((
                &["fmt", "--version"],
                "rustfmt is not installed: rustup component add rustfmt",
            )),
        },
        Step {
            title: "licences, duplicates and sources of dependencies",
            program: "cargo",
            arguments: words("deny --log-level error check licenses bans sources"),
            tool: Some((
                &["deny", "--version"],
                "cargo-deny is not installed: cargo install cargo-deny",
            )),
        },
        Step {
            title: "shell scripts",
            program: "shellcheck",
            arguments: shell_scripts()?,
            tool: Some((
                &["--version"],
                "shellcheck is not installed: apt-get install shellcheck",
            )),
        },
        Step {
            title: "clippy",
            program: "cargo",
            arguments: words("clippy --workspace --all-targets --locked -- --deny warnings"),
            tool: Some((
                &["clippy", "--version"],
                "clippy is not installed: rustup component add clippy",
            )),
        },
    ])
}

/// Every file that begins with a shell's name.
fn shell_scripts() -> Result<Vec<String>> {
    let shells = ["#!/bin/sh\n", "#!/usr/bin/env bash\n", "#!/bin/bash\n"];
    let files = tree::files(&tree::root())?;
    let is_script = |file: &tree::File| shells.iter().any(|shell| file.text.starts_with(shell));
    Ok(files
        .into_iter()
        .filter(is_script)
        .map(|file| file.path)
        .collect())
}

impl Step {
    fn command(&self) -> Command {
        let program = if self.program == "cargo" {
            cargo()
        } else {
            self.program.into()
        };
        let mut command = Command::new(program);
        command.current_dir(tree::root()).stdin(Stdio::null());
        command
    }

    /// Why this cannot be run here.
    fn skip(&self) -> Option<String> {
        let (question, advice) = self.tool?;
        let answer = self
            .command()
            .args(question)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let there = answer.is_ok_and(|status| status.success());
        (!there).then(|| format!("skipped, because {advice} ({})", self.title))
    }

    fn run(&self) -> Result<bool> {
        let began = Instant::now();
        let status = self
            .command()
            .args(&self.arguments)
            .status()
            .with_context(|| format!("cannot run {}", self.program))?;
        let verdict = if status.success() { "passed" } else { "FAILED" };
        println!("   {verdict} in {:.1} s", began.elapsed().as_secs_f64());
        Ok(status.success())
    }
}
