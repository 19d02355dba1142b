//! What ends while memory is carried: the guest runs on where it was, nothing is left on the
//! destination, and both hosts tell what happened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{ErrorCode, ExitKind, MigrateRequest, MigrationPhase, MigrationView, VmState};
use drover_types::MigrationId;
use hosts::{A, B, Hosts, PATIENCE, SLOW, SLOWER, Signal, guest_of, kill, refused, until};

fn assert_told(view: &MigrationView, phase: MigrationPhase, words: &[&str]) {
    assert_eq!(view.phase, phase, "{view:#?}");
    assert!(view.ended_at.is_some(), "{view:#?}");
    let told = format!("{:?} {:?}", view.cause, view.next);
    for word in words {
        assert!(told.contains(word), "{told} lacks {word:?}");
    }
}

/// The source tells this phase and these words, that the guest is unharmed, and it is.
async fn unharmed(hosts: &Hosts, id: MigrationId, phase: MigrationPhase, words: &[&str]) {
    let view = hosts.ended(A, id).await;
    assert_told(&view, phase, words);
    assert_told(&view, phase, &["the guest runs on the source, unharmed"]);
    hosts.guest_runs_only_on(A).await;
}

/// The guest can be moved after it all.
async fn moves(hosts: &mut Hosts) {
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_cancelled_leaves_the_guest_where_it_was() {
    let Some(mut hosts) = Hosts::with_guest("cancel", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let (code, message) = refused(hosts.client(B).cancel(id).await);
    assert_eq!(code, ErrorCode::WrongPhase);
    assert!(message.contains("on a"), "the source decides: {message}");
    hosts.client(A).cancel(id).await.unwrap();
    unharmed(&hosts, id, MigrationPhase::Cancelled, &["by the operator"]).await;
    let there = hosts.ended(B, id).await;
    let words = ["source keeps the guest", "cancelled by the operator"];
    assert_told(&there, MigrationPhase::Abandoned, &words);
    let (code, _) = refused(hosts.client(A).cancel(id).await);
    assert_eq!(code, ErrorCode::MigrationEnded);
    moves(&mut hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_qemu_that_is_killed_midway_costs_only_the_migration() {
    let Some(mut hosts) = Hosts::with_guest("dstqemu", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    kill(hosts.qemus(B).await[0]);
    unharmed(
        &hosts,
        id,
        MigrationPhase::Failed,
        &["destination", "signal 9"],
    )
    .await;
    let there = hosts.ended(B, id).await;
    assert_told(&there, MigrationPhase::Abandoned, &["signal 9"]);
    moves(&mut hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_qemu_that_is_killed_midway_leaves_nothing_on_the_destination() {
    let Some(mut hosts) = Hosts::with_guest("srcqemu", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    kill(hosts.qemus(A).await[0]);
    let view = hosts.ended(A, id).await;
    let words = ["signal 9", "the guest's QEMU on the source has ended"];
    assert_told(&view, MigrationPhase::Failed, &words);
    assert_eq!(hosts.ended(B, id).await.phase, MigrationPhase::Abandoned);
    until(PATIENCE, async || {
        let left = hosts.left_on(B).await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    // As without a migration: it failed, its end is told, it can be started again.
    let vm = hosts.vm_when(A, |vm| vm.state == VmState::Failed).await;
    assert_eq!(vm.last_exit.unwrap().exit, ExitKind::Signal(9));
    assert_eq!(vm.migration, None);
    assert_eq!(hosts.qemus(A).await, Vec::<u32>::new());
    hosts.boot().await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_agent_that_is_killed_midway_leaves_nothing_once_it_is_back() {
    let Some(mut hosts) = Hosts::with_guest("dstagent", SLOWER).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.kill_agent(B).await;
    let view = hosts.ended(A, id).await;
    let words = [
        "the guest runs on the source, unharmed",
        "ended the session",
    ];
    assert_told(&view, MigrationPhase::Failed, &words);
    let status = hosts.status(A).await;
    assert_eq!(guest_of(&status).unwrap().state, VmState::Running);
    hosts.guest_is_whole().await;

    hosts.start_agent(B).await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    assert!(there.cause.is_some() && there.ended_at.is_some());
    hosts.guest_runs_only_on(A).await;
    moves(&mut hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_agent_that_is_killed_midway_leaves_the_guest_running() {
    let Some(mut hosts) = Hosts::with_guest("srcagent", SLOWER).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.kill_agent(A).await;
    // The destination cleans up by itself; it does not need the source for that.
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    assert_eq!(hosts.left_on(B).await, Vec::<String>::new());
    hosts.guest_is_whole().await;

    hosts.start_agent(A).await;
    unharmed(&hosts, id, MigrationPhase::Failed, &["started again"]).await;
    moves(&mut hosts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_agents_that_are_killed_midway_leave_the_guest_running() {
    let Some(mut hosts) = Hosts::with_guest("bothagents", SLOWER).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.kill_agent(B).await;
    hosts.kill_agent(A).await;
    // They stay away for longer than the relays wait.
    hosts.no_relay_is_left().await;
    hosts.guest_is_whole().await;
    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    unharmed(&hosts, id, MigrationPhase::Failed, &["started again"]).await;
    assert_eq!(hosts.ended(B, id).await.phase, MigrationPhase::Abandoned);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_told_to_end_cancels_what_is_only_prepared() {
    let Some(mut hosts) = Hosts::with_guest("prepterm", SLOW).await else {
        return;
    };
    // Its kernel takes the question, and nobody answers.
    hosts.agent(B).signal(Signal::STOP);
    let client = hosts.client(A).clone();
    let request = MigrateRequest {
        to: hosts.host(B).name.parse().unwrap(),
        convergence: Default::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    };
    let asked = tokio::spawn(async move { client.migrate(&hosts::name(), &request).await });
    let id = until(PATIENCE, async || {
        let all = hosts.client(A).migrations().await.unwrap();
        let preparing = all.iter().find(|m| m.phase == MigrationPhase::Preparing);
        preparing.map(|m| m.id).ok_or_else(|| format!("{all:#?}"))
    })
    .await;
    assert_eq!(hosts.terminate_agent(A).await, Some(0));
    // With the cancelled migration or with none: its agent is gone.
    let _ = asked.await.unwrap();
    hosts.agent(B).signal(Signal::CONT);
    hosts.start_agent(A).await;
    let words = ["the source's agent was stopped"];
    unharmed(&hosts, id, MigrationPhase::Cancelled, &words).await;
}
