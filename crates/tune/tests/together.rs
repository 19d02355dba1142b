//! Paths that were loaded at the same time: what they share that carries less than they do alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;

use Fact::Known;
use drover_tune::facts::{
    Answers, Carried, Counted, Crossing, Fact, HeldUpBy, Joint, Path, PathEnd, Together, Traffic,
};
use drover_tune::{Finding, Known as At, Report, Severity, differences, examine};

const MBIT: u64 = 1_000_000;

/// Of every link, in Mbit/s.
const LINE: u64 = 10_000;

/// As much as crossed, and headers.
const COUNTED: Counted = Counted {
    asked: 500_000,
    answered: 600_000,
    near: Traffic {
        received: 610_000,
        sent: 510_000,
    },
    far: Traffic {
        received: 510_000,
        sent: 610_000,
    },
};

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
        slot: None,
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
        counted: Known(COUNTED),
        carried: Some(Known(carried(alone))),
        together: Some(Together {
            beside: false,
            to_one: Fact::unknown(NOT_LOADED),
            each_other: Fact::unknown(NOT_LOADED),
        }),
    }
}

fn joint(carried: Carried, round: u32) -> Fact<Joint> {
    Known(Joint {
        carried,
        round,
        near_ports: BTreeSet::from(["n0".to_owned()]),
        far_ports: BTreeSet::from(["n0".to_owned()]),
        far_line: Some(LINE * MBIT),
    })
}

fn together(path: &mut Path) -> &mut Together {
    path.together.as_mut().unwrap()
}

/// What it carried both ways of being loaded.
fn both(path: &mut Path) -> [&mut Joint; 2] {
    let Together {
        to_one: Known(to_one),
        each_other: Known(each_other),
        ..
    } = together(path)
    else {
        panic!("it was not loaded");
    };
    [to_one, each_other]
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
    let mut alone = to_one(path("b", "a", 9_400), 1_000);
    alone.carried = None;
    assert_eq!(
        because(&[alone]).as_deref(),
        Some("it was not loaded alone")
    );
    // What one host carries is no matter of several, and what was not to be loaded is none at all.
    let told = "no two hosts have a path to it that was measured";
    let one = to_one(path("b", "a", 9_400), 1_000);
    assert_eq!(because(&[one]).as_deref(), Some(told));
    let mut unasked = path("b", "a", 9_400);
    unasked.together = None;
    assert_eq!(examine(&[], &[unasked]).skipped, []);
}

/// Two that one port of the switch holds to so much, alone and at once.
fn held_to(nic: &str, alone: u64, at_once: u64) -> [Path; 2] {
    ["b", "c"].map(|near| {
        let mut path = to_one(path(near, "a", alone), at_once);
        path.far.nic = nic.into();
        if let Known(joint) = &mut together(&mut path).to_one {
            joint.far_ports = BTreeSet::from([nic.to_owned()]);
        }
        path
    })
}

/// What is found of `a`, and why it was skipped.
fn of_a(paths: &[Path]) -> (Option<String>, Option<String>) {
    let skipped = examine(&[], paths).skipped.into_iter();
    let mut skipped = skipped.filter(|it| it.rule == "path-incast");
    let skipped = skipped.find(|it| it.subject.to_string() == "a");
    let found = incast(paths).map(|(_, read)| read);
    (found, skipped.map(|it| it.because))
}

#[test]
fn what_a_port_does_to_each_path_alone_is_not_found_a_second_time_and_what_comes_on_top_is() {
    let own_fault = held_to("n0", 2_900, 1_450);
    let because = "n0 gets too little from each host alone: see `path-rate`".to_owned();
    assert_eq!(of_a(&own_fault), (None, Some(because.clone())));
    // A slower sender is not short alone, and is held up by that port as well.
    let mut slow = path("c", "a", 940);
    if let Some(Known(carried)) = &mut slow.carried {
        carried.line = Some(1_000 * MBIT);
    }
    let mixed = [to_one(path("b", "a", 2_900), 1_960), to_one(slow, 940)];
    assert_eq!(of_a(&mixed), (None, Some(because)));
    // All together carry less than each of them.
    let (found, skipped) = of_a(&held_to("n0", 2_900, 500));
    let told = "b and c carry 1000 Mbit/s to its n0 at once";
    assert!(found.unwrap().starts_with(told));
    assert_eq!(skipped, None);
}

#[test]
fn a_port_with_a_fault_of_its_own_does_not_hide_what_is_wrong_with_another() {
    let own_fault = held_to("n0", 2_900, 1_450);
    let lines = |at_once| [own_fault.clone(), held_to("n1", 9_400, at_once)].concat();
    let (found, skipped) = of_a(&lines(3_000));
    let told = "b and c carry 6000 Mbit/s to its n1 at once";
    assert!(found.unwrap().starts_with(told));
    assert_eq!(skipped, None);
    let (found, skipped) = of_a(&lines(4_700));
    assert_eq!(found, None);
    assert!(skipped.unwrap().starts_with("n0 gets too little"));
}

#[test]
fn a_sum_of_which_a_part_is_not_known_is_not_judged() {
    let mut paths = ["b", "c", "d"].map(|near| to_one(path(near, "a", 9_400), 1_000));
    together(&mut paths[1]).to_one = Fact::unknown("c began too late");
    assert_eq!(of_a(&paths), (None, Some("c began too late".to_owned())));
    // What was not measured alone carried nothing: what the others lack is found, and if they lack nothing it is not right.
    paths[1].carried = Some(Fact::unknown("nothing came back"));
    assert!(of_a(&paths).0.unwrap().starts_with("b and d carry 2000"));
    let mut fine = ["b", "c", "d"].map(|near| to_one(path(near, "a", 9_400), 4_700));
    fine[1].carried = Some(Fact::unknown("nothing came back"));
    assert_eq!(of_a(&fine), (None, Some("nothing came back".to_owned())));
}

