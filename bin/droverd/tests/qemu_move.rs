//! A guest that moves, and what is shown of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{MigrationPhase, MigrationRole};
use hosts::{A, B, FAST, Hosts};

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_moves_to_the_other_host_and_back_and_both_keep_the_history() {
    let Some(mut hosts) = Hosts::with_guest("move", FAST).await else {
        return;
    };
    for (from, to) in [(A, B), (B, A)] {
        let view = hosts.move_from(from).await;
        assert_eq!(view.role, MigrationRole::Source);
        assert!(view.total_ms.is_some_and(|total| total > 0), "{view:#?}");
        assert!(view.downtime_ms.is_some() && view.prepare_ms.is_some());
        assert_eq!(view.paths.len(), 2, "{view:#?}");
        assert!(view.cause.is_none() && view.ended_at.is_some(), "{view:#?}");
        let lost = view.notes.iter().find(|note| note.contains("lost"));
        assert_eq!(lost, None, "nothing was lost");
        hosts.guest_runs_only_on(to).await;
        let arrived = hosts.ended(to, view.id).await;
        assert_eq!(arrived.role, MigrationRole::Destination);
        assert_eq!(arrived.phase, MigrationPhase::Running);
        let lost = arrived.notes.iter().find(|note| note.contains("lost"));
        assert_eq!(lost, None, "nothing was lost");
    }
    // The history outlives the agents, newest first.
    for host in [A, B] {
        let before = hosts.client(host).migrations().await.unwrap();
        assert_eq!(before.len(), 2);
        assert!(before[0].started_at > before[1].started_at);
        hosts.kill_agent(host).await;
        hosts.start_agent(host).await;
        assert_eq!(hosts.client(host).migrations().await.unwrap(), before);
    }
    hosts.guest_runs_only_on(A).await;
}
