//! Networks that are not as they should be: the guest arrives, and each NIC is used or told why not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod hosts;

use drover_lab::scenario::Found;
use hosts::scenario;

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
