//! Cables, slots, and what is counted of them.

use drover_tune::facts::{Duplex, Fact::Known, Fec, Host, Link, Pause, Pci};
use drover_tune::{Disruption, Severity, Step, examine};

use crate::hosts::{adapter, by_hand, gbit, healthy, link, names, value, words};

#[test]
fn a_link_that_is_down_with_a_rate_by_hand_is_found_and_left_to_people() {
    let mut host = healthy("a", 1);
    host.nics[0].carrier = false;
    link(&mut host).speed = None;
    // Such a driver says only once it has a carrier that it negotiates.
    link(&mut host).negotiates = Some(false);
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        <[&str; 0]>::default()
    );
    by_hand(&mut host);
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["link-speed"]);
    let found = &report.findings[0].found;
    assert_eq!(found.severity, Severity::Notice);
    assert!(
        found.change.is_none() && found.by_hand.is_some(),
        "{found:#?}"
    );
}

#[test]
fn a_rate_by_hand_is_given_back_by_the_undo() {
    let mut host = healthy("a", 1);
    link(&mut host).speed = Some(gbit(10));
    by_hand(&mut host);
    let report = examine(&[host], &[]);
    let step = &report.findings[0].found.change.as_ref().unwrap().steps[0];
    assert_eq!(step.to_string(), "ethtool -s ens1f0 autoneg on");
    let undo = "ethtool -s ens1f0 autoneg off speed 10000 duplex full";
    assert_eq!(step.undo().to_string(), undo);
}

#[test]
fn ports_that_nobody_uses_may_be_as_they_are() {
    let mut host = healthy("a", 1);
    let mut unused = adapter("ens9", "10.9.9.9/24");
    unused.addresses.clear();
    unused.carrier = false;
    unused.link = Known(Link {
        speed: None,
        negotiates: Some(false),
        by_hand: true,
        ..value(&mut unused.link).clone()
    });
    value(&mut unused.rings).receive = 1;
    host.nics.push(unused);
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(report.skipped, []);
}

#[test]
fn adapters_on_a_bus_of_their_own_are_limited_by_none() {
    let mut host = healthy("a", 1);
    for nic in &mut host.nics {
        *value(&mut nic.pci) = Pci {
            speed: Some(2500),
            speed_most: Some(2500),
            width: Some(1),
            width_most: Some(1),
            ..value(&mut nic.pci).clone()
        };
    }
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    let skipped: Vec<&str> = report.skipped.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(skipped, ["pci-slot", "pci-slot"]);
}

#[test]
fn what_was_counted_is_told_with_since_when_and_measured_by_the_day() {
    let mut host = healthy("a", 1);
    host.uptime_s = Known(30 * 24 * 3600);
    host.nics[0].carrier_changes = Known(40);
    value(&mut host.nics[0].counters).receive_errors = 2900;
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        <[&str; 0]>::default()
    );
    host.nics[0].carrier_changes = Known(41);
    value(&mut host.nics[0].counters).receive_errors = 3100;
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["link-flaps", "link-errors"]);
    for finding in &report.findings {
        let since = "since the host was started 30 days ago";
        assert!(finding.found.read.ends_with(since), "{finding:#?}");
    }
}

#[test]
fn a_rate_that_only_one_end_can_have_is_not_missed() {
    let mut host = healthy("a", 1);
    link(&mut host).peer = [gbit(10), gbit(40)].into();
    link(&mut host).speed = Some(gbit(10));
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        <[&str; 0]>::default()
    );
    // Of a module's other end nothing is told.
    link(&mut host).peer.clear();
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["link-speed"]);
    assert_eq!(report.findings[0].found.severity, Severity::Notice);
}

