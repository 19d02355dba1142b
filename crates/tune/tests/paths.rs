//! Every rule about paths against one with nothing wrong, and against that one with the one thing wrong that it is for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod documented;

use std::collections::BTreeSet;

use Fact::Known;
use drover_tune::facts::{
    Answers, Carried, Counted, Crossing, Fact, HeldUpBy, Path, PathEnd, Slot, Traffic,
};
use drover_tune::{
    Difference, Finding, Known as At, RULES, Report, Severity, differences, examine,
};

fn end(host: &str, address: &str) -> PathEnd {
    PathEnd {
        host: host.into(),
        nic: "ens1f0".into(),
        address: address.parse().unwrap(),
        mtu: 9000,
    }
}

const WHOLE: Crossing = Crossing {
    size: 9000,
    vanish: false,
};

/// Headers are counted, too.
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

fn counted(otherwise: fn(&mut Counted)) -> Fact<Counted> {
    let mut counted = COUNTED;
    otherwise(&mut counted);
    Known(counted)
}

fn healthy() -> Path {
    Path {
        near: end("a", "10.0.1.1"),
        far: end("b", "10.0.1.2"),
        route: Known("ens1f0".into()),
        refused: None,
        answers: answers(100),
        arrivals: Known(["ens1f0".to_owned()].into()),
        there: Known(WHOLE),
        back: Known(WHOLE),
        round_trip: Known(200),
        counted: Known(COUNTED),
        carried: carried(9_400),
        together: None,
    }
}

/// By an unlimited load of a line of 10 Gbit/s, in Mbit/s.
fn carried(mbit: u64) -> Option<Fact<Carried>> {
    Some(Known(Carried {
        rate: mbit * 1_000_000,
        line: Some(10_000_000_000),
        allowed: None,
        packets: 100_000,
        again: 0,
        held_up_by: HeldUpBy::Path,
        slot: None,
    }))
}

fn answers(answered: u32) -> Fact<Answers> {
    Known(Answers {
        asked: 100,
        answered,
    })
}

fn crossing(size: u32, vanish: bool) -> Fact<Crossing> {
    Known(Crossing { size, vanish })
}

type Spoil = fn(&mut Path);

const CASES: &[(&str, Severity, Spoil)] = &[
    ("path-reach", Severity::Critical, |path| {
        path.answers = answers(0);
        path.arrivals = Known(BTreeSet::new());
        for fact in [&mut path.there, &mut path.back] {
            *fact = Fact::unknown("nothing came back");
        }
        path.round_trip = Fact::unknown("nothing came back");
    }),
    ("path-reach", Severity::Critical, |path| {
        path.refused = Some("Network is unreachable (os error 101)".into());
        path.answers = Fact::unknown("no question left");
        path.arrivals = Fact::unknown("no question left");
    }),
    ("path-arrival", Severity::Critical, |path| {
        path.arrivals = Known(["ens1f1".to_owned()].into());
    }),
    ("path-counted", Severity::Critical, |path| {
        // The switch has the address at another interface of that host.
        path.counted = counted(|counted| counted.far.received = 4_000);
    }),
    ("path-counted", Severity::Warning, |path| {
        path.counted = counted(|counted| counted.far.sent = 599_999);
    }),
    ("path-counted", Severity::Warning, |path| {
        path.counted = counted(|counted| counted.near.sent = 0);
    }),
    ("path-route", Severity::Warning, |path| {
        path.route = Known("ens1f1".into());
    }),
    ("path-mtu", Severity::Critical, |path| {
        path.there = crossing(1400, true);
    }),
    ("path-mtu", Severity::Critical, |path| {
        path.back = crossing(1400, true);
    }),
    ("path-mtu", Severity::Notice, |path| {
        path.there = crossing(1500, false);
    }),
    ("path-loss", Severity::Warning, |path| {
        path.answers = answers(98);
    }),
    ("path-loss", Severity::Critical, |path| {
        path.answers = answers(90);
    }),
    ("path-rate", Severity::Warning, |path| {
        path.carried = carried(8_400);
    }),
    ("path-rate", Severity::Critical, |path| {
        path.carried = carried(940);
    }),
];

fn names(report: &Report) -> Vec<&str> {
    let names = report.findings.iter().map(|finding| finding.rule.as_str());
    names.collect()
}

