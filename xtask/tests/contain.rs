//! `xtask contain`: what a test leaves running ends with it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::process::Command;

/// Runs a test that leaves a shell behind, which does this when it is told to end; what is said of it.
fn leaves(when_told: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let left = format!("trap '{when_told}' TERM; echo >began; while :; do sleep 0.1; done");
    let test = format!("setsid sh -c \"{left}\" & until [ -e began ]; do sleep 0.1; done");
    let mut contained = Command::new(env!("CARGO_BIN_EXE_xtask"));
    contained
        .args(["contain", "sh", "-c", &test])
        .current_dir(folder.path());
    let ended = contained.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{said}");
    (folder, said)
}

#[test]
fn what_is_left_may_put_things_in_order_before_it_ends() {
    let (folder, said) = leaves("echo >removed; exit");
    assert!(folder.path().join("removed").exists());
    assert!(
        said.contains("left these running, which were ended: "),
        "{said}"
    );
    assert!(!said.contains("sh (killed)"), "{said}");
}

#[test]
fn what_does_not_end_when_it_is_told_is_killed() {
    let (folder, said) = leaves("echo >told");
    assert!(folder.path().join("told").exists());
    assert!(said.contains("sh (killed)"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
