//! Plans from reports, and plans in files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use drover_change::{FileError, Plan, PlanError, read, write};
use drover_tune::{Disruption, NicSetting, Report, Step};
use serde_json::json;

fn file(path: &str, to: &str) -> Step {
    Step::File {
        path: path.to_owned(),
        from: "4096 16384 4194304".to_owned(),
        to: to.to_owned(),
    }
}

fn nic(what: NicSetting, from: &str, to: &str) -> Step {
    Step::Nic {
        nic: "ens1f0".to_owned(),
        what,
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

/// Findings, as the doctor's JSON has them.
fn report(changes: &[(&str, Disruption, Vec<Step>)]) -> Report {
    let finding = |(rule, disruption, steps): &(&str, Disruption, Vec<Step>)| {
        json!({
            "rule": rule,
            "subject": { "host": "a", "other": null, "nic": "ens1f0" },
            "severity": "warning", "read": "x", "expected": "y", "why": "packets \"wait\"",
            "cost": null, "by_hand": null,
            "change": { "disruption": disruption, "steps": steps },
        })
    };
    let findings: Vec<_> = changes.iter().map(finding).collect();
    serde_json::from_value(json!({ "findings": findings, "skipped": [], "right": [] })).unwrap()
}

fn planned(report: &Report, bounce: bool) -> (Plan, Vec<(String, String)>) {
    let host = "a".parse().unwrap();
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let (plan, left_out) = Plan::of(report, (&host, "boot"), at, bounce);
    let left_out = left_out.into_iter().map(|left| (left.rule, left.why));
    (plan, left_out.collect())
}

fn all() -> Report {
    let wmem = "proc/sys/net/ipv4/tcp_wmem";
    report(&[
        (
            "tcp-buffers",
            Disruption::Safe,
            vec![file(wmem, "4096 1 2")],
        ),
        ("tcp-same", Disruption::Safe, vec![file(wmem, "4096 1 2")]),
        ("tcp-other", Disruption::Safe, vec![file(wmem, "4096 1 3")]),
        (
            "nic-lro",
            Disruption::Safe,
            vec![nic(NicSetting::Feature("rx-lro".into()), "on", "off")],
        ),
        (
            "nic-queues",
            Disruption::BouncesLink,
            vec![nic(NicSetting::CombinedChannels, "1", "8")],
        ),
        (
            "mtu-layers",
            Disruption::BouncesLink,
            vec![nic(NicSetting::Mtu, "1500", "9000")],
        ),
        (
            "firmware",
            Disruption::Persistent,
            vec![file("sys/devices/x", "1")],
        ),
    ])
}

fn rules(plan: &Plan) -> Vec<&str> {
    plan.changes
        .iter()
        .map(|change| change.rule.as_str())
        .collect()
}

#[test]
fn a_plan_has_what_is_safe_once_and_says_what_it_leaves_out() {
    let (plan, left_out) = planned(&all(), false);
    assert_eq!(rules(&plan), ["tcp-buffers", "nic-lro"]);
    plan.check().unwrap();
    assert!(!plan.bounces());
    let said: Vec<String> = left_out
        .iter()
        .map(|(rule, why)| format!("{rule}: {why}"))
        .collect();
    assert_eq!(
        said,
        [
            "tcp-same: another change does the same",
            "tcp-other: net.ipv4.tcp_wmem becomes \"4096 1 2\" already, by another change",
            "nic-queues: it may bounce the link",
            "mtu-layers: it may bounce the link",
            "firmware: it is persistent",
        ]
    );
}

#[test]
fn what_bounces_a_link_is_asked_for_by_word_and_larger_packets_never_come() {
    let (plan, left_out) = planned(&all(), true);
    assert_eq!(rules(&plan), ["tcp-buffers", "nic-lro", "nic-queues"]);
    assert!(plan.bounces());
    let raises = left_out.iter().find(|(rule, _)| rule == "mtu-layers");
    assert!(
        raises.unwrap().1.contains("raises ens1f0 mtu"),
        "{left_out:?}"
    );
}

#[test]
fn a_file_shows_a_diff_and_is_read_as_the_plan_that_it_was_written_from() {
    let (plan, _) = planned(&all(), true);
    let text = write(&plan).unwrap();
    for line in [
        "# - net.ipv4.tcp_wmem = 4096 16384 4194304",
        "# + net.ipv4.tcp_wmem = 4096 1 2",
        "#   sysctl -w 'net.ipv4.tcp_wmem=4096 1 2'",
        "# - ens1f0 rx-lro = on",
        "#   ethtool -L ens1f0 combined 8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(read(&text).unwrap(), plan);
    let bare: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(read(&bare.join("\n")).unwrap(), plan);
    // An operator takes one change out.
    let (head, rest) = text.split_once("\n[[changes]]\n").unwrap();
    let (_, rest) = rest.split_once("\n[[changes]]\n").unwrap();
    let fewer = read(&format!("{head}\n[[changes]]\n{rest}")).unwrap();
    assert_eq!(rules(&fewer), ["nic-lro", "nic-queues"]);
}

#[test]
fn a_file_that_says_more_or_less_than_a_plan_is_refused() {
    let text = write(&planned(&report(&[]), false).0).unwrap();
    assert_eq!(read(&text), Err(FileError::Plan(PlanError::Empty)));
    let change = "[[changes]]\nrule='r'\ndisruption='safe'\nwhy='w'\n[[changes.steps]]\nfrom='1'\n";
    let with = |step: &str| read(&format!("{text}\n{change}{step}\n"));
    assert!(with("to='2'\nfile='proc/sys/x'").is_ok());
    for wrong in [
        "to='2'",
        "to='2'\nfile='proc/sys/x'\nnic='a'",
        "to='2'\nnic='a'\nsetting='mtu'\nfeature='x'",
    ] {
        assert!(
            matches!(with(wrong), Err(FileError::Step { step: 1, .. })),
            "{wrong}"
        );
    }
    for strange in [
        "file='proc/sys/x'",
        "to='2'\nfile='proc/sys/x'\nhow='fast'",
        "to='2'\nnic='a'\nsetting='colour'",
    ] {
        assert!(
            matches!(with(strange), Err(FileError::Text(_))),
            "{strange}"
        );
    }
    let mtu = with("to='9000'\nnic='a'\nsetting='mtu'");
    assert!(
        matches!(mtu, Err(FileError::Plan(PlanError::RaisesMtu { .. }))),
        "{mtu:?}"
    );
    assert!(with("to='1'\nnic='a'\nsetting='mtu'").is_ok());
    let escape = with("to=\"\\u001b[2J\"\nfile='proc/sys/x'");
    assert!(
        matches!(escape, Err(FileError::Plan(PlanError::Word { .. }))),
        "{escape:?}"
    );
    let twice = format!("to='2'\nfile='proc/sys/x'\n{change}to='3'\nfile='proc/sys/x'");
    assert!(matches!(
        with(&twice),
        Err(FileError::Plan(PlanError::Twice { .. }))
    ));
}
