//! Guests that are suspended, and agents that end in the middle of that.

use std::future::{pending, ready};
use std::os::unix::fs::FileExt;

use drover_hypervisor::{MigrationAddress, Start};

use super::*;
use crate::registry::suspend::{plainly, runs_on};

/// Nothing of a saved state is left.
fn nothing_is_saved(host: &Host) -> bool {
    let left = std::fs::read_dir(host.path("state/suspended"));
    left.is_ok_and(|left| left.count() == 0)
}

async fn suspended(agent: &Agent) -> VmView {
    let view = agent.registry.suspend(&web(), pending()).await.unwrap();
    assert_eq!((view.state, view.pid), (VmState::Suspended, None));
    view
}

/// What an agent does until the state counts.
async fn saved(agent: &Agent) -> Reservation {
    let reservation = agent.registry.reserve(&web(), Purpose::Suspend).unwrap();
    let machine = reservation.machine().unwrap();
    reservation.save(&machine, pending()).await.unwrap();
    reservation
}

/// What an agent does until the state is loaded.
async fn loaded(agent: &Agent) -> Reservation {
    let reservation = agent.registry.reserve(&web(), Purpose::Start).unwrap();
    let state = reservation.saved_state(&definition()).unwrap().unwrap();
    let machine = reservation
        .launch_as(
            definition(),
            Some(&state.machine_type),
            Start::Incoming,
            Role::Running,
        )
        .await
        .unwrap();
    reservation.load(&machine, &state).await.unwrap();
    reservation
}

#[test]
fn a_suspended_guest_goes_on_also_under_another_agent_and_nothing_is_left() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let view = suspended(&agent).await;
        assert!(view.notes[0].contains("drover vm start web"), "{view:#?}");
        let busy = agent.registry.stop(&web(), &Default::default()).await;
        assert!(busy.unwrap_err().message.contains("is suspended"));
    });
    host.life(async |agent| {
        assert_eq!(agent.state().await, VmState::Suspended);
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
        assert!(nothing_is_saved(&host));
        suspended(&agent).await;
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
    });
}

#[test]
fn a_guest_whose_suspension_is_given_up_runs_on() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        let pid = host.start(&agent).await;
        let refused = agent.registry.suspend(&web(), ready(())).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::SuspendFailed, "{refused:?}");
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Running, Some(pid)));
        assert!(nothing_is_saved(&host));
        suspended(&agent).await;
    });
}

#[test]
fn an_agent_that_ends_while_a_guest_is_saved_is_followed_by_one_that_has_it_run_on() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    let pid = host.life(async |agent| {
        let pid = host.start(&agent).await;
        let reservation = agent.registry.reserve(&web(), Purpose::Suspend).unwrap();
        agent.registry.0.saved.begin(&web()).unwrap();
        let machine = reservation.machine().unwrap();
        machine.pause().await.unwrap();
        // Nobody takes what it sends.
        let socket = reservation.state_socket();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        machine.set_migration(&plainly()).await.unwrap();
        let address = MigrationAddress::Unix(socket);
        machine.migrate(&address).await.unwrap();
        pid
    });
    host.life(async |agent| {
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Running, Some(pid)));
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn an_agent_that_ends_once_the_state_counts_is_followed_by_one_that_ends_its_qemu() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let saved = saved(&agent).await;
        let state = saved.machine().unwrap().state().await.unwrap();
        assert_eq!(state, RunState::PostMigrate);
    });
    host.life(async |agent| {
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Suspended, None));
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
    });
}

#[test]
fn a_state_whose_guest_somebody_had_run_on_by_hand_counts_no_longer() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let saved = saved(&agent).await;
        runs_on(&saved.machine().unwrap()).await.unwrap();
    });
    host.life(async |agent| {
        assert_eq!(agent.state().await, VmState::Running);
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn an_agent_that_ends_before_the_state_is_used_up_leaves_the_guest_suspended() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        loaded(&agent).await;
    });
    host.life(async |agent| {
        assert_eq!(agent.state().await, VmState::Suspended);
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
    });
}

