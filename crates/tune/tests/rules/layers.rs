//! Which interfaces are used, and those that stand on others.

use drover_tune::examine;
use drover_tune::facts::{Clock, Fact, Host, Kind, Nic};

use crate::hosts::{bonded, gbit, has_firmware, healthy, names, on_top, value};

#[test]
fn a_port_below_a_bridge_with_an_address_is_used_and_layers_that_stand_on_each_other_end() {
    let mut host = healthy("a", 1);
    host.nics[0].addresses.clear();
    let mut bridge = on_top("br0", Kind::Bridge, &["bond0"]);
    bridge.addresses = vec!["10.0.1.1/24".parse().unwrap()];
    host.nics.push(bridge);
    host.nics
        .push(on_top("bond0", Kind::Virtual, &["ens1f0", "br0"]));
    value(&mut host.nics[0].rings).receive = 1;
    assert_eq!(names(&examine(&[host], &[])), ["nic-ring"]);
}

#[test]
fn ends_of_guests_and_containers_are_theirs_and_hardware_below_their_bridge_is_not() {
    let mut host = healthy("a", 1);
    let tap = |name: &str, addresses: &[&str]| {
        let mut tap = on_top(name, Kind::Virtual, &[]);
        tap.addresses = addresses.iter().map(|one| one.parse().unwrap()).collect();
        // Whoever looked at it would find this.
        value(&mut tap.rings).receive = 1;
        tap
    };
    let mut bridge = on_top("br0", Kind::Bridge, &["ens1f0.7", "gone", "vnet0"]);
    bridge.addresses = std::mem::take(&mut host.nics[0].addresses);
    let vlan = on_top("ens1f0.7", Kind::Vlan, &["ens1f0"]);
    let taps = [tap("vnet0", &[]), tap("vnet1", &["fe80::1/64"])];
    host.nics.extend([bridge, vlan]);
    host.nics.extend(taps);
    let nothing = <[&str; 0]>::default();
    assert_eq!(names(&examine(std::slice::from_ref(&host), &[])), nothing);
    // Through the bridge and its VLAN.
    value(&mut host.nics[0].rings).receive = 1;
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        ["nic-ring"]
    );
    // A bridge of guests alone, of which only forwarding is asked.
    host.nics[2].addresses.clear();
    assert_eq!(names(&examine(std::slice::from_ref(&host), &[])), nothing);
    value(&mut host.nics[0].features)
        .active
        .insert("rx-lro".into());
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        ["nic-lro"]
    );
    // An end with an address of its own is the host's.
    host.nics.push(tap("veth0", &["10.0.7.1/24"]));
    assert_eq!(names(&examine(&[host], &[])), ["nic-lro", "nic-ring"]);
}

#[test]
fn what_stands_on_others_carries_what_these_do() {
    let bond = |mode: &str, number: u8, rates: [u64; 2]| {
        let mut host = healthy(&number.to_string(), number);
        bonded(&mut host, mode, "layer3+4", &["ens1f0", "ens1f1"]);
        for (nic, rate) in host.nics.iter_mut().zip(rates) {
            value(&mut nic.link).speed = Some(gbit(rate));
        }
        // A bridge tells the rate of whatever port is the fastest: guests' ends are none of it.
        let mut bridge = on_top("br0", Kind::Bridge, &["bond0", "vnet0"]);
        bridge.addresses = std::mem::take(&mut host.nics[2].addresses);
        value(&mut bridge.link).speed = Some(gbit(100 + u64::from(number)));
        host.nics
            .extend([bridge, on_top("vnet0", Kind::Virtual, &[])]);
        host
    };
    let speeds = |hosts: [Host; 2]| {
        let report = examine(&hosts, &[]);
        let all = report.findings.into_iter();
        let mut speeds = all.filter(|finding| finding.rule == "pair-speed");
        speeds.next().map(|finding| finding.found.read)
    };
    let (both, one) = ("802.3ad", "active-backup");
    assert_eq!(
        speeds([bond(both, 1, [25, 25]), bond(both, 2, [10, 40])]),
        None
    );
    assert_eq!(
        speeds([bond(one, 1, [25, 25]), bond(one, 2, [25, 10])]),
        None
    );
    let read = speeds([bond(both, 1, [25, 25]), bond(one, 2, [25, 10])]);
    assert_eq!(
        read.as_deref(),
        Some("1 br0 has 50 Gbit/s, 2 br0 25 Gbit/s")
    );
}

#[test]
fn members_that_wait_may_have_any_rate_and_bonds_that_nobody_uses_may_be_as_they_are() {
    let mut host = healthy("a", 1);
    bonded(&mut host, "active-backup", "layer2", &["ens1f0"]);
    value(&mut host.nics[1].link).speed = Some(gbit(1));
    value(&mut host.nics[1].link).supported = [gbit(1)].into();
    value(&mut host.nics[1].link).peer = [gbit(1)].into();
    value(&mut host.nics[1].link).advertised = [gbit(1)].into();
    assert_eq!(
        names(&examine(std::slice::from_ref(&host), &[])),
        ["bond-mode"]
    );
    host.nics[2].addresses.clear();
    assert_eq!(
        names(&examine(&[host.clone()], &[])),
        <[&str; 0]>::default()
    );
    assert!(host.nics.iter().all(|nic| !nic.is_addressed()));
}

