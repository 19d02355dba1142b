//! Guests on real QEMU: run, paused, found again, ended.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{PATIENCE, Place, Qemu, event, guest, kill};
use drover_hypervisor::{
    AdoptError, ExitStatus, Machine, MachineError, MachineEvent, Movable, ProcessId, QemuLauncher,
    QmpError, RunState, Start,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

on_each_qemu! {
    a_started_guest_runs_and_can_be_paused_and_resumed
    a_guest_started_paused_waits
    a_guest_that_is_to_receive_a_migration_cannot_be_run
    a_guest_that_quits_leaves_its_exit_status
    a_killed_guest_leaves_the_signal_and_its_connection_ends
    a_running_guest_is_found_again_and_taken_over
    commands_that_qemu_does_not_know_are_refused_and_do_no_harm
    the_power_button_reaches_a_running_guest
    what_a_migration_would_meet_is_told_beforehand
    a_guest_that_has_not_answered_yet_is_found
    what_a_guest_was_given_is_told_by_its_machine
}

async fn a_started_guest_runs_and_can_be_paused_and_resumed(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    assert_eq!(machine.state().await, Ok(RunState::Running));
    let kind = machine.machine_type().await.unwrap();
    let version = machine.version();
    assert_eq!(kind, format!("pc-q35-{}.{}", version.major, version.minor));

    let mut events = machine.events();
    machine.pause().await.unwrap();
    let stopped = event(&mut events, |event| {
        matches!(event, MachineEvent::Stopped { .. })
    })
    .await;
    assert_eq!(machine.state().await, Ok(RunState::Paused));
    machine.resume().await.unwrap();
    let resumed = event(&mut events, |event| {
        matches!(event, MachineEvent::Resumed { .. })
    })
    .await;
    let (MachineEvent::Stopped { at: stopped }, MachineEvent::Resumed { at: resumed }) =
        (stopped, resumed)
    else {
        unreachable!()
    };
    assert!(stopped < resumed && resumed.since(stopped) < PATIENCE);
    assert_eq!(machine.state().await, Ok(RunState::Running));
}

async fn what_a_guest_was_given_is_told_by_its_machine(qemu: Qemu) {
    let place = Place::new();
    let mut guest = guest(&qemu);
    let cards = [
        "-netdev",
        "hubport,id=net0,hubid=0",
        "-device",
        "virtio-net-pci,netdev=net0,id=first,mac=52:54:00:12:34:56,host_mtu=1400,mq=on",
        "-netdev",
        "hubport,id=net1,hubid=1",
        "-device",
        "virtio-net-pci,netdev=net1,mac=52:54:00:12:34:57",
        "-netdev",
        "hubport,id=net2,hubid=2",
        "-device",
        "e1000,netdev=net2",
    ];
    guest.args.extend(cards.map(str::to_owned));
    let machine = place.start(&guest, "a", Start::Run).await;
    let inside = machine.inside().await.unwrap();
    let emulated = guest
        .machine
        .as_ref()
        .is_some_and(|machine| machine.contains("tcg"));
    assert_eq!(inside.accelerated, !emulated);
    let told: Vec<_> = inside
        .cards
        .iter()
        .map(|card| {
            (
                card.netdev.as_str(),
                card.mac.as_str(),
                card.multiqueue,
                card.offered_mtu,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("net0", "52:54:00:12:34:56", true, Some(1400)),
            ("net1", "52:54:00:12:34:57", false, None),
        ]
    );
}

async fn a_guest_started_paused_waits(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Paused).await;
    assert_eq!(machine.state().await, Ok(RunState::Prelaunch));
    machine.resume().await.unwrap();
    assert_eq!(machine.state().await, Ok(RunState::Running));
}

async fn a_guest_that_is_to_receive_a_migration_cannot_be_run(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Incoming).await;
    assert_eq!(machine.state().await, Ok(RunState::InMigrate));
    let refused = machine.resume().await.unwrap_err();
    assert!(
        matches!(refused, MachineError::WrongState { .. }),
        "{refused:?}"
    );
    let words = refused.to_string();
    assert!(
        words.contains("inmigrate") && words.contains("not arrived yet"),
        "{words}"
    );
}

async fn a_guest_that_quits_leaves_its_exit_status(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    assert_eq!(machine.exit(), None);
    let mut events = machine.events();
    let exit = machine.quit().await.unwrap();
    assert_eq!(exit.status, ExitStatus::Code(0));
    assert_eq!(machine.exit(), Some(exit.clone()));
    assert_eq!(machine.exited().await, exit);
    let shutdown = |event: &MachineEvent| matches!(event, MachineEvent::Shutdown { .. });
    let MachineEvent::Shutdown {
        by_guest, reason, ..
    } = event(&mut events, shutdown).await
    else {
        unreachable!()
    };
    assert_eq!((by_guest, reason.as_str()), (false, "host-qmp-quit"));
    assert_eq!(
        machine.quit().await,
        Ok(exit),
        "quitting once more is no error"
    );
    assert!(!machine.process().is_running());
}

