//! Hosts of a lab that are badly set up, and what the doctor says of them. No guest is needed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::process::{Command, Output, Stdio};

use drover_lab::breaks::{Break, catalogue};
use drover_lab::require;
use serde_json::Value;

/// A lab that stays is for guests as well.
const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Something was found.
const FOUND: Option<i32> = Some(2);

fn drover(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command
        .args(words)
        .env_remove("DROVER_SOCKET")
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// Whether hosts cannot be made here, so that the test cannot run.
fn lacks_something() -> bool {
    let checked = require::check_hosts().and_then(|()| require::check_faults());
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle}");
    }
    checked.is_err()
}

/// A lab that is removed with its test, also when that fails.
struct Stays(String);

impl Drop for Stays {
    fn drop(&mut self) {
        drover(&["lab", "down", "--name", &self.0]);
    }
}

/// Tries these, each on a lab of its own, and hosts with nothing wrong; how many looks at those there were.
fn tried(name: &str, breaks: &[&Break]) -> usize {
    let lab = Stays(format!("{name}{}", std::process::id()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("breaks.json");
    let to = file.to_str().unwrap();
    let mut words = vec!["lab", "breaks", "--name", &lab.0, "--json", to];
    for broken in breaks {
        words.extend(["--only", broken.name]);
    }
    let output = drover(&words);
    assert!(output.status.success(), "{}", said(&output));
    let told: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let clean = told["clean"].as_array().unwrap();
    for clean in clean {
        assert_eq!(clean["looks"][0]["findings"], 0, "{clean:#}");
    }
    let found = told["breaks"].as_array().unwrap();
    assert_eq!(found.len(), breaks.len());
    for (found, broken) in found.iter().zip(breaks) {
        let look = &found["looks"][0];
        assert_eq!(look["first"], broken.rule, "{found:#}");
        assert_eq!(look["subject"], broken.about, "{found:#}");
    }
    clean.len()
}

#[test]
fn whatever_is_wrong_is_the_first_thing_that_the_doctor_finds_and_where_nothing_is_it_finds_nothing()
 {
    if lacks_something() {
        return;
    }
    let quick = catalogue().filter(|broken| !broken.needs_loads());
    let quick: Vec<&Break> = quick.collect();
    assert_eq!(tried("breaks", &quick), 4);
}

#[test]
fn what_only_loads_of_several_hosts_tell_is_the_first_thing_that_they_find_and_links_alone_are_not_found()
 {
    if lacks_something() {
        return;
    }
    let loaded = catalogue().filter(|broken| broken.needs_loads());
    let loaded: Vec<&Break> = loaded.collect();
    assert!(!loaded.is_empty());
    // Hosts that load each other are looked at as well.
    assert_eq!(tried("loads", &loaded), 5);
}

#[test]
fn a_lab_that_stays_may_have_hosts_with_several_things_wrong_and_says_how_the_doctor_finds_them() {
    if lacks_something() || require::check(QEMU.as_ref()).is_err() {
        return;
    }
    let lab = Stays(format!("broken{}", std::process::id()));
    let up = ["lab", "up", "--name", &lab.0, "--no-guest"];
    let made = drover(
        &[
            &up[..],
            &["--break", "window,mtu-one-side", "--break", "slot"],
        ]
        .concat(),
    );
    assert!(made.status.success(), "{}", said(&made));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let doctors: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("The doctor finds"))
        .skip(1)
        .map(|line| {
            line.split_whitespace()
                .skip(1)
                .take_while(|word| *word != "#")
                .collect()
        })
        .collect();
    let rules = doctors.iter().map(|words| {
        let output = drover(&[&words[..], &["--json"]].concat());
        assert_eq!(output.status.code(), FOUND, "{words:?}: {}", said(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = told["findings"].as_array().unwrap().clone();
        let rules = findings.into_iter().map(|finding| finding["rule"].clone());
        rules.collect::<Vec<_>>()
    });
    // Of the captured hosts all is told, and of those that run what was done to them.
    let expected = [
        vec!["tcp-window", "pair-mtu"],
        vec!["pci-slot", "tcp-window", "pair-mtu"],
    ];
    assert_eq!(rules.collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn what_is_no_name_is_refused_and_nothing_is_made() {
    let output = drover(&["lab", "up", "--name", "never", "--break", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("mtu-one-side"), "{}", said(&output));
    let few = [
        "lab",
        "up",
        "--name",
        "never",
        "--no-guest",
        "--break",
        "uplink",
    ];
    if require::check(QEMU.as_ref()).is_ok() {
        let output = drover(&few);
        let told = "uplink takes 4 hosts, and the lab has 2: give --hosts 4";
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    let output = drover(&["lab", "breaks", "--list"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(listed.lines().count(), catalogue().count());
    assert!(catalogue().all(|broken| listed.contains(broken.rule)));
}
