//! NICs that fall silent, without a word from the kernel, while memory is carried: the guest arrives whole.
//!
//! How long it takes is for `drover lab faults`, on a machine that does nothing else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod hosts;

/// Every guest of these scenarios arrives and verifies itself, and something did go wrong on its way.
async fn all_arrive(names: &[&str]) {
    let Some(found) = hosts::scenarios(names).await else {
        return;
    };
    for found in found {
        assert!(found.checks[0].holds, "{}: {:?}", found.name, found.checks);
        for run in &found.runs {
            let changes = &run.faulted.as_ref().unwrap().changes;
            assert!(!changes.is_empty(), "{}: {run:#?}", found.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_is_silently_cut_in_the_bulk_costs_no_byte() {
    all_arrive(&["cut", "one-way"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_is_silently_cut_when_the_guest_has_stopped_costs_no_byte() {
    all_arrive(&["cut-switchover"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nics_that_flap_and_connections_that_are_reset_at_random_cost_no_byte() {
    all_arrive(&["flap", "kill"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_nics_may_be_silent_for_five_seconds() {
    all_arrive(&["outage"]).await;
}