#[test]
fn a_path_with_nothing_wrong_has_no_findings() {
    let mut path = healthy();
    path.answers = answers(99);
    let report = examine(&[], &[path]);
    assert_eq!((names(&report), report.right.len()), (Vec::new(), 7));
}

#[test]
fn that_no_path_was_asked_is_said_once_and_nothing_of_paths_is_right() {
    let mut report = examine(&[], &[]);
    report.skip_paths(&[]);
    assert_eq!(report, Report::default());
    for (hosts, whom) in [(&["a"][..], "a"), (&["a", "b"][..], "all hosts")] {
        let mut report = Report::default();
        report.skip_paths(hosts);
        let [skipped] = &report.skipped[..] else {
            panic!("{report:#?}");
        };
        assert_eq!(skipped.rule, "path-reach");
        assert_eq!(skipped.subject.to_string(), whom);
        assert!(
            skipped.because.starts_with("paths were not asked"),
            "{skipped:?}"
        );
    }
}

#[test]
fn each_rule_finds_the_one_thing_that_it_is_for_and_no_other_does() {
    for (rule, severity, spoil) in CASES {
        let mut path = healthy();
        spoil(&mut path);
        let report = examine(&[], &[path]);
        assert_eq!(names(&report), [*rule], "{report:#?}");
        assert_eq!(report.skipped, [], "{rule}");
        let finding = &report.findings[0];
        assert_eq!(finding.found.severity, *severity, "{rule}");
        assert!(finding.found.by_hand.is_some(), "{rule}");
        assert_eq!(finding.subject.to_string(), "a and b ens1f0");
    }
}

#[test]
fn two_paths_of_one_interface_to_one_host_are_told_apart() {
    let mut lossy = healthy();
    lossy.answers = answers(80);
    let mut other = lossy.clone();
    other.far.nic = "ens1f1".into();
    let report = examine(&[], &[lossy.clone(), other.clone()]);
    let told: Vec<String> = report
        .findings
        .iter()
        .map(|finding| finding.subject.to_string())
        .collect();
    assert_eq!(told, ["a and b ens1f0", "a ens1f0 and b ens1f1"]);
    // One that was mended is not taken for the other one.
    let mut mended = other.clone();
    mended.answers = answers(100);
    let before = [lossy.clone(), other];
    let found = differences(at(&before), at(&[lossy, mended]));
    let gone: Vec<String> = found
        .findings
        .iter()
        .map(|one| format!("{} {}", one.trend, one.subject))
        .collect();
    assert_eq!(gone, ["gone a ens1f0 and b ens1f1"]);
}

#[test]
fn each_rule_about_paths_has_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().map(|(rule, ..)| *rule).collect();
    let rules = RULES.iter().map(|rule| rule.name);
    let of_paths: BTreeSet<&str> = rules.filter(|name| name.starts_with("path-")).collect();
    // Those about several at once are in `together.rs`.
    let several = ["path-incast", "path-together"];
    assert_eq!(
        cases.into_iter().chain(several).collect::<BTreeSet<_>>(),
        of_paths
    );
}

#[test]
fn an_end_that_takes_less_is_no_black_hole() {
    let mut path = healthy();
    path.far.mtu = 1500;
    path.there = crossing(1500, true);
    path.back = crossing(1500, false);
    assert_eq!(names(&examine(&[], &[path])), <[&str; 0]>::default());
}

#[test]
fn a_hole_one_way_is_found_though_nothing_is_known_of_the_other() {
    let mut path = healthy();
    path.there = crossing(1400, true);
    path.back = Fact::unknown("the time for asking was over");
    let report = examine(&[], &[path.clone()]);
    assert_eq!(names(&report), ["path-mtu"]);
    path.there = crossing(9000, false);
    let report = examine(&[], &[path]);
    assert_eq!((names(&report), report.skipped.len()), (Vec::new(), 1));
}

#[test]
fn what_loss_costs_is_told_by_the_round_trip_and_not_at_all_without_one() {
    let cost = |path: Path| examine(&[], &[path]).findings[0].found.cost.clone();
    let mut path = healthy();
    path.answers = answers(96);
    // 8948 bytes x 8 x 1.22 / (200 us x the root of 0.04).
    let told = "one connection carries some 2183 Mbit/s at most, by its round trip of 200 µs";
    assert_eq!(cost(path.clone()).as_deref(), Some(told));
    let mut slow = path.clone();
    if let Some(Known(carried)) = &mut slow.carried {
        carried.line = Some(1_000_000_000);
    }
    assert_eq!(cost(slow), None, "the line carries no more without it");
    path.round_trip = Fact::unknown("it was not measured");
    assert_eq!(cost(path), None);
}

