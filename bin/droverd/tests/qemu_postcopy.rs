//! Guests that go on at the destination before their pages do, and what breaks meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::Duration;

use drover_api::{
    ErrorCode, EventKind, GuestPlace, MigrationPhase, MigrationView, Resolution, ResolveRequest,
    StopRequest, Told, VmState,
};
use drover_types::{AtDeadline, Convergence, MigrationId, Throttle};
use hosts::reduced::begun_by;
use hosts::{A, B, BOTH_NEEDED, Hosts, PATIENCE, kill, name, refused};

/// Two lines that carry what is left at the deadline in some seconds.
async fn hosts_with_a_guest(test: &str) -> Option<Hosts> {
    Hosts::with_outage_limit(test, BOTH_NEEDED, 3).await
}

/// Begins to move the guest, which has hardly been copied by its deadline; once it runs at the destination and pages of it follow.
async fn serving(hosts: &mut Hosts, from: usize) -> MigrationId {
    serving_by(hosts, from, "off").await
}

/// The same, reduced in this way.
async fn serving_by(hosts: &mut Hosts, from: usize, how: &str) -> MigrationId {
    let convergence = Convergence {
        throttle: Some(Throttle::Off),
        deadline_s: Some(1.try_into().unwrap()),
        at_deadline: Some(AtDeadline::Postcopy),
        ..Convergence::default()
    };
    let id = begun_by(hosts, from, how, convergence).await;
    let serves = |phase: MigrationPhase| phase == MigrationPhase::Serving || phase.has_ended();
    let view = hosts.phase_when(from, id, PATIENCE, serves).await;
    assert_eq!(view.phase, MigrationPhase::Serving, "{view:#?}");
    id
}

async fn events(hosts: &Hosts, host: usize, id: MigrationId) -> Vec<EventKind> {
    let events = hosts.client(host).events(id).await.unwrap();
    events.into_iter().map(|event| event.kind).collect()
}

fn count(events: &[EventKind], of: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| of(event)).count()
}

fn stopped(event: &EventKind) -> bool {
    matches!(event, EventKind::PagesStopped { .. })
}