#[test]
fn an_agent_that_ends_once_the_state_is_used_up_is_followed_by_one_that_has_it_run() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        let loaded = loaded(&agent).await;
        agent.registry.0.saved.use_up(&web()).unwrap();
        let state = loaded.machine().unwrap().state().await.unwrap();
        assert_eq!(state, RunState::Paused);
    });
    host.life(async |agent| {
        assert_eq!(agent.state().await, VmState::Running);
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn a_used_state_of_a_guest_that_has_ended_since_is_never_used_again() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        let loaded = loaded(&agent).await;
        agent.registry.0.saved.use_up(&web()).unwrap();
        let machine = loaded.machine().unwrap();
        machine.resume().await.unwrap();
        machine.kill().await.unwrap();
    });
    host.life(async |agent| {
        assert_eq!(agent.state().await, VmState::Failed);
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn a_damaged_state_runs_nowhere_and_is_kept_until_it_is_discarded() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        let path = host.path("state/suspended/web.state");
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        let file = file.unwrap();
        // A byte of its memory, which QEMU looks at no more than at any other.
        let bytes = std::fs::read(&path).unwrap();
        let name = bytes.windows(7).position(|bytes| bytes == b"SeaBIOS");
        let at = name.expect("its firmware's name") as u64;
        file.write_all_at(b"D", at).unwrap();
        let refused = agent.starts().await.unwrap_err();
        assert!(refused.message.contains("is damaged"), "{refused:?}");
        assert_eq!(agent.state().await, VmState::Suspended);
        file.set_len(at).unwrap();
        let refused = agent.starts().await.unwrap_err();
        assert!(refused.message.contains("is kept"), "{refused:?}");
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Suspended, None));
        let request = StartRequest {
            discard_saved_state: true,
        };
        let view = agent.registry.start(&web(), request).await.unwrap();
        assert_eq!(view.state, VmState::Running);
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn a_state_is_used_for_the_guest_that_was_saved_only() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        let file = host.path("vms/web.toml");
        let write = |definition: &VmDefinition| {
            std::fs::write(&file, toml::to_string(definition).unwrap()).unwrap();
        };
        write(&VmDefinition {
            args: vec!["-nodefaults".to_owned(), "-snapshot".to_owned()],
            ..definition()
        });
        let refused = agent.starts().await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::SavedStateUnusable, "{refused:?}");
        std::fs::remove_file(&file).unwrap();
        let refused = agent.registry.reserve(&web(), from_b()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::VmExists, "{refused:?}");
        write(&VmDefinition {
            policy: drover_plan::policy::VmPolicy {
                stop_within_seconds: 7,
                ..Default::default()
            },
            ..definition()
        });
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
    });
}

#[test]
fn what_cannot_be_saved_is_said_before_the_guest_is_stopped() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        let machine = {
            let reservation = agent.registry.reserve(&web(), Purpose::Suspend).unwrap();
            reservation.machine().unwrap()
        };
        machine.pause().await.unwrap();
        let refused = agent.registry.suspend(&web(), pending()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::VmNotRunning, "{refused:?}");
        machine.resume().await.unwrap();
        let file = host.path("vms/web.toml");
        let changed = VmDefinition {
            vcpus: 2,
            ..definition()
        };
        for text in [toml::to_string(&changed).unwrap(), "[".to_owned()] {
            std::fs::write(&file, text).unwrap();
            let refused = agent.registry.suspend(&web(), pending()).await.unwrap_err();
            assert!(
                refused.message.contains("its definition is not"),
                "{refused:?}"
            );
        }
        std::fs::write(&file, toml::to_string(&definition()).unwrap()).unwrap();
        // In the way of the directory of saved states.
        std::fs::write(host.path("state/suspended"), "").unwrap();
        let refused = agent.registry.suspend(&web(), pending()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Internal, "{refused:?}");
        assert_eq!(agent.state().await, VmState::Running);
    });
}

#[test]
fn a_guest_whose_qemu_does_not_answer_when_an_agent_starts_runs_on_once_it_does() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let pid = host.life(async |agent| {
        let pid = host.start(&agent).await;
        let reservation = agent.registry.reserve(&web(), Purpose::Suspend).unwrap();
        agent.registry.0.saved.begin(&web()).unwrap();
        reservation.machine().unwrap().pause().await.unwrap();
        signal(pid, rustix::process::Signal::STOP);
        pid
    });
    host.life(async |agent| {
        assert!(agent.registry.is_unsettled(&web()));
        let view = agent.registry.get(&web()).await.unwrap();
        assert!(view.notes[0].contains("seen to each"), "{view:#?}");
        signal(pid, rustix::process::Signal::CONT);
        // It turns to the connections that were given up meanwhile first; an agent tries again as well.
        let tried = std::time::Instant::now();
        let long = crate::limits::SAVED_SETTLE;
        while agent.registry.is_unsettled(&web()) && tried.elapsed() < long {
            agent.registry.settle_saved().await;
        }
        let view = agent.registry.get(&web()).await.unwrap();
        assert_eq!((view.state, view.pid), (VmState::Running, Some(pid)));
        assert!(nothing_is_saved(&host));
    });
}

#[test]
fn a_guest_that_cannot_be_booted_keeps_the_state_that_was_to_be_discarded() {
    if !has_qemu() {
        return;
    }
    let host = Host::new();
    host.life(async |agent| {
        host.start(&agent).await;
        suspended(&agent).await;
        let request = StartRequest {
            discard_saved_state: true,
        };
        let broken = VmDefinition {
            args: vec!["-no-such-option".to_owned()],
            ..definition()
        };
        let file = host.path("vms/web.toml");
        std::fs::write(&file, toml::to_string(&broken).unwrap()).unwrap();
        agent.registry.start(&web(), request).await.unwrap_err();
        std::fs::write(&file, toml::to_string(&definition()).unwrap()).unwrap();
        assert_eq!(agent.state().await, VmState::Suspended);
        assert_eq!(agent.starts().await.unwrap().state, VmState::Running);
        std::fs::remove_file(&file).unwrap();
        let refused = agent.registry.suspend(&web(), pending()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::SuspendFailed, "{refused:?}");
    });
}
