//! `drover doctor` on this machine, and on what it captured of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Nothing found, or something.
const LOOKED: [i32; 2] = [0, 2];

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.arg("doctor").args(arguments).env("NO_COLOR", "1");
    command.output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = doctor(arguments);
    let code = output.status.code().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit_code"], code);
    assert!(LOOKED.contains(&code), "{document:#}");
    // Notices alone are no failure.
    let mut findings = document["findings"].as_array().unwrap().iter();
    let costs = findings.any(|finding| finding["severity"] != "notice");
    assert_eq!(costs, code == 2);
    document
}

/// Another address in the network.
fn next(address: &str) -> String {
    let (address, prefix) = address.split_once('/').unwrap();
    let number: Ipv4Addr = address.parse().unwrap();
    format!("{}/{prefix}", Ipv4Addr::from(number.to_bits() ^ 1))
}

/// Rules and what they say, without the host's name and what counts up meanwhile.
fn said(document: &Value) -> Vec<String> {
    let of = |what: &str, says: &str| {
        let all = document[what].as_array().unwrap().iter();
        let lasting = all.filter(|one| one["rule"] != "link-errors");
        lasting
            .map(|one| format!("{} {} {}", one["rule"], one["subject"]["nic"], one[says]))
            .collect::<Vec<_>>()
    };
    [of("findings", "severity"), of("skipped", "rule")].concat()
}

