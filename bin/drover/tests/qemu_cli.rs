//! The command line with a real agent and a real QEMU.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../droverd/tests/trust/provision.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod provision;
#[path = "../../droverd/tests/support/mod.rs"]
mod support;

use std::process::{Command, Stdio};

use provision::Office;
use serde_json::Value;
use support::{Place, has_qemu, kill};

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn drover(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command
        .args(arguments)
        .env("DROVER_SOCKET", place.socket())
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    let ran = drover(place, &[arguments, &["--json"]].concat());
    assert_eq!(ran.stderr, "", "everything is in the document");
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        document["exit_code"].as_i64().map(|code| code as i32),
        ran.code
    );
    document
}

#[tokio::test]
async fn a_guest_is_started_shown_and_stopped_from_the_command_line() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web");
    let _agent = place.start().await;
    let list = drover(&place, &["vm", "list"]);
    assert!(
        list.stdout
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("web   stopped"))
    );

    let start = drover(&place, &["vm", "start", "web"]);
    assert_eq!(start.code, Some(0), "{}", start.stderr);
    assert!(
        start.stdout.starts_with("guest web runs, process "),
        "{}",
        start.stdout
    );
    let show = drover(&place, &["vm", "show", "web"]).stdout;
    assert!(show.contains("state       running"), "{show}");
    assert!(show.contains("machine     pc-q35-"), "{show}");
    assert_eq!(
        json(&place, &["vm", "show", "web"])["vm"]["state"],
        "running"
    );
    assert_eq!(json(&place, &["vm", "list"])["vms"][0]["name"], "web");

    let again = drover(&place, &["vm", "start", "web"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(4), ""));
    assert!(again.stderr.contains("runs already"), "{}", again.stderr);

    let stop = drover(&place, &["vm", "stop", "web", "--timeout", "1"]);
    assert_eq!(stop.code, Some(1));
    assert!(
        stop.stderr.contains("next: `drover vm stop web --force`"),
        "{}",
        stop.stderr
    );
    let stop = drover(&place, &["vm", "stop", "web", "--force"]);
    assert_eq!(
        (stop.code, stop.stdout.as_str()),
        (Some(0), "guest web has ended\n")
    );
    let stopped = json(&place, &["vm", "stop", "web", "--force"]);
    assert_eq!(stopped["exit_code"], 4);
    assert_eq!(stopped["error"]["code"], "vm-not-running");
}

#[tokio::test]
async fn a_guest_that_died_is_shown_with_its_exit_and_its_last_words() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    let qemu = place.talking_qemu("disk on fire");
    place.define_with("web", &format!("qemu = {qemu:?}"));
    let agent = place.start().await;
    kill(agent.start_vm("web").await, "-KILL");
    agent.vm_when("web", |vm| vm.last_exit.is_some()).await;
    let show = drover(&place, &["vm", "show", "web"]).stdout;
    for part in [
        "state       failed",
        "last exit   signal 9, unasked",
        "disk on fire",
    ] {
        assert!(show.contains(part), "{show}");
    }
    let status = drover(&place, &["status"]).stdout;
    assert!(
        status.contains("web: qemu ended unasked, with signal 9"),
        "{status}"
    );
}

#[tokio::test]
async fn a_host_and_its_status_are_shown() {
    let place = Place::new();
    place.configure("[api]\nlisten = []");
    let mut office = Office::new();
    office.admit("a", Vec::new());
    office.admit("b", vec!["127.0.0.1:1".parse().unwrap()]);
    office.settle(&place.path("state"), "a");
    let _agent = place.start().await;
    let host = drover(&place, &["host"]).stdout;
    assert!(host.starts_with("host            a\n"), "{host}");
    assert!(host.contains("INTERFACE"), "{host}");
    let status = drover(&place, &["status"]).stdout;
    assert!(status.starts_with("host a, droverd "), "{status}");
    assert!(status.contains("b     UNREACHABLE"), "{status}");
    assert_eq!(json(&place, &["status"])["peers"][0]["reachable"], false);
    assert_eq!(json(&place, &["host"])["host"]["host"], "a");
}

#[test]
fn an_agent_that_does_not_answer_is_exit_code_7_with_what_to_do() {
    let place = Place::new();
    for arguments in [
        &["vm", "list"][..],
        &["status"],
        &["migrate", "web", "--to", "b"],
    ] {
        let ran = drover(&place, arguments);
        assert_eq!(ran.code, Some(7), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("run/droverd.sock"), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("systemctl start droverd"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(json(&place, &["status"])["error"]["code"], "no-agent");
}

#[tokio::test]
async fn what_is_not_there_is_refused_with_the_next_command() {
    let place = Place::new();
    let _agent = place.start().await;
    let show = drover(&place, &["vm", "show", "web"]);
    assert_eq!(show.code, Some(1));
    assert!(
        show.stderr
            .contains("next: `drover vm list` shows the guests"),
        "{}",
        show.stderr
    );
    let start = drover(&place, &["vm", "start", "web"]);
    assert_eq!(start.code, Some(4), "nothing was changed");
    let cancel = drover(&place, &["cancel", "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a"]);
    assert_eq!(cancel.code, Some(4), "{}", cancel.stderr);
}
