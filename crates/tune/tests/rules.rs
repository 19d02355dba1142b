//! Every rule against a host with nothing wrong, and against that host with the one thing wrong that it is for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};

use Fact::Known;
use drover_tune::facts::{
    Bond, Channels, Coalescing, Core, Counters, Duplex, Fact, Features, Fec, Host, Interrupt, Kind,
    Link, Nic, Node, Pci, Processors, Rings, Steering,
};
use drover_tune::{Disruption, RULES, Report, Severity, examine};
use drover_types::{BitRate, CpuSet};

fn gbit(rate: u64) -> BitRate {
    BitRate(rate * 1_000_000_000)
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// An adapter for 25 Gbit/s on the first node, as its driver tells of it.
fn adapter(name: &str, address: &str) -> Nic {
    let features = words(&[
        "rx-checksum",
        "rx-gro",
        "tx-checksum-ip-generic",
        "tx-generic-segmentation",
        "tx-scatter-gather",
        "tx-tcp-segmentation",
    ]);
    let rates: BTreeSet<BitRate> = [gbit(1), gbit(10), gbit(25)].into();
    Nic {
        name: name.into(),
        kind: Kind::Adapter,
        up: true,
        carrier: true,
        addresses: vec![address.parse().unwrap()],
        mtu: 9000,
        lower: Vec::new(),
        driver: Known("mlx5_core".into()),
        firmware: Known("26.35.1012".into()),
        model: Known("15B3:1015".into()),
        link: Known(Link {
            speed: Some(gbit(25)),
            duplex: Some(Duplex::Full),
            negotiates: Some(true),
            by_hand: false,
            supported: rates.clone(),
            advertised: rates.clone(),
            peer: rates,
        }),
        fec: Known(Fec {
            automatic: true,
            configured: words(&["RS", "BASER"]),
        }),
        carrier_changes: Known(2),
        channels: Known(Channels {
            combined: 4,
            combined_most: 8,
        }),
        rings: Known(Rings {
            receive: 1024,
            receive_most: 8192,
        }),
        features: Known(Features {
            active: features.clone(),
            changeable: features.into_iter().chain(["rx-lro".to_owned()]).collect(),
        }),
        coalescing: Known(Coalescing {
            adaptive_receive: Some(true),
        }),
        interrupts: Known(
            (0..4)
                .map(|queue| Interrupt {
                    number: 60 + queue,
                    cpus: cpus(&queue.to_string()),
                    effective: cpus(&queue.to_string()),
                })
                .collect(),
        ),
        steering: Known(Steering {
            receive: BTreeMap::new(),
            receive_queues: 4,
        }),
        pci: Known(Pci {
            slot: "0000:3b:00.0".into(),
            speed: Some(8000),
            speed_most: Some(8000),
            width: Some(8),
            width_most: Some(8),
            near: Some(cpus("0-3")),
        }),
        bond: None,
        counters: Known(Counters {
            received: 10_000_000,
            ..Counters::default()
        }),
    }
}

/// What stands on others.
fn on_top(name: &str, kind: Kind, lower: &[&str]) -> Nic {
    Nic {
        kind,
        lower: lower.iter().map(|name| (*name).to_owned()).collect(),
        addresses: Vec::new(),
        ..adapter(name, "10.9.9.9/24")
    }
}

/// Two sockets of four cores, and two adapters.
fn healthy(name: &str, number: u8) -> Host {
    let settings = [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_timestamps", "1"),
        ("net.ipv4.tcp_window_scaling", "1"),
        ("net.ipv4.tcp_wmem", "4096 16384 33554432"),
    ];
    Host {
        name: name.into(),
        uptime_s: Known(3600),
        processors: Processors {
            online: Known(cpus("0-7")),
            cores: Known(
                (0..8)
                    .map(|cpu| {
                        let (package, core) = (cpu / 4, cpu % 4);
                        (cpu, Core { package, core })
                    })
                    .collect(),
            ),
            nodes: Known(
                [(0, "0-3"), (1, "4-7")]
                    .map(|(number, list)| Node {
                        number,
                        cpus: cpus(list),
                    })
                    .into(),
            ),
            governors: Known([("performance".to_owned(), 8)].into()),
            drivers: Known([("acpi-cpufreq".to_owned(), 8)].into()),
        },
        nics: vec![
            adapter("ens1f0", &format!("10.0.1.{number}/24")),
            adapter("ens1f1", &format!("10.0.2.{number}/24")),
        ],
        settings: settings
            .map(|(name, value)| (name.to_owned(), Known(value.to_owned())))
            .into(),
        irqbalance: Known(false),
    }
}

fn value<T>(fact: &mut Fact<T>) -> &mut T {
    match fact {
        Known(value) => value,
        Fact::Unknown(why) => panic!("{why}"),
    }
}

fn link(host: &mut Host) -> &mut Link {
    value(&mut host.nics[0].link)
}

fn by_hand(host: &mut Host) {
    link(host).negotiates = Some(false);
    link(host).by_hand = true;
}

fn set(host: &mut Host, name: &str, to: &str) {
    host.settings.insert(name.into(), Known(to.into()));
}

fn bonded(host: &mut Host, mode: &str, hash: &str, active: &[&str]) {
    let mut bond = on_top("bond0", Kind::Bond, &["ens1f0", "ens1f1"]);
    bond.addresses = std::mem::take(&mut host.nics[0].addresses);
    host.nics[1].addresses.clear();
    bond.bond = Some(Known(Bond {
        mode: mode.into(),
        hash: Some(hash.into()),
        active: active.iter().map(|name| (*name).to_owned()).collect(),
        carrying: (mode == "active-backup").then(|| active[0].to_owned()),
        aggregator: None,
        aggregators: BTreeMap::new(),
    }));
    host.nics.push(bond);
}

type Spoil = fn(&mut Host);

/// A rule, how much it matters, and what is wrong.
const CASES: &[(&str, Severity, Spoil)] = &[
    ("link-speed", Severity::Critical, |host| {
        by_hand(host);
        link(host).speed = Some(gbit(10));
    }),
    ("link-speed", Severity::Warning, |host| {
        by_hand(host);
        link(host).speed = Some(gbit(10));
        link(host).peer.clear();
    }),
    ("link-speed", Severity::Critical, |host| {
        link(host).advertised.remove(&gbit(25));
        link(host).speed = Some(gbit(10));
    }),
    ("link-duplex", Severity::Critical, |host| {
        link(host).duplex = Some(Duplex::Half);
    }),
    ("link-flaps", Severity::Notice, |host| {
        host.nics[0].carrier_changes = Known(40);
    }),
    ("link-errors", Severity::Notice, |host| {
        value(&mut host.nics[0].counters).receive_errors = 110;
    }),
    ("pci-slot", Severity::Critical, |host| {
        value(&mut host.nics[0].pci).width = Some(1);
    }),
    ("pci-slot", Severity::Warning, |host| {
        // Enough for each port, and not for both: 28 Gbit/s.
        for (nic, port) in host.nics.iter_mut().zip(["0", "1"]) {
            let pci = value(&mut nic.pci);
            (pci.width, pci.width_most) = (Some(4), Some(4));
            pci.slot = format!("0000:3b:00.{port}");
        }
    }),
    ("pci-slot", Severity::Notice, |host| {
        // At rest: all lanes, and fewer transfers than it can.
        value(&mut host.nics[0].pci).speed = Some(2500);
    }),
    ("mtu-layers", Severity::Critical, |host| {
        let mut bridge = on_top("br0", Kind::Bridge, &["ens1f0", "vnet0"]);
        bridge.mtu = 9100;
        host.nics.push(bridge);
    }),
    ("bond-mode", Severity::Warning, |host| {
        bonded(host, "active-backup", "layer2", &["ens1f0"]);
    }),
    ("bond-mode", Severity::Warning, |host| {
        bonded(host, "802.3ad", "layer2", &["ens1f0", "ens1f1"]);
    }),
    ("bond-members", Severity::Critical, |host| {
        bonded(host, "802.3ad", "layer3+4", &["ens1f0"]);
    }),
    ("bond-members", Severity::Critical, |host| {
        bonded(host, "802.3ad", "layer3+4", &["ens1f0", "ens1f1"]);
        let bond = value(host.nics[2].bond.as_mut().unwrap());
        bond.aggregator = Some(1);
        bond.aggregators = [("ens1f0".to_owned(), 1), ("ens1f1".to_owned(), 2)].into();
    }),
    ("nic-queues", Severity::Warning, |host| {
        value(&mut host.nics[0].channels).combined = 1;
    }),
    ("nic-interrupts", Severity::Warning, |host| {
        // It may be taken anywhere, and is taken far away.
        let interrupt = &mut value(&mut host.nics[0].interrupts)[0];
        (interrupt.cpus, interrupt.effective) = (cpus("0-7"), cpus("5"));
    }),
    ("nic-interrupts", Severity::Warning, |host| {
        // The kernel does not tell where it is taken.
        let interrupt = &mut value(&mut host.nics[0].interrupts)[0];
        (interrupt.cpus, interrupt.effective) = (cpus("4-7"), cpus(""));
    }),
    ("nic-steering", Severity::Notice, |host| {
        let steering = value(&mut host.nics[0].steering);
        steering.receive.insert("rx-0".into(), cpus("0-7"));
    }),
    ("nic-ring", Severity::Notice, |host| {
        // 512 in its four queues together.
        value(&mut host.nics[0].rings).receive = 128;
    }),
    ("nic-ring", Severity::Notice, |host| {
        value(&mut host.nics[0].rings).receive = 512;
        value(&mut host.nics[0].channels).combined_most = 1;
        value(&mut host.nics[0].channels).combined = 1;
    }),
    ("nic-coalescing", Severity::Notice, |host| {
        value(&mut host.nics[0].coalescing).adaptive_receive = Some(false);
    }),
    ("nic-offloads", Severity::Warning, |host| {
        value(&mut host.nics[0].features).active.remove("rx-gro");
    }),
    ("nic-offloads", Severity::Notice, |host| {
        value(&mut host.nics[0].features)
            .active
            .remove("tx-tcp-segmentation");
    }),
    ("nic-lro", Severity::Critical, |host| {
        value(&mut host.nics[0].features)
            .active
            .insert("rx-lro".into());
        host.nics.push(on_top("ens1f0.7", Kind::Vlan, &["ens1f0"]));
        host.nics.push(on_top("br0", Kind::Bridge, &["ens1f0.7"]));
    }),
    ("cpu-governor", Severity::Warning, |host| {
        host.processors.governors = Known([("powersave".to_owned(), 8)].into());
    }),
    ("tcp-buffers", Severity::Notice, |host| {
        // The kernel's own: 16.8 Gbit/s a connection, and eight of them fill the line.
        set(host, "net.ipv4.tcp_wmem", "4096 16384 4194304");
    }),
    ("tcp-buffers", Severity::Warning, |host| {
        set(host, "net.ipv4.tcp_wmem", "4096 16384 262144");
    }),
    ("tcp-timestamps", Severity::Notice, |host| {
        set(host, "net.ipv4.tcp_timestamps", "0");
    }),
    ("tcp-window", Severity::Critical, |host| {
        set(host, "net.ipv4.tcp_window_scaling", "0");
    }),
];

/// The same of two hosts: what is wrong with the second one.
const PAIRS: &[(&str, Severity, Spoil)] = &[
    ("pair-mtu", Severity::Warning, |host| {
        host.nics[0].mtu = 1500
    }),
    ("pair-speed", Severity::Warning, |host| {
        *link(host) = Link {
            speed: Some(gbit(10)),
            supported: [gbit(10)].into(),
            advertised: [gbit(10)].into(),
            ..link(host).clone()
        };
    }),
    ("pair-adapter", Severity::Notice, |host| {
        host.nics[0].firmware = Known("26.31.2006".into());
    }),
];

fn names(report: &Report) -> Vec<&str> {
    let names = report.findings.iter().map(|finding| finding.rule.as_str());
    names.collect()
}

#[test]
fn hosts_with_nothing_wrong_have_no_findings_and_nothing_is_skipped() {
    let report = examine(&[healthy("a", 1), healthy("b", 2)]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(report.skipped, []);
    assert!(report.right.len() > 50, "{}", report.right.len());
}

#[test]
fn each_rule_finds_the_one_thing_that_it_is_for_and_no_other_does() {
    for (rule, severity, spoil) in CASES {
        let mut host = healthy("a", 1);
        spoil(&mut host);
        let report = examine(&[host]);
        assert_eq!(names(&report), [*rule], "{report:#?}");
        let finding = &report.findings[0];
        assert_eq!(finding.found.severity, *severity, "{rule}");
        assert!(
            finding.found.change.is_some() || finding.found.by_hand.is_some(),
            "{rule}"
        );
        assert_eq!(finding.subject.host, "a");
    }
}

#[test]
fn each_rule_about_two_hosts_finds_what_differs() {
    for (rule, severity, spoil) in PAIRS {
        let (host, mut other) = (healthy("a", 1), healthy("b", 2));
        spoil(&mut other);
        let report = examine(&[host, other]);
        assert_eq!(names(&report), [*rule], "{report:#?}");
        assert_eq!(report.findings[0].found.severity, *severity, "{rule}");
        assert_eq!(report.findings[0].subject.to_string(), "a and b ens1f0");
    }
}

#[test]
fn each_rule_has_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().chain(PAIRS).map(|(rule, ..)| *rule).collect();
    let without = RULES
        .iter()
        .map(|rule| rule.name)
        .filter(|name| !cases.contains(name));
    // Where it is wrong, the link has no rate either, of which another rule speaks: it has a test of its own.
    assert_eq!(without.collect::<Vec<_>>(), ["link-fec"]);
}

#[test]
fn a_link_that_is_down_with_a_rate_by_hand_is_found_and_left_to_people() {
    let mut host = healthy("a", 1);
    host.nics[0].carrier = false;
    link(&mut host).speed = None;
    // Such a driver says only once it has a carrier that it negotiates.
    link(&mut host).negotiates = Some(false);
    assert_eq!(
        names(&examine(std::slice::from_ref(&host))),
        <[&str; 0]>::default()
    );
    by_hand(&mut host);
    let report = examine(&[host]);
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
    let report = examine(&[host]);
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
    let report = examine(&[host]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    assert_eq!(report.skipped, []);
}

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
    assert_eq!(names(&examine(&[host])), ["nic-ring"]);
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
    assert_eq!(names(&examine(std::slice::from_ref(&host))), nothing);
    // Through the bridge and its VLAN.
    value(&mut host.nics[0].rings).receive = 1;
    assert_eq!(names(&examine(std::slice::from_ref(&host))), ["nic-ring"]);
    // A bridge of guests alone, of which only forwarding is asked.
    host.nics[2].addresses.clear();
    assert_eq!(names(&examine(std::slice::from_ref(&host))), nothing);
    value(&mut host.nics[0].features)
        .active
        .insert("rx-lro".into());
    assert_eq!(names(&examine(std::slice::from_ref(&host))), ["nic-lro"]);
    // An end with an address of its own is the host's.
    host.nics.push(tap("veth0", &["10.0.7.1/24"]));
    assert_eq!(names(&examine(&[host])), ["nic-lro", "nic-ring"]);
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
    let report = examine(&[host]);
    assert_eq!(names(&report), <[&str; 0]>::default());
    let skipped: Vec<&str> = report.skipped.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(skipped, ["pci-slot", "pci-slot"]);
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
        let report = examine(&hosts);
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
    assert_eq!(read.as_deref(), Some("50 Gbit/s, and 25 Gbit/s of br0"));
}

#[test]
fn members_that_wait_may_have_any_rate_and_bonds_that_nobody_uses_may_be_as_they_are() {
    let mut host = healthy("a", 1);
    bonded(&mut host, "active-backup", "layer2", &["ens1f0"]);
    value(&mut host.nics[1].link).speed = Some(gbit(1));
    value(&mut host.nics[1].link).supported = [gbit(1)].into();
    value(&mut host.nics[1].link).peer = [gbit(1)].into();
    value(&mut host.nics[1].link).advertised = [gbit(1)].into();
    assert_eq!(names(&examine(std::slice::from_ref(&host))), ["bond-mode"]);
    host.nics[2].addresses.clear();
    assert_eq!(names(&examine(&[host.clone()])), <[&str; 0]>::default());
    assert!(host.nics.iter().all(|nic| !nic.is_addressed()));
}

#[test]
fn the_packet_size_of_a_vrf_means_nothing() {
    let mut host = healthy("a", 1);
    let mut vrf = on_top("blue", Kind::Virtual, &["ens1f0"]);
    vrf.mtu = 65536;
    host.nics.push(vrf);
    assert_eq!(names(&examine(&[host])), <[&str; 0]>::default());
}

#[test]
fn what_was_counted_is_told_with_since_when_and_measured_by_the_day() {
    let mut host = healthy("a", 1);
    host.uptime_s = Known(30 * 24 * 3600);
    host.nics[0].carrier_changes = Known(40);
    value(&mut host.nics[0].counters).receive_errors = 2900;
    assert_eq!(
        names(&examine(std::slice::from_ref(&host))),
        <[&str; 0]>::default()
    );
    host.nics[0].carrier_changes = Known(41);
    value(&mut host.nics[0].counters).receive_errors = 3100;
    let report = examine(&[host]);
    assert_eq!(names(&report), ["link-flaps", "link-errors"]);
    for finding in &report.findings {
        let since = "since the host was started 30 days ago";
        assert!(finding.found.read.ends_with(since), "{finding:#?}");
    }
}

#[test]
fn powersave_follows_the_work_with_drivers_that_see_to_it() {
    let mut host = healthy("a", 1);
    host.processors.governors = Known([("powersave".to_owned(), 8)].into());
    host.processors.drivers = Known([("intel_pstate".to_owned(), 8)].into());
    assert_eq!(names(&examine(&[host])), <[&str; 0]>::default());
}

#[test]
fn a_rate_that_only_one_end_can_have_is_not_missed() {
    let mut host = healthy("a", 1);
    link(&mut host).peer = [gbit(10), gbit(40)].into();
    link(&mut host).speed = Some(gbit(10));
    assert_eq!(
        names(&examine(std::slice::from_ref(&host))),
        <[&str; 0]>::default()
    );
    // Of a module's other end nothing is told.
    link(&mut host).peer.clear();
    let report = examine(&[host]);
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
    };
    // What the hardware chose is told the same way.
    assert_eq!(
        names(&examine(std::slice::from_ref(&host))),
        <[&str; 0]>::default()
    );
    by_hand(&mut host);
    let report = examine(&[host]);
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
fn what_is_not_known_is_skipped_with_its_reason_and_never_right() {
    let mut host = healthy("a", 1);
    let before = examine(std::slice::from_ref(&host)).right.len();
    host.nics[0].rings = Fact::unknown("its driver does not tell");
    let report = examine(&[host]);
    assert_eq!(report.right.len(), before - 1);
    let [skipped] = &report.skipped[..] else {
        panic!("{:#?}", report.skipped);
    };
    assert_eq!(
        (skipped.rule.as_str(), skipped.because.as_str()),
        ("nic-ring", "its driver does not tell")
    );
    assert_eq!(skipped.subject.to_string(), "a ens1f0");
}

#[test]
fn findings_come_with_the_worst_first() {
    let mut host = healthy("a", 1);
    for (.., spoil) in CASES
        .iter()
        .filter(|(rule, ..)| *rule != "bond-mode" && *rule != "bond-members")
    {
        spoil(&mut host);
    }
    let report = examine(&[host]);
    let severities: Vec<Severity> = report
        .findings
        .iter()
        .map(|finding| finding.found.severity)
        .collect();
    assert!(severities.is_sorted());
    assert_eq!(
        report
            .counts()
            .iter()
            .map(|(_, count)| count)
            .sum::<usize>(),
        report.findings.len()
    );
}

#[test]
fn a_report_is_the_same_after_it_was_written_down() {
    let mut host = healthy("a", 1);
    host.nics[0].rings = Fact::unknown("its driver does not tell");
    set(&mut host, "net.ipv4.tcp_wmem", "4096 16384 65536");
    let text = serde_json::to_string(&host).unwrap();
    assert_eq!(serde_json::from_str::<Host>(&text).unwrap(), host);
    let report = examine(&[host]);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}
