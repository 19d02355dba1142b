//! What ends between the moment at which the source's QEMU has completed and the moment at which
//! the guest runs on the destination. The hosts' agents reach each other over a NIC of their own,
//! which is cut: so that moment lasts as long as a test wants.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::time::Duration;

use drover_api::{ErrorCode, MigrationPhase, StopRequest, VmState};
use drover_types::MigrationId;
use hosts::{A, B, FAST, Hosts, PATIENCE, Signal, guest_of, kill, name, refused, until};

/// Everything has arrived, and neither agent can ask the other.
async fn in_doubt(hosts: &mut Hosts) -> MigrationId {
    let id = hosts.migrate_midway(A).await;
    hosts.set_api("down").await;
    stands_still(hosts, id).await;
    id
}

/// Both hosts tell that they wait, for what, and what to do; the guest runs on neither.
async fn stands_still(hosts: &Hosts, id: MigrationId) {
    let source = "bring the destination's agent back";
    let destination = "bring the source's agent back";
    for (host, phase, state, advice) in [
        (A, MigrationPhase::HandingOff, VmState::HandingOff, source),
        (B, MigrationPhase::Arrived, VmState::Incoming, destination),
    ] {
        if !hosts.runs_agent(host) {
            continue;
        }
        until(PATIENCE, async || {
            let view = hosts.client(host).migration(id).await.unwrap();
            let vm = hosts.client(host).vm(&name()).await;
            let vm = vm.map_err(|error| error.to_string())?;
            let told = view.next.as_ref().is_some_and(|next| next.contains(advice));
            let waits = view.phase == phase && vm.state == state && vm.migration == Some(id);
            if told && waits {
                Ok(())
            } else {
                Err(format!("{view:#?} {vm:#?}"))
            }
        })
        .await;
    }
}

