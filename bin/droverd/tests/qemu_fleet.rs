//! Four hosts with several guests: the short forms of `drover lab rounds` and `drover lab drain`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod hosts;

use drover_lab::fleet::{Emptying, Plan, RoundsPlan, drains, rounds, variety};
use drover_lab::settings::{AgentSettings, GuestSettings, LabName, LabSettings, nic_rates};
use drover_lab::{Lab, network, require};
use drover_types::Bytes;

/// Four hosts and so many guests; `None` where they cannot be.
async fn fleet(test: &str, guests: usize) -> Option<(LabSettings, Vec<GuestSettings>)> {
    let qemu = hosts::qemu().await?;
    if let Err(missing) = require::check_faults() {
        println!("skipped, because {missing}");
        return None;
    }
    let name: LabName = format!("{test}{}", std::process::id()).parse().unwrap();
    let lab = LabSettings {
        name,
        hosts: 4,
        nics: nic_rates("500mbit,500mbit", None).unwrap(),
        addressing: Vec::new(),
        mtu: 9000,
        agents: AgentSettings::default(),
    };
    let first = GuestSettings {
        content: Bytes(8 << 20),
        dirty: "2MiB@1MiB".parse().unwrap(),
        verify: Bytes(1 << 20),
        ..hosts::small_guest(qemu, 1)
    };
    Some((lab, variety(&first, guests)))
}

/// One of the three rounds that are part of every test run; `drover lab rounds` has as many as one wants.
async fn one_round(test: &str, seed: u64) {
    let Some((lab, guests)) = fleet(test, 4).await else {
        return;
    };
    let name = lab.name.clone();
    let plan = RoundsPlan {
        lab,
        guests,
        rounds: 1,
        seed,
    };
    let done = rounds(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&name).await.unwrap();
    let done = done.unwrap();
    assert!(done.holds(), "{:?}", done.wrong);
    let mishaps: usize = done.legs.iter().map(|leg| leg.mishaps.len()).sum();
    assert!(mishaps > 0, "things go wrong");
    assert!(network::namespaces(&name).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_are_emptied_and_filled_twice_while_things_go_wrong_the_first_way() {
    one_round("rounda", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_are_emptied_and_filled_twice_while_things_go_wrong_the_second_way() {
    one_round("roundb", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_hosts_are_emptied_and_filled_twice_while_things_go_wrong_the_third_way() {
    one_round("roundc", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_emptied_by_each_method_and_every_guest_is_whole() {
    let Some((lab, guests)) = fleet("drains", 3).await else {
        return;
    };
    let name = lab.name.clone();
    let plan = Plan {
        lab,
        guests,
        methods: Emptying::ALL.to_vec(),
        channels: 2,
        repeats: 1,
    };
    let done = drains(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&name).await.unwrap();
    let runs = done.unwrap().runs;
    assert_eq!(
        runs.iter().map(|run| run.method).collect::<Vec<_>>(),
        Emptying::ALL
    );
    for run in runs {
        assert_eq!(run.guests.len(), 3, "{run:?}");
        assert!(run.guests.iter().all(|guest| guest.to != "a"), "{run:?}");
        assert!(run.verified_pages > 0 && run.wire_bytes.0 > 0, "{run:?}");
    }
    assert!(network::namespaces(&name).await.unwrap().is_empty());
}
