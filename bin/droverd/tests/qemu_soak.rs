//! The short form of `drover lab soak`: a guest moves to and fro, and nothing of it stays.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod hosts;

use drover_lab::settings::{AgentSettings, LabName, LabSettings, nic_rates};
use drover_lab::soak::{Plan, soak};
use drover_lab::{Lab, network, require};

#[tokio::test(flavor = "multi_thread")]
async fn moves_to_and_fro_with_a_fault_leave_nothing_behind() {
    let Some(qemu) = hosts::qemu().await else {
        return;
    };
    if let Err(missing) = require::check_faults() {
        println!("skipped, because {missing}");
        return;
    }
    let name: LabName = format!("soak{}", std::process::id()).parse().unwrap();
    let plan = Plan {
        lab: LabSettings {
            name: name.clone(),
            hosts: 2,
            nics: nic_rates("500mbit,500mbit", None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
            agents: AgentSettings::default(),
        },
        guest: hosts::small_guest(qemu, 5),
        migrations: 3,
    };
    let soaked = soak(&plan, "a test", &mut |words| println!("{words}")).await;
    Lab::remove_named(&name).await.unwrap();
    let soaked = soaked.unwrap();
    assert!(soaked.holds(), "{:?}", soaked.wrong);
    assert_eq!(soaked.rounds.len(), 3);
    assert!(!soaked.rounds[2].faults.is_empty(), "the seed brings one");
    assert!(network::namespaces(&name).await.unwrap().is_empty());
}
