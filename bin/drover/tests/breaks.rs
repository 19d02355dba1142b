//! Hosts of a lab that are badly set up, and what the doctor says of them. Where a guest is started nothing boots in it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod labs;

use std::process::{Command, Output};

use drover_lab::breaks::{self, Break, OfMachine, catalogue};
use drover_lab::require;
use drover_tune::RULES;
use labs::{Stays, drover, said};
use serde_json::Value;

/// A lab that stays is for guests as well.
const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Ways in which hosts with nothing wrong are looked at.
const CLEAN: usize = 5;

/// Something was found.
const FOUND: Option<i32> = Some(2);

/// Whether hosts cannot be made here, or these cannot be wrong with them, so that the test cannot run.
fn lacks_something_for(breaks: &[&Break]) -> bool {
    let checked = breaks::require(breaks);
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle}");
    }
    checked.is_err()
}

fn lacks_something() -> bool {
    lacks_something_for(&[])
}

/// The same of a lab that stays.
fn lacks_something_to_stay() -> bool {
    if lacks_something() {
        return true;
    }
    let checked = require::check(QEMU.as_ref());
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle}");
    }
    checked.is_err()
}

/// What could not be tried or told, said as what is skipped is; the names of what was not tried.
fn left_out(told: &Value) -> Vec<&str> {
    for (rule, read) in told["of_machine"].as_object().unwrap() {
        println!("skipped, because this machine has {rule}: {read}");
    }
    let all = told["left_out"].as_array().unwrap().iter();
    let all = all.map(|one| {
        let name = one["name"].as_str().unwrap();
        println!(
            "skipped, because {name} cannot be tried: {}",
            one["because"]
        );
        name
    });
    all.collect()
}

/// Has these tried, and hosts with nothing wrong: what is told of it.
fn asked(name: &str, breaks: &[&Break]) -> (Output, Value) {
    let lab = Stays::named(name);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("breaks.json");
    let to = file.to_str().unwrap();
    let mut words = vec!["lab", "breaks", "--name", &lab.0, "--json", to];
    for broken in breaks {
        words.extend(["--only", broken.name]);
    }
    let output = drover(&words);
    let told = std::fs::read(&file).unwrap_or_else(|_| panic!("{}", said(&output)));
    (output, serde_json::from_slice(&told).unwrap())
}

/// Whether the first finding of a look names processors that a load waited for: others of this machine took them.
fn names_processors(told: &Value) -> bool {
    let all = ["clean", "breaks"].map(|what| told[what].as_array().unwrap());
    let looks = all
        .into_iter()
        .flatten()
        .map(|one| &one["looks"][0]["read"]);
    let mut read = looks.filter_map(Value::as_str);
    read.any(|read| read.contains("; the processors of "))
}

/// Tries these, and hosts with nothing wrong; how many looks at those there were.
fn tried(name: &str, breaks: &[&Break]) -> usize {
    let (mut output, mut told) = asked(name, breaks);
    if !output.status.success() && names_processors(&told) {
        println!(
            "once more, as loads waited for processors: {}",
            said(&output)
        );
        (output, told) = asked(name, breaks);
    }
    assert!(output.status.success(), "{}", said(&output));
    let clean = told["clean"].as_array().unwrap();
    for clean in clean {
        assert_eq!(clean["looks"][0]["findings"], 0, "{clean:#}");
    }
    let left_out = left_out(&told);
    let is_tried = |broken: &&&Break| !left_out.contains(&broken.name);
    let breaks: Vec<_> = breaks.iter().filter(is_tried).collect();
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
    let quick = catalogue().filter(|broken| !broken.needs_loads() && !broken.starts_guest());
    let quick: Vec<&Break> = quick.collect();
    assert_eq!(tried("breaks", &quick), CLEAN);
}

#[test]
fn what_is_wrong_with_a_guest_that_runs_is_the_first_thing_that_the_doctor_finds() {
    let started: Vec<&Break> = catalogue().filter(|broken| broken.starts_guest()).collect();
    assert!(!started.is_empty());
    if !lacks_something_for(&started) {
        assert_eq!(tried("started", &started), CLEAN);
    }
}

#[test]
fn what_only_loads_tell_is_the_first_thing_that_they_find_and_links_alone_are_not_found() {
    if lacks_something() {
        return;
    }
    let loaded = catalogue().filter(|broken| broken.needs_loads());
    let loaded: Vec<&Break> = loaded.collect();
    assert!(!loaded.is_empty());
    // Hosts that load each other are looked at as well.
    assert_eq!(tried("loads", &loaded), CLEAN + 1);
}

