//! NICs that go, come back, join and are renamed while memory is carried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::{Duration, Instant};

use drover_api::{
    EventKind, LaneState, LaneView, MigrationPhase, MigrationView, NicView, PathView,
};
use drover_lab::command::run;
use drover_lab::fault::harm;
use drover_types::MigrationId;
use hosts::{A, B, BOTH_NEEDED, FAST, Hosts, PATIENCE, SLOW, set_word, until, used};

/// The path on a NIC of the source while a migration runs, if there is one.
async fn path(hosts: &Hosts, id: MigrationId, nic: &str) -> Option<PathView> {
    let view = hosts.client(A).migration(id).await.unwrap();
    assert!(!view.phase.has_ended(), "{view:#?}");
    let on = |path: &PathView| path.path.source.interface == nic;
    view.paths.into_iter().find(on)
}

fn is(lane: &LaneView, state: LaneState) -> bool {
    lane.state == state
}

/// Waits until a lane is up on a NIC of the source, or all are lost.
async fn path_when(hosts: &Hosts, id: MigrationId, nic: &str, up: bool) -> PathView {
    until(PATIENCE, async || match path(hosts, id, nic).await {
        Some(path) if up && path.lanes.iter().any(|lane| is(lane, LaneState::Up)) => Ok(path),
        Some(path) if !up && path.lanes.iter().all(|lane| is(lane, LaneState::Lost)) => Ok(path),
        other => Err(format!("{other:#?}")),
    })
    .await
}

fn sent(path: &PathView) -> u64 {
    path.lanes
        .iter()
        .map(|lane| lane.traffic.sent_bytes.0)
        .sum()
}

