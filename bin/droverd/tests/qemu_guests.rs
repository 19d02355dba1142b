//! Guests on a real QEMU, through the agent's API.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[path = "support/scripts.rs"]
mod scripts;
mod support;

use drover_api::{ClientError, ErrorCode, ExitKind, StopRequest, VmState};
use support::{Place, has_qemu, kill, runs};

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (ErrorCode, String) {
    let refusal = result.unwrap_err();
    let refusal = refusal.refusal().expect("an agent's refusal").clone();
    (
        refusal.code,
        format!("{} {}", refusal.message, refusal.next.unwrap_or_default()),
    )
}

const FORCE: StopRequest = StopRequest {
    force: true,
    timeout_s: None,
};

#[tokio::test]
async fn a_guest_is_started_listed_and_stopped() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let vms = agent.client.vms().await.unwrap();
    assert_eq!(vms.len(), 1);
    assert_eq!(
        (vms[0].name.as_str(), vms[0].state),
        ("web1", VmState::Stopped)
    );

    let pid = agent.start_vm("web1").await;
    let web1 = &agent.client.vms().await.unwrap()[0];
    assert_eq!(web1.state, VmState::Running);
    assert_eq!(web1.pid, Some(pid));
    assert!(
        web1.machine
            .as_ref()
            .is_some_and(|m| m.starts_with("pc-q35-")),
        "{web1:#?}"
    );
    assert!(web1.qemu_version.is_some() && web1.since.is_some());
    assert_eq!(web1.problem, None);
    let (again, message) = code(agent.client.start_vm(&"web1".parse().unwrap()).await);
    assert_eq!(again, ErrorCode::VmRunning, "{message}");

    let view = agent
        .client
        .stop_vm(&"web1".parse().unwrap(), &FORCE)
        .await
        .unwrap();
    assert_eq!(view.state, VmState::Stopped, "{view:#?}");
    assert_eq!(
        view.last_exit.map(|exit| exit.exit),
        Some(ExitKind::Status(0))
    );
    assert!(!runs(pid));
    let (stopped, _) = code(agent.client.stop_vm(&"web1".parse().unwrap(), &FORCE).await);
    assert_eq!(stopped, ErrorCode::VmNotRunning);
    agent.start_vm("web1").await;
}

#[tokio::test]
async fn an_agent_that_was_killed_finds_its_guest_again() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    let before = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    agent.kill();
    assert!(runs(pid), "the guest outlives its agent");

    let agent = place.start().await;
    let after = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!(after, before);
    agent
        .client
        .stop_vm(&"web1".parse().unwrap(), &FORCE)
        .await
        .unwrap();
    assert!(!runs(pid));
}

#[tokio::test]
async fn sigterm_ends_the_agent_and_no_guest() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    assert_eq!(agent.terminate(), Some(0));
    assert!(runs(pid));
    assert!(!place.socket().exists());
    let agent = place.start().await;
    agent
        .vm_when("web1", |vm| {
            vm.state == VmState::Running && vm.pid == Some(pid)
        })
        .await;
}

#[tokio::test]
async fn a_guest_is_known_to_the_packages_scripts_while_it_runs() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("packaged");
    let agent = place.start().await;
    agent.start_vm("packaged").await;
    // With no agent left to ask.
    agent.kill();
    let told = scripts::told_by("guests");
    assert!(told.contains(&"packaged".to_owned()), "{told:?}");
}

#[tokio::test]
async fn a_qemu_that_dies_leaves_its_exit_and_its_last_words() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    let qemu = place.talking_qemu("disk on fire");
    place.define_with("web1", &format!("qemu = {qemu:?}"));
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    kill(pid, "-KILL");
    let view = agent
        .vm_when("web1", |vm| vm.state == VmState::Failed)
        .await;
    let exit = view.last_exit.clone().unwrap();
    assert_eq!(exit.exit, ExitKind::Signal(9));
    assert_eq!(exit.stderr, ["disk on fire"]);
    assert!(!exit.expected);
    assert!(
        view.problem
            .as_ref()
            .is_some_and(|p| p.contains("signal 9")),
        "{view:#?}"
    );

    // Kept for the next agent as well, and gone with the next start.
    agent.kill();
    let agent = place.start().await;
    assert_eq!(
        agent.client.vm(&"web1".parse().unwrap()).await.unwrap(),
        view
    );
    agent.start_vm("web1").await;
    assert_eq!(
        agent
            .client
            .vm(&"web1".parse().unwrap())
            .await
            .unwrap()
            .last_exit,
        None
    );
}

#[tokio::test]
async fn a_qemu_that_dies_while_no_agent_runs_is_shown_as_failed() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    let qemu = place.talking_qemu("nobody heard this");
    place.define_with("web1", &format!("qemu = {qemu:?}"));
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    agent.kill();
    kill(pid, "-KILL");
    let agent = place.start().await;
    let view = agent
        .vm_when("web1", |vm| vm.state == VmState::Failed)
        .await;
    let exit = view.last_exit.unwrap();
    assert_eq!(
        (exit.exit, exit.stderr.as_slice()),
        (ExitKind::Unknown, &["nobody heard this".to_owned()][..])
    );
}

