//! What is compared of two hosts, and with which.

use drover_tune::facts::{Dcb, Ets, Fact, Host, Kind, Offers, Teller};
use drover_tune::{Severity, examine};

use crate::hosts::{bonded, gbit, healthy, on_top, rdma, set, value};
use crate::layers::told;

/// A host whose first adapter has that of it.
fn bridging(name: &str, number: u8, change: impl Fn(&mut Dcb)) -> Host {
    let mut host = healthy(name, number);
    change(value(&mut host.nics[0].dcb));
    host
}

#[test]
fn what_drivers_tell_of_shares_that_nobody_set_is_not_compared() {
    let untouched = |name, number, algorithm: u8, shares: [u8; 8], classes: [u8; 8]| {
        bridging(name, number, |dcb| {
            dcb.pfc.as_mut().unwrap().enabled.clear();
            dcb.ets = Some(Ets {
                willing: false,
                shares: shares.into(),
                algorithms: vec![algorithm; 8],
                classes: classes.into(),
            });
        })
    };
    let own = untouched("a", 1, 255, [100; 8], [1, 0, 2, 3, 4, 5, 6, 7]);
    let one = [100, 0, 0, 0, 0, 0, 0, 0];
    let there = untouched("b", 2, 2, one, [0; 8]);
    assert_eq!(told("pair-dcb", &[own.clone(), there.clone()]), []);
    let right = examine(&[own, there], &[]).right.into_iter();
    let right = right.filter(|right| right.rule == "pair-dcb");
    assert_eq!(right.count(), 1, "of its other adapter alone");
}

#[test]
fn a_class_by_share_differs_from_a_strict_one_and_not_from_one_of_another_number() {
    let other = |change: fn(&mut Ets)| {
        let change = |dcb: &mut Dcb| change(dcb.ets.as_mut().unwrap());
        let hosts = [healthy("a", 1), bridging("b", 2, change)];
        told("pair-dcb", &hosts)
    };
    let read = "shares: a ens1f0 has 50 % for priority 0, 1, 2, 4, 5, 6, 7; 50 % for priority 3, b ens1f0 none";
    let expected = ("a and b ens1f0".to_owned(), read.to_owned());
    assert_eq!(other(|ets| ets.algorithms = vec![0; 8]), [expected]);
    assert_eq!(other(|ets| ets.classes = vec![1, 1, 1, 0, 1, 1, 1, 1]), []);
    // Of classes that no priority has nothing is sent.
    assert_eq!(other(|ets| ets.algorithms[2..].fill(255)), []);
}

#[test]
fn what_one_end_alone_tells_is_skipped_unless_something_else_differs() {
    let hosts = |shares: [u8; 2]| {
        let change = |dcb: &mut Dcb| {
            dcb.pfc = None;
            dcb.ets.as_mut().unwrap().shares[..2].copy_from_slice(&shares);
        };
        [healthy("a", 1), bridging("b", 2, change)]
    };
    let skipped = told("pair-dcb", &hosts([50, 50]));
    let because = "the driver of one end does not tell PFC".to_owned();
    assert_eq!(skipped, [("a and b ens1f0".to_owned(), because)]);
    let found = told("pair-dcb", &hosts([60, 40]));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.starts_with("shares: a ens1f0 has 50 %"),
        "{found:?}"
    );
}

#[test]
fn commands_name_the_adapters_that_carry() {
    let host = |name, number, enabled: u8| {
        let mut host = bridging(name, number, |dcb| {
            dcb.pfc.as_mut().unwrap().enabled = [enabled].into();
        });
        let mut vlan = on_top("ens1f0.7", Kind::Vlan, &["ens1f0"]);
        vlan.addresses = std::mem::take(&mut host.nics[0].addresses);
        host.nics.push(vlan);
        host
    };
    let report = examine(&[host("a", 1, 3), host("b", 2, 4)], &[]);
    let mut findings = report.findings.into_iter();
    let found = findings.find(|finding| finding.rule == "pair-dcb");
    let found = found.unwrap();
    assert_eq!(found.subject.to_string(), "a and b ens1f0.7");
    let by_hand = found.found.by_hand.unwrap();
    assert!(
        by_hand.ends_with("tell of ens1f0 here, and of ens1f0 of b"),
        "{by_hand}"
    );
}