#[test]
fn a_path_beside_another_of_its_line_has_no_part_in_what_is_said_of_it() {
    let why = "it shares a line with another path";
    let beside = |mut path: Path| {
        *together(&mut path) = Together {
            beside: true,
            to_one: Fact::unknown(why),
            each_other: Fact::unknown(why),
        };
        path
    };
    let to_a = ["b", "c"].map(|near| to_one(path(near, "a", 9_400), 4_700));
    let paths = [&to_a[..], &[beside(path("b", "a", 9_400))]].concat();
    assert_eq!(of_a(&paths), (None, None));
    let of_b = |paths: &[Path]| {
        let mut skipped = examine(&[], paths).skipped.into_iter();
        let found = skipped.find(|it| it.rule == "path-together");
        found.map(|it| it.because)
    };
    let loaded = each_other(path("b", "a", 9_400), 9_300, 1);
    assert_eq!(of_b(&[loaded, beside(path("b", "c", 9_400))]), None);
    // Unless it is all that there is of that interface.
    let alone = beside(path("b", "c", 9_400));
    assert_eq!(of_b(&[alone]).as_deref(), Some(why));
}

/// With several lines at that end.
fn bonded(mut path: Path, end: fn(&mut Joint) -> &mut BTreeSet<String>) -> Path {
    for joint in both(&mut path) {
        *end(joint) = BTreeSet::from(["n1".to_owned(), "n2".to_owned()]);
    }
    path
}

#[test]
fn where_an_end_has_several_lines_nothing_is_said_as_connections_meet_others_each_time() {
    let load = |near: &str, far: &str| {
        let path = to_one(path(near, far, 9_400), 2_000);
        each_other(path, 2_000, 1)
    };
    let skipped = |paths: &[Path]| {
        let report = examine(&[], paths);
        assert_eq!(report.findings, [], "{report:#?}");
        let all = report.skipped.into_iter();
        let all = all.map(|it| format!("{} {}: {}", it.rule, it.subject, it.because));
        all.collect::<Vec<_>>()
    };
    let why = |host: &str| {
        format!(
            "n0 of {host} stands on n1 and n2, and which of them a connection takes is another thing each time"
        )
    };
    let far = ["b", "c"].map(|near| bonded(load(near, "a"), |joint| &mut joint.far_ports));
    let told = ["path-incast a", "path-together b n0", "path-together c n0"];
    let all = told.map(|it| format!("{it}: {}", why("a")));
    assert_eq!(skipped(&far), all);
    let near = ["b", "c"].map(|near| bonded(load(near, "a"), |joint| &mut joint.near_ports));
    let hosts = ["b", "b", "c"].into_iter();
    let of_each = told.iter().zip(hosts);
    let of_each: Vec<_> = of_each
        .map(|(it, host)| format!("{it}: {}", why(host)))
        .collect();
    assert_eq!(skipped(&near), of_each);
}

#[test]
fn rates_that_nobody_has_are_no_end_of_the_agent() {
    let most = |mut path: Path| {
        let carried = Carried {
            rate: u64::MAX,
            line: Some(u64::MAX),
            allowed: None,
            packets: u64::MAX,
            again: u64::MAX,
            held_up_by: HeldUpBy::Path,
            slot: None,
        };
        path.carried = Some(Known(carried));
        let joint = Joint {
            carried,
            round: 1,
            near_ports: BTreeSet::new(),
            far_ports: BTreeSet::new(),
            far_line: Some(u64::MAX),
        };
        *together(&mut path) = Together {
            beside: false,
            to_one: Known(joint.clone()),
            each_other: Known(joint),
        };
        path
    };
    let mut paths = ["b", "c"].map(|near| most(path(near, "a", 1)));
    assert_eq!(examine(&[], &paths).findings, []);
    for path in &mut paths {
        for joint in both(path) {
            joint.carried.rate = u64::MAX / 4;
        }
    }
    let report = examine(&[], &paths);
    let found: Vec<String> = report
        .findings
        .iter()
        .map(|it| format!("{} {}", it.rule, it.subject))
        .collect();
    let all = ["path-incast a", "path-together b n0", "path-together c n0"];
    assert_eq!(found, all, "{report:#?}");
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

#[test]
fn what_could_not_be_measured_one_of_the_times_is_neither_new_nor_gone() {
    let told = |before: &[Path], now: &[Path]| {
        let found = differences(at(before), at(now));
        (found.findings.len(), found.not_compared)
    };
    let unmeasured = |mut paths: Vec<Path>| {
        for path in &mut paths {
            let unknown = || Fact::unknown("a guest began to move");
            (together(path).to_one, together(path).each_other) = (unknown(), unknown());
        }
        paths
    };
    let slow = uplink(4_700);
    let unknown = unmeasured(uplink(4_700));
    assert_eq!(told(&slow, &unknown), (0, 4));
    assert_eq!(told(&unknown, &slow), (0, 4));
    // One of its paths is enough, as long as nothing is found of the others.
    let mut one = uplink(9_300);
    together(&mut one[0]).each_other = Fact::unknown("b is gone");
    assert_eq!(told(&slow, &one), (3, 1));
    let to_a = |each: u64| {
        let paths = ["b", "c", "d"].map(|near| to_one(path(near, "a", 9_400), each));
        paths.to_vec()
    };
    let unknown = unmeasured(to_a(1_000));
    assert_eq!(told(&to_a(1_000), &unknown), (0, 1));
    assert_eq!(told(&unknown, &to_a(1_000)), (0, 1));
    assert_eq!(told(&to_a(1_000), &to_a(3_100)), (1, 0));
}
