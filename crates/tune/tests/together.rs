//! Paths that were loaded at the same time: what they share that carries less than they do alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;

use Fact::Known;
use drover_tune::facts::{
    Answers, Carried, Crossing, Fact, HeldUpBy, Joint, Path, PathEnd, Together,
};
use drover_tune::{Finding, Known as At, Report, Severity, differences, examine};

const MBIT: u64 = 1_000_000;

/// Of every link, in Mbit/s.
const LINE: u64 = 10_000;

const NOT_LOADED: &str = "it was not loaded so";

fn end(host: &str) -> PathEnd {
    PathEnd {
        host: host.into(),
        nic: "n0".into(),
        address: "10.0.0.1".parse().unwrap(),
        mtu: 9000,
    }
}

fn carried(mbit: u64) -> Carried {
    Carried {
        rate: mbit * MBIT,
        line: Some(LINE * MBIT),
        allowed: None,
        packets: 1000,
        again: 0,
        held_up_by: HeldUpBy::Path,
    }
}

/// One that carries so much alone, and says nothing of what it carries with others.
fn path(near: &str, far: &str, alone: u64) -> Path {
    let whole = Crossing {
        size: 9000,
        vanish: false,
    };
    Path {
        near: end(near),
        far: end(far),
        route: Known("n0".into()),
        refused: None,
        answers: Known(Answers {
            asked: 100,
            answered: 100,
        }),
        arrivals: Known(["n0".to_owned()].into()),
        there: Known(whole),
        back: Known(whole),
        round_trip: Known(200),
        carried: Some(Known(carried(alone))),
        together: Some(Together {
            to_one: Fact::unknown(NOT_LOADED),
            each_other: Fact::unknown(NOT_LOADED),
        }),
    }
}

fn joint(carried: Carried, round: u32) -> Fact<Joint> {
    Known(Joint {
        carried,
        round,
        far_ports: BTreeSet::from(["n0".to_owned()]),
        far_line: Some(LINE * MBIT),
    })
}

fn together(path: &mut Path) -> &mut Together {
    path.together.as_mut().unwrap()
}

/// Carries so much while others load the same host.
fn to_one(mut path: Path, mbit: u64) -> Path {
    together(&mut path).to_one = joint(carried(mbit), 0);
    path
}

/// Carries so much while every host loads another.
fn each_other(mut path: Path, mbit: u64, round: u32) -> Path {
    together(&mut path).each_other = joint(carried(mbit), round);
    path
}

fn of_rule<'r>(report: &'r Report, rule: &str) -> Vec<&'r Finding> {
    let findings = report.findings.iter();
    findings.filter(|finding| finding.rule == rule).collect()
}

/// What is found of hosts that load one, as it is read, with its severity.
fn incast(paths: &[Path]) -> Option<(Severity, String)> {
    let report = examine(&[], paths);
    let found = of_rule(&report, "path-incast");
    assert!(found.len() < 2, "{found:#?}");
    let found = found.first()?;
    assert_eq!(found.subject.to_string(), "a");
    Some((found.found.severity, found.found.read.clone()))
}

#[test]
fn several_that_fill_the_link_of_one_are_right_however_little_each_carries() {
    let paths = ["b", "c", "d"].map(|near| to_one(path(near, "a", 9_400), 3_100));
    assert_eq!(incast(&paths), None);
    let report = examine(&[], &paths);
    let right = report.right.iter().filter(|it| it.rule == "path-incast");
    assert_eq!(right.count(), 1);
}

#[test]
fn several_that_carry_less_than_the_link_of_one_share_something_that_carries_less() {
    let of = |each: u64| ["b", "c", "d"].map(|near| to_one(path(near, "a", 9_400), each));
    let (severity, read) = incast(&of(2_700)).unwrap();
    assert_eq!(severity, Severity::Warning);
    let told = "b and c and d carry 8100 Mbit/s to its n0 at once, and 28200 one after the other";
    assert_eq!(read, told);
    assert_eq!(incast(&of(1_000)).unwrap().0, Severity::Critical);
    assert_eq!(incast(&of(2_900)), None);
}

