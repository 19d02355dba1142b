//! Guests that cannot move, on a real QEMU: stopped when their host is drained, and started again when it is
//! resumed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{
    CancelRunRequest, ParkHow, ParkPhase, ParkRequest, ParkView, ParkedState, RunRequest,
    RunResult, RunView, RunningMoves, StopRequest, UnparkRequest, VmDefinition, VmState,
};
use drover_plan::Request;
use drover_plan::policy::{CannotMove, Pins, VmPolicy};
use drover_types::{Bytes, HostName, ParkId, RunId, VmName};
use hosts::{A, B, FAST, Hosts, PATIENCE, until};
use uuid::Uuid;

/// The first sector of a disk: lets itself be heard when the power button is pressed (bit 8 of PM1_EN), says that it
/// is ready on the debug console, looks at the button (PM1_STS) at each tick of the timer, and turns the
/// machine off (SLP_EN of PM1_CNT).
const OBEDIENT: [u8; 34] = [
    0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // PM1_EN = PWRBTN_EN
    0xb0, b'R', 0xe6, 0xe9, // debug console
    0xba, 0x00, 0x06, // dx = PM1_STS
    0xfb, 0xf4, 0xed, 0xf6, 0xc4, 0x01, 0x74, 0xf8, // sti, hlt, until the button was pressed
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // PM1_CNT = SLP_EN
    0xfa, 0xf4, 0xeb, 0xfc, 0x90, // never goes on
];

fn named(vm: &str) -> VmName {
    vm.parse().unwrap()
}

fn host(hosts: &Hosts, number: usize) -> HostName {
    hosts.host(number).name.parse().unwrap()
}

/// Two hosts, of which the first coordinates, and a guest that is pinned to it and is to be stopped.
async fn hosts_with(test: &str, vm: &str, obeys: bool, seconds: u32) -> Option<Hosts> {
    let mut hosts = Hosts::new(test, FAST).await?;
    for number in [A, B] {
        hosts.configure(number, |config| {
            let changes = "policy.keep = { losses = 0, of = \"host\" }";
            config.extend(toml::from_str::<toml::Table>(changes).unwrap());
        });
        hosts.start_agent(number).await;
    }
    let mut sector = vec![0; 512];
    if obeys {
        sector[..OBEDIENT.len()].copy_from_slice(&OBEDIENT);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
    }
    let place = hosts.host(A);
    std::fs::write(place.socket("disk"), &sector).unwrap();
    std::fs::write(place.socket("said"), "").unwrap();
    let here = hosts.lab().here();
    let (disk, said) = (here.join("disk"), here.join("said"));
    let words = [
        "-nodefaults",
        "-drive",
        &format!("file={},format=raw,if=ide", disk.display()),
        "-debugcon",
        &format!("file:{}", said.display()),
    ];
    let definition = VmDefinition {
        name: named(vm),
        memory: Bytes(32 << 20),
        // Its firmware boots from a disk that is one sector long.
        machine: Some("pc".to_owned()),
        args: words.map(str::to_owned).to_vec(),
        policy: VmPolicy {
            cannot_move: CannotMove::StopAndStart,
            stop_within_seconds: seconds,
            pinned: Pins {
                hosts: [host(&hosts, A)].into(),
                ..Pins::default()
            },
            ..VmPolicy::default()
        },
        ..hosts.definition_of(&named(vm)).await
    };
    hosts.define(A, &definition);
    hosts.client(A).start_vm(&named(vm)).await.unwrap();
    if obeys {
        is_ready(&hosts).await;
    }
    Some(hosts)
}

