//! An operator decides in the place of a host that does not answer: it is asked once more, what was
//! decided is done, and the other host is told when it is back. The hosts' agents reach each other
//! over a NIC of their own, which is cut.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::{Duration, Instant};

use drover_api::{
    ErrorCode, MigrateRequest, MigrationPhase, MigrationView, Resolution, ResolveRequest,
    StopRequest, Told, VmState,
};
use drover_types::MigrationId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use hosts::{A, B, Hosts, PATIENCE, kill, name, refused, until};

const RUN_HERE: ResolveRequest = ResolveRequest {
    resolution: Resolution::RunHere,
    other_host_is_off: true,
    memory_is_lost: false,
};
const DISCARD: ResolveRequest = ResolveRequest {
    resolution: Resolution::Discard,
    other_host_is_off: false,
    memory_is_lost: true,
};
const GIVE_UP: ResolveRequest = ResolveRequest {
    resolution: Resolution::GiveUp,
    other_host_is_off: true,
    memory_is_lost: false,
};

const FORCE: StopRequest = StopRequest {
    force: true,
    timeout_s: None,
};

/// Everything has arrived, and neither agent can ask the other.
async fn in_doubt(hosts: &mut Hosts) -> MigrationId {
    let id = hosts.migrate_midway(A).await;
    hosts.set_api("down").await;
    hosts
        .phase_when(A, id, PATIENCE, |phase| phase == MigrationPhase::HandingOff)
        .await;
    hosts
        .phase_when(B, id, PATIENCE, |phase| phase == MigrationPhase::Arrived)
        .await;
    id
}

