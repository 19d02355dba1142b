//! A lab that stays, as a person uses it: by the commands that it prints.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod labs;
#[path = "../../../crates/lab/tests/support/mod.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod support;

use std::process::Output;
use std::time::{Duration, Instant};

use drover_lab::settings::LabName;
use drover_lab::{Lab, network};
use labs::{Stays, drover};
use serde_json::Value;
use support::{build_probe, lacks_something};

/// For guests to be heard on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

impl Stays {
    fn run(&self, what: &str, options: &[&str]) -> Output {
        drover(&[&["lab", what, "--name", &self.0], options].concat())
    }

    fn does(&self, what: &str, options: &[&str]) -> String {
        done(&self.run(what, options))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.does("status", &["--json"])).unwrap()
    }

    /// The first status in which every guest was heard: on a busy machine one may be silent for as long
    /// as a status listens.
    fn heard(&self) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let guests = status["guests"].as_array().unwrap();
            if guests.iter().all(|guest| !guest["bad_pages"].is_null()) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status}");
        }
    }

    fn name(&self) -> LabName {
        self.0.parse().unwrap()
    }
}

fn done(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|all| String::from_utf8_lossy(all));
    assert!(output.status.success(), "{out}\n{err}");
    out.into_owned()
}

/// The command of that kind among those that were printed, without `drover` itself.
fn printed<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let commands = text.lines().filter_map(|line| line.split("  #").next());
    let mut words = commands.map(|command| command.split_whitespace().collect::<Vec<_>>());
    let found = words.find(|words| words.first() == Some(&"drover") && words.contains(&kind));
    found.unwrap_or_else(|| panic!("no {kind} in {text}"))[1..].to_vec()
}

/// Where each guest runs; none has a bad page.
fn places(status: &Value) -> Vec<&str> {
    let guests = status["guests"].as_array().unwrap();
    for guest in guests {
        assert_eq!(guest["bad_pages"], 0, "{status}");
    }
    guests.iter().map(|g| g["on"].as_str().unwrap()).collect()
}

fn processes(status: &Value) -> Vec<u64> {
    let hosts = status["hosts"].as_array().unwrap();
    let vms = hosts
        .iter()
        .flat_map(|host| host["vms"].as_array().unwrap());
    vms.filter_map(|vm| vm["pid"].as_u64()).collect()
}

#[tokio::test]
async fn a_lab_of_three_hosts_is_drained_by_the_commands_that_it_prints_and_leaves_nothing() {
    if lacks_something().await {
        return;
    }
    build_probe();
    let lab = Stays::named("stays");
    let size = ["--hosts", "3", "--guests", "2", "--content", "16MiB"];
    let up = lab.does("up", &size);
    let status = lab.heard();
    assert_eq!(status["hosts"].as_array().unwrap().len(), 3, "{status}");
    assert_eq!(places(&status), ["a", "b"]);

    let drain = printed(&up, "drain");
    assert_eq!(drain.last(), Some(&"b"));
    done(&drover(&drain));
    let drained = lab.heard();
    let left = places(&drained);
    assert!(!left.contains(&"b"), "{left:?}");
    let text = lab.does("status", &[]);
    for guest in ["guest1 runs on", "guest2 runs on"] {
        assert!(text.contains(guest), "{text}");
    }
    let whole = done(&drover(&printed(&up, "verify")));
    assert!(
        whole.contains("2 guests verified 12288 pages, none bad"),
        "{whole}"
    );

    let moved = lab.run("migrate", &[]);
    let refused = String::from_utf8(moved.stderr).unwrap();
    assert!(refused.contains("2 guests on 3 hosts"), "{refused}");
    assert!(!up.contains("lab migrate"), "{up}");

    done(&drover(&printed(&up, "resume")));
    let home = lab.heard();
    assert_eq!(places(&home), ["a", "b"]);

    done(&drover(&printed(&up, "down")));
    assert_eq!(network::namespaces(&lab.name()).await.unwrap(), [""; 0]);
    assert!(Lab::peek(&lab.name()).unwrap().is_none());
    for pid in [processes(&drained), processes(&home)].concat() {
        // One that has ended has no program, also before its parent has heard of it.
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        assert!(program.is_err(), "{pid}: {program:?}");
    }
    assert_eq!(lab.status(), Value::Null);
}

/// A small guest with 8192 pages of content, on lines that carry it in some seconds.
const SMALL: [&str; 8] = [
    "--memory",
    "256MiB",
    "--content",
    "32MiB",
    "--dirty",
    "2MiB@1MiB",
    "--rate",
    "250mbit,250mbit",
];

/// What such a command prints, and the file that it writes.
fn measured(test: &str, what: &str, options: &[&str]) -> (String, Value) {
    let lab = Stays::named(test);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let json = ["--json", file.to_str().unwrap()];
    let text = lab.does(what, &[&SMALL, options, &json].concat());
    let told = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (text, told)
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[tokio::test]
async fn a_comparison_tells_of_each_method_what_became_of_its_bytes() {
    if lacks_something().await {
        return;
    }
    build_probe();
    let ways = ["--methods", "drover-zstd,drover-off", "--channels", "2"];
    let options = [&ways[..], &["--repeats", "1"]].concat();
    let (text, told) = measured("compares", "compare", &options);
    for method in ["drover-zstd", "drover-off"] {
        let summary = &told["summary"][method];
        assert_eq!([&summary["verified"], &summary["runs"]], [1, 1], "{told}");
    }
    assert!(told["runs"][1]["error"].is_null(), "{told}");
    let reduced = &told["summary"]["drover-zstd"]["reduced"];
    let median = |bytes: &str| number(&reduced[bytes]["median"]);
    assert!(median("wire_bytes") > 0.0 && median("wire_bytes") < median("raw_bytes") * 0.9);
    assert!(median("passed_bytes") < median("wire_bytes") && median("change_bytes") >= 0.0);
    let ratio = number(&reduced["codecs"]["ordinary"]["zstd:1"]["ratio"]);
    assert!(ratio > 0.0 && ratio < 0.9, "{reduced}");
    assert!(number(&reduced["pages"]["ordinary"]["median"]) > 2000.0);
    assert!(told["summary"]["drover-off"]["reduced"].is_null());
    assert!(text.contains("changes of pages"), "{text}");
}

#[tokio::test]
async fn a_guest_that_leaves_and_returns_is_measured_both_ways() {
    if lacks_something().await {
        return;
    }
    build_probe();
    let options = ["--methods", "drover-zstd", "--away", "1"];
    let (text, told) = measured("returns", "return", &options);
    assert!(told["wrong"].is_null(), "{told}");
    let [pair] = told["pairs"].as_array().unwrap().as_slice() else {
        panic!("one pair was wanted: {told}");
    };
    assert!(number(&pair["verified"]) > 8000.0, "{pair}");
    let ratio = number(&pair["ratio"]);
    assert!(ratio > 0.0 && ratio < 0.5, "{pair}");
    let [out, back] = [0, 1].map(|trip| &pair["drover"][trip]);
    assert_eq!(out["reduction"]["pages"]["stored"], 0, "{out}");
    // As they were, and with what changed of them since.
    let pages = |kind: &str| number(&back["reduction"]["pages"][kind]);
    let found = pages("stored") + pages("stored_changed");
    assert!(pages("stored") > 4000.0, "{back}");
    assert_eq!(back["shared_pages"]["found_in_checkpoint"], found as u64);
    for trip in ["Bytes of drover-zstd, away:", "Bytes of drover-zstd, back:"] {
        assert!(text.contains(trip), "{text}");
    }
}
