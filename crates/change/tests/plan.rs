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
            vec![file(wmem, "4096 16384 8388608")],
        ),
        (
            "tcp-same",
            Disruption::Safe,
            vec![file(wmem, "4096 16384 8388608")],
        ),
        (
            "tcp-other",
            Disruption::Safe,
            vec![file(wmem, "4096 16384 9437184")],
        ),
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
            "tcp-other: net.ipv4.tcp_wmem becomes \"4096 16384 8388608\" already, by another change",
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
        "# + net.ipv4.tcp_wmem = 4096 16384 8388608",
        "#   sysctl -w 'net.ipv4.tcp_wmem=4096 16384 8388608'",
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
    assert!(with("to='2'\nfile='proc/irq/7/smp_affinity_list'").is_ok());
    for wrong in [
        "to='2'",
        "to='2'\nfile='proc/irq/7/smp_affinity_list'\nnic='a'",
        "to='2'\nnic='a'\nsetting='mtu'\nfeature='x'",
    ] {
        assert!(
            matches!(with(wrong), Err(FileError::Step { step: 1, .. })),
            "{wrong}"
        );
    }
    for strange in [
        "file='proc/irq/7/smp_affinity_list'",
        "to='2'\nfile='proc/sys/net/ipv4/tcp_timestamps'\nhow='fast'",
        "to='2'\nnic='a'\nsetting='colour'",
    ] {
        assert!(
            matches!(with(strange), Err(FileError::Text(_))),
            "{strange}"
        );
    }

    let escape = with("to=\"\\u001b[2J\"\nfile='proc/irq/7/smp_affinity_list'");
    assert!(
        matches!(escape, Err(FileError::Plan(PlanError::Word { .. }))),
        "{escape:?}"
    );
    let twice = format!(
        "to='2'\nfile='proc/irq/7/smp_affinity_list'\n{change}to='3'\nfile='proc/irq/7/smp_affinity_list'"
    );
    assert!(matches!(
        with(&twice),
        Err(FileError::Plan(PlanError::Twice { .. }))
    ));
}

/// What becomes of a plan with one step.
fn checked(disruption: Disruption, step: Step) -> Result<(), PlanError> {
    let (mut plan, _) = planned(&all(), true);
    plan.changes.truncate(1);
    plan.changes[0].disruption = disruption;
    plan.changes[0].steps = vec![step];
    plan.check()
}

#[test]
fn packets_get_no_larger_and_never_so_small_that_addresses_go() {
    let mtu = |from, to| checked(Disruption::BouncesLink, nic(NicSetting::Mtu, from, to));
    assert_eq!(mtu("9000", "1500"), Ok(()));
    assert_eq!(mtu("9000", "1280"), Ok(()));
    assert!(matches!(
        mtu("1500", "9000"),
        Err(PlanError::RaisesMtu { .. })
    ));
    for small in ["1279", "67", "1", "0"] {
        let refused = mtu("9000", small);
        assert!(
            matches!(refused, Err(PlanError::SmallMtu { .. })),
            "{refused:?}"
        );
    }
    assert!(mtu("9000", "-1").is_err() && mtu("9000", "").is_err());
}

#[test]
fn nothing_is_set_but_what_rules_set_and_to_nothing_that_they_do_not_want() {
    let set = |path: &str, to| checked(Disruption::Safe, file(path, to));
    let (wmem, irq) = ("proc/sys/net/ipv4/tcp_wmem", "proc/irq/7/smp_affinity_list");
    let rps = "sys/class/net/ens1f0/queues/rx-0/rps_cpus";
    let stamps = "proc/sys/net/ipv4/tcp_timestamps";
    for (path, fits, not) in [
        (wmem, "4096 16384 8388608", "4096 8388608 16384"),
        (wmem, "1 1 1", "4096 16384"),
        (irq, "0-3,8", ""),
        (rps, "0", "f"),
        (stamps, "1", "0"),
    ] {
        assert_eq!(set(path, fits), Ok(()), "{path}");
        let refused = set(path, not);
        assert!(
            matches!(refused, Err(PlanError::Value { .. })),
            "{path}: {refused:?}"
        );
    }
    for path in [
        "proc/sys/kernel/core_pattern",
        "proc/sys/net//ipv4/./tcp_timestamps",
    ] {
        let refused = set(path, "1");
        assert!(
            matches!(refused, Err(PlanError::Setting { .. })),
            "{refused:?}"
        );
    }
    let feature = nic(NicSetting::Feature("rx-all".into()), "off", "on");
    let refused = checked(Disruption::Safe, feature);
    assert!(
        matches!(refused, Err(PlanError::Setting { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_change_says_at_least_what_its_settings_do_to_others() {
    let queues = || nic(NicSetting::CombinedChannels, "1", "8");
    let refused = checked(Disruption::Safe, queues());
    assert!(
        matches!(refused, Err(PlanError::Understated { .. })),
        "{refused:?}"
    );
    assert_eq!(checked(Disruption::BouncesLink, queues()), Ok(()));
    // Nor is a finding believed.
    let found = report(&[("nic-queues", Disruption::Safe, vec![queues()])]);
    let (plan, left_out) = planned(&found, false);
    assert_eq!(rules(&plan), <[&str; 0]>::default());
    assert_eq!(left_out[0].1, "it may bounce the link");
    assert!(planned(&found, true).0.bounces());
}

#[test]
fn words_of_a_plan_have_nothing_that_a_terminal_takes_for_an_order() {
    let (plan, _) = planned(&all(), true);
    let escape = || "\u{1b}[2J".to_owned();
    let spoils: [fn(&mut Plan, String); 4] = [
        |plan, word| plan.boot = word,
        |plan, word| plan.version = word,
        |plan, word| plan.changes[0].nic = Some(word),
        |plan, word| plan.changes[0].why = word,
    ];
    for spoil in spoils {
        let mut plan = plan.clone();
        spoil(&mut plan, escape());
        assert!(matches!(plan.check(), Err(PlanError::Word { .. })));
    }
}

#[test]
fn a_file_that_is_too_long_is_not_looked_at() {
    let long = "#".repeat((4 << 20) + 1);
    assert!(matches!(read(&long), Err(FileError::Long { .. })));
}

#[test]
fn files_of_an_interface_whose_queues_become_others_are_left_out() {
    let far = file("proc/irq/7/smp_affinity_list", "0-3");
    let found = report(&[
        ("nic-interrupts", Disruption::Safe, vec![far]),
        (
            "nic-queues",
            Disruption::BouncesLink,
            vec![nic(NicSetting::CombinedChannels, "1", "8")],
        ),
    ]);
    let (plan, left_out) = planned(&found, true);
    assert_eq!(rules(&plan), ["nic-queues"]);
    assert_eq!(left_out[0].0, "nic-interrupts");
    assert!(
        left_out[0].1.contains("run the doctor again"),
        "{left_out:?}"
    );
    // As long as these stay, so do they.
    assert_eq!(rules(&planned(&found, false).0), ["nic-interrupts"]);
}
