//! `drover nic` on hosts that were captured, and asked of agents.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod hardware;
mod hosts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hardware::Machine;
use hardware::cards::{
    connectx4, connectx4_on_a_forced_port, connectx5, e810_with_a_cable_for_10g,
    x550_on_a_switch_of_1g,
};
use serde_json::Value;

fn drover(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = drover(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All of them, in folders of their own.
fn machines(below: &Path) -> [PathBuf; 5] {
    let of = |name: &str, card| Machine::new(below, name).with(&card).done();
    [
        of("whole", connectx4()),
        of("forced", connectx4_on_a_forced_port()),
        of("cable", e810_with_a_cable_for_10g()),
        of("pairs", x550_on_a_switch_of_1g()),
        of("large", connectx5()),
    ]
}

#[test]
fn nics_of_several_kinds_are_listed_with_what_is_the_matter() {
    let folder = tempfile::tempdir().unwrap();
    let machines = machines(folder.path());
    let mut arguments = vec!["nic", "list"];
    for machine in &machines {
        arguments.extend(["--captured", machine.to_str().unwrap()]);
    }
    insta::assert_snapshot!(said(&arguments));
    arguments.push("--json");
    let document: Value = serde_json::from_str(&said(&arguments)).unwrap();
    assert_eq!(document["nics"].as_array().map(Vec::len), Some(5));
    assert_eq!(document["findings"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["left_out"], Value::Array(Vec::new()));
    // One of several.
    let machine = machines[4].to_str().unwrap();
    let one = said(&["nic", "list", "large", "--captured", machine]);
    assert_eq!(one.lines().count(), 2, "{one}");
}

#[test]
fn a_nic_of_25g_on_a_port_forced_to_10g_is_shown_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let [_, machine, ..] = machines(folder.path());
    let captured = ["--captured", machine.to_str().unwrap()];
    let arguments = [&["nic", "show", "forced", "ens1f0np0"][..], &captured].concat();
    insta::assert_snapshot!(said(&arguments));
    let document = said(&[&arguments[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["findings"][0]["rule"], "link-down");
    assert_eq!(document["nic"]["facts"]["module"]["known"]["form"], "SFP28");
    let modes = document["nic"]["modes"]["supported"].as_array().unwrap();
    assert_eq!(modes.len(), 6);
}

#[test]
fn a_cable_of_qsfp28_is_shown_with_what_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), "large")
        .with(&connectx5())
        .done();
    let captured = machine.to_str().unwrap();
    insta::assert_snapshot!(said(&[
        "nic",
        "show",
        "large",
        "ens3np0",
        "--captured",
        captured
    ]));
}

#[test]
fn hosts_and_nics_that_are_not_there_are_refused_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path(), "a").with(&connectx4()).done();
    let captured = machine.to_str().unwrap();
    for (what, code, names) in [
        (["b", "ens1f0np0"], "no-such-host", "name one of these: a"),
        (["a", "eth7"], "no-such-nic", "name one of these: ens1f0np0"),
    ] {
        let arguments = [
            "nic",
            "show",
            what[0],
            what[1],
            "--captured",
            captured,
            "--json",
        ];
        let output = drover(&arguments);
        assert_eq!(output.status.code(), Some(1));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], code);
        assert_eq!(document["error"]["next"], names);
    }
}

#[tokio::test]
async fn agents_are_asked_and_one_that_does_not_answer_is_named() {
    let a = hosts::Host::start("a").await;
    let mut b = hosts::Host::start("b").await;
    a.done(&["cluster", "init"]);
    a.join(&b);
    let list = |arguments: &[&str]| a.drover(&[&["nic", "list", "--json"], arguments].concat());
    let all = list(&[]);
    assert_eq!(all.code, Some(0));
    let document = all.document();
    let hosts = document["nics"].as_array().unwrap().iter();
    // Both agents are on this machine.
    let of = |host: &str| hosts.clone().filter(|nic| nic["host"] == host).count();
    assert_eq!(of("a"), of("b"));
    if let Some(nic) = document["nics"][0]["name"].as_str() {
        let shown = a.done(&["nic", "show", "b", nic]);
        assert!(
            shown.starts_with(&format!("{nic} of b\n  state ")),
            "{shown}"
        );
    }
    // Ordered by an agent that may, of the other one, which refuses what it has not.
    let set = ["nic", "set", "b", "nobody", "speed", "10G", "--json"];
    let refused = a.drover(&set);
    assert_eq!(refused.code, Some(4));
    let error = &refused.document()["error"];
    assert_eq!(error["code"], "no-such-nic");
    assert_eq!(error["message"], "b has no interface \"nobody\"");
    let refused = b.drover(&["nic", "set", "a", "nobody", "speed", "10G", "--json"]);
    assert_eq!(refused.document()["error"]["code"], "not-a-peer");
    b.stop();
    let without = list(&[]);
    assert_eq!(without.code, Some(1));
    assert_eq!(without.document()["left_out"][0]["host"], "b");
    let refused = list(&["b"]);
    assert_eq!(refused.code, Some(1));
    assert_eq!(refused.document()["error"]["code"], "no-answer");
}
