use std::path::Path;

use drover_lab::libvirt::of_guest;
use drover_lab::settings::{Contents, GuestSettings};
use drover_lab::{Image, find_probe, require};
use drover_types::Bytes;

/// The QEMU that libvirt starts.
pub const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Where a guest's serial port is, on its host.
const HERE: &str = "/run";

/// That of the guest `web`.
pub const SERIAL: &str = "/run/web.serial";

/// A guest that fills its memory, rewrites a part of it and verifies all of it when asked to.
pub fn settings() -> GuestSettings {
    GuestSettings {
        qemu: QEMU.into(),
        machine: "q35".into(),
        memory: Bytes(256 << 20),
        vcpus: 1,
        content: Bytes(64 << 20),
        contents: Contents::Mix,
        mix: "files=50,text=15,structures=15,zero=10,random=10".into(),
        common: 0,
        dirty: "4MiB@16MiB".parse().unwrap(),
        touch: 512,
        verify: Bytes(0),
        seed: 7,
        disk: None,
    }
}

/// Whether guests that verify themselves can run here; if not, says why.
pub async fn lacks_something() -> bool {
    let qemu = Path::new(QEMU);
    let mut checked = require::check(qemu);
    if checked.is_ok() {
        checked = require::check_guest(qemu).await;
    }
    if checked.is_ok() {
        checked = find_probe().map(drop);
    }
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle}");
    }
    checked.is_err()
}

/// The guest as a domain of libvirt. The folder is seen by all hosts.
pub async fn xml(name: &str, folder: &Path) -> String {
    let settings = settings();
    let image = Image::build(folder, std::slice::from_ref(&settings))
        .await
        .unwrap();
    let (name, here) = (name.parse().unwrap(), Path::new(HERE));
    of_guest(&name, &settings, &image, here, Path::new(QEMU)).unwrap()
}

/// A domain that runs its firmware and then waits for ever.
pub fn idle(name: &str) -> String {
    drover_lab::libvirt::idle(name, Path::new(QEMU))
}