/// The agents reach each other again: the guest runs on the destination, and only there.
async fn resolves(hosts: &mut Hosts, id: MigrationId) {
    hosts.set_api("up").await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    hosts.guest_runs_only_on(B).await;
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Running, "{there:#?}");
    assert_eq!((view.cause, there.cause), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_cannot_reach_each_other_at_the_hand_off_wait_and_then_finish() {
    let Some(mut hosts) = Hosts::with_api_apart("handoff").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    // No way back for the operator either.
    let (code, message) = refused(hosts.client(A).cancel(id).await);
    assert_eq!(code, ErrorCode::TooLate, "{message}");
    for host in [A, B] {
        let stop = StopRequest::default();
        let (code, message) = refused(hosts.client(host).stop_vm(&name(), &stop).await);
        assert!(code.is_preflight(), "{code}: {message}");
        let (code, message) = refused(hosts.client(host).start_vm(&name()).await);
        assert!(code.is_preflight(), "{code}: {message}");
    }
    stands_still(&hosts, id).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_agent_that_is_killed_after_its_verdict_hands_off_once_it_is_back() {
    let Some(mut hosts) = Hosts::with_api_apart("hosrc").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.kill_agent(A).await;
    stands_still(&hosts, id).await;
    hosts.start_agent(A).await;
    stands_still(&hosts, id).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_agent_that_is_killed_before_its_verdict_is_on_disk_learns_it_from_qemu() {
    let Some(mut hosts) = Hosts::with_api_apart("hojournal").await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let journal = hosts.host(A).state().join("migrations");
    let aside = hosts.host(A).state().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    // Its QEMU completes and it cannot write that down: it tells nobody, not even who asks.
    for (host, phase, words) in [
        (A, MigrationPhase::HandingOff, "state directory"),
        (B, MigrationPhase::Arrived, "the source has not decided yet"),
    ] {
        until(PATIENCE, async || {
            let view = hosts.client(host).migration(id).await.unwrap();
            let told = view.next.as_ref().is_some_and(|next| next.contains(words));
            if told && view.phase == phase {
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }
    hosts.kill_agent(A).await;
    std::fs::rename(&aside, &journal).unwrap();
    hosts.start_agent(A).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_agent_that_is_killed_before_it_runs_the_guest_asks_for_the_verdict() {
    let Some(mut hosts) = Hosts::with_api_apart("hodst").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.kill_agent(B).await;
    stands_still(&hosts, id).await;
    hosts.start_agent(B).await;
    stands_still(&hosts, id).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_cannot_write_runs_the_guest_and_says_so_when_it_can() {
    let Some(mut hosts) = Hosts::with_api_apart("hofull").await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let journal = hosts.host(B).state().join("migrations");
    let aside = hosts.host(B).state().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    hosts.vm_when(B, |vm| vm.state == VmState::Running).await;
    hosts.guest_is_whole().await;
    let view = hosts.client(A).migration(id).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::HandingOff, "{view:#?}");
    std::fs::rename(&aside, &journal).unwrap();
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_agents_that_are_killed_at_the_hand_off_finish_it_once_they_are_back() {
    let Some(mut hosts) = Hosts::with_api_apart("hoboth").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.kill_agent(A).await;
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    hosts.start_agent(A).await;
    stands_still(&hosts, id).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_told_to_end_at_the_hand_off_finishes_it_first() {
    let Some(mut hosts) = Hosts::with_api_apart("hoterm").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.agent(A).signal(Signal::TERM);
    until(PATIENCE, async || {
        let (code, message) = refused(hosts.client(A).start_vm(&name()).await);
        if code == ErrorCode::ShuttingDown {
            Ok(())
        } else {
            Err(message)
        }
    })
    .await;
    stands_still(&hosts, id).await;
    hosts.set_api("up").await;
    assert_eq!(hosts.agent_ends(A).await, Some(0));
    assert_eq!(hosts.left_on(A).await, Vec::<String>::new());
    hosts.guest_runs_only_on(B).await;
    hosts.start_agent(A).await;
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_qemu_that_is_killed_after_the_hand_off_is_not_missed() {
    let Some(mut hosts) = Hosts::with_api_apart("hosrcqemu").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    kill(hosts.qemus(A).await[0]);
    until(PATIENCE, async || {
        let left = hosts.qemus(A).await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    let view = hosts.client(A).migration(id).await.unwrap();
    assert_eq!(view.phase, MigrationPhase::HandingOff, "{view:#?}");
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_qemu_that_is_killed_before_it_runs_is_a_loss_that_is_told() {
    let Some(mut hosts) = Hosts::with_api_apart("hodstqemu").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    kill(hosts.qemus(B).await[0]);
    let there = hosts.ended(B, id).await;
    assert_eq!(there.phase, MigrationPhase::Failed, "{there:#?}");
    assert!(there.cause.unwrap().contains("signal 9"));
    assert_eq!(hosts.left_on(B).await, Vec::<String>::new());
    hosts.set_api("up").await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    assert!(view.cause.as_ref().unwrap().contains("lost"), "{view:#?}");
    assert!(view.next.is_some());
    // The copy stands still, and no agent ever runs it, not even a new one.
    hosts.kill_agent(A).await;
    hosts.start_agent(A).await;
    let status = hosts.status(A).await;
    assert_eq!(guest_of(&status).unwrap().state, VmState::HandingOff);
    let (code, message) = refused(hosts.client(A).start_vm(&name()).await);
    assert!(code.is_preflight(), "{message}");
    let again = hosts.ended(A, id).await;
    assert_eq!((again.phase, &again.cause), (view.phase, &view.cause));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arrived_guest_that_does_not_answer_a_restarted_agent_is_neither_run_nor_ended() {
    let Some(mut hosts) = Hosts::with_api_apart("hosilent").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    let qemu = hosts.qemus(B).await;
    hosts.kill_agent(B).await;
    for pid in &qemu {
        signal(*pid, "-STOP");
    }
    hosts.start_agent(B).await;
    hosts.set_api("up").await;
    // The source tells it to run the guest, and nobody can know what became of it.
    let source = hosts.client(A).migration(id).await.unwrap();
    assert_eq!(source.phase, MigrationPhase::HandingOff, "{source:#?}");
    assert_eq!(hosts.qemus(B).await, qemu, "it is still there");
    for pid in &qemu {
        signal(*pid, "-CONT");
    }
    resolves(&mut hosts, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_an_arrived_guest_is_seen_by_an_agent_that_was_restarted_meanwhile() {
    let Some(mut hosts) = Hosts::with_api_apart("hounseen").await else {
        return;
    };
    let id = in_doubt(&mut hosts).await;
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    stands_still(&hosts, id).await;
    for pid in hosts.qemus(B).await {
        kill(pid);
    }
    hosts.set_api("up").await;
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Failed, "{view:#?}");
    assert!(
        view.cause
            .is_some_and(|cause| cause.contains("lost the guest"))
    );
    assert_eq!(hosts.left_on(B).await, Vec::<String>::new());
}

fn signal(pid: u32, signal: &str) {
    let sent = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success(), "{signal} {pid}");
}

/// Kills an agent at moments around the hand-off, and each time lets all come to its end.
async fn killed_near_the_end(test: &str, source: bool) {
    let Some(mut hosts) = Hosts::with_guest(test, FAST).await else {
        return;
    };
    let mut home = A;
    let mut moved = 0;
    for late_ms in [0, 30, 60, 90, 120, 150, 200, 260] {
        let id = hosts.migrate(home).await.unwrap().id;
        hosts.nearly_done(home, id).await;
        // Not a wait for anything: the moment of the fault is what differs.
        tokio::time::sleep(Duration::from_millis(late_ms)).await;
        let victim = if source { home } else { 1 - home };
        hosts.kill_agent(victim).await;
        hosts.start_agent(victim).await;
        let here = hosts.ended(home, id).await;
        let there = hosts.ended(1 - home, id).await;
        match (here.phase, there.phase) {
            (MigrationPhase::Completed, MigrationPhase::Running) => {
                home = 1 - home;
                moved += 1;
            }
            (MigrationPhase::Failed, MigrationPhase::Abandoned) => {}
            _ => panic!("{late_ms} ms: {here:#?} {there:#?}"),
        }
        hosts.guest_runs_only_on(home).await;
    }
    println!("{moved} of 8 moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_agent_may_be_killed_at_any_moment_near_the_end() {
    killed_near_the_end("nearsrc", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_destinations_agent_may_be_killed_at_any_moment_near_the_end() {
    killed_near_the_end("neardst", false).await;
}