/// Waits until the guest has booted. QEMU empties the file when it starts.
async fn is_ready(hosts: &Hosts) {
    let said = hosts.host(A).socket("said");
    until(PATIENCE, async || match std::fs::read_to_string(&said) {
        Ok(said) if said.ends_with('R') => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

fn drain(hosts: &Hosts) -> RunRequest {
    RunRequest::of(Request::Drain {
        hosts: [host(hosts, A)].into(),
        avoid: [].into(),
    })
}

fn resume(hosts: &Hosts) -> RunRequest {
    RunRequest::of(Request::Resume {
        host: host(hosts, A),
        homes: Vec::new(),
        avoid: [].into(),
    })
}

async fn when(hosts: &Hosts, id: RunId, accept: impl Fn(&RunView) -> bool) -> RunView {
    until(PATIENCE * 2, async || {
        let view = hosts.client(A).run(id).await;
        let view = view.map_err(|error| error.to_string())?;
        if accept(&view) {
            Ok(view)
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await
}

async fn carried_out(hosts: &Hosts, request: RunRequest) -> RunView {
    let id = hosts.client(A).start_run(&request).await.unwrap().id;
    when(hosts, id, |view| view.phase.has_ended()).await
}

async fn state(hosts: &Hosts, vm: &str) -> VmState {
    hosts.client(A).vm(&named(vm)).await.unwrap().state
}

fn states(view: &RunView) -> Vec<ParkedState> {
    view.parked.iter().map(|one| one.state).collect()
}

async fn ordered(hosts: &Hosts, vm: &str, id: ParkId, begin: bool) -> ParkView {
    let how = ParkHow::Stop;
    let request = ParkRequest { id, how, begin };
    hosts.client(A).park(&named(vm), &request).await.unwrap()
}

async fn over(hosts: &Hosts, vm: &str, id: ParkId) -> ParkView {
    until(PATIENCE, async || {
        let view = ordered(hosts, vm, id, true).await;
        let is_over = view.phase != ParkPhase::Parking;
        if is_over { Ok(view) } else { Err("under way") }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_cannot_move_is_stopped_and_started_again_when_its_host_is_resumed() {
    let Some(mut hosts) = hosts_with("parked", "bound", true, 60).await else {
        return;
    };
    hosts.boot().await;
    hosts.listen_on(B);
    let drained = carried_out(&hosts, drain(&hosts)).await;
    assert_eq!(drained.result, Some(RunResult::Completed), "{drained:#?}");
    assert_eq!(states(&drained), [ParkedState::Stopped], "{drained:#?}");
    assert_eq!((drained.moves.len(), drained.left.len()), (1, 0));
    let (moved, stopped) = (drained.moves[0].ended_at, drained.parked[0].started_at);
    assert!(moved.unwrap() <= stopped.unwrap(), "stopped last");
    hosts.guest_runs_only_on(B).await;
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);

    // What was stopped is known after the agent was started again, here and to the run.
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let view = hosts.client(A).vm(&named("bound")).await.unwrap();
    assert!(view.notes[0].contains("drover resume"), "{view:#?}");
    let resumed = carried_out(&hosts, resume(&hosts)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(states(&resumed), [ParkedState::Started], "{resumed:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
    let again = carried_out(&hosts, resume(&hosts)).await;
    assert_eq!(states(&again), [], "it is nobody's any more: {again:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_shut_down_in_time_runs_on_and_the_run_says_so() {
    let Some(mut hosts) = hosts_with("parkless", "bound", false, 2).await else {
        return;
    };
    let pid = hosts.client(A).vm(&named("bound")).await.unwrap().pid;
    let drained = carried_out(&hosts, drain(&hosts)).await;
    assert_eq!(drained.result, Some(RunResult::Partial), "{drained:#?}");
    assert_eq!(states(&drained), [ParkedState::Kept], "{drained:#?}");
    let cause = drained.cause.unwrap_or_default();
    assert!(cause.contains("did not shut down within 2 s"), "{cause}");

    // An agent that was killed meanwhile gives it the same time once more, and never kills it.
    let id = ParkId(Uuid::now_v7());
    let begun = ordered(&hosts, "bound", id, true).await;
    assert_eq!(begun.phase, ParkPhase::Parking);
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let late = over(&hosts, "bound", id).await;
    assert_eq!(late.phase, ParkPhase::Kept, "{late:#?}");
    let view = hosts.client(A).vm(&named("bound")).await.unwrap();
    assert_eq!((view.state, view.pid), (VmState::Running, pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_carried_out_once_and_what_an_operator_does_by_hand_counts() {
    let Some(hosts) = hosts_with("parkonce", "bound", true, 60).await else {
        return;
    };
    let vm = named("bound");
    let back = ParkId(Uuid::now_v7());
    let never = ordered(&hosts, "bound", back, false).await;
    assert_eq!(never.phase, ParkPhase::CalledBack);
    let late = ordered(&hosts, "bound", back, true).await;
    assert_eq!(late.phase, ParkPhase::CalledBack);

    let id = ParkId(Uuid::now_v7());
    let parked = over(&hosts, "bound", id).await;
    assert_eq!(parked.phase, ParkPhase::Parked, "{parked:#?}");
    let client = hosts.client(A);
    client.start_vm(&vm).await.unwrap();
    let heard_late = ordered(&hosts, "bound", id, true).await;
    assert_eq!(heard_late.phase, ParkPhase::Parked);
    assert_eq!(state(&hosts, "bound").await, VmState::Running);

    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    client.stop_vm(&vm, &force).await.unwrap();
    let left = client.unpark(&vm, &UnparkRequest { id }).await.unwrap();
    assert_eq!(left.phase, ParkPhase::Settled, "{left:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_finishes_the_stop_that_is_under_way_and_the_guest_is_remembered() {
    let Some(hosts) = hosts_with("parkcancel", "bound", false, 5).await else {
        return;
    };
    let id = hosts.client(A).start_run(&drain(&hosts)).await.unwrap().id;
    when(&hosts, id, |view| states(view) == [ParkedState::Stopping]).await;
    let how = CancelRunRequest {
        running: RunningMoves::Cancel,
        uncordon: true,
        by: None,
    };
    hosts.client(A).cancel_run(id, &how).await.unwrap();
    let cancelled = when(&hosts, id, |view| view.phase.has_ended()).await;
    assert_eq!(cancelled.result, Some(RunResult::Cancelled));
    let seen = states(&cancelled);
    assert!(
        seen == [ParkedState::Kept] || seen == [ParkedState::Cancelled],
        "{cancelled:#?}"
    );
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
    let resumed = carried_out(&hosts, resume(&hosts)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
}
