//! Labs of two hosts with a small guest, for tests that have QEMU move it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use drover_lab::settings::{
    AgentSettings, Contents, GuestSettings, LabName, LabSettings, nic_rates,
};
use drover_lab::{Boot, Image, Lab, Resident, State};
use drover_types::Bytes;

use crate::support::QEMU;

/// A name that no other process of this test has.
pub fn name(test: &str) -> LabName {
    format!("{test}{}", std::process::id()).parse().unwrap()
}

/// Two hosts with unlimited NICs, and the guest.
pub fn state(name: &LabName) -> State {
    let guest = GuestSettings {
        qemu: QEMU.into(),
        machine: "q35".into(),
        memory: Bytes(256 << 20),
        vcpus: 1,
        content: Bytes(96 << 20),
        contents: Contents::Mix,
        mix: "files=50,text=15,structures=15,zero=10,random=10".into(),
        common: 0,
        dirty: "8MiB@32MiB".parse().unwrap(),
        touch: 512,
        verify: Bytes(32 << 20),
        seed: 7,
        disk: None,
    };
    let nics = nic_rates("none", Some(2)).unwrap();
    State {
        lab: LabSettings {
            name: name.clone(),
            hosts: 2,
            nics,
            addressing: Vec::new(),
            mtu: 9000,
            agents: AgentSettings::default(),
        },
        guests: vec![guest],
    }
}

/// Boots the lab's guest on its first host.
pub async fn boot(lab: &Lab) -> Resident {
    let image = Image::build(lab.folder(), &lab.state().guests)
        .await
        .unwrap();
    let settings = &lab.state().guests[0];
    let guest = "guest".parse().unwrap();
    Boot {
        lab,
        host: 0,
        name: guest,
        settings,
        image: &image,
    }
    .by_lab()
    .await
    .unwrap()
}

/// Removes a test's lab when the test ends, also when it fails.
pub struct Removed(pub LabName);

impl Drop for Removed {
    fn drop(&mut self) {
        let name = self.0.clone();
        let remove = move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            // One that a test left on purpose is held by nobody.
            let _ = runtime.block_on(Lab::remove_named(&name));
        };
        let _ = std::thread::spawn(remove).join();
    }
}