#[test]
fn the_packet_size_of_a_vrf_means_nothing() {
    let mut host = healthy("a", 1);
    let mut vrf = on_top("blue", Kind::Virtual, &["ens1f0"]);
    vrf.mtu = 65536;
    host.nics.push(vrf);
    assert_eq!(names(&examine(&[host], &[])), <[&str; 0]>::default());
}

#[test]
fn packets_get_smaller_only_where_nothing_stands_on_the_interface_and_no_address_goes() {
    let change = |least: u32, vlan: bool| {
        let mut host = healthy("a", 1);
        host.nics[0].mtu = least;
        let mut bridge = on_top("br0", Kind::Bridge, &["ens1f0"]);
        bridge.mtu = 9000;
        host.nics.push(bridge);
        if vlan {
            let mut vlan = on_top("br0.7", Kind::Vlan, &["br0"]);
            vlan.mtu = least;
            host.nics.push(vlan);
        }
        let findings = examine(&[host], &[]).findings.into_iter();
        let mut findings = findings.filter(|finding| finding.rule == "mtu-layers");
        let found = findings.next().map(|finding| finding.found);
        found.map(|found| (found.change.is_some(), found.by_hand.is_some()))
    };
    assert_eq!(change(1500, false), Some((true, true)));
    assert_eq!(change(1500, true), Some((false, true)));
    assert_eq!(change(1279, false), Some((false, true)));
}

/// What a rule says of two hosts, by what it is about.
pub fn told(rule: &str, hosts: &[Host]) -> Vec<(String, String)> {
    let report = examine(hosts, &[]);
    let found = report.findings.into_iter();
    let found = found.map(|one| (one.rule, one.subject, one.found.read));
    let skipped = report.skipped.into_iter();
    let skipped = skipped.map(|one| (one.rule, one.subject, one.because));
    let all = found.chain(skipped).filter(|(of, ..)| of == rule);
    all.map(|(_, subject, said)| (subject.to_string(), said))
        .collect()
}

#[test]
fn adapters_below_bonds_bridges_and_vlans_are_compared() {
    let host = |name: &str, number, firmware: &str| {
        let mut host = healthy(name, number);
        bonded(&mut host, "802.3ad", "layer3+4", &["ens1f0", "ens1f1"]);
        let mut bridge = on_top("br0", Kind::Bridge, &["bond0", "vnet0"]);
        bridge.addresses = std::mem::take(&mut host.nics[2].addresses);
        // As what has no hardware tells of itself.
        for upper in [&mut host.nics[2], &mut bridge] {
            upper.versions.clear();
            let Nic {
                driver,
                driver_version,
                model,
                firmware,
                ..
            } = upper;
            for fact in [driver, driver_version, model, firmware] {
                *fact = Fact::unknown("it has no hardware of its own that tells");
            }
        }
        host.nics
            .extend([bridge, on_top("vnet0", Kind::Virtual, &[])]);
        has_firmware(&mut host.nics[1], firmware);
        host
    };
    let usual = "26.35.1012";
    let alike = [host("a", 1, usual), host("b", 2, usual)];
    assert_eq!(told("pair-adapter", &alike), []);
    let differ = [host("a", 1, usual), host("b", 2, "26.31.2006")];
    let read = "firmware 26.35.1012, and 26.31.2006 and 26.35.1012";
    let expected = ("a and b br0".to_owned(), read.to_owned());
    assert_eq!(told("pair-adapter", &differ), [expected]);
}

#[test]
fn bonds_of_two_hosts_that_use_their_members_otherwise_are_found() {
    let host = |name: &str, number, mode: &str| {
        let mut host = healthy(name, number);
        bonded(&mut host, mode, "layer3+4", &["ens1f0", "ens1f1"]);
        host
    };
    let both = |mode: &str| [host("a", 1, "802.3ad"), host("b", 2, mode)];
    assert_eq!(told("pair-bond", &both("802.3ad")), []);
    let hosts = both("balance-xor");
    let report = examine(&hosts, &[]);
    assert_eq!(names(&report), ["pair-bond"], "{report:#?}");
    assert_eq!(
        report.findings[0].found.read,
        "a bond0 has mode 802.3ad by layer3+4, b bond0 balance-xor by layer3+4"
    );
    // Of which one has none nothing is said.
    let alone = [host("a", 1, "802.3ad"), healthy("b", 2)];
    assert_eq!(told("pair-bond", &alone), []);
}

