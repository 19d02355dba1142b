//! Which NICs are used, and NICs that go while memory is carried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{ErrorCode, MigrationPhase, MigrationView};
use drover_types::MigrationId;
use hosts::{A, B, FAST, Hosts, SLOW, refused, set, used};

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
    let view = ends_well(&hosts, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
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