async fn a_killed_guest_leaves_the_signal_and_its_connection_ends(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    let mut events = machine.events();
    kill(machine.process());
    let exit = tokio::time::timeout(PATIENCE, machine.exited())
        .await
        .unwrap();
    assert_eq!(exit.status, ExitStatus::Signal(9));
    let end = |event: &MachineEvent| matches!(event, MachineEvent::Disconnected { .. });
    event(&mut events, end).await;
    event(&mut events, end).await;
    let lost = machine.state().await.unwrap_err();
    assert!(matches!(lost, MachineError::Lost { .. }), "{lost:?}");
    assert_eq!(
        machine.kill().await,
        Ok(exit),
        "killing the dead is no error"
    );
}

async fn a_running_guest_is_found_again_and_taken_over(qemu: Qemu) {
    let place = Place::new();
    let directory = place.file("a,b");
    let first = place.start(&guest(&qemu), "a,b", Start::Run).await;
    let process = place.launcher.find(&directory).unwrap();
    assert_eq!(process, first.process());
    assert_eq!(QemuLauncher::new().find(&place.file("b")), None);
    // Whoever started it lets go of its monitors, as an agent that ends does.
    let first = first.let_go();

    let again = place.launcher.adopt(process, &directory).await.unwrap();
    assert_eq!(again.state().await, Ok(RunState::Running));
    let later = ProcessId {
        start_time: process.start_time + 1,
        ..process
    };
    let gone = place.launcher.adopt(later, &directory).await.unwrap_err();
    assert!(
        matches!(gone, AdoptError::Gone { .. }),
        "the pid is somebody else's: {gone:?}"
    );

    let exit = again.quit().await.unwrap();
    assert_ne!(exit.status, ExitStatus::Signal(9));
    assert_eq!(place.launcher.find(&directory), None);
    let gone = place.launcher.adopt(process, &directory).await.unwrap_err();
    assert!(matches!(gone, AdoptError::Gone { .. }), "{gone:?}");
    drop(first);
}

async fn commands_that_qemu_does_not_know_are_refused_and_do_no_harm(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Paused).await;
    let qmp = machine.qmp();
    let refused = qmp
        .execute("make-coffee", json!({"sugar": [1, 2]}))
        .await
        .unwrap_err();
    let QmpError::Refused {
        class, description, ..
    } = &refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(class, "CommandNotFound");
    assert!(description.contains("make-coffee"), "{description}");
    let refused = qmp.execute_oob("yank", Value::Null).await.unwrap_err();
    assert!(matches!(refused, QmpError::NotOob { .. }), "{refused:?}");
    let mut asking = JoinSet::new();
    for _ in 0..20 {
        let qmp = qmp.clone();
        asking.spawn(async move { qmp.execute("query-name", Value::Null).await });
    }
    for answer in asking.join_all().await {
        assert_eq!(answer.unwrap()["name"], "guest");
    }
}

async fn the_power_button_reaches_a_running_guest(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    let mut events = machine.events();
    machine.power_down().await.unwrap();
    let button = |event: &MachineEvent| matches!(event, MachineEvent::Other { name, .. } if name == "POWERDOWN");
    event(&mut events, button).await;
}

async fn what_a_migration_would_meet_is_told_beforehand(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    assert_eq!(machine.migration_blockers().await.unwrap(), [""; 0]);
    // A guest without a kernel writes next to nothing.
    let second = std::time::Duration::from_secs(1);
    let dirtied = machine.dirtied(second).await.unwrap().unwrap();
    assert!(dirtied.0 < 64 << 20, "{dirtied}");
    // Two at once would end QEMU.
    let both = tokio::join!(machine.dirtied(second), machine.dirtied(second));
    let (first, second) = (both.0.unwrap(), both.1);
    assert!(first.is_some());
    assert!(
        matches!(second, Err(MachineError::Refused { .. })),
        "{second:?}"
    );
    assert_eq!(machine.exit(), None);
    // Without one there is nothing to lift.
    machine.lift_dirty_limit().await.unwrap();
    let mut bound = guest(&qemu);
    bound
        .args
        .extend(["-device", "ivshmem-plain,memdev=m,master=off", "-object"].map(str::to_owned));
    bound
        .args
        .push("memory-backend-ram,id=m,size=1M,share=on".to_owned());
    let machine = place.start(&bound, "b", Start::Paused).await;
    let blockers = machine.migration_blockers().await.unwrap();
    assert!(blockers[0].contains("ivshmem"), "{blockers:?}");
}

async fn a_guest_that_has_not_answered_yet_is_found(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    std::fs::remove_file(place.file("a").join("pid")).unwrap();
    assert_eq!(
        place.launcher.find(&place.file("a")),
        Some(machine.process())
    );
}
