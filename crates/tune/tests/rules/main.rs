//! Every rule against a host with nothing wrong, and against that host with the one thing wrong that it is for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cases;
mod dcbx;
mod definitions;
mod document;
mod domains;
mod guests;
mod hosts;
mod kernel;
mod layers;
mod links;
mod media;
mod nameless;
mod pairs;
mod power;
mod queues;
mod since;
mod switches;
mod wishes;

use std::collections::BTreeSet;

use cases::{CASES, PAIRS};
use drover_tune::facts::{Fact, Fact::Known, Host};
use drover_tune::{Disruption, RULES, Report, Severity, disruption, examine, settable};
use guests::{ELSEWHERE, GUESTS};
use hosts::{healthy, names, set};

#[test]
fn hosts_with_nothing_wrong_have_no_findings_and_nothing_is_skipped() {
    let report = examine(&[healthy("a", 1), healthy("b", 2)], &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(report.skipped, []);
    assert!(report.right.len() > 50, "{}", report.right.len());
}

#[test]
fn each_rule_finds_the_one_thing_that_it_is_for_and_no_other_does() {
    for (rule, severity, spoil) in CASES {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        let report = examine(&[host], &[]);
        assert_eq!(names(&report), [*rule], "{report:#?}");
        let finding = &report.findings[0];
        assert_eq!(finding.found.severity, *severity, "{rule}");
        assert!(
            finding.found.change.is_some() || finding.found.by_hand.is_some(),
            "{rule}"
        );
        assert_eq!(finding.subject.host, "a");
        assert!(!finding.documentation.is_empty(), "{rule}");
        let class = finding
            .found
            .change
            .as_ref()
            .map(|change| change.disruption);
        assert_eq!(
            finding.disruption,
            class.unwrap_or(Disruption::ByHand),
            "{rule}"
        );
    }
}

#[test]
fn what_is_changed_in_a_definition_is_persistent() {
    for (rule, _, spoil) in GUESTS {
        let mut host = guests::healthy("a", 1);
        spoil(&mut host);
        let report = examine(&[host], &[]);
        let finding = report
            .findings
            .iter()
            .find(|one| one.rule == *rule)
            .unwrap();
        let class = match finding.found.lines.is_empty() {
            true => Disruption::ByHand,
            false => Disruption::Persistent,
        };
        assert_eq!(finding.disruption, class, "{rule}");
    }
}

#[test]
fn what_costs_a_migration_in_numbers_is_told_so() {
    let crosses = "a guest of 64 GiB crosses in 24 s instead of 12 s";
    let costs = [
        (
            "link-errors",
            // In 0.2 ms it is more than the line carries.
            "one by one, they hold a connection to some 8734 Mbit/s where a round trip takes 1 ms",
        ),
        (
            "link-errors",
            "one by one, they hold a connection to some 8734 Mbit/s where a round trip takes 1 ms",
        ),
        (
            "link-errors",
            "one by one, they hold a connection to some 8734 Mbit/s where a round trip takes 1 ms",
        ),
        ("bond-mode", crosses),
        ("bond-mode", crosses),
        ("bond-members", crosses),
        ("bond-members", crosses),
        (
            "nic-queues",
            "a guest of 64 GiB crosses in 61 s instead of 24 s",
        ),
        (
            "cpu-governor",
            "1.2 GHz instead of 3.6: what processors do takes up to 3.0 times as long",
        ),
        (
            "tcp-buffers",
            // In 0.2 ms it is more than the line carries.
            "a connection carries 16.8 Gbit/s at most where a round trip takes 1 ms",
        ),
        (
            "tcp-buffers",
            "a connection carries 5.2 Gbit/s at most where a round trip takes 0.2 ms, and 1 Gbit/s where it takes 1 ms",
        ),
        (
            "tcp-window",
            "a connection carries 2.6 Gbit/s at most where a round trip takes 0.2 ms, and 524.3 Mbit/s where it takes 1 ms",
        ),
    ];
    let is_counted = |rule: &str| costs.iter().any(|(of, _)| *of == rule);
    let mut told = Vec::new();
    for (rule, _, spoil) in CASES.iter().filter(|(rule, ..)| is_counted(rule)) {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        let cost = examine(&[host], &[]).findings[0].found.cost.clone();
        told.push((*rule, cost.unwrap_or_else(|| panic!("{rule}"))));
    }
    let costs = costs.map(|(rule, cost)| (rule, cost.to_owned()));
    assert_eq!(told, costs);
}

#[test]
fn what_rules_set_can_be_set_and_does_no_more_to_others_than_they_say() {
    let mut rules = BTreeSet::new();
    for (rule, _, spoil) in CASES {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        let findings = examine(&[host], &[]).findings.into_iter();
        for change in findings.filter_map(|finding| finding.found.change) {
            for step in &change.steps {
                assert!(settable(step) && settable(&step.undo()), "{rule}: {step}");
                assert_eq!(disruption(step), change.disruption, "{rule}: {step}");
                rules.insert(*rule);
            }
        }
    }
    assert!(rules.len() > 10, "{rules:?}");
}

#[test]
fn each_rule_about_two_hosts_finds_what_differs() {
    for (rule, severity, spoil) in PAIRS {
        let (host, mut other) = (healthy("a", 1), healthy("b", 2));
        spoil(&mut other);
        let report = examine(&[host, other], &[]);
        assert_eq!(names(&report), [*rule], "{report:#?}");
        assert_eq!(report.findings[0].found.severity, *severity, "{rule}");
        let subject = report.findings[0].subject.to_string();
        assert!(
            ["a and b ens1f0", "a and b"].contains(&subject.as_str()),
            "{subject}"
        );
    }
}

#[test]
fn every_rule_has_a_name_of_its_own_and_says_what_it_wants_and_where_that_is_said() {
    let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), RULES.len());
    for rule in RULES {
        assert!(
            !rule.wants.is_empty() && !rule.source.is_empty(),
            "{}",
            rule.name
        );
    }
}