/// Agent, QEMU and relay of a host are gone, as with its power.
async fn loses_power(hosts: &mut Hosts, host: usize) {
    if hosts.runs_agent(host) {
        hosts.kill_agent(host).await;
    }
    let namespace = hosts.host(host).namespace().to_owned();
    for pid in drover_lab::network::processes(&namespace).await {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("qemu") || line.contains("droverd") {
            kill(pid);
        }
    }
    until(PATIENCE, async || {
        let left = hosts.qemus(host).await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}

/// Everything has arrived, and the source lost power before it decided; the doubt is shown.
async fn undecided_until_power_is_lost(hosts: &mut Hosts) -> MigrationId {
    let id = hosts.migrate_midway(A).await;
    // Its QEMU completes, and its disk never hears of it.
    let journal = hosts.host(A).state().join("migrations");
    let aside = hosts.host(A).state().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    let arrived = |phase| phase == MigrationPhase::Arrived;
    hosts.phase_when(B, id, PATIENCE, arrived).await;
    // As long as it answers nobody can decide in its place.
    until(PATIENCE, async || {
        let (code, message) = refused(hosts.client(B).resolve(id, &RUN_HERE).await);
        assert_eq!(code, ErrorCode::NotAmbiguous, "{message}");
        let says = message.contains("has not decided yet");
        if says { Ok(()) } else { Err(message) }
    })
    .await;
    loses_power(hosts, A).await;
    std::fs::rename(&aside, &journal).unwrap();
    hosts.set_api("down").await;
    shows_doubt(hosts, B, id, "--run-here").await;
    id
}

/// The doubt is shown, with the command for this host.
async fn shows_doubt(hosts: &Hosts, host: usize, id: MigrationId, command: &str) {
    until(PATIENCE, async || {
        let view = hosts.client(host).migration(id).await.unwrap();
        let doubt = view.ambiguity.as_ref();
        let told = doubt.is_some_and(|doubt| doubt.commands.iter().any(|c| c.contains(command)));
        if told {
            Ok(())
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await;
}

/// The host that decided has been heard by the other one.
async fn is_confirmed(hosts: &Hosts, host: usize, id: MigrationId) -> MigrationView {
    until(PATIENCE, async || {
        let view = hosts.client(host).migration(id).await.unwrap();
        let told = view.resolution.as_ref().map(|resolution| resolution.told);
        if told == Some(Told::Confirmed) {
            Ok(view)
        } else {
            Err(format!("{view:#?}"))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arrived_guest_whose_source_lost_power_runs_by_the_operators_word_and_only_there() {
    let Some(mut hosts) = Hosts::with_api_apart("resrun").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    loses_power(&mut hosts, A).await;
    shows_doubt(
        &hosts,
        B,
        id,
        "drover resolve guest --run-here --other-host-is-off",
    )
    .await;
    let unsure = ResolveRequest {
        other_host_is_off: false,
        ..RUN_HERE
    };
    let (code, message) = refused(hosts.client(B).resolve(id, &unsure).await);
    assert_eq!(code, ErrorCode::NotConfirmed, "{message}");
    assert!(message.contains("--other-host-is-off"), "{message}");
    let (code, message) = refused(hosts.client(B).resolve(id, &GIVE_UP).await);
    assert_eq!(code, ErrorCode::WrongPhase, "{message}");
    assert!(
        message.contains("drover resolve guest --give-up"),
        "{message}"
    );

    let view = hosts.client(B).resolve(id, &RUN_HERE).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::Running, "{view:#?}");
    assert_eq!(view.resolution.unwrap().told, Told::Pending);
    hosts.guest_is_whole().await;
    // What is owed to the other host outlives the agent.
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    hosts.set_api("up").await;
    is_confirmed(&hosts, B, id).await;
    let there = hosts.ended(A, id).await;
    assert_eq!(there.phase, MigrationPhase::Completed, "{there:#?}");
    hosts.guest_runs_only_on(B).await;
}

/// The guest runs on B by a person's word, while A, which lost power undecided, is back alone: it comes to
/// the end that it kept the guest, which could be started there.
async fn runs_by_a_persons_word(hosts: &mut Hosts) -> MigrationId {
    let id = undecided_until_power_is_lost(hosts).await;
    let view = hosts.client(B).resolve(id, &RUN_HERE).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::Running, "{view:#?}");
    hosts.start_agent(A).await;
    let alone = hosts.ended(A, id).await;
    assert_eq!(alone.phase, MigrationPhase::Failed, "{alone:#?}");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_lost_power_before_it_decided_lets_go_of_a_guest_that_runs_by_a_persons_word()
{
    let Some(mut hosts) = Hosts::with_api_apart("resundec").await else {
        return;
    };
    let id = runs_by_a_persons_word(&mut hosts).await;
    hosts.set_api("up").await;
    is_confirmed(&hosts, B, id).await;
    hosts.guest_runs_only_on(B).await;
    let (code, message) = refused(hosts.client(A).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::NoSuchVm, "{message}");
    let told = hosts.client(A).migration(id).await.unwrap();
    assert_eq!(told.phase, MigrationPhase::Completed, "{told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_ran_by_a_persons_word_stays_with_its_host_that_lost_power_before_it_could_say_so()
 {
    let Some(mut hosts) = Hosts::with_api_apart("resadopt").await else {
        return;
    };
    let id = undecided_until_power_is_lost(&mut hosts).await;
    let (definitions, state) = (hosts.host(B).definitions(), hosts.host(B).state());
    let (journal, no_journal) = (state.join("migrations"), state.join("no-migrations"));
    let no_definitions = state.join("no-definitions");
    // The word is written; the definition first cannot be, and then only the definition can.
    std::fs::rename(&definitions, &no_definitions).unwrap();
    let view = hosts.client(B).resolve(id, &RUN_HERE).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::Arrived, "{view:#?}");
    hosts.guest_is_whole().await;
    std::fs::rename(&journal, &no_journal).unwrap();
    std::fs::rename(&no_definitions, &definitions).unwrap();
    let definition = definitions.join(format!("{}.toml", name()));
    until(PATIENCE, async || {
        let written = definition.exists();
        if written { Ok(()) } else { Err("not there") }
    })
    .await;
    loses_power(&mut hosts, B).await;
    std::fs::remove_dir_all(hosts.host(B).runtime().join("vms")).unwrap();
    std::fs::rename(&no_journal, &journal).unwrap();

    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    hosts.set_api("up").await;
    is_confirmed(&hosts, B, id).await;
    let (code, message) = refused(hosts.client(A).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::NoSuchVm, "{message}");
    hosts.client(B).start_vm(&name()).await.unwrap();
    hosts.guest_is_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_was_given_up_is_started_on_the_source_and_the_destination_lets_go() {
    let Some(mut hosts) = Hosts::with_api_apart("resgive").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    loses_power(&mut hosts, B).await;
    shows_doubt(
        &hosts,
        A,
        id,
        "drover resolve guest --give-up --other-host-is-off",
    )
    .await;
    let view = hosts.client(A).resolve(id, &GIVE_UP).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    assert_eq!(hosts.qemus(A).await, Vec::<u32>::new());
    hosts.client(A).start_vm(&name()).await.unwrap();
    hosts.set_api("up").await;
    hosts.start_agent(B).await;
    is_confirmed(&hosts, A, id).await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    hosts.guest_is_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arrived_guest_is_discarded_by_a_destination_that_hears_that_it_was_given_up() {
    let Some(mut hosts) = Hosts::with_api_apart("resback").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.kill_agent(B).await;
    shows_doubt(&hosts, A, id, "--give-up").await;
    let view = hosts.client(A).resolve(id, &GIVE_UP).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    hosts.client(A).start_vm(&name()).await.unwrap();
    // The copy stands still there until its agent is back and asks.
    assert_eq!(hosts.qemus(B).await.len(), 1);
    hosts.start_agent(B).await;
    hosts.set_api("up").await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    is_confirmed(&hosts, A, id).await;
    hosts.guest_is_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_attempt_that_came_to_nothing_does_not_keep_a_host_from_letting_go() {
    let Some(mut hosts) = Hosts::with_api_apart("resnewer").await else {
        return;
    };
    let id = runs_by_a_persons_word(&mut hosts).await;
    // Nobody there knows, and a person starts it again, and wants it to leave.
    hosts.client(A).start_vm(&name()).await.unwrap();
    let request = MigrateRequest {
        to: hosts.host(B).name.parse().unwrap(),
        channels: None,
        lanes_per_path: None,
        reduction: None,
        with_disks: false,
        id: None,
        convergence: Default::default(),
    };
    let (code, message) = refused(hosts.client(A).migrate(&name(), &request).await);
    assert_eq!(code, ErrorCode::PeerUnreachable, "{message}");
    hosts.client(A).stop_vm(&name(), &FORCE).await.unwrap();
    hosts.set_api("up").await;
    is_confirmed(&hosts, B, id).await;
    hosts.guest_is_only_on(B).await;
    let (code, message) = refused(hosts.client(A).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::NoSuchVm, "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_to_run_that_was_held_up_until_the_guest_was_given_up_does_nothing() {
    let Some(mut hosts) = Hosts::with_api_apart("reslate").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    shows_doubt(&hosts, A, id, "--give-up").await;
    // What the source said last is on its way still, and has been let in.
    let mut held = UnixStream::connect(hosts.host(B).api_socket())
        .await
        .unwrap();
    let let_in = Instant::now();
    let client = hosts.client(A).clone();
    let given_up = tokio::spawn(async move { client.resolve(id, &GIVE_UP).await });
    // A head is waited for as long as a word counts: all but its end comes in that time.
    tokio::time::sleep_until((let_in + Duration::from_secs(8)).into()).await;
    let head = format!("POST /v1/incoming/{id}/run HTTP/1.1\r\nhost: drover\r\n");
    held.write_all(head.as_bytes()).await.unwrap();
    let view = given_up.await.unwrap().unwrap();
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    // The agent has hung up by now, and may say why.
    let _ = held.write_all(b"content-length: 0\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = held.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    hosts.client(A).start_vm(&name()).await.unwrap();
    let there = hosts.client(B).migration(id).await.unwrap();
    assert_eq!(there.phase, MigrationPhase::Arrived, "{there:#?}");
    hosts.set_api("up").await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Abandoned, "{there:#?}");
    is_confirmed(&hosts, A, id).await;
    hosts.guest_is_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discarded_copy_ends_and_the_source_has_its_guest_to_start_anew() {
    let Some(mut hosts) = Hosts::with_api_apart("resdisc").await else {
        return;
    };
    let early = hosts.migrate_midway(A).await;
    let (code, message) = refused(hosts.client(A).resolve(early, &GIVE_UP).await);
    assert_eq!(code, ErrorCode::NotAmbiguous, "{message}");
    hosts.set_api("down").await;
    let arrived = |phase| phase == MigrationPhase::Arrived;
    hosts.phase_when(B, early, PATIENCE, arrived).await;
    shows_doubt(
        &hosts,
        B,
        early,
        "drover resolve guest --discard --memory-is-lost",
    )
    .await;
    let view = hosts.client(B).resolve(early, &DISCARD).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::Abandoned, "{view:#?}");
    assert_eq!(hosts.left_on(B).await, Vec::<String>::new());
    hosts.set_api("up").await;
    let view = hosts.ended(A, early).await;
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    hosts.client(A).start_vm(&name()).await.unwrap();
    hosts.guest_is_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_that_run_a_guest_because_a_person_was_wrong_both_say_so_until_one_is_ended() {
    let Some(mut hosts) = Hosts::with_api_apart("resboth").await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    // It runs there, and cannot say so.
    let journal = hosts.host(B).state().join("migrations");
    let aside = hosts.host(B).state().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    hosts.vm_when(B, |vm| vm.state == VmState::Running).await;
    // The destination answers: no word counts against that.
    let (code, message) = refused(hosts.client(A).resolve(id, &GIVE_UP).await);
    assert_eq!(code, ErrorCode::NotAmbiguous, "{message}");
    hosts.set_api("down").await;
    shows_doubt(&hosts, A, id, "--give-up").await;
    let view = hosts.client(A).resolve(id, &GIVE_UP).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::GivenUp, "{view:#?}");
    hosts.client(A).start_vm(&name()).await.unwrap();
    std::fs::rename(&aside, &journal).unwrap();
    hosts.set_api("up").await;
    for host in [A, B] {
        until(PATIENCE, async || {
            let view = hosts.client(host).migration(id).await.unwrap();
            let loud = |text: &String| text.contains("BOTH HOSTS HAVE GUEST");
            let shouts = view.next.as_ref().is_some_and(loud) && view.notes.iter().any(loud);
            if shouts {
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }
    hosts.client(B).stop_vm(&name(), &FORCE).await.unwrap();
    let view = is_confirmed(&hosts, A, id).await;
    assert_eq!(view.next, None, "{view:#?}");
    let (code, message) = refused(hosts.client(B).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::NoSuchVm, "{message}");
}
