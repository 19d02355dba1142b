//! Findings about hosts at two times.

use drover_tune::facts::{Fact, Host, Kind};
use drover_tune::{Differences, Known, Trend, differences, examine};

use super::cases::CASES;
use super::guests;
use super::hosts::{gbit, healthy, link, on_top, rdma, set, value};

fn between(before: &[Host], now: &[Host]) -> Differences {
    let at = |hosts| Known { hosts, paths: &[] };
    differences(at(before), at(now))
}

/// The trend of each and the host it is about.
fn told(differences: &Differences) -> Vec<(Trend, &str, &str)> {
    let all = differences.findings.iter();
    all.map(|it| (it.trend, it.what.as_str(), it.subject.host.as_str()))
        .collect()
}

#[test]
fn what_was_right_of_a_host_and_is_not_is_new_and_what_was_mended_is_gone() {
    for (rule, _, spoil) in CASES {
        let mut spoiled = healthy("a", 1);
        spoil(&mut spoiled);
        let (fine, spoiled) = ([healthy("a", 1)], [spoiled]);
        let new = between(&fine, &spoiled);
        assert_eq!(told(&new), [(Trend::New, *rule, "a")]);
        assert_eq!(new.not_compared, 0, "{rule}");
        let gone = between(&spoiled, &fine);
        assert_eq!(told(&gone), [(Trend::Gone, *rule, "a")]);
        assert_eq!(between(&spoiled, &spoiled), Differences::default());
    }
}

#[test]
fn what_a_host_did_not_tell_at_all_the_other_time_is_neither_new_nor_gone() {
    let mut spoiled = [guests::healthy("a", 1)];
    (guests::GUESTS[0].2)(&mut spoiled[0]);
    let found = examine(&spoiled, &[]).findings;
    let of_guests = found.iter().filter(|one| one.subject.guest.is_some());
    let count = of_guests.count();
    assert!(count > 0, "{found:#?}");
    // As where no agent was asked: the rules are skipped of the host, and of no guest by its name.
    let mut untold = spoiled.clone();
    for host in &mut untold {
        host.guests = Fact::Unknown("no agent was asked".into());
    }
    for (before, now) in [(&spoiled, &untold), (&untold, &spoiled)] {
        let found = between(before, now);
        assert_eq!((told(&found), found.not_compared), (vec![], count));
    }
}

#[test]
fn what_is_wrong_with_a_host_that_was_not_read_the_other_time_is_counted() {
    let mut spoiled = healthy("b", 2);
    (CASES[0].2)(&mut spoiled);
    let (one, both) = ([healthy("a", 1)], [healthy("a", 1), spoiled]);
    let all = examine(&both, &[]).findings.len();
    for (before, now) in [(&one[..], &both[..]), (&both[..], &one[..])] {
        let found = between(before, now);
        assert_eq!((told(&found), found.not_compared), (vec![], all));
    }
}

/// The trend, subject, fact, and both values of each fact of a host that changed.
fn facts(before: &Host, now: &Host) -> Vec<String> {
    let found = between(std::slice::from_ref(before), std::slice::from_ref(now));
    let shown = found.hosts.into_iter().map(|it| {
        let (subject, what) = (&it.subject, &it.what);
        format!("{} {subject} {what}: {} > {}", it.trend, it.before, it.now)
    });
    shown.collect()
}

#[test]
fn facts_of_a_host_and_its_interfaces_that_are_otherwise_are_told_whether_found_or_not() {
    let before = healthy("a", 1);
    assert_eq!(facts(&before, &before), <[&str; 0]>::default());
    let mut now = before.clone();
    now.processors.governors = Fact::Known([("schedutil".to_owned(), 8)].into());
    set(&mut now, "net.ipv4.tcp_timestamps", "0");
    link(&mut now).speed = Some(gbit(10));
    now.nics[0].firmware = Fact::Known("26.36.1".into());
    value(&mut now.nics[0].features).active.remove("rx-gro");
    now.nics.remove(1);
    let told = [
        "worse a ens1f0 rate: 25 Gbit/s > 10 Gbit/s",
        "other a governors: performance on 8 CPUs > schedutil on 8 CPUs",
        "other a net.ipv4.tcp_timestamps: 1 > 0",
        "other a ens1f0 firmware: 26.35.1012 > 26.36.1",
        "other a ens1f0 features: rx-gro on > none",
        "other a ens1f1 interface: there > none",
    ];
    assert_eq!(facts(&before, &now), told);
    let better = facts(&now, &before);
    assert!(better.contains(&"better a ens1f0 rate: 10 Gbit/s > 25 Gbit/s".to_owned()));
    // What is not known at one of the times has not changed, nor has a host that was not read.
    let mut unknown = now.clone();
    unknown.processors.governors = Fact::unknown("no CPU has it");
    let told = facts(&before, &unknown);
    assert!(!told.iter().any(|it| it.contains("governors")), "{told:?}");
    assert_eq!(between(&[before], &[healthy("b", 2)]).hosts, []);
}

#[test]
fn what_was_counted_meanwhile_is_told_unless_the_host_was_restarted() {
    let before = healthy("a", 1);
    let mut now = before.clone();
    now.nics[0].carrier_changes = Fact::Known(4);
    let counters = value(&mut now.nics[0].counters);
    (counters.receive_errors, counters.send_errors) = (99, Some(100));
    rdma(&mut now).downed = Some(1);
    value(&mut now.nics[0].fec).uncorrected = Some(100);
    let told = [
        "worse a ens1f0 carrier changes: 2 > 4, 2 more",
        "worse a ens1f0 blocks not corrected: 0 > 100, 100 more",
        "worse a ens1f0 packets not sent: 0 > 100, 100 more",
        "worse a ens1f0 RDMA links down: 0 > 1, 1 more",
    ];
    assert_eq!(facts(&before, &now), told);
    // A driver that was started anew counts anew.
    assert_eq!(facts(&now, &before), <[&str; 0]>::default());
    now.boot = Fact::Known("another".into());
    let told = ["other a start: another one > restarted"];
    assert_eq!(facts(&before, &now), told);
}

#[test]
fn ends_of_guests_come_and_go_without_a_word() {
    let before = healthy("a", 1);
    let mut now = before.clone();
    let mut tap = on_top("vnet0", Kind::Virtual, &[]);
    now.nics.push(tap.clone());
    assert_eq!(facts(&before, &now), <[&str; 0]>::default());
    tap.addresses = vec!["10.3.0.1/24".parse().unwrap()];
    now.nics[2] = tap;
    let told = ["other a vnet0 interface: none > there"];
    assert_eq!(facts(&before, &now), told);
}