/// Two hosts whose adapters are all in one network, and have these rates.
fn in_one_network(own: [u64; 2], there: [u64; 2]) -> [Host; 2] {
    [("a", 1, own), ("b", 2, there)].map(|(name, number, rates)| {
        let mut host = healthy(name, number);
        host.nics[1].addresses = vec![format!("10.0.1.1{number}/24").parse().unwrap()];
        for (nic, rate) in host.nics.iter_mut().zip(rates) {
            value(&mut nic.link).speed = Some(gbit(rate));
        }
        host
    })
}

#[test]
fn an_interface_is_compared_with_the_one_that_a_migration_pairs_it_with() {
    let about_two = |hosts: &[Host]| {
        let findings = examine(hosts, &[]).findings.into_iter();
        let rules = findings.map(|finding| finding.rule);
        let of_two = rules.filter(|rule| rule.starts_with("pair-"));
        of_two.collect::<Vec<String>>()
    };
    let alike = in_one_network([1, 25], [1, 25]);
    assert_eq!(about_two(&alike), <[&str; 0]>::default());
    let right = examine(&alike, &[]).right.into_iter();
    let count = |rule: &str| right.clone().filter(|right| right.rule == rule).count();
    assert_eq!((count("pair-speed"), count("pair-mtu")), (2, 4));
    // What they are called does not matter.
    let crossed = in_one_network([1, 25], [25, 1]);
    assert_eq!(told("pair-speed", &crossed), []);
    let slower = in_one_network([25, 25], [25, 10]);
    let read = "a ens1f1 has 25 Gbit/s, b ens1f1 10 Gbit/s".to_owned();
    let expected = ("a and b ens1f1".to_owned(), read);
    assert_eq!(told("pair-speed", &slower), [expected]);
}

#[test]
fn of_an_interface_without_a_partner_of_its_own_packets_alone_are_compared() {
    let mut hosts = in_one_network([1, 25], [25, 25]);
    hosts[1].nics[1].up = false;
    assert_eq!(told("pair-speed", &hosts), []);
    hosts[0].nics[0].mtu = 1500;
    let told = told("pair-mtu", &hosts);
    let subjects: Vec<&str> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["a and b ens1f0"]);
}

#[test]
fn ends_of_guests_are_not_compared_however_many_there_are() {
    let host = |name, number| {
        let mut host = healthy(name, number);
        let taps: Vec<String> = (0..300).map(|tap| format!("vnet{tap}")).collect();
        let ports = ["ens1f0"]
            .into_iter()
            .chain(taps.iter().map(String::as_str));
        let mut bridge = on_top("br0", Kind::Bridge, &ports.collect::<Vec<&str>>());
        bridge.addresses = std::mem::take(&mut host.nics[0].addresses);
        host.nics.push(bridge);
        for tap in &taps {
            let mut tap = on_top(tap, Kind::Virtual, &[]);
            tap.addresses = vec!["fe80::1/64".parse().unwrap()];
            host.nics.push(tap);
        }
        host
    };
    let report = examine(&[host("a", 1), host("b", 2)], &[]);
    let right = report.right.into_iter();
    let right = right.filter(|right| right.rule == "pair-mtu");
    let subjects: Vec<String> = right.map(|right| right.subject.to_string()).collect();
    assert_eq!(subjects, ["a and b ens1f1", "a and b br0"]);
}

#[test]
fn a_switch_that_is_not_known_may_be_the_one_in_common() {
    let host = |name, number, switches: [Option<&str>; 2]| {
        let mut host = healthy(name, number);
        for (nic, switch) in host.nics.iter_mut().zip(switches) {
            match switch {
                Some(switch) => value(&mut nic.neighbours)[0].switch = switch.to_owned(),
                None => nic.neighbours = Fact::Known(Vec::new()),
            }
        }
        bonded(&mut host, "802.3ad", "layer3+4", &["ens1f0", "ens1f1"]);
        host
    };
    let own = host("a", 1, [Some("one"), None]);
    let told_of = |there| told("pair-switch", &[own.clone(), host("b", 2, there)]);
    assert_eq!(told_of([Some("two"), Some("one")]), []);
    let because = "the other end says nothing by LLDP".to_owned();
    let expected = ("a and b bond0".to_owned(), because);
    assert_eq!(told_of([Some("two"), Some("two")]), [expected]);
}

