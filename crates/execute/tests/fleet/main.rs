//! A whole fleet drained group by group, in virtual time: how near that comes to what the lines allow.
//!
//! Nothing fails here; what happens then is what `tests/simulation` is for. The plans are the planner's
//! own, the pace is the run's own; only the network and the migrations are made up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cluster;
#[path = "../simulation/dice.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod dice;
mod network;
mod shift;

use drover_plan::ClusterPolicy;

use crate::shift::{Drained, Shift};

/// What a test run affords; a larger fleet is a measurement (docs/measurements/fleet.md).
const HOSTS: usize = 40;
const GROUPS: usize = 10;
/// Hosts of a group.
const GROUP: u32 = 4;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Migrations to a host, from a host and in the cluster at once.
fn policy(inbound: u32, outbound: u32, at_once: Option<u32>) -> ClusterPolicy {
    ClusterPolicy {
        inbound,
        outbound,
        at_once,
        ..ClusterPolicy::default()
    }
}

/// Drains all hosts, group by group; every host takes guests again after its group. What that took, in
/// percent of what the lines need.
fn drain_all(name: &str, policy: &ClusterPolicy) -> u64 {
    let hosts = number("DROVER_FLEET_HOSTS").unwrap_or(HOSTS);
    let groups = number("DROVER_FLEET_GROUPS").unwrap_or(GROUPS);
    let mut inventory = cluster::cluster(hosts, 1);
    let groups = cluster::groups(&inventory, groups);
    let drain = |group| Shift::new(&mut inventory, policy, group).drain();
    let all: Vec<Drained> = groups.iter().map(drain).collect();
    report(name, &all)
}

fn report(name: &str, all: &[Drained]) -> u64 {
    let seconds = |ms: fn(&Drained) -> u64| all.iter().map(ms).sum::<u64>() / 1000;
    let (took, bound) = (seconds(|group| group.ms), seconds(Drained::bound_ms));
    let bytes: f64 = all.iter().map(|group| group.bytes).sum();
    let moves: usize = all.iter().map(|group| group.moves).sum();
    let waves = all.iter().map(|group| group.waves).max().unwrap();
    let percent = took * 100 / bound;
    println!(
        "{name}: {} groups, {moves} moves, {waves} waves at most, {:.1} TiB; {took} s, by the lines {bound} s \
         ({} s where guests were placed), planned {} s: {percent} %",
        all.len(),
        bytes / f64::powi(2.0, 40),
        seconds(|group| group.bound_ms().max(group.placed_ms)),
        seconds(|group| group.planned_ms),
    );
    percent
}

/// What holds for every fleet, and for that of a test run what it takes at most.
fn is_near_the_lines(percent: u64, at_most: u64) {
    assert!(percent >= 100, "faster than the lines: {percent} %");
    let is_measured = number("DROVER_FLEET_HOSTS").is_some();
    assert!(is_measured || percent <= at_most, "{percent} %");
}

#[test]
fn a_fleet_is_drained_group_by_group_within_the_limits_of_its_hosts() {
    is_near_the_lines(drain_all("default", &ClusterPolicy::default()), 125);
}

#[test]
fn a_limit_for_the_whole_cluster_holds_though_its_hosts_could_have_more() {
    let is_measured = number("DROVER_FLEET_HOSTS").is_some();
    let at_once = if is_measured { 16 } else { GROUP / 2 };
    let percent = drain_all("fewer at once", &policy(1, 2, Some(at_once)));
    assert!(percent > 150, "the limit made no difference: {percent} %");
}

#[test]
fn a_fleet_that_may_use_its_lines_needs_little_more_than_they_do() {
    is_near_the_lines(drain_all("2 in, 4 out", &policy(2, 4, None)), 108);
}