#[test]
fn each_rule_has_a_case() {
    let cases: BTreeSet<&str> = CASES
        .iter()
        .chain(PAIRS)
        .chain(GUESTS)
        .chain(ELSEWHERE)
        .map(|(rule, ..)| *rule)
        .collect();
    let without = RULES
        .iter()
        .map(|rule| rule.name)
        .filter(|name| !cases.contains(name) && !name.starts_with("path-"));
    // Those about paths have theirs in `paths.rs`. Where the other is wrong, the link has no rate either, of which another rule speaks: it has a test of its own.
    // A bond takes both hosts' interfaces: that they differ has a test in `layers.rs`.
    assert_eq!(without.collect::<Vec<_>>(), ["link-fec", "pair-bond"]);
}

#[test]
fn powersave_follows_the_work_with_drivers_that_see_to_it() {
    let mut host = healthy("a", 1);
    host.processors.governors = Known([("powersave".to_owned(), 8)].into());
    host.processors.drivers = Known([("intel_pstate".to_owned(), 8)].into());
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn what_is_not_known_is_skipped_with_its_reason_and_never_right() {
    let mut host = healthy("a", 1);
    let before = examine(std::slice::from_ref(&host), &[]).right.len();
    host.nics[0].rings = Fact::unknown("its driver does not tell");
    let report = examine(&[host], &[]);
    assert_eq!(report.right.len(), before - 1);
    let [skipped] = &report.skipped[..] else {
        panic!("{:#?}", report.skipped);
    };
    assert_eq!(
        (skipped.rule.as_str(), skipped.because.as_str()),
        ("nic-ring", "its driver does not tell")
    );
    assert_eq!(skipped.subject.to_string(), "a ens1f0");
}

#[test]
fn findings_come_with_the_worst_first() {
    let mut host = healthy("a", 1);
    for (.., spoil) in CASES
        .iter()
        .filter(|(rule, ..)| *rule != "bond-mode" && *rule != "bond-members")
    {
        spoil(&mut host);
    }
    let report = examine(&[host], &[]);
    let severities: Vec<Severity> = report
        .findings
        .iter()
        .map(|finding| finding.found.severity)
        .collect();
    assert!(severities.is_sorted());
    assert_eq!(
        report
            .counts()
            .iter()
            .map(|(_, count)| count)
            .sum::<usize>(),
        report.findings.len()
    );
}

#[test]
fn a_report_is_the_same_after_it_was_written_down() {
    let mut host = healthy("a", 1);
    host.nics[0].rings = Fact::unknown("its driver does not tell");
    set(&mut host, "net.ipv4.tcp_wmem", "4096 16384 65536");
    let text = serde_json::to_string(&host).unwrap();
    assert_eq!(serde_json::from_str::<Host>(&text).unwrap(), host);
    let report = examine(&[host], &[]);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}
