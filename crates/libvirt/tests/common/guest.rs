use std::path::Path;

use drover_lab::settings::{Contents, GuestSettings};
use drover_lab::{Image, find_probe, require};
use drover_types::Bytes;

/// The QEMU that libvirt starts.
const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Where a guest's serial port is, on its host.
pub const SERIAL: &str = "/run/guest.serial";

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
    let words = format!(
        "console=ttyS0 quiet init_on_free=1 panic=-1 rootfstype=ramfs {}",
        settings.probe().unwrap()
    );
    domain(
        name,
        settings.memory.0 >> 20,
        &format!(
            "<kernel>{}</kernel><initrd>{}</initrd><cmdline>{words}</cmdline>",
            image.kernel.display(),
            image.initramfs.display()
        ),
        &format!("<serial type='unix'><source mode='bind' path='{SERIAL}'/></serial>"),
    )
}

/// A domain that runs its firmware and then waits for ever.
pub fn idle(name: &str) -> String {
    domain(name, 64, "", "")
}

fn domain(name: &str, mib: u64, boot: &str, devices: &str) -> String {
    // An emulated processor has all that QEMU can emulate; a QEMU of 9.1 and later knows no `-no-acpi`, which libvirt
    // 9.0 says where a domain has no ACPI.
    format!(
        "<domain type='qemu'><name>{name}</name><memory unit='MiB'>{mib}</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type>{boot}</os><features><acpi/></features>\
         <cpu mode='maximum' migratable='off'/><on_crash>destroy</on_crash>\
         <devices><emulator>{QEMU}</emulator>{devices}<memballoon model='none'/></devices></domain>"
    )
}