#[test]
fn two_hosts_that_are_cabled_to_each_other_have_no_switch() {
    let told_of = |name: &str| {
        let (mut a, b) = (healthy("a", 1), healthy("b", 2));
        let neighbour = &mut value(&mut a.nics[0].neighbours)[0];
        neighbour.switch = "02:00:00:00:00:ff".into();
        neighbour.name = Some(name.into());
        told("pair-switch", &[a, b]).len()
    };
    assert_eq!((told_of("b"), told_of("B.example.org")), (0, 0));
    assert_eq!((told_of("b2"), told_of("leaf-b")), (1, 1));
}

#[test]
fn iwarp_is_a_kind_of_its_own_and_needs_no_line_without_loss() {
    let (a, mut b) = (healthy("a", 1), healthy("b", 2));
    rdma(&mut b).kinds = [("iWARP".to_owned(), 2)].into();
    let read = "a ens1f0 has RoCE v2, b ens1f0 iWARP".to_owned();
    let expected = ("a and b ens1f0".to_owned(), read);
    assert_eq!(told("pair-rdma", &[a, b.clone()]), [expected]);
    let pfc = value(&mut b.nics[0].dcb).pfc.as_mut();
    pfc.unwrap().enabled.clear();
    for rule in ["rdma-kind", "dcb-lossless"] {
        assert_eq!(told(rule, std::slice::from_ref(&b)), [], "{rule}");
    }
}

/// What `dcb-peer` says of an adapter, with its severity where it found something.
fn peer(change: impl Fn(&mut Dcb)) -> Vec<(Option<Severity>, String)> {
    let report = examine(&[bridging("a", 1, change)], &[]);
    let found = report.findings.into_iter();
    let found = found.filter(|one| one.rule == "dcb-peer");
    let found = found.map(|one| (Some(one.found.severity), one.found.read));
    let skipped = report.skipped.into_iter();
    let skipped = skipped.filter(|one| one.rule == "dcb-peer");
    found
        .chain(skipped.map(|one| (None, one.because)))
        .collect()
}

/// As an adapter tells whose driver gives each class a share, where nobody set one.
fn unset(dcb: &mut Dcb) {
    dcb.pfc.as_mut().unwrap().enabled.clear();
    dcb.ets = Some(Ets {
        willing: false,
        shares: vec![100; 8],
        algorithms: vec![255; 8],
        classes: vec![1, 0, 2, 3, 4, 5, 6, 7],
    });
}

#[test]
fn what_a_switch_tells_that_nobody_set_is_not_compared() {
    let defaults = peer(|dcb| {
        unset(dcb);
        dcb.peer_pfc.as_mut().unwrap().enabled.clear();
        let ets = dcb.peer_ets.as_mut().unwrap();
        (ets.shares, ets.algorithms) = (vec![100, 0, 0, 0, 0, 0, 0, 0], vec![2; 8]);
        ets.classes = vec![0; 8];
    });
    assert_eq!(defaults, []);
    // What a class is called is each end's own choice.
    let renamed = peer(|dcb| {
        let ets = dcb.peer_ets.as_mut().unwrap();
        ets.classes = vec![2, 2, 2, 1, 2, 2, 2, 2];
        (ets.shares, ets.algorithms) = (vec![0, 50, 50, 0, 0, 0, 0, 0], vec![2; 8]);
    });
    assert_eq!(renamed, []);
}

