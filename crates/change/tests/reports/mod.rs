//! Reports of the doctor, and what is planned of them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests; none uses all"
)]

use drover_change::Plan;
use drover_tune::{Disruption, NicSetting, Report, Step};
use serde_json::json;

pub fn file(path: &str, to: &str) -> Step {
    Step::File {
        path: path.to_owned(),
        from: "4096 16384 4194304".to_owned(),
        to: to.to_owned(),
    }
}

pub fn nic(what: NicSetting, from: &str, to: &str) -> Step {
    Step::Nic {
        nic: "ens1f0".to_owned(),
        what,
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

/// Findings, as the doctor's JSON has them.
pub fn report(changes: &[(&str, Disruption, Vec<Step>)]) -> Report {
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

pub fn planned(report: &Report, bounce: bool) -> (Plan, Vec<(String, String)>) {
    let host = "a".parse().unwrap();
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let (plan, left_out) = Plan::of(report, (&host, "boot"), at, bounce);
    let left_out = left_out.into_iter().map(|left| (left.rule, left.why));
    (plan, left_out.collect())
}

pub fn all() -> Report {
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
            "nic-offloads",
            Disruption::Safe,
            vec![nic(NicSetting::Feature("rx-gro".into()), "off", "on")],
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

pub fn rules(plan: &Plan) -> Vec<&str> {
    plan.changes
        .iter()
        .map(|change| change.rule.as_str())
        .collect()
}
