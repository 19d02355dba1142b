//! Networks that are not as they should be: the guest arrives, and each NIC is used or told why not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod hosts;

use drover_lab::scenario::{Found, Plan, show};
use drover_lab::settings::{GuestSettings, LabName};
use drover_lab::{Lab, require};
use drover_types::Bytes;

/// What became of a scenario of the lab with a small guest; `None`, and said so, where that is not
/// possible.
async fn scenario(name: &str) -> Option<Found> {
    let qemu = hosts::qemu().await?;
    if let Err(missing) = require::check_faults() {
        println!("skipped, because {missing}");
        return None;
    }
    let lab: LabName = format!("{}{}", name.replace('-', ""), std::process::id())
        .parse()
        .unwrap();
    let plan = Plan {
        name: lab.clone(),
        guest: GuestSettings {
            qemu,
            machine: "q35".into(),
            memory: Bytes(256 << 20),
            vcpus: 1,
            content: Bytes(64 << 20),
            mix: "files=40,text=10,structures=10,zero=10,random=30".into(),
            dirty: "4MiB@8MiB".parse().unwrap(),
            touch: 512,
            seed: 7,
        },
        only: vec![name.to_owned()],
        repeats: 1,
    };
    let shown = show(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&lab).await.unwrap();
    let mut found = shown.unwrap().scenarios;
    found.retain(|found| found.name == name);
    found.pop()
}

/// The lines of notes and of what was left out.
fn told(found: &Found) -> Vec<String> {
    let drover = found.runs[0].drover.clone().unwrap();
    [drover.notes, drover.left_out].concat()
}

fn says(found: &Found, words: &[&str]) -> bool {
    told(found)
        .iter()
        .any(|line| words.iter().all(|word| line.contains(word)))
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_with_nothing_but_ipv6_use_every_nic() {
    let Some(found) = scenario("v6").await else {
        return;
    };
    assert!(found.holds(), "{:?}", found.checks);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_whose_answers_come_by_another_is_left_out_and_said_to_be() {
    let Some(found) = scenario("asymmetric").await else {
        return;
    };
    assert!(found.holds(), "{:?}", found.checks);
    let words = ["nic1 of the source", "reaches no interface"];
    assert!(says(&found, &words), "{:?}", told(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_with_the_same_address_on_both_hosts_is_left_out_and_said_to_be() {
    let Some(found) = scenario("duplicate").await else {
        return;
    };
    assert!(found.holds(), "{:?}", found.checks);
    let words = [
        "nic1 of the source",
        "both hosts have its address 10.77.1.1",
    ];
    assert!(says(&found, &words), "{:?}", told(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_with_a_link_local_address_only_is_left_out_and_said_to_be() {
    let Some(found) = scenario("link-local").await else {
        return;
    };
    assert!(found.holds(), "{:?}", found.checks);
    let words = ["nic1 (fe80::", "not one that a peer can connect to"];
    assert!(says(&found, &words), "{:?}", told(&found));
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_two_paths_all_carry() {
    let Some(found) = scenario("many").await else {
        return;
    };
    assert!(found.holds(), "{:?}", found.checks);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_is_renamed_in_the_middle_does_not_harm_the_guest() {
    let Some(found) = scenario("rename").await else {
        return;
    };
    // Its targets of time are for a machine that does nothing else.
    assert!(found.checks[0].holds, "{:?}", found.checks);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_loses_large_packets_does_not_harm_the_guest() {
    let Some(found) = scenario("large").await else {
        return;
    };
    assert!(found.checks[0].holds, "{:?}", found.checks);
}
