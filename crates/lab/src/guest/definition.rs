//! The guest as a host's agent, or the lab itself, starts it.

use std::path::Path;

use anyhow::{Context, Result};
use drover_api::VmDefinition;
use drover_types::VmName;

use super::Image;
use crate::require::has_hardware_virtualisation;
use crate::settings::GuestSettings;

/// The guest's serial port, in a host's folder of sockets.
#[must_use]
pub fn serial_socket(guest: &VmName) -> String {
    format!("{guest}.serial")
}

/// The lab's own monitor of the guest's QEMU, in a host's folder of sockets. Beside the agent's:
/// it only watches.
#[must_use]
pub fn monitor_socket(guest: &VmName) -> String {
    format!("{guest}.monitor")
}

/// The guest's own disk, where it has one, in the same folder: no host sees another's.
pub(crate) fn disk_file(guest: &VmName) -> String {
    format!("{guest}.qcow2")
}

/// What QEMU is told of the lab's own monitor. `here` is where every host sees its own folder of sockets.
pub(crate) fn monitor_options(guest: &VmName, here: &Path) -> Result<[String; 4]> {
    let socket = socket("watch", &here.join(monitor_socket(guest)))?;
    let monitor = "chardev=watch,mode=control";
    Ok(["-chardev", &socket, "-mon", monitor].map(str::to_owned))
}

/// A character device of QEMU's that listens at a socket.
fn socket(id: &str, path: &Path) -> Result<String> {
    let path = text_of(path)?;
    Ok(format!("socket,id={id},path={path},server=on,wait=off"))
}

pub(crate) fn text_of(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{} is no text", path.display()))
}

/// What the guest's kernel is told, and by it the probe.
pub(crate) fn kernel_words(settings: &GuestSettings) -> Result<String> {
    // Freed memory reads as zero, so that the guest carries its content and little else.
    // A root file system in all of the memory, not in half of it at most.
    Ok(format!(
        "console=ttyS0 quiet init_on_free=1 panic=-1 rootfstype=ramfs {}",
        settings.probe()?
    ))
}

/// The guest's definition. `here` is the path under which every host sees its own folder of
/// sockets: the definition travels, and must be right on both hosts.
///
/// # Errors
/// Settings that do not fit each other.
pub fn define(
    name: &VmName,
    settings: &GuestSettings,
    image: &Image,
    here: &Path,
) -> Result<VmDefinition> {
    let (accelerator, cpu) = if has_hardware_virtualisation() {
        ("kvm", "host")
    } else {
        ("tcg,thread=multi", "max")
    };
    let mut args: Vec<String> = [
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]
    .map(str::to_owned)
    .into();
    let mut option = |key: &str, value: String| args.extend([key.to_owned(), value]);
    option("-accel", accelerator.to_owned());
    option("-cpu", cpu.to_owned());
    option("-kernel", text_of(&image.kernel)?);
    option("-initrd", text_of(&image.initramfs)?);
    option("-append", kernel_words(settings)?);
    if let Some(disk) = image.disk(settings) {
        // A comma in a value is written twice.
        let file = text_of(&disk)?.replace(',', ",,");
        option(
            "-drive",
            format!("if=virtio,format=raw,readonly=on,file={file}"),
        );
    }
    option(
        "-chardev",
        socket("serial", &here.join(serial_socket(name)))?,
    );
    option("-serial", "chardev:serial".to_owned());
    args.extend(monitor_options(name, here)?);
    Ok(VmDefinition {
        name: name.clone(),
        memory: settings.memory,
        vcpus: settings.vcpus,
        qemu: settings.qemu.clone(),
        machine: Some(settings.machine.clone()),
        args,
        convergence: Default::default(),
        checkpoint: true,
        policy: Default::default(),
    })
}