#[test]
fn teams_are_judged_as_bonds_that_use_their_members_alike() {
    let host = |name: &str, number, mode: &str| {
        let mut host = healthy(name, number);
        bonded(&mut host, mode, "layer3+4", &["ens1f0", "ens1f1"]);
        host
    };
    let team = |name: &str, number, mode: &str| {
        let mut host = host(name, number, mode);
        value(host.nics[2].bond.as_mut().unwrap()).hash = None;
        host
    };
    let one = [team("a", 1, "activebackup"), host("b", 2, "active-backup")];
    assert_eq!(names(&examine(&one, &[])), ["bond-mode", "bond-mode"]);
    assert_eq!(told("pair-bond", &one), []);
    let all = [team("a", 1, "roundrobin"), host("b", 2, "balance-rr")];
    assert_eq!(names(&examine(&all, &[])), <[&str; 0]>::default());
    // What decides in a team of two hosts may be two things.
    let untold = [team("a", 1, "loadbalance"), team("b", 2, "loadbalance")];
    assert_eq!(names(&examine(&untold, &[])), <[&str; 0]>::default());
    for (rule, of) in [("bond-mode", 2), ("pair-bond", 1)] {
        let skipped = told(rule, &untold);
        assert_eq!(skipped.len(), of, "{rule}: {skipped:?}");
        let why = "it does not tell what decides";
        assert!(
            skipped.iter().all(|(_, because)| because == why),
            "{skipped:?}"
        );
    }
}

#[test]
fn clocks_of_which_too_little_is_known_are_skipped() {
    let (mut a, mut b) = (healthy("a", 1), healthy("b", 2));
    let clock = |ahead_ms, doubt_ms| Fact::Known(Clock { ahead_ms, doubt_ms });
    (a.clock, b.clock) = (clock(0, 0), clock(1500, 600));
    let told = |a: &Host, b: &Host| told("pair-clock", &[a.clone(), b.clone()]);
    let skipped = told(&a, &b);
    assert_eq!(skipped.len(), 1);
    assert!(
        skipped[0].1.contains("1500 ms apart may be 600 ms more"),
        "{skipped:?}"
    );
    b.clock = clock(300, 600);
    assert_eq!(told(&a, &b), []);
    b.clock = clock(1700, 600);
    let read = "the clock of b is 1700 ms ahead, give or take 600".to_owned();
    assert_eq!(told(&a, &b), [("a and b".to_owned(), read)]);
}

#[test]
fn what_is_off_shares_no_network_whatever_address_is_left_on_it() {
    let (a, mut b) = (healthy("a", 1), healthy("b", 2));
    b.nics[0].up = false;
    b.nics[0].mtu = 1500;
    assert_eq!(told("pair-mtu", &[a.clone(), b.clone()]), []);
    b.nics[1].up = false;
    let expected = ("a and b".to_owned(), "they share no network".to_owned());
    assert_eq!(told("pair-mtu", &[a, b]), [expected]);
}

#[test]
fn each_of_several_partners_on_a_network_is_looked_at() {
    let (a, mut b) = (healthy("a", 1), healthy("b", 2));
    b.nics[1].addresses = vec!["10.0.1.3/24".parse().unwrap()];
    b.nics[1].mtu = 1500;
    let told = told("pair-mtu", &[a, b]);
    let subjects: Vec<&str> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["a ens1f0 and b ens1f1"]);
}

#[test]
fn an_address_that_each_host_has_for_itself_is_no_second_owner() {
    let is_told = |make: fn(&mut Nic)| {
        let host = |name, number| {
            let mut host = healthy(name, number);
            let mut own = on_top("virbr0", Kind::Bridge, &[]);
            own.addresses = vec!["192.168.122.1/24".parse().unwrap()];
            make(&mut own);
            host.nics.push(own);
            host
        };
        let findings = examine(&[host("a", 1), host("b", 2)], &[]).findings;
        let mut findings = findings.into_iter();
        findings.any(|finding| finding.rule == "pair-address")
    };
    assert!(!is_told(|_| {}));
    // A service's, on an interface of every host.
    assert!(!is_told(|own| {
        own.kind = Kind::Virtual;
        own.addresses = vec!["10.96.0.10/32".parse().unwrap()];
    }));
    // Over an adapter it leads to the other host.
    assert!(is_told(|own| own.lower.push("ens1f0".to_owned())));
}

#[test]
fn the_end_of_a_veth_joins_nothing_and_that_is_right() {
    let mut host = healthy("a", 1);
    value(&mut host.nics[0].features).active.remove("rx-gro");
    assert_eq!(names(&examine(&[host.clone()], &[])), ["nic-offloads"]);
    host.nics[0].kind = Kind::Virtual;
    assert_eq!(
        names(&examine(&[host.clone()], &[])),
        <[&str; 0]>::default()
    );
    value(&mut host.nics[0].features)
        .active
        .remove("rx-checksum");
    assert_eq!(names(&examine(&[host], &[])), ["nic-offloads"]);
}
