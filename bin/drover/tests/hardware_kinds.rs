//! `drover doctor` on captured hosts of more kinds of hardware, made from what drivers' sources and other people's hosts tell
//! (`hardware/README.md`): what is found, and what cannot be looked at.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod captured;
mod hardware;

use captured::{doctor, names, rules};
use hardware::Machine;
use hardware::broadcom::{bcm57414, bcm57414_with_losses};
use hardware::cards::{Card, Slot};
use hardware::infiniband::connectx5_edr;
use hardware::intel::{BY_FIRMWARE, BY_HOST, x710, xl710};
use hardware::sockets::{EPYC, Layout, XEON};
use serde_json::Value;

/// Processors of the node that [`bcm57414`] is near, in the order in which its driver takes them.
const LOCAL: [u32; 16] = [
    24, 25, 26, 27, 28, 29, 30, 31, 88, 89, 90, 91, 92, 93, 94, 95,
];

fn of(layout: &Layout, cards: &[Card]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::of(folder.path(), "a", layout);
    let machine = cards.iter().fold(machine, Machine::with);
    doctor(&[&machine.done()])
}

/// What is found, and what of interfaces was skipped, a line each.
fn told(document: &Value) -> String {
    let word = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let of = |what: &str| document[what].as_array().unwrap().clone();
    let nic = |one: &Value| word(&one["subject"], "nic");
    let found = of("findings").into_iter().map(|one| {
        let (severity, rule, read) = (
            word(&one, "severity"),
            word(&one, "rule"),
            word(&one, "read"),
        );
        format!("{severity}: {} {rule}: {read}\n", nic(&one))
    });
    let skipped = of("skipped");
    let skipped = skipped.iter().filter(|one| !nic(one).is_empty());
    let skipped = skipped.map(|one| {
        let because = word(one, "because");
        format!("skipped: {} {}: {because}\n", nic(one), word(one, "rule"))
    });
    found.chain(skipped.collect::<Vec<_>>()).collect()
}

fn because(document: &Value, rule: &str) -> String {
    let mut all = document["skipped"].as_array().unwrap().iter();
    let one = all.find(|one| one["rule"] == rule);
    one.map(|one| one["because"].as_str().unwrap().to_owned())
        .unwrap_or_default()
}

#[test]
fn what_each_kind_of_hardware_tells_is_found_and_what_it_does_not_is_skipped() {
    let crossing: Vec<u32> = LOCAL.into_iter().chain(0..16).collect();
    let hosts = [
        (
            "EPYC, BCM57414, queues near it",
            of(&EPYC, &[bcm57414(&LOCAL)]),
        ),
        (
            "EPYC, BCM57414, queues as its driver has them",
            of(&EPYC, &[bcm57414(&crossing)]),
        ),
        (
            "Xeon, X710, as Linux 6.12 starts it",
            of(&XEON, &[x710(BY_FIRMWARE, &LOCAL.map(|cpu| cpu % 18 + 18))]),
        ),
        (
            "Xeon, X710, as drivers before Linux 5.17 start it",
            of(&XEON, &[x710(BY_FIRMWARE, &(0..16).collect::<Vec<u32>>())]),
        ),
        ("Xeon, XL710, both ports", of(&XEON, &[xl710(0), xl710(1)])),
        (
            "Xeon, InfiniBand",
            of(&XEON, &[near_xeon(connectx5_edr(4))]),
        ),
        (
            "Xeon, InfiniBand by one lane",
            of(&XEON, &[near_xeon(connectx5_edr(1))]),
        ),
    ];
    let told = hosts.map(|(name, document)| format!("{name}\n{}", told(&document)));
    insta::assert_snapshot!(told.join("\n"));
}

/// In a slot of the first node.
fn near_xeon(card: Card) -> Card {
    let near = "0-17,36-53";
    let slot = Slot { near, ..card.slot };
    // It hands packets out, and tells nobody how.
    let untold = hardware::netlink::nothing("its driver does not tell");
    let card = Card { slot, ..card };
    card.queues(63, 0..18).saying("rss", untold)
}

#[test]
fn rings_of_which_one_place_is_kept_free_are_large_enough() {
    let folder = tempfile::tempdir().unwrap();
    // Three queues for 25 Gbit/s take 342 places each, which is 512 by powers of two, and it has 511.
    let card = bcm57414_with_losses("seq_err_naks_rcvd", 0);
    let document = doctor(&[&Machine::new(folder.path(), "a").with(&card).done()]);
    assert_eq!(rules(&document, "findings"), names(&[]), "{document:#}");
}