#[test]
fn slower_senders_are_held_against_what_they_carry_alone() {
    // Each has a link of 1 Gbit/s.
    let slow = |near: &str, at_once: u64| {
        let mut path = to_one(path(near, "a", 940), at_once);
        if let Some(Known(carried)) = &mut path.carried {
            carried.line = Some(1_000 * MBIT);
        }
        path
    };
    assert_eq!(incast(&[slow("b", 930), slow("c", 935)]), None);
    let (_, read) = incast(&[slow("b", 480), slow("c", 490)]).unwrap();
    assert!(read.contains("carry 970 Mbit/s"), "{read}");
}

#[test]
fn what_each_was_allowed_counts_and_not_what_it_carries_alone() {
    let allowed = |near: &str, at_once: u64| {
        let mut path = to_one(path(near, "a", 4_900), at_once);
        if let Some(Known(carried)) = &mut path.carried {
            carried.allowed = Some(5_000 * MBIT);
        }
        if let Known(joint) = &mut together(&mut path).to_one {
            joint.carried.allowed = Some(2_500 * MBIT);
        }
        path
    };
    assert_eq!(incast(&[allowed("b", 2_400), allowed("c", 2_450)]), None);
    assert!(incast(&[allowed("b", 1_900), allowed("c", 1_900)]).is_some());
}

#[test]
fn lines_of_one_host_carry_together_what_each_does_and_those_of_one_port_no_more_than_that() {
    // They arrive by different interfaces.
    let by = |near: &str, nic: &str, port: &str, at_once: u64| {
        let mut path = to_one(path(near, "a", 9_400), at_once);
        path.far.nic = nic.into();
        if let Known(joint) = &mut together(&mut path).to_one {
            joint.far_ports = BTreeSet::from([port.to_owned()]);
        }
        path
    };
    let apart = |at_once| [by("b", "n0", "n0", at_once), by("c", "n1", "n1", at_once)];
    assert_eq!(incast(&apart(9_300)), None);
    let (_, read) = incast(&apart(4_700)).unwrap();
    assert!(read.contains("to its n0 and n1 at once"), "{read}");
    let vlans = |at_once| {
        [
            by("b", "n0.1", "n0", at_once),
            by("c", "n0.2", "n0", at_once),
        ]
    };
    assert_eq!(incast(&vlans(4_700)), None);
    assert!(incast(&vlans(3_000)).is_some());
}

#[test]
fn whose_processors_held_several_up_is_said() {
    let mut paths = ["b", "c"].map(|near| to_one(path(near, "a", 9_400), 2_000));
    let mut held = |what| {
        for path in &mut paths {
            if let Known(joint) = &mut together(path).to_one {
                joint.carried.held_up_by = what;
                joint.carried.again = 3;
            }
        }
        incast(&paths).unwrap().1
    };
    let far = held(HeldUpBy::Far);
    let told = "; the processors of a took no more, with 6 of 2000 packets sent again";
    assert!(far.ends_with(told), "{far}");
    let near = held(HeldUpBy::Near);
    assert!(near.contains("processors of b and c had no more"), "{near}");
}

#[test]
fn what_could_not_be_compared_is_skipped_because() {
    let because = |paths: &[Path]| {
        let report = examine(&[], paths);
        assert_eq!(of_rule(&report, "path-incast").len(), 0);
        let mut skipped = report.skipped.into_iter();
        let found = skipped.find(|it| it.rule == "path-incast" && it.because != NOT_LOADED);
        found.map(|it| it.because)
    };
    let mut untold = ["b", "c"].map(|near| to_one(path(near, "a", 9_400), 1_000));
    for path in &mut untold {
        if let Known(joint) = &mut together(path).to_one {
            joint.far_line = None;
        }
    }
    let told = "nobody tells the rate of its n0";
    assert_eq!(because(&untold).as_deref(), Some(told));
    // Whatever holds each of them up alone is found by another rule.
    let short = ["b", "c"].map(|near| to_one(path(near, "a", 900), 450));
    assert!(because(&short).unwrap().contains("path-rate"));
    let mut alone = to_one(path("b", "a", 9_400), 1_000);
    alone.carried = None;
    assert_eq!(
        because(&[alone]).as_deref(),
        Some("it was not loaded alone")
    );
    // What one host carries is no matter of several, and what was not to be loaded is none at all.
    assert_eq!(because(&[to_one(path("b", "a", 9_400), 1_000)]), None);
    let mut unasked = path("b", "a", 9_400);
    unasked.together = None;
    assert_eq!(examine(&[], &[unasked]).skipped, []);
}