#[test]
fn a_captured_host_says_what_the_host_itself_says() {
    let folder = tempfile::tempdir().unwrap();
    let captured = folder.path().join("captured");
    let captured = captured.to_str().unwrap();
    let output = doctor(&["capture", captured, "--anonymous"]);
    assert!(output.status.success(), "{output:?}");
    let here = json(&["--json"]);
    let there = json(&["--captured", captured, "--json"]);
    assert_eq!(said(&here), said(&there));
    assert_eq!(there["skipped"][0]["subject"]["host"], "captured");
    assert!(
        !Path::new(captured)
            .join("proc/sys/kernel/hostname")
            .exists()
    );
    // Why nothing is captured of its guests is said.
    let (other, none) = (folder.path().join("other"), folder.path().join("none"));
    let (other, none) = (other.to_str().unwrap(), none.to_str().unwrap());
    let output = doctor(&["capture", other, "--socket", none]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("as no agent was asked: ") && text.contains(none),
        "{text}"
    );
    // A folder that is there is not written into.
    let again = doctor(&["capture", captured]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn a_report_is_written_by_the_end_of_its_name_of_captured_hosts_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let captured = path("captured");
    assert!(
        doctor(&["capture", &captured, "--anonymous"])
            .status
            .success()
    );
    for (name, begins) in [
        ("a.md", "# What costs migrations: captured"),
        ("a.html", "<!DOCTYPE html>"),
    ] {
        let file = path(name);
        let output = doctor(&["--captured", &captured, "--report", &file]);
        assert!(
            LOOKED.contains(&output.status.code().unwrap()),
            "{output:?}"
        );
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(begins), "{text}");
        assert!(
            text.contains("captured") && text.contains("no agent was asked"),
            "{text}"
        );
    }
    let output = doctor(&["--report", &path("a.pdf")]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(".md for Markdown, .html for HTML"), "{said}");
    let output = doctor(&["--report", &path("none/a.md")]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn two_captured_hosts_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let captured = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (captured("a"), captured("b"));
    assert!(doctor(&["capture", &a]).status.success());
    assert!(doctor(&["capture", &b]).status.success());
    let told = Path::new(&b).join("told.json");
    let mut document: Value = serde_json::from_str(&fs::read_to_string(&told).unwrap()).unwrap();
    document["host"] = "other".into();
    let mut networks = 0;
    for nic in document["nics"].as_array_mut().unwrap() {
        nic["interface"]["mtu"] = 1234.into();
        let addresses = nic["interface"]["addresses"].as_array_mut().unwrap();
        // In others there is no room for two.
        let shares = |address: &str| !address.contains(':') && !address.ends_with("/32");
        addresses.retain(|address| shares(address.as_str().unwrap()));
        networks += usize::from(!addresses.is_empty());
        for address in addresses {
            *address = next(address.as_str().unwrap()).into();
        }
    }
    fs::write(&told, document.to_string()).unwrap();
    let both = json(&["--captured", &a, "--captured", &b, "--json"]);
    let findings = both["findings"].as_array().unwrap().iter();
    let differ = findings
        .filter(|finding| finding["rule"] == "pair-mtu")
        .count();
    assert_eq!(differ, networks, "{both:#}");
}

#[test]
fn a_folder_that_is_no_captured_host_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = doctor(&["--captured", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("is no captured host") && said.contains("told.json"),
        "{said}"
    );
}

#[test]
fn names_that_lead_out_of_a_captured_folder_and_links_in_it_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let captured = folder.path().join("captured");
    let path = captured.to_str().unwrap();
    assert!(doctor(&["capture", path]).status.success());
    let told = captured.join("told.json");
    let text = fs::read_to_string(&told).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    for name in ["../../../../etc", "..", "", "a b", "a/b", "a\u{1b}[2J"] {
        document["nics"][0]["interface"]["name"] = name.into();
        fs::write(&told, document.to_string()).unwrap();
        let output = doctor(&["--captured", path]);
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
    fs::write(&told, text).unwrap();
    let uptime = captured.join("proc/uptime");
    fs::remove_file(&uptime).unwrap();
    std::os::unix::fs::symlink("/proc/uptime", &uptime).unwrap();
    let document = json(&["--captured", path, "--json"]);
    let skipped = document["skipped"].as_array().unwrap().iter();
    let flaps = skipped.filter(|one| one["rule"] == "link-flaps");
    let mut reasons = flaps.map(|one| one["because"].as_str().unwrap());
    assert!(
        reasons.all(|why| why.contains("was not captured")),
        "{document:#}"
    );
}

#[test]
fn every_rule_can_be_explained_and_another_word_is_refused() {
    let output = doctor(&["rules"]);
    let rules = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = rules
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 20, "{rules}");
    let document = doctor(&["rules", "--json"]).stdout;
    let document: Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(
        document["rules"].as_array().map(Vec::len),
        Some(names.len())
    );
    for name in names {
        let output = doctor(&["--explain", name]);
        assert!(
            LOOKED.contains(&output.status.code().unwrap()),
            "{name}: {output:?}"
        );
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.starts_with(&format!("{name}: ")) && said.contains("source: "),
            "{said}"
        );
    }
    let output = doctor(&["--explain", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("drover doctor rules"));
}

#[test]
fn an_agent_that_is_named_and_not_asked_is_told_of_with_the_option_that_asks_it() {
    let said = |arguments: &[&str]| {
        let output = doctor(arguments);
        String::from_utf8(output.stderr).unwrap()
    };
    let named = said(&["--socket", "/nowhere", "--explain", "nic-ring"]);
    assert!(named.starts_with("note: without --all"), "{named}");
    assert_eq!(said(&["--explain", "nic-ring"]), "");
}

#[test]
fn the_report_has_one_line_for_each_finding_and_none_is_longer_than_100_columns() {
    let output = doctor(&["--skipped"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let table = said
        .lines()
        .take_while(|line| !line.is_empty() && !line.starts_with("skipped"));
    assert!(
        table.clone().all(|line| line.chars().count() <= 100),
        "{said}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.xml");
    let output = doctor(&["--junit", file.to_str().unwrap()]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.ends_with("doctor.xml: the findings, as JUnit's XML\n"),
        "{told}"
    );
    let xml = fs::read_to_string(&file).unwrap();
    assert!(xml.contains("<testsuite name=\"drover doctor\"") && xml.ends_with("</testsuite>\n"));
}
