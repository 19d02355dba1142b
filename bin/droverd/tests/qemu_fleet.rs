//! Four hosts with several guests: the short forms of `drover lab rounds` and `drover lab drain`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod hosts;

use drover_lab::fleet::{
    Emptied, Emptying, Plan, RoundsPlan, drains, of_one_image, rounds, variety,
};
use drover_lab::settings::{
    AgentSettings, Contents, GuestSettings, LabName, LabSettings, nic_rates,
};
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
        alone: false,
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

/// Two hosts, one of which is emptied once of three guests of one image by its agents.
async fn emptied_of_one_image(
    test: &str,
    agents: AgentSettings,
    plan: impl FnOnce(Plan) -> Plan,
) -> Option<Emptied> {
    let (lab, guests) = fleet(test, 1).await?;
    let image = GuestSettings {
        content: Bytes(24 << 20),
        contents: Contents::Userland,
        ..guests[0].clone()
    };
    let name = lab.name.clone();
    let plan = plan(Plan {
        lab: LabSettings {
            hosts: 2,
            agents,
            ..lab
        },
        guests: of_one_image(&image, 3),
        methods: vec![Emptying::Drover],
        channels: 2,
        repeats: 1,
        alone: false,
    });
    let done = drains(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&name).await.unwrap();
    let done = done.unwrap();
    println!("{}", drover_lab::fleet::table(&done));
    assert!(network::namespaces(&name).await.unwrap().is_empty());
    done.runs.into_iter().next()
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_of_one_image_bring_less_together_than_each_would_alone() {
    let agents = AgentSettings {
        reduction: Some("zstd:1".parse().unwrap()),
        shared_pages: Some(Bytes(256 << 20)),
        checkpoints: None,
    };
    let alone = |plan| Plan {
        alone: true,
        ..plan
    };
    let Some(run) = emptied_of_one_image("image", agents, alone).await else {
        return;
    };
    let found = |facts: &drover_lab::compare::DroverFacts| {
        facts.shared_pages.as_ref().map_or(0, |pages| pages.found)
    };
    // A userland of 24 MiB has 6144 pages.
    assert!(run.drover.iter().map(found).sum::<u64>() > 6000, "{run:#?}");
    let alone = run.alone.as_ref().unwrap();
    assert_eq!(found(&alone.drover), 0, "{run:#?}");
    assert!(alone.verified_pages > 6000 && alone.wire_bytes.0 > 0);
    let of_alone = run.wire_bytes.0 as f64 / (3.0 * alone.wire_bytes.0 as f64);
    assert_eq!(run.of_alone, Some(of_alone));
    assert!(of_alone < 0.9, "{run:#?}");
}