#[test]
fn what_broadcoms_rdma_counts_as_lost_is_found_by_its_own_names() {
    for name in [
        "to_retransmits",
        "seq_err_naks_rcvd",
        "max_retry_exceeded",
        "rnr_naks_rcvd",
        "missing_resp",
        "oos_drop_count",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let card = bcm57414_with_losses(name, 50_000);
        let document = doctor(&[&Machine::new(folder.path(), "a").with(&card).done()]);
        assert_eq!(
            rules(&document, "findings"),
            names(&["rdma-lost"]),
            "{document:#}"
        );
        let read = document["findings"][0]["read"].as_str().unwrap();
        assert!(read.starts_with(&format!("{name} 50000")), "{read}");
    }
}

#[test]
fn of_a_card_whose_firmware_keeps_lldp_it_is_said_how_it_is_handed_on() {
    let taken = LOCAL.map(|cpu| cpu % 18 + 18);
    let kept = because(&of(&XEON, &[x710(BY_FIRMWARE, &taken)]), "switch-frames");
    assert!(
        kept.contains("ethtool --set-priv-flags enp175s0f0 disable-fw-lldp on"),
        "{kept}"
    );
    // It leaves DCBX to the host: what is said would be heard.
    let heard = because(&of(&XEON, &[x710(BY_HOST, &taken)]), "switch-frames");
    assert_eq!(heard, "the other end says nothing by LLDP");
}

#[test]
fn of_a_slot_whose_node_firmware_does_not_tell_nothing_is_said_of_interrupts() {
    let card = bcm57414(&LOCAL);
    let (near, node) = ("0-127", -1);
    let slot = Slot {
        near,
        node,
        ..card.slot
    };
    let document = of(&EPYC, &[Card { slot, ..card }]);
    assert_eq!(rules(&document, "findings"), names(&["numa-balancing"]));
    let why = because(&document, "nic-interrupts");
    assert!(why.contains("numa_node is -1"), "{why}");
}

#[test]
fn two_hosts_of_infiniband_are_compared_by_their_rates_and_not_by_what_ethernet_has() {
    let folder = tempfile::tempdir().unwrap();
    let host = |name: &str, address: &'static str, lanes: u32| {
        let card = Card {
            address,
            ..near_xeon(connectx5_edr(lanes))
        };
        Machine::of(folder.path(), name, &XEON).with(&card).done()
    };
    let a = host("a", "10.0.1.1/24", 4);
    let b = host("b", "10.0.1.2/24", 4);
    let document = doctor(&[&a, &b]);
    assert_eq!(rules(&document, "findings"), names(&["numa-balancing"]));
    let skipped = rules(&document, "skipped");
    for rule in ["pair-mtu", "pair-speed", "pair-adapter", "pair-rdma"] {
        assert!(!skipped.contains(rule), "{rule}: {document:#}");
    }
    let of_ethernet = |rule: &&String| rule.contains("dcb") || rule.contains("switch");
    assert_eq!(skipped.iter().find(of_ethernet), None, "{document:#}");
    let c = host("c", "10.0.1.3/24", 1);
    let expected = ["numa-balancing", "pair-speed", "rdma-port"];
    assert_eq!(rules(&doctor(&[&a, &c]), "findings"), names(&expected));
}

#[test]
fn one_firmware_is_the_same_where_only_one_kernel_tells_it_by_devlink_or_has_its_driver_for_rdma() {
    let folder = tempfile::tempdir().unwrap();
    let taken = LOCAL.map(|cpu| cpu % 18 + 18);
    let differ = |one: Card, other: Card| {
        let host = |name: &str, address: &'static str, card: Card| {
            let card = Card { address, ..card };
            Machine::of(folder.path(), name, &XEON).with(&card).done()
        };
        let (a, b) = (
            host("a", "10.0.1.1/24", one),
            host("b", "10.0.1.2/24", other),
        );
        let document = doctor(&[&a, &b]);
        let all = document["findings"].as_array().unwrap().clone();
        let mut all = all.into_iter().filter(|one| one["rule"] == "pair-adapter");
        all.next()
            .map(|one| one["read"].as_str().unwrap().to_owned())
    };
    let older = || Card {
        versions: hardware::netlink::nothing("the kernel has no devlink"),
        ..x710(BY_FIRMWARE, &taken)
    };
    assert_eq!(differ(x710(BY_FIRMWARE, &taken), older()), None);
    let without = || Card {
        rdma: None,
        ..bcm57414_with_losses("to_retransmits", 0)
    };
    assert_eq!(
        differ(bcm57414_with_losses("to_retransmits", 0), without()),
        None
    );
    let old = Card {
        drvinfo: hardware::netlink::drvinfo("i40e", "8.15 0x800095c4 0.0.0", "0000:af:00.0"),
        ..older()
    };
    let read = "firmware 9.20 0x8000d8c5 1.3353.0, and 8.15 0x800095c4 0.0.0";
    assert_eq!(
        differ(x710(BY_FIRMWARE, &taken), old).as_deref(),
        Some(read)
    );
}
