//! Data centre bridging by the kernel's own dcbnl, of a driver of ours.

use std::collections::BTreeSet;

use drover_tune::facts::{App, Dcb, DcbxVersion};
use drover_tune::{Report, examine};

use crate::adapter::{DCB, bridged, far_dcb, near_dcb};
use crate::here::{Said, Until, far_host, host, nic, report, said, sh, until};

async fn dcb() -> Dcb {
    nic(DCB).await.dcb.get().unwrap().clone()
}

async fn says(rule: &str) -> Said {
    said(&report().await, rule, DCB)
}

fn found(read: &str) -> Said {
    Said::Found(read.to_owned())
}

/// What the kernel is told for so many kbit/s: by iproute2 before 6.18 bytes a second, which it takes for kbit/s.
fn as_kernel_has(kbits: u64) -> u64 {
    let version = sh("dcb -V");
    let (_, version) = version.trim().split_once("iproute2-").unwrap();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
    match (parts.next(), parts.next()) < (Some(6), Some(18)) {
        true => kbits * 1000 / 8,
        false => kbits,
    }
}

/// Has done what a finding says that people may do: the command in its words.
fn done_by_hand(report: &Report, rule: &str) {
    let mut findings = report.findings.iter();
    let finding = findings.find(|one| one.rule == rule).unwrap();
    let words = finding.found.by_hand.as_deref().unwrap();
    let (_, command) = words.split_once("dcb ").unwrap();
    let command = command.split(',').next().unwrap();
    sh(&format!("dcb {command}"));
}