async fn has_moved(hosts: &Hosts, from: usize, id: MigrationId) -> MigrationView {
    let view = hosts.ended(from, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    hosts.guest_runs_only_on(1 - from).await;
    hosts.no_relay_is_left().await;
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_goes_on_at_its_deadline_and_every_page_follows_it() {
    let Some(mut hosts) = hosts_with_a_guest("postcopy").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    let there = hosts.client(B).migration(id).await.unwrap();
    assert!(
        matches!(
            there.phase,
            MigrationPhase::Filling | MigrationPhase::Running
        ),
        "{there:#?}"
    );
    let (code, message) = refused(hosts.client(A).cancel(id).await);
    assert_eq!(code, ErrorCode::TooLate, "{message}");
    let view = has_moved(&hosts, A, id).await;
    let postcopy = view.postcopy.unwrap();
    assert!(postcopy.bytes.0 > 0 && postcopy.reopened == 0, "{view:#?}");
    assert_eq!(view.channels, Some(0));
    let events = events(&hosts, A, id).await;
    let asked = |event: &EventKind| {
        matches!(
            event,
            EventKind::DeadlinePassed {
                then: AtDeadline::Postcopy,
                ..
            }
        )
    };
    assert_eq!(count(&events, asked), 1, "{events:#?}");
    let followed = |event: &EventKind| matches!(event, EventKind::AllFollowed { .. });
    assert_eq!(count(&events, followed), 1, "{events:#?}");
    assert_eq!(count(&events, stopped), 0, "{events:#?}");
    // And back, as every guest can that has moved.
    hosts.move_from(B).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_over_another_session_when_a_relay_of_either_host_was_killed() {
    let Some(mut hosts) = hosts_with_a_guest("pcrelay").await else {
        return;
    };
    let id = serving_by(&mut hosts, A, "pages").await;
    let mut reduced = Vec::new();
    for (killed, host) in [(1, A), (2, B)] {
        let view = hosts.client(host).migration(id).await.unwrap();
        kill(view.relay.unwrap().pid);
        hosts::until(PATIENCE, async || {
            let view = hosts.client(A).migration(id).await.unwrap();
            let reopened = view.postcopy.map_or(0, |postcopy| postcopy.reopened);
            if reopened >= killed {
                reduced.push(view.reduction.unwrap().raw_bytes);
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }
    let view = has_moved(&hosts, A, id).await;
    assert_eq!(view.postcopy.unwrap().reopened, 2, "{view:#?}");
    // What the first session had reduced by then, and nothing of those that were opened anew.
    let all = view.reduction.unwrap().raw_bytes;
    assert!(all.0 > 0 && reduced == [all, all], "{all:?}, {reduced:?}");
    let events = events(&hosts, A, id).await;
    assert_eq!(count(&events, stopped), 2, "{events:#?}");
    let follow = |event: &EventKind| *event == EventKind::PagesFollow;
    assert_eq!(count(&events, follow), 2, "{events:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_when_every_path_was_down_for_longer_than_sessions_bear() {
    let Some(mut hosts) = hosts_with_a_guest("pcpaths").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    for nic in [0, 1] {
        hosts.set_nic(A, nic, "down").await;
    }
    // More than twice what a session bears: nothing is waited for, the outage is to last.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let view = hosts.client(A).migration(id).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::Serving, "{view:#?}");
    for nic in [0, 1] {
        hosts.set_nic(A, nic, "up").await;
    }
    let view = has_moved(&hosts, A, id).await;
    assert!(view.postcopy.unwrap().reopened > 0, "{view:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_follow_while_the_agents_of_both_hosts_are_killed_and_started_again() {
    let Some(mut hosts) = hosts_with_a_guest("pcagents").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    for host in [A, B] {
        hosts.kill_agent(host).await;
        hosts.start_agent(host).await;
    }
    // An update of both, as `systemctl restart` does it.
    for host in [A, B] {
        hosts.terminate_agent(host).await;
        hosts.start_agent(host).await;
    }
    has_moved(&hosts, A, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_whose_source_ends_before_all_pages_have_followed_is_said_to_be_lost() {
    let Some(mut hosts) = hosts_with_a_guest("pccut").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    let pid = hosts.qemus(A).await;
    kill(pid[0]);
    for host in [A, B] {
        let view = hosts.ended(host, id).await;
        assert_eq!(view.phase, MigrationPhase::CutOff, "{view:#?}");
        assert_eq!(view.guest, Some(GuestPlace::Nowhere));
        assert!(view.next.unwrap().contains("drover vm stop --force"));
    }
    let by_force = StopRequest {
        force: true,
        ..StopRequest::default()
    };
    let stopped = hosts.client(B).stop_vm(&name(), &by_force).await.unwrap();
    assert_eq!(stopped.state, VmState::Stopped);
    assert!(hosts.qemus(A).await.is_empty() && hosts.qemus(B).await.is_empty());
    let started = hosts.client(B).start_vm(&name()).await.unwrap();
    assert_eq!(started.state, VmState::Running);
    hosts.no_relay_is_left().await;
}

/// A host goes with its guest, and the other one misses its word: what can be decided in its place.
async fn is_gone(hosts: &mut Hosts, gone: usize, id: MigrationId, command: &str) {
    hosts.kill_agent(gone).await;
    kill(hosts.qemus(gone).await[0]);
    let host = if gone == A { B } else { A };
    hosts::until(PATIENCE, async || {
        let view = hosts.client(host).migration(id).await.unwrap();
        assert!(!view.phase.has_ended(), "{view:#?}");
        match &view.ambiguity {
            Some(doubt) if doubt.commands == [command] => Ok(()),
            _ => Err(format!("{view:#?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_source_that_does_not_come_back_can_be_given_up() {
    let Some(mut hosts) = hosts_with_a_guest("pcgone").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    let command = "drover resolve guest --discard --memory-is-lost";
    is_gone(&mut hosts, A, id, command).await;
    let discard = ResolveRequest {
        resolution: Resolution::Discard,
        other_host_is_off: false,
        memory_is_lost: true,
    };
    let run_here = ResolveRequest {
        resolution: Resolution::RunHere,
        other_host_is_off: true,
        ..discard
    };
    let (code, message) = refused(hosts.client(B).resolve(id, &run_here).await);
    assert_eq!(code, ErrorCode::WrongPhase, "{message}");
    let view = hosts.client(B).resolve(id, &discard).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::CutOff, "{view:#?}");
    // The guest is left for a person to end, and its host's to start again.
    assert_eq!(hosts.qemus(B).await.len(), 1);
    let by_force = StopRequest {
        force: true,
        ..StopRequest::default()
    };
    hosts.client(B).stop_vm(&name(), &by_force).await.unwrap();
    hosts.client(B).start_vm(&name()).await.unwrap();

    // The source that comes back after all hears that, and keeps nothing.
    hosts.start_agent(A).await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::CutOff, "{view:#?}");
    assert!(hosts.qemus(A).await.is_empty() && hosts.qemus(B).await.len() == 1);
    hosts.no_relay_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_whose_destination_does_not_come_back_can_be_given_up_at_the_source() {
    let Some(mut hosts) = hosts_with_a_guest("pclost").await else {
        return;
    };
    let id = serving(&mut hosts, A).await;
    let command = "drover resolve guest --give-up --other-host-is-off";
    is_gone(&mut hosts, B, id, command).await;
    let give_up = ResolveRequest {
        resolution: Resolution::GiveUp,
        other_host_is_off: true,
        memory_is_lost: false,
    };
    let view = hosts.client(A).resolve(id, &give_up).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    let started = hosts.client(A).start_vm(&name()).await.unwrap();
    assert_eq!(started.state, VmState::Running);

    // The destination that comes back after all lets go.
    hosts.start_agent(B).await;
    hosts.ended(B, id).await;
    hosts::until(PATIENCE, async || {
        let view = hosts.client(A).migration(id).await.unwrap();
        match view.resolution {
            Some(ref resolution) if resolution.told == Told::Confirmed => Ok(()),
            _ => Err(format!("{view:#?}")),
        }
    })
    .await;
    hosts.guest_is_only_on(A).await;
    hosts.no_relay_is_left().await;
}
