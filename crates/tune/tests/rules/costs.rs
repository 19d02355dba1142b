//! What each rule says that its finding costs a migration.

use std::collections::{BTreeMap, BTreeSet};

use drover_tune::{RULES, examine};

use crate::cases::{CASES, PAIRS};
use crate::documented::without_cost;
use crate::guests::{self, ELSEWHERE, GUESTS};
use crate::hosts::{bonded, healthy, value};

/// Each cost that the cases of rules have, those of one rule in their order, and each once.
fn told() -> BTreeMap<&'static str, Vec<String>> {
    let mut told: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut take = |rule: &'static str, hosts: &[_]| {
        let findings = examine(hosts, &[]).findings.into_iter();
        let costs = findings.filter(|finding| finding.rule == rule);
        for cost in costs.filter_map(|finding| finding.found.cost) {
            let of = told.entry(rule).or_default();
            if !of.contains(&cost) {
                of.push(cost);
            }
        }
    };
    for (rule, _, spoil) in CASES {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        take(rule, &[host]);
    }
    for (rule, _, spoil) in PAIRS {
        let mut other = healthy("b", 2);
        spoil(&mut other);
        take(rule, &[healthy("a", 1), other]);
    }
    for (rule, _, spoil) in GUESTS {
        let mut host = guests::healthy("a", 1);
        spoil(&mut host);
        take(rule, &[host]);
    }
    for (rule, _, spoil) in ELSEWHERE {
        let mut other = guests::healthy("b", 2);
        value(&mut other.guests).clear();
        spoil(&mut other);
        take(rule, &[guests::healthy("a", 1), other]);
    }
    let (mut own, mut other) = (healthy("a", 1), healthy("b", 2));
    bonded(&mut own, "802.3ad", "layer3+4", &["ens1f0", "ens1f1"]);
    bonded(&mut other, "active-backup", "layer2", &["ens1f0"]);
    take("pair-bond", &[own, other]);
    told
}

#[test]
fn what_costs_a_migration_in_numbers_is_told_so() {
    let told = told().into_iter().map(|(rule, costs)| {
        let lines = costs.into_iter().map(|cost| format!("  {cost}\n"));
        format!("{rule}\n{}", lines.collect::<String>())
    });
    let told: String = told.collect();
    assert_eq!(told, TOLD, "{told}");
}

#[test]
fn a_rule_tells_a_cost_or_the_documentation_says_why_it_cannot() {
    let (told, without) = (told(), without_cost());
    // Those of paths: `paths.rs`.
    let rules = RULES.iter().map(|rule| rule.name);
    for rule in rules.filter(|rule| !rule.starts_with("path-")) {
        let (tells, is_named) = (told.contains_key(rule), without.contains(&rule));
        assert_ne!(tells, is_named, "{rule}");
    }
    let is_rule = |name: &str| RULES.iter().any(|rule| rule.name == name);
    assert!(without.iter().all(|name| is_rule(name)), "{without:?}");
    let each: BTreeSet<&&str> = without.iter().collect();
    assert_eq!(each.len(), without.len());
}

/// Each rule, and each cost of its cases.
const TOLD: &str = "\
bond-members
  a guest of 64 GiB crosses in 24 s instead of 12 s
bond-mode
  a guest of 64 GiB crosses in 24 s instead of 12 s
cpu-governor
  1.2 GHz instead of 3.6: what processors do takes up to 3.0 times as long
cpu-sleep
  each wake takes up to 133 µs instead of 20
dcb-most
  a guest of 64 GiB crosses in 3 min instead of 24 s
dcb-pressure
  up to 13 s of 3600 since the host was started
dcb-share
  a guest of 64 GiB crosses in 3 min instead of 24 s
guest-mtu
  a GiB takes 741535 packets instead of 119998
guest-pages
  whoever reads it goes through 16 MiB of tables instead of 32 KiB
guest-prealloc
  each of its migrations begins some 40 s later
link-errors
  one by one, they hold a connection to some 8734 Mbit/s where a round trip takes 1 ms
link-module
  a guest of 64 GiB crosses in 61 s instead of 24 s
link-speed
  a guest of 64 GiB crosses in 61 s instead of 24 s
  a guest of 64 GiB crosses in 11 min instead of 24 s
net-backlog
  one by one, they hold a connection to some 9993 Mbit/s where a round trip takes 0.2 ms, and 1999 where it takes 1 ms
net-budget
  one by one, they hold a connection to some 11275 Mbit/s where a round trip takes 1 ms
nic-coalescing
  a GiB takes 119998 interrupts at a full line
  what arrives waits up to 1000 µs
nic-crowded
  a guest of 64 GiB crosses in 61 s instead of 24 s
nic-offloads
  a GiB takes 119998 packets instead of 16398
nic-queues
  a guest of 64 GiB crosses in 61 s instead of 24 s
nic-ring
  25 Gbit/s fill all places in 245 µs instead of 491
nic-spread
  a guest of 64 GiB crosses in 61 s instead of 24 s
pair-bond
  a guest of 64 GiB crosses in 24 s instead of 12 s
pair-clock
  downtimes are told wrong by up to 5000 ms
  downtimes are told wrong by up to 3600000 ms
pair-mtu
  a GiB takes 135096 packets instead of 119998
pair-speed
  a guest of 64 GiB crosses in 61 s instead of 24 s
pci-slot
  a guest of 64 GiB crosses in 86 s instead of 12 s
  a guest of 64 GiB crosses in 21 s instead of 12 s
  a guest of 64 GiB crosses in 42 s instead of 12 s
rdma-pieces
  a GiB takes 1048576 pieces instead of 262144
tcp-buffers
  a connection carries 16.8 Gbit/s at most where a round trip takes 1 ms
  a connection carries 5.2 Gbit/s at most where a round trip takes 0.2 ms, and 1 Gbit/s where it takes 1 ms
tcp-window
  a connection carries 2.6 Gbit/s at most where a round trip takes 0.2 ms, and 524.3 Mbit/s where it takes 1 ms
";
