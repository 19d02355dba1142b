//! Which NICs are used, and NICs that go while memory is carried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::Duration;

use drover_api::{ErrorCode, LaneState, LaneView, MigrationPhase, MigrationView, PathView};
use drover_lab::network;
use drover_types::MigrationId;
use hosts::{A, B, BOTH_NEEDED, FAST, Hosts, PATIENCE, SLOW, refused, set, until};

/// The interfaces of the source that carried the guest.
fn used(view: &MigrationView) -> Vec<&str> {
    let carried = view
        .paths
        .iter()
        .filter(|path| path.lanes.iter().any(|lane| lane.sent_bytes.0 > 0));
    carried
        .map(|path| path.path.source.interface.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_is_excluded_carries_nothing_and_is_reported() {
    let Some(mut hosts) = Hosts::new("excluded", FAST).await else {
        return;
    };
    hosts.configure(A, |config| {
        set(config, "networks", "exclude", ["10.77.1.0/24"])
    });
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let view = hosts.move_from(A).await;
    assert_eq!(used(&view), ["nic0"], "{view:#?}");
    let is_nic1 = |what: &str| what.starts_with("nic1 (10.77.1.1)");
    let left = view.left_out.iter().find(|left| is_nic1(&left.what));
    let reason = &left.unwrap().reason;
    assert!(
        reason.contains("exclude") && reason.contains("10.77.1.0/24"),
        "{reason}"
    );
    hosts.guest_runs_only_on(B).await;

    // Back, it is the destination that does not offer it.
    let view = hosts.move_from(B).await;
    assert_eq!(used(&view), ["nic0"], "{view:#?}");
    let said = view
        .notes
        .iter()
        .find(|note| note.contains("a does not offer nic1"));
    assert!(
        said.is_some_and(|note| note.contains("10.77.1.0/24")),
        "{:#?}",
        view.notes
    );
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_without_a_path_between_them_are_refused_with_the_reason_of_each_nic() {
    let Some(mut hosts) = Hosts::new("nopath", FAST).await else {
        return;
    };
    // What is left on either side has nothing on its network at the other.
    hosts.configure(A, |config| set(config, "networks", "exclude", ["nic0"]));
    hosts.configure(B, |config| set(config, "networks", "exclude", ["nic1"]));
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let (code, message) = refused(hosts.migrate(A).await);
    assert_eq!(code, ErrorCode::NoPath, "{message}");
    assert!(code.is_preflight());
    for word in ["nic0", "nic1", "exclude", "[networks]", "droverd.toml"] {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
    hosts.guest_runs_only_on(A).await;
}

/// The migration ends, well either way; the guest is whole and on one host only.
async fn ends_well(hosts: &Hosts, id: MigrationId) -> MigrationView {
    let view = hosts.ended(A, id).await;
    match view.phase {
        MigrationPhase::Completed => hosts.guest_runs_only_on(B).await,
        MigrationPhase::Failed => {
            let told = format!("{:?} {:?}", view.cause, view.next);
            assert!(told.contains("lane"), "{told}");
            assert!(
                told.contains("the guest runs on the source, unharmed"),
                "{told}"
            );
            hosts.guest_runs_only_on(A).await;
        }
        _ => panic!("{view:#?}"),
    }
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_nics_that_goes_down_midway_does_not_harm_the_guest() {
    let Some(mut hosts) = Hosts::with_guest("onenic", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.set_nic(A, 1, "down").await;
    ends_well(&hosts, id).await;
}

/// A path's lanes while a migration runs.
async fn lanes(hosts: &Hosts, id: MigrationId, nic: usize) -> Vec<LaneView> {
    let view = hosts.client(A).migration(id).await.unwrap();
    assert!(!view.phase.has_ended(), "{view:#?}");
    let nic = network::nic(nic);
    let path = |path: &&PathView| path.path.source.interface == nic;
    view.paths.iter().find(path).unwrap().lanes.clone()
}

/// Waits until all of a path's lanes are lost, or one is up.
async fn path_when(hosts: &Hosts, id: MigrationId, nic: usize, up: bool) -> Vec<LaneView> {
    until(PATIENCE, async || {
        let lanes = lanes(hosts, id, nic).await;
        let lost = lanes.iter().all(|lane| lane.state == LaneState::Lost);
        if (up && lanes.iter().any(|lane| lane.state == LaneState::Up)) || (!up && lost) {
            Ok(lanes)
        } else {
            Err(format!("{lanes:#?}"))
        }
    })
    .await
}

fn sent(lanes: &[LaneView]) -> u64 {
    lanes.iter().map(|lane| lane.sent_bytes.0).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nic_that_was_down_for_a_while_carries_the_same_migration_again() {
    let Some(mut hosts) = Hosts::with_guest("again", BOTH_NEEDED).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.set_nic(A, 1, "down").await;
    let before = sent(&path_when(&hosts, id, 1, false).await);
    hosts.set_nic(A, 1, "up").await;
    path_when(&hosts, id, 1, true).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    assert_eq!(used(&view), ["nic0", "nic1"]);
    assert!(sent(&view.paths[1].lanes) > before, "{view:#?}");
    for told in ["path 1 has no lane left", "path 1 has lanes again"] {
        assert!(
            view.notes.iter().any(|note| note.contains(told)),
            "{view:#?}"
        );
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
async fn all_lanes_that_are_cut_midway_fail_the_migration_and_nothing_else() {
    let Some(mut hosts) = Hosts::with_api_apart("lanes").await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.set_nic(A, 0, "down").await;
    hosts.set_nic(B, 1, "down").await;
    let view = ends_well(&hosts, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    hosts.set_nic(A, 0, "up").await;
    hosts.set_nic(B, 1, "up").await;
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_lose_each_other_midway_each_come_to_a_good_end() {
    let Some(mut hosts) = Hosts::with_guest("parted", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    for nic in [0, 1] {
        hosts.set_nic(A, nic, "down").await;
    }
    // Neither can ask the other; the destination needs no word to clean up.
    let view = ends_well(&hosts, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
}
