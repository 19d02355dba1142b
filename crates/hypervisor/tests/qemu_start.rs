//! Starting real QEMU, and what is said when it cannot be.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Qemu, Running, guest, script};
use drover_hypervisor::{
    ExitStatus, Guest, InspectError, Machine, Movable, ProcessId, QemuLauncher, RunState, Start,
    StartError,
};
use drover_types::Bytes;
use serde_json::Value;

on_each_qemu! {
    an_unknown_machine_type_is_named_in_qemus_own_words
    a_guest_is_not_started_twice_in_one_directory
    machine_types_are_listed_with_their_aliases
    processors_are_told_with_the_version_and_those_that_are_emulated_need_no_hardware
    a_start_that_is_given_up_leaves_no_process
    a_guest_is_started_again_where_a_killed_one_left_its_files
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

async fn processors_are_told_with_the_version_and_those_that_are_emulated_need_no_hardware(
    qemu: Qemu,
) {
    let place = Place::new();
    let offered = place.launcher.processors(&qemu.0).await.unwrap();
    assert!(offered.version.major >= 7, "{offered:?}");
    let emulated = offered.emulated.unwrap();
    for model in ["max", "qemu64", "Nehalem-v1"] {
        assert!(emulated.models.contains(model), "{model}: {emulated:?}");
    }
    for feature in ["sse4.1", "sse4_1"] {
        assert!(emulated.features.contains(feature), "{emulated:?}");
    }
    assert!(!emulated.models.contains("host"), "{emulated:?}");
    if let Some(hardware) = offered.hardware {
        assert!(hardware.models.contains("host"), "{hardware:?}");
    }
}

async fn a_start_that_is_given_up_leaves_no_process(qemu: Qemu) {
    let place = Place::new();
    let (pid, told) = (place.file("told-pid"), place.file("slow"));
    // A QEMU that never answers: it tells its pid, and waits.
    script(
        &told,
        &format!("#!/bin/sh\necho $$ >{}\nexec sleep 1000\n", pid.display()),
    );
    let guest = Guest {
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
        let refused = [
            place.launcher.machine_types(&binary).await.unwrap_err(),
            place.launcher.processors(&binary).await.unwrap_err(),
        ];
        for refused in refused {
            assert!(
                matches!(refused, InspectError::Binary { .. }),
                "{refused:?}"
            );
        }
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
    let again = place.launcher.processors(&binary).await.unwrap_err();
    assert_eq!(again.to_string(), refused.to_string());
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
    assert_eq!(launcher.last_words(&place.file("a")), ["waiting"]);
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
    let guest = Guest {
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