/// A process with lldpad's name, by which it is known whether there is one. It does nothing.
fn agent() -> Until {
    sh("cp /usr/bin/sleep /tmp/lldpad && { /tmp/lldpad 600 >/dev/null 2>&1 & }");
    Until("busybox killall lldpad")
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_both_ends_have_set_is_told_of_both() {
    let Some(_adapter) = bridged() else { return };
    let fresh = dcb().await;
    let none = Some(BTreeSet::new());
    assert_eq!(fresh.pfc.map(|pfc| pfc.enabled), none);
    assert_eq!(fresh.peer_pfc.map(|pfc| pfc.enabled), none);
    assert_eq!((fresh.apps, fresh.peer_apps), (Vec::new(), Vec::new()));

    near_dcb("pfc", "prio-pfc 3:on");
    near_dcb(
        "ets",
        "willing on tc-tsa 0:ets 1:ets tc-bw 0:60 1:40 prio-tc 3:1",
    );
    near_dcb("maxrate", "tc-maxrate 1:40mbit");
    sh("dcb app add dev dcb0 dgram-port-prio 4791:3");
    far_dcb("pfc", "prio-pfc 4:on 5:on");
    far_dcb("ets", "tc-bw 2:100");
    sh("dcb -n far app add dev dcb1 dscp-prio 26:4");
    sh("echo 17 >/sys/module/drover_dcb/parameters/held_back");
    let told = dcb().await;
    let languages = |dcb: &Dcb| {
        let dcbx = dcb.dcbx.as_ref().unwrap();
        assert!(dcbx.host && !dcbx.managed && !dcbx.fixed, "{dcbx:?}");
        dcbx.versions.clone()
    };
    assert_eq!(languages(&told), [DcbxVersion::Ieee].into());
    let pfc = told.pfc.unwrap();
    let counted = (Some(0), Some(17));
    assert_eq!(pfc.enabled, [3].into());
    assert_eq!((pfc.sent, pfc.received), counted);
    assert_eq!(told.peer_pfc.unwrap().enabled, [4, 5].into());
    let ets = told.ets.unwrap();
    assert!(ets.willing);
    assert_eq!(ets.shares, [60, 40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ets.algorithms, [2, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ets.classes, [0, 0, 0, 1, 0, 0, 0, 0]);
    let peer = told.peer_ets.unwrap();
    assert_eq!((peer.willing, peer.shares[2]), (false, 100));
    let bound = as_kernel_has(40_000);
    assert_eq!(told.rates.unwrap(), [0, bound, 0, 0, 0, 0, 0, 0]);
    let app = |selector, protocol, priority| App {
        selector,
        protocol,
        priority,
    };
    assert_eq!(told.apps, [app(3, 4791, 3)]);
    assert_eq!(told.peer_apps, [app(5, 26, 4)]);
    // The language before the standard has no kind for a port of datagrams alone: nobody speaks of that one any more.
    sh("dcb dcbx set dev dcb0 host cee");
    let told = dcb().await;
    assert_eq!(languages(&told), [DcbxVersion::Cee].into());
    assert_eq!(told.apps, []);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_holds_packets_back_is_judged_with_what_the_other_end_has() {
    let Some(_adapter) = bridged() else { return };
    let all = report().await;
    for rule in ["dcb-pause", "dcb-willing", "dcb-pressure"] {
        assert_eq!(said(&all, rule, DCB), Said::Right, "{rule}");
    }
    // Nobody has set anything.
    assert_eq!(said(&all, "dcb-peer", DCB), Said::Nothing);

    near_dcb("pfc", "prio-pfc 3:on");
    let differs = "PFC: priority 3 here, and none at the switch";
    assert_eq!(says("dcb-peer").await, found(differs));
    far_dcb("pfc", "prio-pfc 3:on");
    assert_eq!(says("dcb-peer").await, Said::Right);

    sh("ethtool -A dcb0 rx on tx on");
    let both = found("pause frames, and PFC for priority 3");
    assert_eq!(says("dcb-pause").await, both);
    near_dcb("pfc", "prio-pfc 3:off");
    assert_eq!(says("dcb-pause").await, Said::Right);
    near_dcb("pfc", "prio-pfc 3:on");

    near_dcb("ets", "willing on");
    // It is left to the host, where nobody takes anything over.
    assert_eq!(says("dcb-willing").await, Said::Right);
    let _agent = agent();
    let all = report().await;
    let willing = found("willing, with PFC for priority 3");
    assert_eq!(said(&all, "dcb-willing", DCB), willing);
    done_by_hand(&all, "dcb-willing");
    assert_eq!(says("dcb-willing").await, Said::Right);

    // Hours, by what a frame of pause holds a line for at most.
    sh("echo 100000000 >/sys/module/drover_dcb/parameters/held_back");
    let held = found("100000000 pause frames: the switch held this host back");
    assert_eq!(says("dcb-pressure").await, held);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_a_full_line_leaves_to_migrations_is_judged_by_shares_and_bounds() {
    let Some(_adapter) = bridged() else { return };
    let all = report().await;
    for rule in ["dcb-share", "dcb-most"] {
        assert_eq!(said(&all, rule, DCB), Said::Right, "{rule}");
    }
    near_dcb("ets", "tc-tsa 0:ets 1:ets tc-bw 0:4 1:96 prio-tc 3:1");
    let Said::Found(read) = says("dcb-share").await else {
        panic!("{:#?}", report().await);
    };
    let little = "priority 0, which migrations have, gets 4 % when others send: ";
    assert!(read.starts_with(little), "{read}");
    near_dcb("ets", "tc-bw 0:50 1:50");
    let all = report().await;
    assert_eq!(said(&all, "dcb-share", DCB), Said::Right);
    let differs = "shares: 50 % for priority 0, 1, 2, 4, 5, 6, 7; 50 % for priority 3 here, and none at the switch";
    assert_eq!(said(&all, "dcb-peer", DCB), found(differs));

    near_dcb("maxrate", "tc-maxrate 0:40mbit");
    let all = report().await;
    let Said::Found(read) = said(&all, "dcb-most", DCB) else {
        panic!("{all:#?}");
    };
    let bound = "priority 0, which migrations have, may send ";
    assert!(read.starts_with(bound), "{read}");
    done_by_hand(&all, "dcb-most");
    assert_eq!(says("dcb-most").await, Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn rdma_is_to_be_held_back_alone_and_to_have_the_priority_that_is() {
    let Some(_adapter) = bridged() else { return };
    let _device = Until("rdma link delete rxe0");
    sh("rdma link add rxe0 type rxe netdev dcb0");
    let lossy = found("RoCE, with neither PFC nor pause frames");
    let is_lossy = |all: &Report| said(all, "dcb-lossless", DCB) == lossy;
    let all = until(report, is_lossy).await;
    done_by_hand(&all, "dcb-lossless");
    let all = report().await;
    assert_eq!(said(&all, "dcb-lossless", DCB), Said::Right);
    let Said::Skipped(why) = said(&all, "dcb-rdma", DCB) else {
        panic!("{all:#?}");
    };
    assert!(why.contains("which priority RoCE has"), "{why}");
    sh("dcb app add dev dcb0 dgram-port-prio 4791:5");
    let other = found("RoCE has priority 5, and PFC is for priority 3");
    assert_eq!(says("dcb-rdma").await, other);
    sh("dcb app replace dev dcb0 dgram-port-prio 4791:3");
    assert_eq!(says("dcb-rdma").await, Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn what_is_held_back_alone_is_to_have_a_large_enough_place_of_its_own() {
    let Some(_adapter) = bridged() else { return };
    assert_eq!(says("dcb-buffer").await, Said::Nothing);
    near_dcb("pfc", "prio-pfc 3:on");
    let beside = "priority 3, which is held back alone, has buffer 0 with 0, 1, 2, 4, 5, 6, 7";
    assert_eq!(says("dcb-buffer").await, found(beside));
    near_dcb("buffer", "prio-buffer 3:1 buffer-size 0:20000 1:5000");
    let told = dcb().await.buffers.unwrap();
    assert_eq!(told.of_priority, [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(told.sizes, [20_000, 5000, 0, 0, 0, 0, 0, 0]);
    let all = report().await;
    let small = found("buffer 1 of priority 3 has 5000 bytes");
    assert_eq!(said(&all, "dcb-buffer", DCB), small);
    done_by_hand(&all, "dcb-buffer");
    assert_eq!(says("dcb-buffer").await, Said::Right);
}

#[tokio::test]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn two_hosts_that_hold_other_priorities_back_are_found() {
    let Some(_adapter) = bridged() else { return };
    let of_two = async || said(&examine(&[host().await, far_host()], &[]), "pair-dcb", DCB);
    near_dcb("pfc", "prio-pfc 3:on");
    let differs = "PFC: emulated dcb0 has priority 3, far dcb1 no priority";
    assert_eq!(of_two().await, found(differs));
    far_dcb("pfc", "prio-pfc 3:on");
    assert_eq!(of_two().await, Said::Right);
}
