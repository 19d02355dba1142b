//! Guests that are suspended because they cannot move, on a real QEMU: they go on where they were, with every page.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{
    ClientError, CordonRequest, ErrorCode, ParkHow, ParkPhase, ParkRequest, ParkView, ParkedState,
    RunResult, StopRequest, VmDefinition, VmState,
};
use drover_plan::policy::{CannotMove, Pins, VmPolicy};
use drover_types::ParkId;
use hosts::runs::{carried_out, drain, host, resume, two_that_may_lose_one};
use hosts::{A, FAST, Hosts, PATIENCE, Signal, name, refused, until};
use rustix::process::{Pid, kill_process};
use uuid::Uuid;

/// Two hosts, of which the first coordinates, and a guest that is pinned to it and is to be suspended.
async fn hosts_with_a_bound_guest(test: &str) -> Option<Hosts> {
    let mut hosts = two_that_may_lose_one(test, FAST).await?;
    let definition = VmDefinition {
        policy: VmPolicy {
            cannot_move: CannotMove::Suspend,
            pinned: Pins {
                hosts: [host(&hosts, A)].into(),
                ..Pins::default()
            },
            ..VmPolicy::default()
        },
        ..hosts.definition().await
    };
    hosts.boot_from(definition).await;
    Some(hosts)
}

async fn state(hosts: &Hosts) -> VmState {
    hosts.client(A).vm(&name()).await.unwrap().state
}

async fn ordered(hosts: &Hosts, id: ParkId) -> ParkView {
    let request = ParkRequest {
        id,
        how: ParkHow::Suspend,
        begin: true,
    };
    hosts.client(A).park(&name(), &request).await.unwrap()
}

async fn over(hosts: &Hosts, id: ParkId) -> ParkView {
    until(PATIENCE, async || {
        let view = ordered(hosts, id).await;
        let is_over = view.phase != ParkPhase::Parking;
        if is_over { Ok(view) } else { Err("under way") }
    })
    .await
}

fn fresh() -> ParkId {
    ParkId(Uuid::now_v7())
}

async fn cordoned(hosts: &Hosts) {
    let request = CordonRequest { reason: None };
    hosts.client(A).cordon(&request).await.unwrap();
}

/// An order in the middle of which QEMU stands still.
async fn half_way(hosts: &mut Hosts) -> (ParkId, Pid) {
    cordoned(hosts).await;
    until(PATIENCE, async || {
        let pid = hosts.client(A).vm(&name()).await.unwrap().pid;
        let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.unwrap();
        let id = fresh();
        ordered(hosts, id).await;
        let saved = hosts.host(A).state().join("suspended");
        let saved = saved.join(format!("{}.state", name()));
        let begun = || std::fs::metadata(&saved).is_ok_and(|file| file.len() > 0);
        while !begun() && ordered(hosts, id).await.phase == ParkPhase::Parking {}
        if kill_process(pid, Signal::STOP).is_ok()
            && ordered(hosts, id).await.phase == ParkPhase::Parking
        {
            return Ok((id, pid));
        }
        hosts.client(A).uncordon().await.unwrap();
        hosts.client(A).start_vm(&name()).await.unwrap();
        cordoned(hosts).await;
        Err("it was quicker")
    })
    .await
}

async fn logged(hosts: &Hosts, words: &str) {
    let log = hosts.host(A).log("droverd");
    until(PATIENCE, async || {
        let log = std::fs::read_to_string(&log).unwrap();
        if log.contains(words) {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_cannot_move_is_suspended_and_goes_on_when_its_host_is_resumed() {
    let Some(mut hosts) = hosts_with_a_bound_guest("suspend").await else {
        return;
    };
    let drained = carried_out(&hosts, drain(&hosts, A)).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(drained.parked[0].state, ParkedState::Suspended);
    assert!(hosts.qemus(A).await.is_empty(), "its memory is free");
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let view = hosts.client(A).vm(&name()).await.unwrap();
    assert_eq!(view.state, VmState::Suspended);
    let notes = view.notes.join("\n");
    assert!(notes.contains("drover resume"), "{notes}");
    assert!(notes.contains("is saved in"), "{notes}");

    hosts.listen_on(A);
    let resumed = carried_out(&hosts, resume(&hosts, A)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(resumed.parked[0].state, ParkedState::Started);
    hosts.guest_runs_only_on(A).await;
    let left = std::fs::read_dir(hosts.host(A).state().join("suspended"));
    assert_eq!(left.unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_dies_while_a_guest_is_saved_is_followed_by_one_that_has_it_run_on() {
    let Some(mut hosts) = hosts_with_a_bound_guest("susdie").await else {
        return;
    };
    let (id, pid) = half_way(&mut hosts).await;
    hosts.kill_agent(A).await;
    kill_process(pid, Signal::CONT).unwrap();
    hosts.start_agent(A).await;
    assert_eq!(state(&hosts).await, VmState::Running);
    hosts.guest_is_whole().await;
    // The order is young, and wanted still.
    let again = over(&hosts, id).await;
    assert_eq!(again.phase, ParkPhase::Parked, "{again:#?}");
    assert_eq!(state(&hosts).await, VmState::Suspended);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_while_a_guest_is_saved_has_it_run_on_first() {
    let Some(mut hosts) = hosts_with_a_bound_guest("susend").await else {
        return;
    };
    let (id, pid) = half_way(&mut hosts).await;
    hosts.agent(A).signal(Signal::TERM);
    let client = hosts.client(A).clone();
    let (status, ()) = tokio::join!(hosts.agent_ends(A), async {
        // Asks for what changes nothing: the cordon is to stay.
        let nobody = "nobody".parse().unwrap();
        until(PATIENCE, async || match client.start_vm(&nobody).await {
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::ShuttingDown => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        kill_process(pid, Signal::CONT).unwrap();
    });
    assert_eq!(status, Some(0));
    hosts.guest_is_whole().await;
    let left = std::fs::read_dir(hosts.host(A).state().join("suspended"));
    assert_eq!(left.unwrap().count(), 0);
    // An agent that was updated goes on with the order.
    hosts.start_agent(A).await;
    let again = over(&hosts, id).await;
    assert_eq!(again.phase, ParkPhase::Parked, "{again:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_does_with_a_guest_that_is_saved_counts() {
    let Some(mut hosts) = hosts_with_a_bound_guest("sushand").await else {
        return;
    };
    let suspended = hosts.client(A).suspend_vm(&name()).await.unwrap();
    assert_eq!(suspended.state, VmState::Suspended, "{suspended:#?}");
    let plainly = StopRequest::default();
    let (code, message) = refused(hosts.client(A).stop_vm(&name(), &plainly).await);
    assert_eq!(code, ErrorCode::VmNotRunning, "{message}");
    hosts.listen_on(A);
    hosts.client(A).start_vm(&name()).await.unwrap();
    hosts.guest_is_whole().await;

    let (id, pid) = half_way(&mut hosts).await;
    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    let vm = name();
    let (stopped, ()) = tokio::join!(hosts.client(A).stop_vm(&vm, &force), async {
        logged(&hosts, "gives way to a stop by force").await;
        kill_process(pid, Signal::CONT).unwrap();
    });
    let stopped = stopped.unwrap();
    assert_eq!(stopped.state, VmState::Stopped, "{stopped:#?}");
    let view = over(&hosts, id).await;
    assert!(view.cause.is_some(), "{view:#?}");
    let left = std::fs::read_dir(hosts.host(A).state().join("suspended"));
    assert_eq!(left.unwrap().count(), 0);
}
