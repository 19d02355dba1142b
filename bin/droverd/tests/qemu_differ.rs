//! Two hosts with a QEMU each, of two versions: what the doctor finds of that by real programs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::path::PathBuf;

use drover_api::VmDefinition;
use drover_tune::examine;
use drover_types::Bytes;
use hosts::{A, B, FAST, Hosts, name, set};

/// A processor that QEMU 7.2 does not know yet.
const NEWER: &str = "SapphireRapids";

fn definition(qemu: PathBuf) -> VmDefinition {
    let args = ["-nodefaults", "-accel", "tcg", "-cpu", NEWER];
    VmDefinition {
        name: name(),
        memory: Bytes(64 << 20),
        vcpus: 1,
        qemu,
        machine: Some("q35".to_owned()),
        args: args.map(str::to_owned).into(),
        convergence: drover_types::Convergence::default(),
        checkpoint: true,
        policy: drover_plan::policy::VmPolicy::default(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_qemus_are_found_to_differ_and_a_guest_to_have_a_processor_that_the_older_does_not_know()
 {
    let (Some(older), Some(newer)) = (hosts::qemu_7_2(), hosts::qemu().await) else {
        return;
    };
    let Some(mut hosts) = Hosts::new("differ", FAST).await else {
        return;
    };
    for (host, qemu) in [(A, &newer), (B, &older)] {
        let allowed = qemu.to_str().unwrap().to_owned();
        hosts.configure(host, |config| set(config, "qemu", "binaries", [&allowed]));
        hosts.start_agent(host).await;
    }
    hosts.define(A, &definition(newer));
    let view = hosts.client(A).cluster_facts().await.unwrap();
    assert!(view.left_out.is_empty(), "{view:#?}");
    let versions = [0, 1].map(|host: usize| {
        let offers = view.facts[host].offers.known().unwrap();
        offers.version.clone().unwrap()
    });
    let [newer, older] = &versions;
    assert!(older.starts_with("7.2."), "{versions:?}");
    if newer.starts_with("7.2.") {
        println!(
            "skipped, because the installed QEMU is {newer} as well: run scripts/setup --for-tests"
        );
        return;
    }
    let report = examine(&view.facts, &[]);
    let of = |rule: &str| {
        let mut found = report.findings.iter().filter(|one| one.rule == rule);
        let (first, more) = (found.next(), found.next());
        let found = first.filter(|_| more.is_none());
        let found = found.unwrap_or_else(|| panic!("{rule}: {:#?}", report.skipped));
        format!("{}: {}", found.subject, found.found.read)
    };
    assert_eq!(
        of("pair-qemu"),
        format!("a and b: QEMU {newer}, and {older} of b")
    );
    let unknown = format!("{NEWER}: no QEMU of b knows the model");
    assert_eq!(of("guest-cpu"), format!("a guest {}: {unknown}", name()));
}