fn says(view: &MigrationView, what: &str) -> bool {
    view.notes.iter().any(|note| note.contains(what))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_was_down_for_a_while_carries_the_same_migration_again() {
    let Some(mut hosts) = Hosts::with_guest("again", BOTH_NEEDED).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let down_at = Instant::now();
    hosts.set_nic(A, 1, "down").await;
    let before = sent(&path_when(&hosts, id, "nic1", false).await);
    // Sooner than by silence: the kernel told it.
    assert!(
        down_at.elapsed() < Duration::from_secs(1),
        "{:?}",
        down_at.elapsed()
    );
    // The destination compares what its relay tells it five times a second.
    until(PATIENCE, async || {
        let view = hosts.client(B).migration(id).await.unwrap();
        match says(&view, "path 1 (nic1 > nic1) has no lane left") {
            true => Ok(()),
            false => Err(format!("{view:#?}")),
        }
    })
    .await;
    hosts.set_nic(A, 1, "up").await;
    path_when(&hosts, id, "nic1", true).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert_eq!(used(&view), ["nic0", "nic1"]);
    // Where its lanes' threads ran was told to either relay, and why: these NICs are virtual.
    for host in [A, B] {
        let view = hosts.ended(host, id).await;
        let placed = |nic: &NicView| nic.placement.clone().unwrap_or_default();
        let why = |nic| placed(nic).why_not.unwrap_or_default();
        let told: Vec<String> = view.nics.iter().map(why).collect();
        assert_eq!(told.len(), 2, "{view:#?}");
        let known = |why: &String| !why.is_empty() && !why.contains("told nothing");
        assert!(told.iter().all(known), "{told:?}");
    }
    assert!(sent(&view.paths[1]) > before, "{view:#?}");
    assert!(says(&view, "nic1 is down or has no carrier"), "{view:#?}");
    assert!(
        says(&view, "path 1 (nic1 > nic1) has lanes again"),
        "{view:#?}"
    );
    let arrived = hosts.ended(B, id).await;
    for told in [
        "path 1 (nic1 > nic1) has no lane left",
        "path 1 (nic1 > nic1) has lanes again",
    ] {
        assert!(says(&arrived, told), "{told}: {arrived:#?}");
    }
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_nics_down_for_five_seconds_do_not_end_the_migration() {
    let Some(mut hosts) = Hosts::with_outage_limit("outage", SLOW, 30).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    for nic in [0, 1] {
        hosts.set_nic(A, nic, "down").await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await; // what is tested is that time
    for nic in [0, 1] {
        hosts.set_nic(A, nic, "up").await;
    }
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    for told in [
        "no path to the other host",
        "a path to the other host again",
    ] {
        assert!(
            view.notes.iter().any(|note| note.contains(told)),
            "{view:#?}"
        );
    }
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_comes_up_in_the_middle_joins_and_carries_its_part() {
    let Some(mut hosts) = Hosts::with_agents("joins", BOTH_NEEDED).await else {
        return;
    };
    hosts.set_nic(A, 1, "down").await;
    hosts.boot().await;
    let id = hosts.migrate_midway(A).await;
    assert!(path(&hosts, id, "nic1").await.is_none());
    hosts.set_nic(A, 1, "up").await;
    path_when(&hosts, id, "nic1", true).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert_eq!(used(&view), ["nic0", "nic1"]);
    assert_eq!(view.paths[1].path.id.0, 1);
    assert!(says(&view, "path 1 joins: nic1 > nic1"), "{view:#?}");
    let there = hosts.ended(B, id).await;
    let received = |path: &PathView| {
        path.lanes
            .iter()
            .any(|lane| lane.traffic.received_bytes.0 > 0)
    };
    assert!(
        there.paths.len() == 2 && there.paths.iter().all(received),
        "{there:#?}"
    );
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_is_renamed_in_the_middle_carries_by_its_new_name() {
    let Some(mut hosts) = Hosts::with_guest("renamed", BOTH_NEEDED).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let namespace = hosts.host(A).namespace().to_owned();
    // Kernels before 6.2 rename only what is down.
    for change in [["nic1", "down"], ["nic1", "name"], ["lan1", "up"]] {
        let mut link = vec!["-n", &namespace, "link", "set"];
        link.extend(change);
        if change[1] == "name" {
            link.push("lan1");
        }
        run("ip", &link).await.unwrap();
    }
    path_when(&hosts, id, "lan1", true).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert_eq!(used(&view), ["nic0", "lan1"]);
    assert_eq!(view.paths.len(), 2, "the same path: {view:#?}");
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_on_which_large_packets_vanish_carries_by_smaller_segments_and_says_so() {
    let Some(mut hosts) = Hosts::with_guest("mtu", BOTH_NEEDED).await else {
        return;
    };
    // The NIC that the agents talk over, too.
    let large = "large nic=0 above=1500 at=before".parse().unwrap();
    harm(hosts.lab().settings(), A, &large).await.unwrap();
    let id = hosts.migrate(A).await.unwrap().id;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert!(says(&view, "large packets vanish on path 0"), "{view:#?}");
    let path = &view.paths[0];
    assert_eq!(path.segment_bytes, Some(1220), "{path:#?}");
    assert!(sent(path) > 4 << 20, "{path:#?}");
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_interrupts_are_to_be_near_each_nic_is_told_and_an_agent_that_starts_keeps_no_word_of_what_is_gone()
 {
    let Some(mut hosts) = Hosts::with_guest("irqs", FAST).await else {
        return;
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim();
    let before = format!(
        r#"{{"boot":"{boot}","devices":{{"sys/devices/gone":{{"near":"0","holders":[],"moved":{{"1":"0"}}}}}}}}"#
    );
    for host in [A, B] {
        hosts.kill_agent(host).await;
        hosts.configure(host, |config| {
            set_word(config, "migration", "interrupts", "near");
        });
        let kept = hosts.host(host).state().join("interrupts.json");
        std::fs::write(&kept, &before).unwrap();
        hosts.start_agent(host).await;
        assert!(!kept.exists());
    }
    let id = hosts.move_from(A).await.id;
    for host in [A, B] {
        let view = hosts.ended(host, id).await;
        // These NICs are virtual.
        let told = |why: &Option<String>| why.as_ref().is_some_and(|why| !why.is_empty());
        let all = view.interrupts.iter();
        assert!(
            all.clone().all(|nic| nic.moved == 0 && told(&nic.why_not)),
            "{view:#?}"
        );
        let mut nics: Vec<&str> = all.map(|nic| nic.interface.as_str()).collect();
        nics.sort_unstable();
        assert_eq!(nics, ["nic0", "nic1"]);
        assert!(!says(&view, "interrupts"), "{view:#?}");
        let events = hosts.client(host).events(id).await.unwrap();
        let times =
            |of: fn(&EventKind) -> bool| events.iter().filter(|event| of(&event.kind)).count();
        let moved = times(|kind| matches!(kind, EventKind::InterruptsMoved { .. }));
        let given = times(|kind| matches!(kind, EventKind::InterruptsGivenBack { .. }));
        assert_eq!((moved, given), (2, 0), "{events:#?}");
    }
    hosts.guest_runs_only_on(B).await;
}
