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
