//! Agents that die and come back while their relays, in processes of their own, carry on; and
//! relays that die.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use drover_api::{EventKind, MigrationPhase, MigrationView};
use drover_types::MigrationId;
use hosts::{A, B, Hosts, PATIENCE, SLOWER, kill, until};

/// Longer than an agent takes to come back on a busy machine.
const LONG: i64 = 60;

/// The relay's process of this host is the one that it was.
async fn carries_on(hosts: &Hosts, host: usize, id: MigrationId, relay: u32) {
    let client = hosts.client(host);
    until(PATIENCE, async || {
        let view = client.migration(id).await.unwrap();
        assert_ne!(view.phase, MigrationPhase::Failed, "{view:#?}");
        assert_ne!(view.phase, MigrationPhase::Abandoned, "{view:#?}");
        let shown = view.relay.map(|relay| relay.pid);
        if view.phase.has_ended() || shown == Some(relay) {
            Ok(())
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await;
}

/// Both agents tell that this one migration moved the guest, and the guest is whole.
async fn completes(hosts: &Hosts, id: MigrationId) -> MigrationView {
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Running, "{there:#?}");
    hosts.guest_runs_only_on(B).await;
    hosts.no_relay_is_left().await;
    view
}

async fn was_taken_up(hosts: &Hosts, host: usize, id: MigrationId) {
    let events = hosts.client(host).events(id).await.unwrap();
    let taken_up = |event: &drover_api::EventView| matches!(event.kind, EventKind::TakenUp);
    assert!(events.iter().any(taken_up), "{events:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_agent_that_is_back_in_time_completes_its_migration() {
    let Some(mut hosts) = Hosts::with_outage_limit("srcback", SLOWER, LONG).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let relay = hosts.relays(A);
    assert_eq!(relay.len(), 1, "{relay:?}");
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    carries_on(&hosts, A, id, relay[0]).await;
    let view = completes(&hosts, id).await;
    assert!(view.total_ms.is_some(), "{view:#?}");
    was_taken_up(&hosts, A, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_agent_that_is_back_in_time_takes_the_guest_in() {
    let Some(mut hosts) = Hosts::with_outage_limit("dstback", SLOWER, LONG).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let relay = hosts.relays(B);
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    carries_on(&hosts, B, id, relay[0]).await;
    completes(&hosts, id).await;
    was_taken_up(&hosts, B, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_agents_that_are_back_in_time_complete_their_migration() {
    let Some(mut hosts) = Hosts::with_outage_limit("bothback", SLOWER, LONG).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.kill_agent(B).await;
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    completes(&hosts, id).await;
    // And back, by the same agents.
    hosts.move_from(B).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_told_to_end_leave_what_is_carried_to_the_next() {
    let Some(mut hosts) = Hosts::with_outage_limit("told", SLOWER, LONG).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    for host in [A, B] {
        let relay = hosts.relays(host);
        assert_eq!(relay.len(), 1, "{relay:?}");
        assert_eq!(hosts.terminate_agent(host).await, Some(0));
        hosts.start_agent(host).await;
        carries_on(&hosts, host, id, relay[0]).await;
        was_taken_up(&hosts, host, id).await;
    }
    completes(&hosts, id).await;
}

/// What a QEMU whose agent is dead says of its guest.
fn run_state(monitor: &Path) -> String {
    let mut socket = UnixStream::connect(monitor).unwrap();
    let asked = r#"{"execute":"qmp_capabilities"}{"execute":"query-status"}"#;
    socket.write_all(asked.as_bytes()).unwrap();
    let lines = BufReader::new(socket).lines().map(Result::unwrap);
    let mut answers = lines.filter(|line| line.contains("\"status\""));
    answers.next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_arrives_while_both_agents_are_dead_runs_once_they_are_back() {
    let Some(mut hosts) = Hosts::with_outage_limit("bothlate", hosts::SLOW, LONG).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    hosts.kill_agent(B).await;
    hosts.kill_agent(A).await;
    let monitor = hosts.host(A).runtime().join("vms/guest/qmp.sock");
    until(PATIENCE, async || match run_state(&monitor) {
        state if state.contains("postmigrate") => Ok(()),
        other => Err(other),
    })
    .await;
    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    completes(&hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_away_for_longer_than_the_limit_costs_only_the_migration() {
    for away in [A, B] {
        let test = if away == A { "srcaway" } else { "dstaway" };
        let Some(mut hosts) = Hosts::with_outage_limit(test, SLOWER, 2).await else {
            return;
        };
        let id = hosts.migrate_midway(A).await;
        hosts.kill_agent(away).await;
        // The other one ends it by itself.
        let view = hosts.ended(1 - away, id).await;
        assert_ne!(view.phase, MigrationPhase::Completed, "{view:#?}");
        hosts.guest_is_whole().await;
        hosts.no_relay_is_left().await;
        hosts.start_agent(away).await;
        let view = hosts.ended(A, id).await;
        assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
        hosts.guest_runs_only_on(A).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_costs_only_the_migration() {
    let Some(mut hosts) = Hosts::with_outage_limit("relays", SLOWER, 2).await else {
        return;
    };
    for host in [A, B] {
        let id = hosts.migrate_midway(A).await;
        kill(hosts.relays(host)[0]);
        let view = hosts.ended(A, id).await;
        assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
        let there = hosts.ended(B, id).await;
        assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
        hosts.guest_runs_only_on(A).await;
        hosts.no_relay_is_left().await;
    }
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}