#[test]
fn a_slot_that_carried_less_than_the_line_while_it_was_loaded_is_named() {
    let found = |width, speed| {
        let mut path = healthy();
        path.carried = carried(6_000);
        if let Some(Known(carried)) = &mut path.carried {
            carried.slot = Some(Slot { width, speed });
        }
        examine(&[], &[path]).findings.remove(0).found
    };
    let slow = found(4, 2500);
    let told = "; of its slot 4 lanes of 2.5 GT/s carry some 7.2 Gbit/s meanwhile";
    assert!(slow.read.ends_with(told), "{slow:?}");
    assert!(slow.by_hand.unwrap().starts_with("look at the slot of"));
    let wide = found(8, 8000);
    assert!(!wide.read.contains("slot"), "{wide:?}");
}

#[test]
fn smaller_packets_cost_more_of_them_and_silence_all_that_a_path_would_carry() {
    let cost = |path: Path| examine(&[], &[path]).findings[0].found.cost.clone();
    let mut path = healthy();
    path.there = crossing(1500, false);
    let told = "a GiB takes 741535 packets instead of 119998";
    assert_eq!(cost(path).as_deref(), Some(told));
    let mut silent = healthy();
    silent.answers = answers(0);
    silent.arrivals = Known(BTreeSet::new());
    let told = "all of what it would carry: 100 of 100 packets were lost";
    assert_eq!(cost(silent).as_deref(), Some(told));
}

#[test]
fn a_rule_tells_a_cost_or_the_documentation_says_why_it_cannot() {
    let told = CASES.iter().filter_map(|(rule, _, spoil)| {
        let mut path = healthy();
        spoil(&mut path);
        let findings = examine(&[], &[path]).findings;
        findings[0].found.cost.is_some().then_some(*rule)
    });
    let told: BTreeSet<&str> = told.collect();
    let without = documented::without_cost();
    for rule in CASES.iter().map(|(rule, ..)| rule) {
        assert_ne!(told.contains(rule), without.contains(rule), "{rule}");
    }
    // Those of several paths at once: `together.rs` has their costs.
    for rule in ["path-incast", "path-together"] {
        assert!(!without.contains(&rule), "{rule}");
    }
}

#[test]
fn what_could_not_be_asked_is_skipped_because() {
    let mut path = healthy();
    let unknown = "the agent of b has no port for answers";
    path.answers = Fact::unknown(unknown);
    let report = examine(&[], &[path]);
    let skipped: Vec<(&str, &str)> = report
        .skipped
        .iter()
        .map(|skipped| (skipped.rule.as_str(), skipped.because.as_str()))
        .collect();
    let rules = [
        "path-reach",
        "path-arrival",
        "path-counted",
        "path-mtu",
        "path-loss",
    ];
    assert_eq!(skipped, rules.map(|rule| (rule, unknown)));
}

#[test]
fn bytes_that_are_missing_are_told_with_who_counted_them_unless_answers_arrive_elsewhere_anyway() {
    let mut path = healthy();
    path.counted = counted(|counted| counted.far.received = 4_000);
    let read = |path: &Path| {
        let findings = examine(&[], std::slice::from_ref(path)).findings;
        findings.into_iter().map(|finding| finding.found.read)
    };
    let told = "500000 bytes crossed, and ens1f0 of b received 4000 meanwhile";
    assert_eq!(read(&path).collect::<Vec<_>>(), [told]);
    path.arrivals = Known(["ens1f1".to_owned()].into());
    let told = "answers arrive by ens1f1";
    assert_eq!(read(&path).collect::<Vec<_>>(), [told]);
    // An agent of before does not tell.
    let mut path = healthy();
    path.counted = Fact::default();
    let report = examine(&[], &[path]);
    assert_eq!((names(&report), report.skipped.len()), (Vec::new(), 1));
}

/// The finding about what a path carries, were it otherwise in this.
fn found_of_rate(otherwise: fn(&mut Carried)) -> Option<Finding> {
    let mut path = healthy();
    if let Some(Known(carried)) = &mut path.carried {
        otherwise(carried);
    }
    let report = examine(&[], &[path]);
    report.findings.into_iter().next()
}