/// Two hosts at each of two switches, whose uplink carries as much as one of them; rounds by how far the loaded host is.
fn uplink(across: u64) -> Vec<Path> {
    let hosts = ["a", "b", "c", "d"];
    let mut paths = Vec::new();
    for (at, near) in hosts.iter().enumerate() {
        for round in 1..4 {
            let to = (at + round) % 4;
            // In the second round two cross it each way, in the others one.
            let at_once = if round == 2 { across } else { 9_300 };
            let round = u32::try_from(round).unwrap();
            paths.push(each_other(path(near, hosts[to], 9_400), at_once, round));
        }
    }
    paths
}

#[test]
fn an_uplink_that_two_share_is_found_by_what_crosses_it_and_by_nothing_else() {
    assert_eq!(
        of_rule(&examine(&[], &uplink(9_200)), "path-together"),
        <[&Finding; 0]>::default()
    );
    let report = examine(&[], &uplink(4_700));
    let found = of_rule(&report, "path-together");
    let about: Vec<String> = found.iter().map(|it| it.subject.to_string()).collect();
    assert_eq!(about, ["a n0", "b n0", "c n0", "d n0"]);
    let first = &found[0].found;
    assert_eq!(first.severity, Severity::Warning);
    let told = "n0 carries 4700 Mbit/s to n0 of c while every host loads another, and 9400 alone; \
                at the same time b n0 to d n0, c n0 to a n0, d n0 to b n0 fell short";
    assert_eq!(first.read, told);
    let cost =
        "50 % of what it could carry; all 4 paths of that time carried 18800 of 37600 Mbit/s";
    assert_eq!(first.cost.as_deref(), Some(cost));
    assert!(first.by_hand.as_ref().unwrap().contains("uplink"));
}

#[test]
fn processors_that_held_one_up_are_told_apart_from_what_paths_share() {
    let mut paths = uplink(9_300);
    if let Known(joint) = &mut together(&mut paths[1]).each_other {
        joint.carried.rate = 2_000 * MBIT;
        joint.carried.held_up_by = HeldUpBy::Near;
    }
    let report = examine(&[], &paths);
    let found = of_rule(&report, "path-together");
    assert_eq!(found.len(), 1);
    let Finding { subject, found, .. } = found[0];
    assert_eq!(subject.to_string(), "a n0");
    assert_eq!(found.severity, Severity::Critical);
    assert!(
        found
            .read
            .ends_with("the processors of a had no more to send"),
        "{found:?}"
    );
    assert!(found.by_hand.as_ref().unwrap().contains("processors of a"));
}

fn at(paths: &[Path]) -> At<'_> {
    At { hosts: &[], paths }
}

#[test]
fn what_was_loaded_together_one_time_alone_has_not_changed() {
    let told = |before: &[Path], now: &[Path]| {
        let found = differences(at(before), at(now));
        let told = found
            .findings
            .iter()
            .map(|it| format!("{} {} {}", it.trend, it.what, it.subject));
        (told.collect::<Vec<_>>(), found.not_compared)
    };
    let (fine, slow) = (uplink(9_300), uplink(4_700));
    let new = ["a", "b", "c", "d"].map(|host| format!("new path-together {host} n0"));
    assert_eq!(told(&fine, &slow), (new.to_vec(), 0));
    let mut unasked = uplink(9_300);
    for path in &mut unasked {
        path.together = None;
    }
    assert_eq!(told(&unasked, &slow), (Vec::new(), 4));
}
