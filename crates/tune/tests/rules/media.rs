//! Cables and modules, and the sentences about links that do not come up.

use drover_tune::facts::{Fact, Port};
use drover_tune::{examine, most};

use crate::hosts::{by_hand, gbit, healthy, is_down, link, names, value};

#[test]
fn an_adapter_of_25g_on_a_port_forced_to_10g_is_told_what_is_the_matter_and_what_to_do() {
    let mut host = healthy("a", 1);
    is_down(&mut host, "autoneg", Some("an-no-partner-detected"));
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["link-down"]);
    let found = &report.findings[0].found;
    assert_eq!(found.read, "no carrier: autoneg (an-no-partner-detected)");
    assert!(
        found
            .why
            .ends_with("there is no link until this one is set by hand, too"),
        "{}",
        found.why
    );
    let by_hand = found.by_hand.as_ref().unwrap();
    let command = "by hand: `drover nic set a ens1f0 speed 10G-forced` for 10 Gbit/s";
    assert!(by_hand.ends_with(command), "{by_hand}");
}

#[test]
fn ends_of_twisted_pairs_are_told_to_negotiate_and_never_to_be_set_by_hand() {
    let told = |forced: bool| {
        let mut host = healthy("a", 1);
        is_down(&mut host, "autoneg", Some("an-no-partner-detected"));
        host.nics[0].port = Fact::Known(Port::TwistedPair);
        if forced {
            by_hand(&mut host);
        }
        let findings = examine(&[host], &[]).findings.into_iter();
        let mut down = findings.filter(|finding| finding.rule == "link-down");
        down.next().unwrap().found
    };
    let found = told(false);
    assert!(!found.why.contains("by hand"), "{}", found.why);
    let end = "and have it negotiate";
    assert!(found.by_hand.as_ref().unwrap().ends_with(end), "{found:?}");
    let forced = told(true).by_hand.unwrap();
    assert!(
        forced.contains("autoneg on") && !forced.contains("same rate"),
        "{forced}"
    );
}

#[test]
fn an_end_that_is_set_by_hand_is_told_to_negotiate_where_the_other_one_does() {
    let mut host = healthy("a", 1);
    is_down(
        &mut host,
        "autoneg",
        Some("an-no-partner-detected-force-mode"),
    );
    by_hand(&mut host);
    let report = examine(&[host], &[]);
    let found = report
        .findings
        .iter()
        .find(|finding| finding.rule == "link-down");
    let by_hand = found.unwrap().found.by_hand.as_ref().unwrap();
    assert!(
        by_hand.contains("`ethtool -s ens1f0 autoneg on`"),
        "{by_hand}"
    );
}

#[test]
fn different_error_correction_is_set_to_be_chosen_and_can_be_set_back() {
    let mut host = healthy("a", 1);
    is_down(
        &mut host,
        "link-logical-mismatch",
        Some("llm-rs-fec-is-not-locked"),
    );
    value(&mut host.nics[0].fec).automatic = false;
    let report = examine(&[host.clone()], &[]);
    let change = report.findings[0].found.change.as_ref().unwrap();
    let step = &change.steps[0];
    assert_eq!(step.to_string(), "ethtool --set-fec ens1f0 encoding auto");
    assert_eq!(
        step.undo().to_string(),
        "ethtool --set-fec ens1f0 encoding baser rs"
    );
    // Where it is chosen already, only people can look at the other end.
    value(&mut host.nics[0].fec).automatic = true;
    let found = &examine(&[host], &[]).findings[0].found;
    assert!(found.change.is_none() && found.by_hand.is_some());
}

#[test]
fn every_reason_of_the_kernel_is_told_with_something_to_do() {
    for state in [
        "autoneg",
        "link-training-failure",
        "link-logical-mismatch",
        "bad-signal-integrity",
        "no-cable",
        "cable-issue",
        "eeprom-issue",
        "calibration-failure",
        "power-budget-exceeded",
        "overheat",
        "module",
        "state-77",
    ] {
        let mut host = healthy("a", 1);
        is_down(&mut host, state, None);
        let report = examine(&[host], &[]);
        assert_eq!(names(&report), ["link-down"], "{state}");
        assert!(report.findings[0].found.by_hand.is_some(), "{state}");
    }
}

#[test]
fn a_driver_that_does_not_tell_why_is_skipped_and_no_finding() {
    let mut host = healthy("a", 1);
    host.nics[0].carrier = false;
    link(&mut host).speed = None;
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    let skipped = report
        .skipped
        .iter()
        .find(|skipped| skipped.rule == "link-down")
        .unwrap();
    assert!(skipped.because.ends_with("does not tell why"));
}

#[test]
fn the_most_that_a_link_can_have_is_told_with_what_each_place_can() {
    let mut host = healthy("a", 1);
    link(&mut host).peer = [gbit(10), gbit(25)].into();
    value(&mut host.nics[0].module).carries = [gbit(1), gbit(10)].into();
    value(&mut host.nics[0].module).form = "SFP+".into();
    assert_eq!(
        most(&host.nics[0]).unwrap(),
        "10 Gbit/s at most: this end can 1, 10 and 25 Gbit/s, its SFP+ carries 1 and 10 Gbit/s, the other end offers 10 and 25 Gbit/s"
    );
    link(&mut host).peer.clear();
    host.nics[0].module = Fact::unknown("its driver does not tell");
    assert_eq!(
        most(&host.nics[0]).unwrap(),
        "25 Gbit/s at most: this end can 1, 10 and 25 Gbit/s"
    );
    link(&mut host).supported.clear();
    assert_eq!(most(&host.nics[0]), None);
}