#[test]
fn a_path_is_held_against_what_a_load_was_allowed_where_that_is_less_than_its_line() {
    let found = found_of_rate(|carried| {
        carried.allowed = Some(5_000_000_000);
        carried.rate = 4_700_000_000;
    });
    assert!(found.is_none(), "{found:?}");
    let found = found_of_rate(|carried| {
        carried.allowed = Some(5_000_000_000);
        carried.rate = 2_000_000_000;
    });
    let found = found.unwrap().found;
    assert!(
        found.expected.starts_with("4250 Mbit/s at least"),
        "{found:?}"
    );
    assert!(
        found
            .cost
            .unwrap()
            .starts_with("40 % of what it could carry")
    );
}

#[test]
fn whose_processors_held_a_load_up_is_said_with_what_was_sent_again() {
    let found = found_of_rate(|carried| {
        carried.rate = 2_000_000_000;
        carried.again = 7;
        carried.held_up_by = HeldUpBy::Far;
    });
    let found = found.unwrap().found;
    let read = "ens1f0 carries 2000 Mbit/s to ens1f0 of b; the processors of b took no more, with 7 of 100000 packets sent again";
    assert_eq!(found.read, read);
    assert!(found.by_hand.unwrap().contains("processors of b"));
}

#[test]
fn what_was_not_to_be_measured_is_not_skipped_and_what_could_not_be_is() {
    let mut path = healthy();
    path.carried = None;
    let skipped = |path: &Path| examine(&[], std::slice::from_ref(path)).skipped.len();
    assert_eq!(skipped(&path), 0);
    path.carried = Some(Fact::unknown("a guest moves"));
    assert_eq!(skipped(&path), 1);
    path.carried = carried(1);
    if let Some(Known(carried)) = &mut path.carried {
        carried.line = None;
    }
    assert_eq!(skipped(&path), 1);
}

fn at(paths: &[Path]) -> At<'_> {
    At { hosts: &[], paths }
}

fn compare(before: &[Path], now: &[Path]) -> Vec<Difference> {
    differences(at(before), at(now)).paths
}

/// What has changed, as `trend what: before, now`.
fn changed(before: &[Path], now: &[Path]) -> Vec<String> {
    let changes = compare(before, now).into_iter();
    changes
        .map(|change| {
            assert_eq!(change.subject.to_string(), "a and b ens1f0");
            let (trend, what) = (change.trend, change.what);
            format!("{trend} {what}: {}, {}", change.before, change.now)
        })
        .collect()
}

#[test]
fn what_is_as_it_was_or_differs_by_chance_has_not_changed() {
    let mut now = healthy();
    now.answers = answers(97);
    now.round_trip = Known(500);
    now.carried = carried(8_000);
    assert_eq!(changed(&[healthy()], &[now]), <[&str; 0]>::default());
}

#[test]
fn each_thing_that_is_otherwise_is_told_as_it_was_and_as_it_is() {
    type Otherwise = fn(&mut Path);
    let cases: [(&str, Otherwise); 8] = [
        ("worse route: ens1f0, ens1f1", |path| {
            path.route = Known("ens1f1".into());
        }),
        ("worse arrivals: ens1f0, ens1f1", |path| {
            path.arrivals = Known(["ens1f1".to_owned()].into());
        }),
        (
            "worse largest there: 9000 bytes, 1400 bytes, larger ones vanish",
            |path| path.there = crossing(1400, true),
        ),
        ("worse largest back: 9000 bytes, 1500 bytes", |path| {
            path.back = crossing(1500, false);
        }),
        ("worse loss: 0 %, 10 %", |path| path.answers = answers(90)),
        ("worse round trip: 200 µs, 900 µs", |path| {
            path.round_trip = Known(900);
        }),
        ("worse carries: 9400 Mbit/s, 7000 Mbit/s", |path| {
            path.carried = carried(7_000);
        }),
        (
            "other addresses: 10.0.1.1 to 10.0.1.2, 10.0.9.1 to 10.0.1.2",
            |path| {
                path.near.address = "10.0.9.1".parse().unwrap();
            },
        ),
    ];
    for (told, otherwise) in cases {
        let mut now = healthy();
        otherwise(&mut now);
        assert_eq!(changed(&[healthy()], &[now]), [told]);
    }
    let mut silent = healthy();
    silent.answers = answers(0);
    silent.arrivals = Known(BTreeSet::new());
    for fact in [&mut silent.there, &mut silent.back] {
        *fact = Fact::unknown("nothing came back");
    }
    silent.round_trip = Fact::unknown("nothing came back");
    let (before, now) = ([healthy()], [silent]);
    assert_eq!(changed(&before, &now), ["worse answers: some, none"]);
    assert_eq!(changed(&now, &before), ["better answers: none, some"]);
}

