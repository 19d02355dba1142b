//! The lab with real QEMU: a small guest that is moved by QEMU's own means.

#![allow(clippy::unwrap_used, clippy::panic)]

mod guests;
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover_lab::compare::{Method, Patience, Variant, move_by_qemu};
use drover_lab::fault::{Driver, Fault, Stage};
use drover_lab::settings::{LabName, nic_rates};
use drover_lab::{Lab, network, require};
use guests::{Removed, boot, name, state};
use support::{build_probe, lacks_something};

/// The agent's program, built when it is not there.
fn build_agent() {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(2).unwrap();
    if target.join("droverd").is_file() {
        return;
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--package", "droverd"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build
        .arg("--target-dir")
        .arg(target.parent().unwrap())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .status();
    assert!(built.unwrap().success(), "the agent cannot be built");
}

async fn nothing_is_left(name: &LabName) {
    assert_eq!(
        network::namespaces(name).await.unwrap(),
        Vec::<String>::new()
    );
    assert!(Lab::peek(name).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_qemu_moves_to_and_fro_keeps_every_page() {
    if lacks_something().await {
        return;
    }
    build_probe();
    let name = name("move");
    let _removed = Removed(name.clone());
    let lab = Lab::create(state(&name)).await.unwrap();
    let mut guest = boot(&lab).await;

    let zstd = Variant { channels: Some(2) };
    let moves = [
        (Method::Tcp, Variant { channels: None }),
        (Method::MultifdZstd, zstd),
    ];
    for (number, (method, variant)) in moves.into_iter().enumerate() {
        let measured = move_by_qemu(&lab, &mut guest, method, variant, Patience::ALL)
            .await
            .unwrap();
        let verified = guest.console.verify().await.unwrap();
        assert_eq!((verified.pages, verified.bad), ((96 << 20) / 4096, 0));
        assert_eq!(guest.host, 1 - number % 2);
        assert!(measured.downtime_ms > 0.0 && measured.downtime_ms < measured.total_ms);
        assert!(
            measured.guest_gap_ms >= measured.downtime_ms * 0.9,
            "{measured:?}"
        );
        assert!(measured.wire_bytes["nic0"] > 10 << 20, "{measured:?}");
        assert!(
            measured.wire_bytes["nic1"] < 1 << 20,
            "one NIC is QEMU's way: {measured:?}"
        );
    }
    lab.remove().await.unwrap();
    nothing_is_left(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_qemu_compresses_and_relays_carry_uses_both_nics_and_keeps_every_page() {
    if lacks_something().await {
        return;
    }
    build_probe();
    build_agent();
    let name = name("relayed");
    let _removed = Removed(name.clone());
    let lab = Lab::create(state(&name)).await.unwrap();
    let mut guest = boot(&lab).await;

    let two = Variant { channels: Some(2) };
    for number in 0..2 {
        let method = Method::DroverMultifdZstd;
        let measured = move_by_qemu(&lab, &mut guest, method, two, Patience::ALL)
            .await
            .unwrap();
        let verified = guest.console.verify().await.unwrap();
        assert_eq!((verified.pages, verified.bad), ((96 << 20) / 4096, 0));
        assert_eq!(guest.host, 1 - number);
        for nic in ["nic0", "nic1"] {
            assert!(measured.wire_bytes[nic] > 1 << 20, "{measured:?}");
        }
        assert!(measured.cpu_seconds.agent_source > 0.0, "{measured:?}");
        let payload = measured.payload_bytes;
        assert!(payload < 96 << 20, "it is compressed: {measured:?}");
    }
    lab.remove().await.unwrap();
    nothing_is_left(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lab_whose_owner_vanished_is_removed_with_its_qemu() {
    if lacks_something().await {
        return;
    }
    build_probe();
    let name = name("gone");
    let _removed = Removed(name.clone());
    let lab = Lab::create(state(&name)).await.unwrap();
    let pid = boot(&lab).await.pid;
    // As after SIGKILL: the lock is free, everything else is still there.
    drop(lab);
    assert_eq!(network::namespaces(&name).await.unwrap().len(), 2);
    Lab::remove_named(&name).await.unwrap();
    nothing_is_left(&name).await;
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(
        state.is_empty() || state.contains(") Z "),
        "QEMU still runs: {state}"
    );
    Lab::remove_named(&name).await.unwrap();
}

#[tokio::test]
async fn a_lab_in_use_is_neither_made_nor_removed_by_another() {
    if lacks_something().await {
        return;
    }
    let name = name("held");
    let _removed = Removed(name.clone());
    let lab = Lab::create(state(&name)).await.unwrap();
    let refused = Lab::remove_named(&name).await.unwrap_err().to_string();
    assert!(refused.contains("in use by another command"), "{refused}");
    assert!(Lab::create(state(&name)).await.is_err());
    assert_eq!(network::namespaces(&name).await.unwrap().len(), 2);
    lab.remove().await.unwrap();
    nothing_is_left(&name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_line_is_cut_for_a_moment_arrives_and_the_cut_stands_in_the_result() {
    if lacks_something().await {
        return;
    }
    if let Err(missing) = require::check_faults() {
        println!("skipped, because {missing}");
        return;
    }
    build_probe();
    let name = name("moment");
    let _removed = Removed(name.clone());
    let mut slow = state(&name);
    // Slow enough that the moment comes before the end also where everything takes long.
    slow.lab.nics = nic_rates("250mbit,250mbit", None).unwrap();
    let lab = Lab::create(slow).await.unwrap();
    let mut guest = boot(&lab).await;
    let moves = Stage {
        lab: lab.settings(),
        source: guest.host,
        events: guest.monitor.events().clone(),
        pid: guest.pid,
        expected: 80 << 20,
        seed: 1,
    };
    let faults = ["cut nic=0 at=30% for=300ms".parse::<Fault>().unwrap()];
    let driver = Driver::start(moves, &faults).await.unwrap();
    let tcp = Variant { channels: None };
    let measured = move_by_qemu(&lab, &mut guest, Method::Tcp, tcp, Patience::ALL).await;
    let changes = driver.finish().await.unwrap();
    let measured = measured.unwrap();
    guest.console.verify().await.unwrap();
    let parts: Vec<_> = changes.iter().map(|change| change.part).collect();
    assert_eq!(parts, [0.0, 1.0], "{changes:?}");
    assert!(changes[0].sent >= 24 << 20, "{changes:?}");
    let lasted = changes[1].at_ms - changes[0].at_ms;
    assert!(lasted >= 300.0, "{changes:?}");
    assert!(measured.total_ms >= changes[0].at_ms + 300.0, "{changes:?}");

    // 80 MiB take 2.7 s.
    let short = Patience {
        longest: Duration::from_secs(1),
        ..Patience::ALL
    };
    let late = move_by_qemu(&lab, &mut guest, Method::Tcp, tcp, short).await;
    let late = format!("{:#}", late.unwrap_err());
    assert!(late.starts_with("not ended after 1 s, with "), "{late}");
    lab.remove().await.unwrap();
    nothing_is_left(&name).await;
}