#[tokio::test]
async fn a_qemu_that_does_not_start_is_refused_with_its_own_words() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define_with("bad", "");
    place.define_with("none", "qemu = \"/nowhere/qemu\"");
    place.define_with("huge", "");
    let huge = place.path("vms/huge.toml");
    let text = std::fs::read_to_string(&huge)
        .unwrap()
        .replace("64MiB", "60TiB");
    std::fs::write(&huge, text).unwrap();
    let bad = place.path("vms/bad.toml");
    let text = std::fs::read_to_string(&bad)
        .unwrap()
        .replace("-nodefaults", "-device\", \"nonsense");
    std::fs::write(&bad, text).unwrap();
    let agent = place.start().await;

    let (failed, message) = code(agent.client.start_vm(&"bad".parse().unwrap()).await);
    assert_eq!(failed, ErrorCode::QemuFailed);
    assert!(
        message.contains("'nonsense' is not a valid device model name"),
        "{message}"
    );
    let view = agent.client.vm(&"bad".parse().unwrap()).await.unwrap();
    assert_eq!(view.state, VmState::Failed);
    assert_eq!(
        view.last_exit.map(|exit| exit.exit),
        Some(ExitKind::Status(1))
    );

    let (missing, message) = code(agent.client.start_vm(&"none".parse().unwrap()).await);
    assert_eq!(missing, ErrorCode::QemuMissing, "{message}");
    let (room, message) = code(agent.client.start_vm(&"huge".parse().unwrap()).await);
    assert_eq!(room, ErrorCode::NotEnoughMemory);
    assert!(message.contains("needs 60 TiB"), "{message}");
    let (unknown, message) = code(agent.client.start_vm(&"who".parse().unwrap()).await);
    assert_eq!(unknown, ErrorCode::NoSuchVm);
    assert!(message.contains("vms/who.toml"), "{message}");
}

#[tokio::test]
async fn one_guest_is_started_once_however_often_it_is_asked_for() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let name = "web1".parse().unwrap();
    let client = &agent.client;
    let (a, b, c) = tokio::join!(
        client.start_vm(&name),
        client.start_vm(&name),
        client.start_vm(&name)
    );
    let (good, bad): (Vec<_>, Vec<_>) = [a, b, c].into_iter().partition(Result::is_ok);
    assert_eq!(good.len(), 1, "{bad:?}");
    for refused in bad {
        let (code, message) = code(refused);
        assert!(
            matches!(code, ErrorCode::VmBusy | ErrorCode::VmRunning),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_guest_that_ignores_the_power_button_runs_on_and_says_so() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    let gently = StopRequest {
        force: false,
        timeout_s: Some(1),
    };
    let (refused, message) = code(
        agent
            .client
            .stop_vm(&"web1".parse().unwrap(), &gently)
            .await,
    );
    assert_eq!(refused, ErrorCode::StopTimeout);
    assert!(message.contains("--force"), "{message}");
    let view = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!((view.state, view.pid), (VmState::Running, Some(pid)));
}

#[tokio::test]
async fn definitions_that_change_or_vanish_do_not_touch_a_running_guest() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    agent.start_vm("web1").await;
    place.define_with("web1", "vcpus = 2");
    let view = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!((view.state, view.vcpus), (VmState::Running, Some(1)));
    assert!(
        view.problem
            .is_some_and(|p| p.contains("was changed since"))
    );

    std::fs::write(place.path("vms/web1.toml"), "name = ").unwrap();
    let view = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!(view.state, VmState::Running);
    assert!(
        view.problem
            .is_some_and(|p| p.contains("could not be started again"))
    );

    std::fs::remove_file(place.path("vms/web1.toml")).unwrap();
    let view = &agent.client.vms().await.unwrap()[0];
    assert_eq!(
        (view.state, view.definition.as_ref()),
        (VmState::Running, None)
    );
    assert!(view.problem.as_ref().is_some_and(|p| p.contains("is gone")));
    let view = agent
        .client
        .stop_vm(&"web1".parse().unwrap(), &FORCE)
        .await
        .unwrap();
    assert_eq!(view.state, VmState::Stopped);
    assert_eq!(agent.client.vms().await.unwrap(), vec![]);
}

#[tokio::test]
async fn a_qemu_that_hangs_is_unreachable_and_can_be_ended_by_force() {
    if !has_qemu() {
        return;
    }
    let place = Place::new();
    place.define("web1");
    let agent = place.start().await;
    let pid = agent.start_vm("web1").await;
    kill(pid, "-STOP");
    let view = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!(view.state, VmState::Unreachable);
    assert!(view.problem.is_some_and(|p| p.contains("--force")));
    // Found by a new agent it cannot be talked to either. (Not stopped while the agents change:
    // the kernel hangs up a stopped process group that loses its parent.)
    kill(pid, "-CONT");
    agent.kill();
    kill(pid, "-STOP");
    let agent = place.start().await;
    let view = agent.client.vm(&"web1".parse().unwrap()).await.unwrap();
    assert_eq!((view.state, view.pid), (VmState::Unreachable, Some(pid)));
    agent
        .client
        .stop_vm(&"web1".parse().unwrap(), &FORCE)
        .await
        .unwrap();
    assert!(!runs(pid));
}