#[test]
fn a_path_that_came_or_went_is_told_only_of_hosts_that_asked_each_other_both_times() {
    let mut other = healthy();
    other.near.nic = "ens1f1".into();
    let (one, both) = ([healthy()], [healthy(), other]);
    let told = |before: &[Path], now: &[Path]| {
        let changes = compare(before, now).into_iter();
        changes
            .map(|change| (change.subject.nic.unwrap(), change.now))
            .collect::<Vec<_>>()
    };
    let gone = [("ens1f1".to_owned(), "there is none".to_owned())];
    assert_eq!(told(&both, &one), gone);
    let new = [("ens1f1".to_owned(), "asked".to_owned())];
    assert_eq!(told(&one, &both), new);
    assert_eq!(told(&[], &one), []);
    assert_eq!(told(&one, &[]), []);
}

#[test]
fn what_was_worse_before_is_better_now() {
    let mut before = healthy();
    before.route = Known("ens1f1".into());
    before.there = crossing(1400, true);
    before.answers = answers(80);
    let told = changed(&[before], &[healthy()]);
    let all = [
        "better route: ens1f1, ens1f0",
        "better largest there: 1400 bytes, larger ones vanish, 9000 bytes",
        "better loss: 20 %, 0 %",
    ];
    assert_eq!(told, all);
}

/// Findings as `trend rule: before, now`, and how many were not compared.
fn findings(before: &[Path], now: &[Path]) -> (Vec<String>, usize) {
    let found = differences(at(before), at(now));
    let told = found.findings.into_iter().map(|it| {
        let (trend, what) = (it.trend, it.what);
        format!("{trend} {what}: {}, {}", it.before, it.now)
    });
    (told.collect(), found.not_compared)
}

#[test]
fn findings_that_came_or_went_are_told_and_those_that_weigh_more_or_less() {
    let mut lossy = healthy();
    lossy.answers = answers(95);
    let mut worse = healthy();
    worse.answers = answers(80);
    let (fine, lossy, worse) = ([healthy()], [lossy], [worse]);
    let five = "warning: 5 of 100 packets were lost";
    let twenty = "critical: 20 of 100 packets were lost";
    let right = "as it should be";
    for (before, now, told) in [
        (&fine, &lossy, format!("new path-loss: {right}, {five}")),
        (&lossy, &worse, format!("worse path-loss: {five}, {twenty}")),
        (
            &worse,
            &lossy,
            format!("better path-loss: {twenty}, {five}"),
        ),
        (&worse, &fine, format!("gone path-loss: {twenty}, {right}")),
    ] {
        assert_eq!(findings(before, now), (vec![told], 0));
    }
    assert_eq!(findings(&lossy, &lossy), (Vec::new(), 0));
}

#[test]
fn a_finding_about_what_was_not_looked_at_the_other_time_is_counted_and_neither_new_nor_gone() {
    let mut lossy = healthy();
    lossy.answers = answers(80);
    let mut unknown = healthy();
    unknown.answers = Fact::unknown("one migration was under way");
    for other in [&[][..], &[unknown][..]] {
        assert_eq!(findings(other, &[lossy.clone()]), (Vec::new(), 1));
        assert_eq!(findings(&[lossy.clone()], other), (Vec::new(), 1));
    }
}

#[test]
fn a_path_that_fell_silent_has_lost_its_other_findings_and_has_a_worse_one() {
    let mut lossy = healthy();
    lossy.answers = answers(80);
    let mut silent = healthy();
    silent.answers = answers(0);
    silent.arrivals = Known(BTreeSet::new());
    let (told, _) = findings(&[lossy], &[silent]);
    let rules: Vec<&str> = told
        .iter()
        .map(|told| told.split(':').next().unwrap())
        .collect();
    assert_eq!(rules, ["new path-reach", "gone path-loss"]);
    assert!(told[1].ends_with("nothing to say of it"), "{told:?}");
}
