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
    CancelRunRequest, CordonRequest, ErrorCode, MigrateRequest, ParkHow, ParkPhase, ParkRequest,
    ParkView, ParkedState, RunResult, RunView, RunningMoves, StopRequest, UnparkRequest,
    VmDefinition, VmState,
};
use drover_plan::policy::{CannotMove, Pins, VmPolicy};
use drover_types::{Bytes, ParkId, VmName};
use hosts::runs::{carried_out, drain, host, resume, two_that_may_lose_one, when};
use hosts::{A, B, FAST, Hosts, PATIENCE, Signal, until};
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

/// Two hosts, of which the first coordinates, and a guest that is pinned to it and is to be stopped.
async fn hosts_with(test: &str, vm: &str, obeys: bool, seconds: u32) -> Option<Hosts> {
    let hosts = two_that_may_lose_one(test, FAST).await?;
    let mut sector = vec![0; 512];
    if obeys {
        sector[..OBEDIENT.len()].copy_from_slice(&OBEDIENT);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
    }
    for place in [hosts.host(A), hosts.host(B)] {
        std::fs::write(place.socket("disk"), &sector).unwrap();
        std::fs::write(place.socket("said"), "").unwrap();
    }
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

async fn cordoned(hosts: &Hosts) {
    let request = CordonRequest { reason: None };
    hosts.client(A).cordon(&request).await.unwrap();
}

async fn unparked(hosts: &Hosts, id: ParkId, start: ParkId, begin: bool) -> ParkView {
    let request = UnparkRequest { id, start, begin };
    let vm = named("bound");
    hosts.client(A).unpark(&vm, &request).await.unwrap()
}

/// Asks for it to be started until that is over.
async fn started(hosts: &Hosts, id: ParkId) -> ParkView {
    start_is_over(hosts, id, fresh()).await
}

async fn start_is_over(hosts: &Hosts, id: ParkId, start: ParkId) -> ParkView {
    until(PATIENCE, async || {
        let view = unparked(hosts, id, start, true).await;
        let is_over = view.phase != ParkPhase::Unparking;
        if is_over { Ok(view) } else { Err("under way") }
    })
    .await
}

fn fresh() -> ParkId {
    ParkId(Uuid::now_v7())
}

/// A guest that obeys, stopped by an order, on a host that takes guests again.
async fn parked(hosts: &Hosts) -> ParkId {
    cordoned(hosts).await;
    let id = fresh();
    let parked = over(hosts, "bound", id).await;
    assert_eq!(parked.phase, ParkPhase::Parked, "{parked:#?}");
    hosts.client(A).uncordon().await.unwrap();
    id
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
    let drained = carried_out(&hosts, drain(&hosts, A)).await;
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
    let resumed = carried_out(&hosts, resume(&hosts, A)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
    assert_eq!(states(&resumed), [ParkedState::Started], "{resumed:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
    let again = carried_out(&hosts, resume(&hosts, A)).await;
    assert_eq!(states(&again), [], "it is nobody's any more: {again:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_shut_down_in_time_runs_on_and_the_run_says_so() {
    let Some(mut hosts) = hosts_with("parkless", "bound", false, 2).await else {
        return;
    };
    let pid = hosts.client(A).vm(&named("bound")).await.unwrap().pid;
    let drained = carried_out(&hosts, drain(&hosts, A)).await;
    assert_eq!(drained.result, Some(RunResult::Partial), "{drained:#?}");
    assert_eq!(states(&drained), [ParkedState::Kept], "{drained:#?}");
    let cause = drained.cause.unwrap_or_default();
    assert!(cause.contains("did not shut down within 2 s"), "{cause}");

    // An agent that was killed meanwhile gives it the same time once more, and never kills it.
    let id = fresh();
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
    let back = fresh();
    cordoned(&hosts).await;
    let never = ordered(&hosts, "bound", back, false).await;
    assert_eq!(never.phase, ParkPhase::CalledBack);
    let late = ordered(&hosts, "bound", back, true).await;
    assert_eq!(late.phase, ParkPhase::CalledBack);

    let id = parked(&hosts).await;
    let client = hosts.client(A);
    client.start_vm(&vm).await.unwrap();
    let heard_late = ordered(&hosts, "bound", id, true).await;
    assert_eq!(heard_late.phase, ParkPhase::Kept);
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
    let open = over(&hosts, "bound", fresh()).await;
    assert!(open.cause.unwrap().contains("takes guests again"));

    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    client.stop_vm(&vm, &force).await.unwrap();
    let left = started(&hosts, id).await;
    assert_eq!(left.phase, ParkPhase::Settled, "{left:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_called_back_never_begins_and_one_that_is_wanted_does() {
    let Some(mut hosts) = hosts_with("parkback", "bound", true, 60).await else {
        return;
    };
    let id = parked(&hosts).await;
    let back = fresh();
    for begin in [false, true] {
        let view = unparked(&hosts, id, back, begin).await;
        assert_eq!(view.phase, ParkPhase::CalledBack, "{view:#?}");
    }
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let view = unparked(&hosts, id, back, true).await;
    assert_eq!(view.phase, ParkPhase::CalledBack, "{view:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);
    // Called back while the others are asked: none of them has the guest, and it is not started all the same.
    let back = fresh();
    hosts.agent(B).signal(Signal::STOP);
    for begin in [true, false] {
        let view = unparked(&hosts, id, back, begin).await;
        assert_eq!(view.phase, ParkPhase::Unparking, "{view:#?}");
    }
    hosts.agent(B).signal(Signal::CONT);
    let view = start_is_over(&hosts, id, back).await;
    assert_eq!(view.phase, ParkPhase::CalledBack, "{view:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);
    let runs = started(&hosts, id).await;
    assert_eq!(runs.phase, ParkPhase::Running, "{runs:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_not_started_for_a_run_while_a_host_does_not_say_that_it_has_none_of_it() {
    let Some(mut hosts) = hosts_with("parksilent", "bound", true, 60).await else {
        return;
    };
    let id = parked(&hosts).await;
    hosts.kill_agent(B).await;
    let refused = started(&hosts, id).await;
    assert_eq!(refused.phase, ParkPhase::NotStarted, "{refused:#?}");
    let silent = format!("silent: {}", host(&hosts, B));
    assert!(refused.cause.unwrap().contains(&silent));
    assert_eq!(state(&hosts, "bound").await, VmState::Stopped);
    hosts.start_agent(B).await;
    let runs = started(&hosts, id).await;
    assert_eq!(runs.phase, ParkPhase::Running, "{runs:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_never_heard_hides_none_that_was_and_does_not_begin_afterwards() {
    let Some(hosts) = hosts_with("parkunheard", "bound", true, 60).await else {
        return;
    };
    parked(&hosts).await;
    let unheard = fresh();
    let runs = started(&hosts, unheard).await;
    assert_eq!(runs.phase, ParkPhase::Running, "{runs:#?}");
    cordoned(&hosts).await;
    let late = ordered(&hosts, "bound", unheard, true).await;
    assert_eq!(late.phase, ParkPhase::CalledBack, "{late:#?}");
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_may_yet_shut_down_does_not_count_as_running_again() {
    let Some(hosts) = hosts_with("parklate", "bound", false, 1).await else {
        return;
    };
    cordoned(&hosts).await;
    let id = fresh();
    let late = over(&hosts, "bound", id).await;
    assert_eq!(late.phase, ParkPhase::Kept, "{late:#?}");
    hosts.client(A).uncordon().await.unwrap();
    let told = started(&hosts, id).await;
    assert_eq!(told.phase, ParkPhase::NotStarted, "{told:#?}");
    assert!(told.cause.unwrap().contains("may do so yet"));
    // It ends after all, and nobody has to remember that it was to run.
    kill_qemu(&hosts).await;
    let view = hosts.client(A).vm(&named("bound")).await.unwrap();
    assert!(view.notes[0].contains("drover resume"), "{view:#?}");
    let runs = started(&hosts, id).await;
    assert_eq!(runs.phase, ParkPhase::Running, "{runs:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_a_run_waits_for_is_ended_by_force_and_no_longer_a_runs_to_start() {
    let Some(hosts) = hosts_with("parkforce", "bound", false, 600).await else {
        return;
    };
    cordoned(&hosts).await;
    let (vm, id) = (named("bound"), fresh());
    let stop = |force| StopRequest {
        force,
        timeout_s: None,
    };
    // The order is at work once nobody else can stop it.
    until(PATIENCE, async || {
        let begun = ordered(&hosts, "bound", id, true).await;
        assert_eq!(begun.phase, ParkPhase::Parking, "{begun:#?}");
        let blockers = hosts.client(A).inventory().await.unwrap().vms;
        let blockers = format!("{blockers:?}");
        let is_being_stopped = blockers.contains("it is being stopped");
        if is_being_stopped {
            Ok(())
        } else {
            Err(blockers)
        }
    })
    .await;
    let refused = hosts.client(A).stop_vm(&vm, &stop(false)).await;
    let refusal = refused.unwrap_err().refusal().cloned().unwrap();
    assert_eq!(refusal.code, ErrorCode::VmBusy, "{refusal}");
    let still = ordered(&hosts, "bound", id, true).await;
    assert_eq!(still.phase, ParkPhase::Parking, "{still:#?}");
    hosts.client(A).stop_vm(&vm, &stop(true)).await.unwrap();
    let over = ordered(&hosts, "bound", id, true).await;
    assert_eq!(over.phase, ParkPhase::Parked, "{over:#?}");
    hosts.client(A).uncordon().await.unwrap();
    let left = started(&hosts, id).await;
    assert_eq!(left.phase, ParkPhase::Settled, "{left:#?}");
}

async fn kill_qemu(hosts: &Hosts) {
    let vm = named("bound");
    let pid = hosts.client(A).vm(&vm).await.unwrap().pid.unwrap();
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), Signal::KILL).unwrap();
    until(PATIENCE, async || {
        let view = hosts.client(A).vm(&vm).await.unwrap();
        if view.pid.is_none() {
            Ok(())
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await;
}

/// An order that its agent was killed over, as old as that, on a host that takes guests again or does not.
async fn found_again(test: &str, age_hours: i64, is_cordoned: bool) -> Option<(Hosts, ParkId)> {
    let mut hosts = hosts_with(test, "bound", false, 60).await?;
    cordoned(&hosts).await;
    let id = fresh();
    let begun = ordered(&hosts, "bound", id, true).await;
    assert_eq!(begun.phase, ParkPhase::Parking, "{begun:#?}");
    hosts.kill_agent(A).await;
    aged(&hosts, age_hours);
    hosts.start_agent(A).await;
    if !is_cordoned {
        hosts.client(A).uncordon().await.unwrap();
    }
    Some((hosts, id))
}

/// Has the only order be as old as that, while the agent does not run.
fn aged(hosts: &Hosts, hours: i64) {
    let file = hosts.host(A).state().join("parked/bound.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut orders: serde_json::Value = serde_json::from_str(&text).unwrap();
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
    orders["all"][0]["since"] = since.to_string().into();
    std::fs::write(&file, orders.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_days_old_is_not_given_to_its_guest_again() {
    let Some((hosts, id)) = found_again("parkold", 50, true).await else {
        return;
    };
    let old = over(&hosts, "bound", id).await;
    assert_eq!(old.phase, ParkPhase::Kept, "{old:#?}");
    assert!(old.cause.unwrap().contains("too old"));
    assert_eq!(state(&hosts, "bound").await, VmState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_not_given_to_its_guest_again_once_its_host_takes_guests() {
    let Some((hosts, id)) = found_again("parkopen", 0, false).await else {
        return;
    };
    let open = over(&hosts, "bound", id).await;
    assert_eq!(open.phase, ParkPhase::Kept, "{open:#?}");
    assert!(open.cause.unwrap().contains("takes guests again"));
    // What somebody does by hand counts, also where an order was left open.
    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    hosts
        .client(A)
        .stop_vm(&named("bound"), &force)
        .await
        .unwrap();
    let left = started(&hosts, id).await;
    assert_eq!(left.phase, ParkPhase::Settled, "{left:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_has_moved_since_is_no_longer_a_runs_to_start() {
    let Some(mut hosts) = hosts_with("parkmoved", "bound", false, 1).await else {
        return;
    };
    cordoned(&hosts).await;
    let id = fresh();
    let late = over(&hosts, "bound", id).await;
    assert_eq!(late.phase, ParkPhase::Kept, "{late:#?}");
    hosts.client(A).uncordon().await.unwrap();
    // It may shut down on its way, and nobody there would know that it is to run again.
    let vm = named("bound");
    let refused = hosts.client(A).migrate(&vm, &to(&hosts, B)).await;
    let refusal = refused.unwrap_err().refusal().cloned().unwrap();
    assert!(refusal.message.contains("may do so yet"), "{refusal}");
    let seen = hosts.client(A).inventory().await.unwrap();
    let seen = seen.vms.iter().find(|one| one.name == vm).unwrap();
    let blockers = format!("{:?}", seen.blockers);
    assert!(blockers.contains("may do so yet"), "{blockers}");
    hosts.kill_agent(A).await;
    aged(&hosts, 3);
    hosts.start_agent(A).await;
    for (from, there) in [(A, B), (B, A)] {
        moved(&hosts, from, there).await;
    }
    kill_qemu(&hosts).await;
    let left = started(&hosts, id).await;
    assert_eq!(left.phase, ParkPhase::Settled, "{left:#?}");
}

fn to(hosts: &Hosts, number: usize) -> MigrateRequest {
    MigrateRequest {
        to: host(hosts, number),
        convergence: Default::default(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
    }
}

async fn moved(hosts: &Hosts, from: usize, there: usize) {
    let vm = named("bound");
    let request = to(hosts, there);
    let asked = hosts.client(from).migrate(&vm, &request).await;
    // Until both have ended their part neither lets it come back.
    let id = asked.unwrap().id;
    for host in [from, there] {
        hosts.ended(host, id).await;
    }
    until(PATIENCE, async || match hosts.client(there).vm(&vm).await {
        Ok(view) if view.state == VmState::Running && view.migration.is_none() => Ok(()),
        other => Err(format!("{other:#?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_finishes_the_stop_that_is_under_way_and_the_guest_is_remembered() {
    let Some(hosts) = hosts_with("parkcancel", "bound", false, 5).await else {
        return;
    };
    let id = hosts
        .client(A)
        .start_run(&drain(&hosts, A))
        .await
        .unwrap()
        .id;
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
    let resumed = carried_out(&hosts, resume(&hosts, A)).await;
    assert_eq!(resumed.result, Some(RunResult::Completed), "{resumed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_could_not_be_started_again_is_not_stopped() {
    let Some(hosts) = hosts_with("parkbroken", "bound", true, 60).await else {
        return;
    };
    cordoned(&hosts).await;
    let pid = hosts.client(A).vm(&named("bound")).await.unwrap().pid;
    let file = hosts.host(A).definitions().join("bound.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\ncpus = 2\n")).unwrap();
    let broken = ordered(&hosts, "bound", fresh(), true).await;
    std::fs::remove_file(&file).unwrap();
    let gone = ordered(&hosts, "bound", fresh(), true).await;
    for (view, words) in [
        (broken, "key `policy.pinned.labels.cpus`"),
        (gone, "there is no "),
    ] {
        assert_eq!(view.phase, ParkPhase::Kept, "{view:#?}");
        let cause = view.cause.unwrap();
        assert!(
            cause.starts_with("it could not be started again: "),
            "{cause}"
        );
        assert!(cause.contains(words), "{cause}");
    }
    assert_eq!(hosts.client(A).vm(&named("bound")).await.unwrap().pid, pid);
}
