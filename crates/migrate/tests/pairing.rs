//! Which paths two hosts get, from their interfaces and the probes that were answered.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use drover_migrate::limits;
use drover_migrate::paths::{
    Candidate, LeftOut, LeftOutReason, Pairing, Pattern, Selected, Selection, Side, candidates,
    choose, select,
};
use drover_types::{BitRate, Interface};
use proptest::prelude::*;

const GBIT: u64 = 1_000_000_000;

fn nic(name: &str, gbit: u64, addresses: &[&str]) -> Interface {
    Interface {
        name: name.into(),
        addresses: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        speed: (gbit > 0).then(|| BitRate(gbit * GBIT)),
        mtu: 9000,
        up: true,
        loopback: false,
        tx_queues: 1,
        rx_queues: 1,
        rdma: None,
    }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn all(side: Side, interfaces: &[Interface]) -> Selected {
    select(side, interfaces, &Selection::default())
}

/// Pairs two hosts between which every candidate answers that `answers` accepts.
fn paired_if(
    source: &[Interface],
    destination: &[Interface],
    answers: impl Fn(&Candidate) -> bool,
) -> Pairing {
    let (source, destination) = (
        all(Side::Source, source),
        all(Side::Destination, destination),
    );
    let mut answered = candidates(&source, &destination);
    answered.retain(answers);
    choose(&source, &destination, &answered)
}

fn paired(source: &[Interface], destination: &[Interface]) -> Pairing {
    paired_if(source, destination, |_| true)
}

fn shown(pairing: &Pairing) -> Vec<String> {
    let show = |path: &drover_types::Path| {
        format!(
            "{}: {}-{}",
            path.id, path.source.interface, path.destination.interface
        )
    };
    pairing.paths.iter().map(show).collect()
}

fn reasons(left_out: &[LeftOut]) -> Vec<String> {
    left_out
        .iter()
        .map(|left| format!("{}: {}", left.interface, left.reason))
        .collect()
}

#[test]
fn interfaces_of_the_same_network_are_paired_and_every_one_is_used() {
    let source = [
        nic("a0", 1, &["10.0.1.1/24"]),
        nic("a1", 1, &["10.0.2.1/24"]),
    ];
    let destination = [
        nic("b0", 1, &["10.0.2.2/24"]),
        nic("b1", 1, &["10.0.1.2/24"]),
    ];
    let pairing = paired(&source, &destination);
    assert_eq!(shown(&pairing), ["0: a0-b1", "1: a1-b0"]);
    assert_eq!(pairing.paths[0].rate, Some(BitRate(GBIT)));
    assert!(pairing.left_out.is_empty());
}

#[test]
fn the_faster_path_comes_first_and_its_rate_and_mtu_are_those_of_the_smaller_end() {
    let mut slow = nic("b1", 10, &["10.0.2.2/24"]);
    slow.mtu = 1500;
    let source = [
        nic("a0", 1, &["10.0.1.1/24"]),
        nic("a1", 25, &["10.0.2.1/24"]),
    ];
    let destination = [nic("b0", 1, &["10.0.1.2/24"]), slow];
    let pairing = paired(&source, &destination);
    assert_eq!(shown(&pairing), ["0: a1-b1", "1: a0-b0"]);
    assert_eq!(
        (pairing.paths[0].rate, pairing.paths[0].mtu),
        (Some(BitRate(10 * GBIT)), 1500)
    );
}

#[test]
fn in_one_flat_network_the_fast_are_paired_with_the_fast() {
    let source = [
        nic("a0", 1, &["10.0.0.1/16"]),
        nic("a1", 25, &["10.0.0.2/16"]),
    ];
    let destination = [
        nic("b0", 25, &["10.0.0.3/16"]),
        nic("b1", 1, &["10.0.0.4/16"]),
    ];
    assert_eq!(
        shown(&paired(&source, &destination)),
        ["0: a1-b0", "1: a0-b1"]
    );
}

#[test]
fn interfaces_left_over_join_the_one_with_the_most_to_spare() {
    let source = [
        nic("a0", 25, &["10.0.0.1/16"]),
        nic("a1", 10, &["10.0.0.2/16"]),
    ];
    let destination = [
        nic("b0", 10, &["10.0.0.3/16"]),
        nic("b1", 10, &["10.0.0.4/16"]),
        nic("b2", 10, &["10.0.0.5/16"]),
    ];
    let pairing = paired(&source, &destination);
    assert_eq!(pairing.paths.len(), 3);
    let with_a0 = pairing
        .paths
        .iter()
        .filter(|path| path.source.interface == "a0")
        .count();
    assert_eq!(with_a0, 2, "{:?}", shown(&pairing));
}

#[test]
fn an_interface_that_nothing_answers_is_left_out_and_said_to_be() {
    let source = [
        nic("a0", 1, &["10.0.1.1/24"]),
        nic("a1", 1, &["10.0.2.1/24"]),
    ];
    let destination = [
        nic("b0", 1, &["10.0.1.2/24"]),
        nic("b1", 1, &["10.0.2.2/24"]),
    ];
    let pairing = paired_if(&source, &destination, |pair| pair.source.interface == "a0");
    assert_eq!(shown(&pairing), ["0: a0-b0"]);
    let expected = [
        "a1: it reaches no interface of the other host",
        "b1: it reaches no interface of the other host",
    ];
    assert_eq!(reasons(&pairing.left_out), expected);
}

#[test]
fn an_address_that_both_hosts_have_is_not_tried_and_said_to_be_doubled() {
    let source = [
        nic("a0", 1, &["10.0.1.1/24"]),
        nic("br0", 0, &["172.17.0.1/16"]),
        nic("a2", 1, &["10.0.9.9/24", "10.0.3.1/24"]),
    ];
    let destination = [
        nic("b0", 1, &["10.0.1.2/24"]),
        nic("docker0", 0, &["172.17.0.1/16"]),
        nic("b2", 1, &["10.0.9.9/24", "10.0.3.2/24"]),
    ];
    let (from, to) = (
        all(Side::Source, &source),
        all(Side::Destination, &destination),
    );
    let tried = candidates(&from, &to);
    let doubled = |candidate: &Candidate| {
        let ends = [candidate.source.address, candidate.destination.address];
        ends.iter()
            .any(|end| ["172.17.0.1", "10.0.9.9"].contains(&&*end.to_string()))
    };
    assert!(!tried.iter().any(doubled), "{tried:?}");
    let pairing = paired(&source, &destination);
    assert_eq!(shown(&pairing), ["0: a0-b0", "1: a2-b2"]);
    assert_eq!(
        reasons(&pairing.left_out),
        [
            "br0: both hosts have its address 172.17.0.1: give one of them another",
            "docker0: both hosts have its address 172.17.0.1: give one of them another",
        ]
    );
}

#[test]
fn networks_are_crossed_only_for_an_interface_that_shares_none() {
    let source = [
        nic("a0", 1, &["10.0.1.1/24"]),
        nic("a1", 1, &["192.0.2.1/24"]),
    ];
    let destination = [
        nic("b0", 1, &["10.0.1.2/24"]),
        nic("b1", 1, &["198.51.100.1/24"]),
    ];
    let (from, to) = (
        all(Side::Source, &source),
        all(Side::Destination, &destination),
    );
    let pair = |pair: &Candidate| {
        (
            pair.source.interface.clone(),
            pair.destination.interface.clone(),
        )
    };
    let pairs: Vec<_> = candidates(&from, &to).iter().map(pair).collect();
    let named = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(pairs[0], named("a0", "b0"), "the same network comes first");
    assert!(pairs.contains(&named("a1", "b1")));

    let same = [
        nic("c0", 1, &["10.0.1.3/24"]),
        nic("c1", 1, &["10.0.2.3/24"]),
    ];
    let same_too = [
        nic("d0", 1, &["10.0.1.4/24"]),
        nic("d1", 1, &["10.0.2.4/24"]),
    ];
    let (from, to) = (all(Side::Source, &same), all(Side::Destination, &same_too));
    let pairs: Vec<_> = candidates(&from, &to).iter().map(pair).collect();
    assert_eq!(pairs, [named("c0", "d0"), named("c1", "d1")]);
}

#[test]
fn families_are_not_mixed_and_one_of_two_addresses_is_used() {
    let source = [nic("a0", 1, &["10.0.1.1/24", "fd00:1::1/64"])];
    let destination = [nic("b0", 1, &["fd00:1::2/64", "10.0.1.2/24"])];
    let pairing = paired(&source, &destination);
    assert_eq!(pairing.paths.len(), 1);
    let path = &pairing.paths[0];
    assert_eq!(
        path.source.address.is_ipv4(),
        path.destination.address.is_ipv4()
    );
    let only_v6 = paired_if(&source, &destination, |pair| pair.source.address.is_ipv6());
    assert!(only_v6.paths[0].destination.address.is_ipv6());
}

#[test]
fn what_cannot_carry_a_migration_is_left_out_with_its_reason() {
    let mut down = nic("eth1", 1, &["10.0.1.1/24"]);
    down.up = false;
    let mut loopback = nic("lo", 0, &["127.0.0.1/8"]);
    loopback.loopback = true;
    let interfaces = [
        loopback,
        down,
        nic("eth2", 1, &[]),
        nic("eth3", 1, &["fe80::1/64", "169.254.1.1/16", "10.0.3.1/24"]),
        nic("docker0", 0, &["172.17.0.1/16"]),
        nic("eth4", 1, &["10.0.4.1/24"]),
    ];
    let selection = Selection {
        include: patterns(&["10.0.0.0/16", "docker*"]),
        exclude: patterns(&["docker?", "10.0.4.0/24"]),
        order: Vec::new(),
    };
    let selected = select(Side::Source, &interfaces, &selection);
    let used: Vec<_> = selected
        .endpoints
        .iter()
        .map(|end| &*end.interface)
        .collect();
    assert_eq!(used, ["eth3"]);
    let expected = [
        "lo: it is the loopback interface",
        "eth1: it is down or has no carrier",
        "eth2: it has no address",
        "eth3: the address is not one that a peer can connect to",
        "eth3: the address is not one that a peer can connect to",
        "docker0: the configuration excludes it by docker?",
        "eth4: the configuration excludes it by 10.0.4.0/24",
    ];
    assert_eq!(reasons(&selected.left_out), expected);
}

#[test]
fn the_operators_order_comes_before_speed() {
    let interfaces = [
        nic("a0", 25, &["10.0.1.1/24"]),
        nic("a1", 1, &["10.0.2.1/24"]),
    ];
    let selection = Selection {
        order: patterns(&["10.0.2.0/24"]),
        ..Selection::default()
    };
    let source = select(Side::Source, &interfaces, &selection);
    let others = [
        nic("b0", 25, &["10.0.1.2/24"]),
        nic("b1", 1, &["10.0.2.2/24"]),
    ];
    let destination = all(Side::Destination, &others);
    let pairing = choose(&source, &destination, &candidates(&source, &destination));
    assert_eq!(shown(&pairing), ["0: a1-b1", "1: a0-b0"]);
}

#[test]
fn more_paths_than_the_bound_are_left_out_and_said_to_be() {
    let host = |name: &str, last: u8| -> Vec<Interface> {
        let interface = |number: u8| {
            nic(
                &format!("{name}{number:02}"),
                1,
                &[&format!("10.0.{number}.{last}/24")],
            )
        };
        (0..40).map(interface).collect()
    };
    let pairing = paired(&host("a", 1), &host("b", 2));
    assert_eq!(pairing.paths.len(), limits::PATHS);
    assert_eq!(pairing.left_out.len(), 16);
    let over = |left: &LeftOut| matches!(left.reason, LeftOutReason::OverLimit { limit: 32 });
    assert!(
        pairing.left_out.iter().all(over),
        "{:?}",
        reasons(&pairing.left_out)
    );
}

#[test]
fn patterns_are_networks_or_names_and_nothing_else() {
    for good in ["10.0.0.0/8", "fd00::/8", "eth0", "ens*", "mlx?_*"] {
        assert_eq!(good.parse::<Pattern>().unwrap().to_string(), good);
    }
    for bad in [
        "",
        "10.0.0.0/33",
        "a b",
        "10.0.0.1",
        "fd00::1",
        "a/b",
        &"x".repeat(65),
    ] {
        assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
    }
}

/// Interfaces as a peer could tell them: many, in few networks, of any rate.
fn host(name: &'static str, last: u8) -> impl Strategy<Value = Vec<Interface>> {
    let interface = (0_u8..4, 0_u64..40, prop::bool::weighted(0.9));
    prop::collection::vec(interface, 0..10).prop_map(move |interfaces| {
        let number = (0_u8..).zip(interfaces);
        let built = number.map(|(number, (network, gbit, up))| {
            let address = format!("10.{network}.{number}.{last}/16");
            Interface {
                up,
                ..nic(&format!("{name}{number}"), gbit, &[&address])
            }
        });
        built.collect()
    })
}

proptest! {
    #[test]
    fn every_interface_is_used_or_left_out_once_and_the_order_of_answers_does_not_matter(
        source in host("a", 1),
        destination in host("b", 2),
        answers in any::<u64>(),
    ) {
        let (from, to) = (all(Side::Source, &source), all(Side::Destination, &destination));
        let mut answered: Vec<Candidate> = candidates(&from, &to)
            .into_iter()
            .enumerate()
            .filter(|(number, _)| answers >> (number % 64) & 1 == 1)
            .map(|(_, candidate)| candidate)
            .collect();
        let pairing = choose(&from, &to, &answered);

        // Only what answered is used, and no pair of interfaces twice.
        for path in &pairing.paths {
            let pair = Candidate {
                source: path.source.clone(),
                destination: path.destination.clone(),
            };
            prop_assert!(answered.contains(&pair));
        }
        let mut pairs: Vec<_> = pairing.paths.iter().map(|p| (&p.source, &p.destination)).collect();
        pairs.sort();
        pairs.dedup();
        prop_assert_eq!(pairs.len(), pairing.paths.len());

        for (side, interfaces) in [(Side::Source, &source), (Side::Destination, &destination)] {
            for interface in interfaces {
                let used = pairing.paths.iter().any(|path| match side {
                    Side::Source => path.source.interface == interface.name,
                    Side::Destination => path.destination.interface == interface.name,
                });
                let of = |left: &&LeftOut| left.side == side && left.interface == interface.name;
                let left_out = pairing.left_out.iter().filter(of).count();
                prop_assert_eq!(usize::from(used) + left_out, 1, "{}", &interface.name);
                let answers = answered.iter().any(|pair| match side {
                    Side::Source => pair.source.interface == interface.name,
                    Side::Destination => pair.destination.interface == interface.name,
                });
                prop_assert_eq!(used, answers, "an interface that answered is used");
            }
        }

        answered.reverse();
        prop_assert_eq!(choose(&from, &to, &answered), pairing);
    }

    #[test]
    fn any_text_is_a_pattern_or_refused_without_panic(text in "\\PC{0,80}") {
        if let Ok(pattern) = text.parse::<Pattern>() {
            prop_assert_eq!(pattern.to_string().parse::<Pattern>(), Ok(pattern));
        }
    }
}
