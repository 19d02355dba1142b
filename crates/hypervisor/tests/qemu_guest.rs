//! Guests on real QEMU: started, found again, ended, and what is said when they cannot be.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Qemu, Running, event, guest, kill, script};
use drover_hypervisor::{
    AdoptError, ExitStatus, InspectError, Machine, MachineError, MachineEvent, ProcessId,
    QemuLauncher, QmpError, RunState, Start, StartError,
};
use drover_types::Bytes;
use serde_json::{Value, json};

on_each_qemu! {
    a_started_guest_runs_and_can_be_paused_and_resumed
    a_guest_started_paused_waits
    a_guest_that_is_to_receive_a_migration_cannot_be_run
    a_guest_that_quits_leaves_its_exit_status
    a_killed_guest_leaves_the_signal_and_its_connection_ends
    an_unknown_machine_type_is_named_in_qemus_own_words
    a_running_guest_is_found_again_and_taken_over
    a_guest_is_not_started_twice_in_one_directory
    commands_that_qemu_does_not_know_are_refused_and_do_no_harm
    machine_types_are_listed_with_their_aliases
    the_power_button_reaches_a_running_guest
    a_start_that_is_given_up_leaves_no_process
    a_guest_is_started_again_where_a_killed_one_left_its_files
    a_guest_that_has_not_answered_yet_is_found
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

async fn an_unknown_machine_type_is_named_in_qemus_own_words(qemu: Qemu) {
    let place = Place::new();
    let mut guest = guest(&qemu);
    guest.machine = Some("pc-q35-99.9".into());
    let refused = place
        .launcher
        .start(&guest, &place.file("a"), Start::Run)
        .await
        .unwrap_err();
    let StartError::Ended { exit } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(exit.status, ExitStatus::Code(1));
    let words = refused.to_string();
    assert!(
        words.contains("exit status 1") && words.contains("unsupported machine type"),
        "{words}"
    );
    assert_eq!(place.launcher.find(&place.file("a")), None);
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

async fn a_guest_is_not_started_twice_in_one_directory(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    let again = place
        .launcher
        .start(&guest(&qemu), &place.file("a"), Start::Run)
        .await;
    let refused = again.unwrap_err();
    let pid = machine.process().pid;
    assert!(matches!(refused, StartError::AlreadyRunning { pid: told } if told == pid));
    assert_eq!(machine.state().await, Ok(RunState::Running));
    machine.quit().await.unwrap();
    let second = place.start(&guest(&qemu), "a", Start::Run).await;
    assert_ne!(second.process(), machine.process());
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
    let all = (0..20).map(|_| qmp.execute("query-name", Value::Null));
    for answer in join_all(all).await {
        assert_eq!(answer.unwrap()["name"], "guest");
    }
}

/// Runs them all at once.
async fn join_all<F>(futures: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future,
{
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, output) in &mut futures {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        match futures.iter().all(|(_, output)| output.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    futures
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

async fn machine_types_are_listed_with_their_aliases(qemu: Qemu) {
    let place = Place::new();
    let types = place.launcher.machine_types(&qemu.0).await.unwrap();
    let named = |name: &str| types.iter().find(|kind| kind.name == name);
    let concrete = named("q35").unwrap().alias_of.clone().unwrap();
    assert!(
        named(&concrete).is_some() && concrete.starts_with("pc-q35-"),
        "{concrete}"
    );
    assert!(
        named("pc-q35-7.2").is_some(),
        "guests of the oldest QEMU can come here"
    );
    assert_eq!(types.iter().filter(|kind| kind.default).count(), 1);
}

async fn the_power_button_reaches_a_running_guest(qemu: Qemu) {
    let place = Place::new();
    let machine = place.start(&guest(&qemu), "a", Start::Run).await;
    let mut events = machine.events();
    machine.power_down().await.unwrap();
    let button = |event: &MachineEvent| matches!(event, MachineEvent::Other { name, .. } if name == "POWERDOWN");
    event(&mut events, button).await;
}

async fn a_start_that_is_given_up_leaves_no_process(qemu: Qemu) {
    let place = Place::new();
    let (pid, told) = (place.file("told-pid"), place.file("slow"));
    // A QEMU that never answers: it tells its pid, and waits.
    script(
        &told,
        &format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", pid.display()),
    );
    let guest = drover_hypervisor::Guest {
        binary: told,
        ..guest(&qemu)
    };
    let directory = place.file("a");
    let starting = place.launcher.start(&guest, &directory, Start::Run);
    let started = async {
        loop {
            let text = std::fs::read_to_string(&pid).unwrap_or_default();
            match text.trim().parse().ok().and_then(ProcessId::of) {
                Some(process) => return process,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let process = tokio::select! {
        result = starting => panic!("{result:?}"),
        process = started => process,
    };
    let deadline = Instant::now() + PATIENCE;
    while process.is_running() {
        assert!(
            Instant::now() < deadline,
            "process {} was left",
            process.pid
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_binary_that_is_not_there_or_is_no_program_is_named() {
    let place = Place::new();
    let file = place.file("text");
    std::fs::write(&file, "no program").unwrap();
    for binary in ["/no/such/qemu".into(), file, place.dir.path().to_owned()] {
        let qemu = Qemu(binary.clone());
        let refused = place
            .launcher
            .start(&guest(&qemu), &place.file("a"), Start::Run)
            .await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StartError::Binary { .. }), "{refused:?}");
        assert!(
            refused.to_string().contains(&*binary.to_string_lossy()),
            "{refused}"
        );
        let refused = place.launcher.machine_types(&binary).await.unwrap_err();
        assert!(
            matches!(refused, InspectError::Binary { .. }),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_program_that_is_no_qemu_ends_with_its_own_words() {
    let place = Place::new();
    let binary = place.file("other");
    script(
        &binary,
        "#!/bin/sh\nfor n in $(seq 30); do echo line $n >&2; done\nexit 7\n",
    );
    let qemu = Qemu(binary.clone());
    let refused = place
        .launcher
        .start(&guest(&qemu), &place.file("a"), Start::Run)
        .await;
    let StartError::Ended { exit } = refused.unwrap_err() else {
        panic!()
    };
    assert_eq!(exit.status, ExitStatus::Code(7));
    let expected: Vec<String> = (11..=30).map(|n| format!("line {n}")).collect();
    assert_eq!(exit.stderr, expected);
    let refused = place.launcher.machine_types(&binary).await.unwrap_err();
    let InspectError::NotQemu {
        status, printed, ..
    } = &refused
    else {
        panic!("{refused:?}")
    };
    assert!(
        status.contains('7') && printed.starts_with("line 1"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_program_that_never_answers_is_killed_when_its_time_is_over() {
    let place = Place::new();
    let binary = place.file("silent");
    script(&binary, "#!/bin/sh\necho waiting >&2\nexec sleep 1000\n");
    let within = Duration::from_millis(200);
    let launcher = QemuLauncher::new().start_within(within);
    let refused = launcher
        .start(&guest(&Qemu(binary)), &place.file("a"), Start::Run)
        .await;
    let refused = refused.unwrap_err();
    let StartError::NoAnswer { stderr, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(stderr, &["waiting"]);
    assert_eq!(refused.stderr(), ["waiting"]);
}

#[tokio::test]
async fn a_wrapper_becomes_the_binary() {
    let Some(qemu) = Qemu::installed() else {
        return;
    };
    let place = Place::new();
    let launcher = QemuLauncher::new().through(["env", "A=b"]);
    let directory = place.file("a");
    let machine = launcher
        .start(&guest(&qemu), &directory, Start::Paused)
        .await
        .unwrap();
    let machine = Running::new(machine);
    assert_eq!(launcher.find(&directory), Some(machine.process()));
    assert!(!launcher.machine_types(&qemu.0).await.unwrap().is_empty());
}

#[tokio::test]
async fn memory_that_is_no_whole_number_of_mebibytes_is_accepted() {
    let Some(qemu) = Qemu::installed() else {
        return;
    };
    let place = Place::new();
    let guest = drover_hypervisor::Guest {
        memory: Bytes((64 << 20) + 4096),
        ..guest(&qemu)
    };
    let machine = place.start(&guest, "a", Start::Paused).await;
    let told = machine
        .qmp()
        .execute("query-memory-size-summary", Value::Null)
        .await
        .unwrap();
    assert!(
        told["base-memory"].as_u64().unwrap() >= guest.memory.0,
        "{told}"
    );
}

async fn a_guest_is_started_again_where_a_killed_one_left_its_files(qemu: Qemu) {
    let place = Place::new();
    let first = place.start(&guest(&qemu), "a", Start::Run).await;
    first.kill().await.unwrap();
    for left in ["qmp.sock", "oob.sock", "pid"] {
        assert!(place.file("a").join(left).exists(), "{left}");
    }
    let second = place.start(&guest(&qemu), "a", Start::Run).await;
    assert_eq!(second.state().await, Ok(RunState::Running));
    assert_eq!(
        place.launcher.find(&place.file("a")),
        Some(second.process())
    );
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