#[test]
fn a_link_that_is_down_with_error_correction_by_hand_is_found() {
    let mut host = healthy("a", 1);
    host.nics[0].carrier = false;
    link(&mut host).speed = None;
    *value(&mut host.nics[0].fec) = Fec {
        automatic: false,
        configured: words(&["BASER"]),
        active: None,
        uncorrected: None,
    };
    // What the hardware chose is told the same way.
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        <[&str; 0]>::default()
    );
    by_hand(&mut host);
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["link-speed", "link-fec"]);
    let found = &report.findings[1].found;
    assert_eq!(found.severity, Severity::Notice);
    let change = found.change.as_ref().unwrap();
    assert_eq!(change.disruption, Disruption::BouncesLink);
    assert_eq!(
        change.steps[0].to_string(),
        "ethtool --set-fec ens1f0 encoding auto"
    );
    assert_eq!(
        change.steps[0].undo().to_string(),
        "ethtool --set-fec ens1f0 encoding baser"
    );
}

#[test]
fn pause_frames_are_turned_off_but_not_where_a_driver_tells_what_was_before_pfc() {
    let told = |driver: &str, agreed| {
        let mut host = healthy("a", 1);
        host.nics[0].driver = Known(driver.into());
        *value(&mut host.nics[0].pause) = Pause {
            receive: true,
            send: true,
            agreed,
            sent: Some(0),
            received: Some(0),
        };
        examine(&[host], &[])
    };
    let report = told("ixgbe", Some(true));
    assert_eq!(names(&report), <[&str; 0]>::default());
    let mut skipped = report.skipped.iter();
    let pause = skipped.find(|one| one.rule == "dcb-pause").unwrap();
    assert_eq!(pause.because, "its driver tells what was before PFC");
    let step = |driver: &str, agreed| {
        let report = told(driver, agreed);
        assert_eq!(names(&report), ["dcb-pause"]);
        let step = report.findings[0].found.change.as_ref().unwrap().steps[0].clone();
        (step.to_string(), step.undo().to_string())
    };
    let (done, undone) = step("i40e", Some(true));
    assert_eq!(done, "ethtool -A ens1f0 autoneg on rx off tx off");
    assert_eq!(undone, "ethtool -A ens1f0 autoneg on rx on tx on");
    let (done, _) = step("mlx5_core", Some(false));
    assert_eq!(done, "ethtool -A ens1f0 autoneg off rx off tx off");
    assert_eq!(step("old", None).0, "ethtool -A ens1f0 rx off tx off");
}

#[test]
fn the_largest_pieces_of_rdma_take_the_packets_that_the_kernel_asks_for() {
    let found = |mtu: u32| {
        let mut host = healthy("a", 1);
        host.nics[0].mtu = mtu;
        let findings = examine(&[host], &[]).findings.into_iter();
        let mut pieces = findings.filter(|finding| finding.rule == "rdma-pieces");
        pieces.next().map(|finding| finding.found)
    };
    assert!(found(4192).is_none());
    let short = found(4191).unwrap();
    assert!(
        short.read.ends_with("mlx5_0 sends 2048 at a time"),
        "{short:?}"
    );
    assert_eq!(short.expected, "4096 bytes, in packets of 4192");
}

#[test]
fn places_are_asked_for_in_the_numbers_that_drivers_have() {
    let mut host = healthy("a", 1);
    value(&mut host.nics[0].channels).combined = 3;
    value(&mut host.nics[0].rings).receive = 256;
    let report = examine(&[host], &[]);
    assert_eq!(names(&report), ["nic-ring"]);
    // A third of 1024 is none of them, and would become another one.
    let change = report.findings[0].found.change.as_ref().unwrap();
    assert!(matches!(&change.steps[..], [Step::Nic { to, .. }] if to == "512"));
}

#[test]
fn half_duplex_by_hand_is_negotiated_by_a_change_and_that_of_a_switch_is_not() {
    let change = |spoil: fn(&mut Host)| {
        let mut host = healthy("a", 1);
        link(&mut host).duplex = Some(Duplex::Half);
        spoil(&mut host);
        let mut found = examine(&[host], &[]).findings.into_iter();
        let found = found.find(|finding| finding.rule == "link-duplex").unwrap();
        found.found.change.map(|change| change.steps[0].clone())
    };
    assert_eq!(change(|_| {}), None);
    let step = change(by_hand).unwrap();
    assert_eq!(step.to_string(), "ethtool -s ens1f0 autoneg on");
    assert_eq!(
        step.undo().to_string(),
        "ethtool -s ens1f0 autoneg off speed 25000 duplex half"
    );
}