#[test]
fn what_a_switch_alone_has_set_is_a_notice_and_what_it_does_not_tell_is_skipped() {
    let alone = peer(unset);
    let read = "PFC: none here, and priority 3 at the switch; shares: none here, and ";
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].0, Some(Severity::Notice));
    assert!(alone[0].1.starts_with(read), "{alone:?}");
    let untold = peer(|dcb| dcb.peer_ets = None);
    let why = "the switch does not tell shares".to_owned();
    assert_eq!(untold, [(None, why)]);
    // Strict beside a share.
    let strict = peer(|dcb| dcb.peer_ets.as_mut().unwrap().algorithms[1] = 0);
    assert_eq!(strict[0].0, Some(Severity::Warning));
    assert!(
        strict[0]
            .1
            .contains("all before others for priority 3 at the switch")
    );
}

#[test]
fn firmware_is_compared_by_a_way_that_both_ends_tell_it() {
    use Teller::{Devlink, Driver, Rdma};
    let host = |name: &str, number, versions: &[(Teller, &str)]| {
        let mut host = healthy(name, number);
        let versions = versions.iter();
        host.nics[0].versions = versions
            .map(|(who, told)| (*who, (*told).to_owned()))
            .collect();
        host
    };
    let told = |near: &[(Teller, &str)], far: &[(Teller, &str)]| {
        told("pair-adapter", &[host("a", 1, near), host("b", 2, far)])
    };
    // One firmware of bnxt_en, where the driver for RDMA is loaded at one end alone; and of i40e, of which devlink tells since Linux 6.7.
    let (driver, rdma) = ("220.0.59.0/pkg 220.0.83.0", "220.0.59.0");
    let both = [(Driver, driver), (Devlink, "220.0.83.0"), (Rdma, rdma)];
    assert_eq!(told(&both, &[(Driver, driver)]), []);
    let other = told(&both, &[(Driver, "9.20"), (Devlink, "220.0.83.0")]);
    assert_eq!(other[0].1, format!("firmware {driver}, and 9.20"));
    // As hosts were captured before drivers were asked.
    assert_eq!(told(&both[1..], &[(Devlink, "220.0.83.0")]), []);
    let older = told(&both[1..], &[(Devlink, "219.0.0.0"), (Rdma, rdma)]);
    assert_eq!(older[0].1, "firmware 220.0.83.0, and 219.0.0.0");
    let apart = examine(&[host("a", 1, &both[..1]), host("b", 2, &both[2..])], &[]);
    let skipped = apart.skipped.iter().find(|one| one.rule == "pair-adapter");
    let because = &skipped.unwrap().because;
    assert!(
        because.starts_with("firmware: both ends tell it"),
        "{because}"
    );
}

#[test]
fn a_driver_of_the_kernel_may_be_of_another_kernel_and_one_that_is_not_is_named() {
    let host = |name: &str, number, kernel: &str, driver: &str| {
        let mut host = healthy(name, number);
        set(&mut host, "kernel.osrelease", kernel);
        for nic in &mut host.nics {
            nic.driver_version = Fact::Known(driver.into());
        }
        host
    };
    let own = host("a", 1, "6.12.48", "6.12.48");
    let updated = host("b", 2, "6.12.50", "6.12.50");
    assert_eq!(told("pair-adapter", &[own.clone(), updated]), []);
    let vendors = host("b", 2, "6.12.48", "24.10-0.7.0");
    let found = told("pair-adapter", &[own.clone(), vendors]);
    assert_eq!(found[0].1, "driver's version the kernel's, and 24.10-0.7.0");
    let mut older = host("b", 2, "6.12.48", "");
    older.nics[0].driver_version = Fact::default();
    let report = examine(&[own, older], &[]);
    let skipped = report.skipped.iter().find(|one| one.rule == "pair-adapter");
    assert!(skipped.unwrap().because.starts_with("driver's version: "));
}

