//! Findings about hosts at two times.

use drover_tune::facts::{Fact, Host};
use drover_tune::{Differences, Known, Trend, differences, examine};

use super::cases::CASES;
use super::guests;
use super::hosts::healthy;

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