#[test]
fn a_lab_that_stays_may_have_hosts_with_several_things_wrong_and_says_how_the_doctor_finds_them() {
    if lacks_something_to_stay() {
        return;
    }
    let lab = Stays::named("broken");
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
        let machine = OfMachine::of(&told);
        for (rule, read) in machine.each() {
            println!("skipped, because this machine has {rule}: {read}");
        }
        let findings = told["findings"].as_array().unwrap();
        let of_hosts = findings.iter().filter(|finding| !machine.has(finding));
        of_hosts
            .map(|finding| finding["rule"].clone())
            .collect::<Vec<_>>()
    });
    // Of the captured hosts all is told, and of those that run what was done to them.
    let expected = [
        vec!["tcp-window", "pair-mtu"],
        vec!["pci-slot", "tcp-window", "pair-mtu", "rdma-pieces"],
    ];
    assert_eq!(rules.collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn what_is_no_name_leaves_a_lab_as_it_was_that_somebody_left_up() {
    if lacks_something_to_stay() {
        return;
    }
    let lab = Stays::named("left");
    let name = ["--name", &lab.0];
    let made = drover(&[&["lab", "up", "--no-guest"], &name[..]].concat());
    assert!(made.status.success(), "{}", said(&made));
    for all in ["breaks", "faults"] {
        let wrong = drover(&[&["lab", all, "--only", "nothing"], &name[..]].concat());
        assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
        assert!(said(&wrong).contains("nothing"), "{}", said(&wrong));
    }
    let status = drover(&[&["lab", "status", "--json"], &name[..]].concat());
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["hosts"].as_array().unwrap().len(), 2, "{status}");
}

#[test]
fn what_kept_a_lab_from_being_made_is_told_though_nothing_can_be_removed_either() {
    if lacks_something() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    // No folder can be there.
    command.env("DROVER_LAB_RUN", "/dev/null/labs");
    let output = command.args(["lab", "breaks", "--only", "window"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = err.lines().rfind(|line| line.contains("/dev/null/labs"));
    assert!(err.contains("the lab was not removed"), "{err}");
    assert!(!last.unwrap().contains("not removed"), "{err}");
}

#[test]
fn what_is_no_name_is_refused_and_nothing_is_made() {
    let output = drover(&["lab", "up", "--name", "never", "--break", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("mtu-one-side"), "{}", said(&output));
    let output = drover(&["lab", "breaks", "--list"]);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(listed.lines().count(), catalogue().count());
    assert!(catalogue().all(|broken| listed.contains(broken.rule)));
}

#[test]
fn what_cannot_be_wrong_with_such_hosts_or_beside_something_else_is_refused_and_nothing_is_made() {
    if lacks_something_to_stay() {
        return;
    }
    let up = ["lab", "up", "--name", "never", "--no-guest", "--break"];
    for (wrong, told) in [
        (
            "uplink",
            "uplink takes 4 hosts, and the lab has 2: give --hosts 4",
        ),
        (
            "queues,ring",
            "queues and ring cannot be wrong together: both change what ethtool tells of nic0",
        ),
    ] {
        let output = drover(&[&up[..], &[wrong]].concat());
        assert!(!output.status.success());
        assert!(said(&output).contains(told), "{}", said(&output));
    }
}

/// Names in the first cells of the table of rules that have no break here.
fn named_as_without() -> Vec<&'static str> {
    let text = include_str!("../../../docs/DOCTOR.md");
    let heading = "## Rules without a break in a lab\n";
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let names = cells.flat_map(|cell| cell.split(','));
    names.map(|name| name.trim().trim_matches('`')).collect()
}

#[test]
fn every_rule_finds_something_in_a_lab_or_the_documentation_says_why_it_cannot() {
    let without = named_as_without();
    for rule in RULES {
        let has_one = catalogue().any(|broken| broken.rule == rule.name);
        let is_named = without.contains(&rule.name);
        assert_ne!(has_one, is_named, "{}", rule.name);
    }
    let is_rule = |name: &str| RULES.iter().any(|rule| rule.name == name);
    assert!(without.into_iter().all(is_rule));
    assert!(catalogue().all(|broken| is_rule(broken.rule)));
}