#[test]
fn a_kind_that_programs_take_by_default_alone_has_the_command_and_the_host_named() {
    let by_hand = |spoil: fn(&mut Host)| {
        let mut other = healthy("b", 2);
        spoil(&mut other);
        let findings = examine(&[healthy("a", 1), other], &[]).findings.into_iter();
        let mut found = findings.filter(|finding| finding.rule == "pair-rdma");
        found.next().unwrap().found.by_hand.unwrap()
    };
    let by_default = by_hand(|host| rdma(host).default_kind = Some("IB/RoCE v1".into()));
    assert_eq!(
        by_default,
        "on b, until its next start: mkdir -p /sys/kernel/config/rdma_cm/mlx5_0 && \
         echo 'RoCE v2' > /sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"
    );
    // Without an address of it no default helps, nor does one between Ethernet and InfiniBand.
    for spoil in [
        (|host| _ = rdma(host).kinds.remove("RoCE v2")) as fn(&mut Host),
        |host| rdma(host).layer = "InfiniBand".into(),
    ] {
        let told = by_hand(spoil);
        assert!(told.starts_with("see what `rdma-kind` says"), "{told}");
    }
}

/// What `pair-cpu` says of two hosts, the second one's QEMUs offering something else: what was read, why, and what is to be done; or why not.
fn of_processors(spoil: fn(&mut Offers)) -> Result<[String; 3], String> {
    let mut other = healthy("b", 2);
    spoil(value(&mut other.offers));
    let report = examine(&[healthy("a", 1), other], &[]);
    let mut skipped = report.skipped.into_iter();
    if let Some(skipped) = skipped.find(|skipped| skipped.rule == "pair-cpu") {
        return Err(skipped.because);
    }
    let mut found = report.findings.into_iter();
    let found = found.find(|finding| finding.rule == "pair-cpu").unwrap();
    let found = found.found;
    Ok([found.read, found.why, found.by_hand.unwrap()])
}

#[test]
fn processors_are_compared_by_what_each_end_lacks_and_a_model_of_both_is_named() {
    let moves =
        |how: &str| format!("guests with all that their processor has (host-passthrough) {how}");
    let [read, why, by_hand] = of_processors(|offers| {
        let hardware = offers.hardware.as_mut().unwrap();
        hardware.features.remove("avx2");
        hardware.models.remove("EPYC-Milan");
        offers.processor = "AMD EPYC 7251".into();
    })
    .unwrap();
    assert_eq!(read, "AMD EPYC 7543, and AMD EPYC 7251 of b; b lacks avx2");
    assert_eq!(why, moves("move one way only, from b to a"));
    assert_eq!(
        by_hand,
        "give guests that are to move both ways a model that both have: EPYC is the newest for servers"
    );
    let [read, why, _] = of_processors(|offers| {
        let hardware = offers.hardware.as_mut().unwrap();
        hardware.features.remove("avx2");
        hardware.features.insert("vaes".into());
        hardware.models.clear();
    })
    .unwrap();
    assert_eq!(read, "AMD EPYC 7543 at both; a lacks vaes; b lacks avx2");
    assert_eq!(why, moves("move neither way"));
    let [_, why, _] = of_processors(|offers| offers.processor = "AMD EPYC 7713".into()).unwrap();
    assert_eq!(why, moves("find another one after a move"));
}

#[test]
fn processors_are_not_blamed_for_what_another_qemu_does_not_know_or_use() {
    let skipped = of_processors(|offers| {
        offers.version = Some("7.2.0".into());
        let hardware = offers.hardware.as_mut().unwrap();
        hardware.features.remove("avx2");
    });
    let because = "their QEMUs are of other versions, and know other features of it";
    assert_eq!(skipped.unwrap_err(), because);
    // Of other processors the names alone are told.
    let [read, why, _] = of_processors(|offers| {
        offers.version = Some("7.2.0".into());
        offers.processor = "AMD EPYC 7251".into();
        let hardware = offers.hardware.as_mut().unwrap();
        hardware.features.remove("avx2");
    })
    .unwrap();
    assert_eq!(
        read,
        "AMD EPYC 7543, and AMD EPYC 7251 of b; what either lacks is not told, as their QEMUs are of other versions"
    );
    assert!(why.ends_with("find another one after a move"), "{why}");
    let skipped = of_processors(|offers| offers.hardware = None);
    assert_eq!(
        skipped.unwrap_err(),
        "no QEMU of b has guests run by its processors"
    );
}
