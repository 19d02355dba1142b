//! Labs of tests, by the commands of `drover lab`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Where labs are kept, unless `DROVER_LAB_RUN` says otherwise.
const LABS: &str = "/run/drover-lab";

pub fn drover(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command
        .args(words)
        .env_remove("DROVER_SOCKET")
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null());
    command.output().unwrap()
}

/// Both of its outputs.
pub fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A lab that is removed with its test, also when that fails.
pub struct Stays(pub String);

impl Drop for Stays {
    fn drop(&mut self) {
        down(&self.0);
    }
}

impl Stays {
    /// What this test left when it was killed is removed first.
    pub fn named(test: &str) -> Self {
        let labs = std::env::var_os("DROVER_LAB_RUN").unwrap_or_else(|| LABS.into());
        let labs = std::fs::read_dir(labs);
        for lab in labs.into_iter().flatten().filter_map(Result::ok) {
            let name = lab.file_name().into_string().unwrap_or_default();
            if is_left(&name, test, |pid| Path::new("/proc").join(pid).exists()) {
                down(&name);
            }
        }
        Self(format!("{test}{}", std::process::id()))
    }
}

/// Whether a lab is one of this test, whose process is no more.
fn is_left(lab: &str, test: &str, lives: impl Fn(&str) -> bool) -> bool {
    let pid = lab.strip_prefix(test);
    let pid = pid.filter(|pid| pid.parse::<u32>().is_ok());
    pid.is_some_and(|pid| !lives(pid))
}

fn down(name: &str) {
    let removed = drover(&["lab", "down", "--name", name]);
    if !removed.status.success() {
        println!("lab {name} stays: {}", said(&removed));
    }
}

#[test]
fn a_lab_is_left_behind_where_the_process_is_gone_that_it_is_named_by() {
    let lives = |pid: &str| pid == "7";
    assert!(is_left("breaks8", "breaks", lives));
    for other in ["breaks7", "breaks", "breaks8.lock", "breaks-8", "loads8"] {
        assert!(!is_left(other, "breaks", lives), "{other}");
    }
}
