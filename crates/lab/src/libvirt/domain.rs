//! The guest as a domain of libvirt's: how it is described, started, found and ended.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_types::{Bytes, VmName};

use super::daemon::virsh;
use super::emulator;
use crate::guest::Image;
use crate::guest::definition::{disk_file, kernel_words, serial_socket, text_of};
use crate::host::Host;
use crate::limits;
use crate::meter::QemuTotals;
use crate::network;
use crate::require::has_hardware_virtualisation;
use crate::settings::GuestSettings;

/// Memory of a domain that only runs its firmware.
const IDLE: Bytes = Bytes(64 << 20);

/// A domain that runs its firmware and then waits for ever.
#[must_use]
pub fn idle(name: &str, emulator: &Path) -> String {
    Description {
        name,
        emulator: &emulator.display().to_string(),
        machine: "q35",
        memory: IDLE,
        vcpus: 1,
        boot: "",
        devices: "",
    }
    .xml(false)
}

/// The description of a guest as a domain: the same that [`define`](crate::define) says for QEMU. `here` is where each
/// host sees its own folder of sockets, with the guest's serial port in it, and its own disk where it has one.
///
/// # Errors
/// Settings that do not fit each other, or a path that is no text.
pub fn of_guest(
    name: &VmName,
    settings: &GuestSettings,
    image: &Image,
    here: &Path,
    emulator: &Path,
) -> Result<String> {
    let path = |path: &Path| text_of(path).map(|text| escaped(&text));
    let boot = format!(
        "<kernel>{}</kernel><initrd>{}</initrd><cmdline>{}</cmdline>",
        path(&image.kernel)?,
        path(&image.initramfs)?,
        escaped(&kernel_words(settings)?)
    );
    let mut devices = format!(
        "<serial type='unix'><source mode='bind' path='{}'/></serial>",
        path(&here.join(serial_socket(name)))?
    );
    if let Some(disk) = image.disk(settings) {
        devices += &format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>\
             <target dev='vda' bus='virtio'/><readonly/></disk>",
            path(&disk)?
        );
    }
    if settings.disk.is_some() {
        let target = if image.disk(settings).is_some() {
            "vdb"
        } else {
            "vda"
        };
        devices += &format!(
            "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{}'/>\
             <target dev='{target}' bus='virtio'/></disk>",
            path(&here.join(disk_file(name)))?
        );
    }
    let description = Description {
        name: name.as_str(),
        emulator: &text_of(emulator)?,
        machine: &settings.machine,
        memory: settings.memory,
        vcpus: settings.vcpus,
        boot: &boot,
        devices: &devices,
    };
    Ok(description.xml(has_hardware_virtualisation()))
}

/// What domains differ in; `boot` and `devices` are XML.
struct Description<'a> {
    name: &'a str,
    emulator: &'a str,
    machine: &'a str,
    memory: Bytes,
    vcpus: u32,
    boot: &'a str,
    devices: &'a str,
}

impl Description<'_> {
    /// An emulated processor has all that QEMU can emulate. It has ACPI, as a QEMU of 9.1 and later knows no `-no-acpi`,
    /// which libvirt 9.0 says where a domain has none.
    fn xml(&self, accelerated: bool) -> String {
        let (kind, processor) = if accelerated {
            ("kvm", "<cpu mode='host-passthrough'/>")
        } else {
            ("qemu", "<cpu mode='maximum' migratable='off'/>")
        };
        format!(
            "<domain type='{kind}'><name>{}</name><memory unit='b'>{}</memory><vcpu>{}</vcpu>\
             <os><type arch='x86_64' machine='{}'>hvm</type>{}</os><features><acpi/></features>\
             {processor}<on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>\
             <devices><emulator>{}</emulator>{}<memballoon model='none'/></devices></domain>",
            escaped(self.name),
            self.memory.0,
            self.vcpus,
            escaped(self.machine),
            self.boot,
            escaped(self.emulator),
            self.devices
        )
    }
}

/// Text as it stands in XML, between tags and in quotes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
}

/// Defines a guest as a domain on a host, and starts it. `lab` is the lab's folder, `here` the one of sockets in it.
///
/// # Errors
/// libvirt's words.
pub(crate) async fn boot(
    host: &Host,
    name: &VmName,
    settings: &GuestSettings,
    image: &Image,
    [lab, here]: [&Path; 2],
) -> Result<()> {
    let emulator = emulator::write(lab, &settings.qemu, name, here)?;
    let xml = of_guest(name, settings, image, here, &emulator)?;
    let file = lab.join(format!("{name}.xml"));
    fs::write(&file, xml).with_context(|| format!("cannot write {}", file.display()))?;
    virsh(host, &["define", &text_of(&file)?], limits::LIBVIRT).await?;
    virsh(host, &["start", name.as_str()], limits::LIBVIRT)
        .await
        .map(drop)
}

/// Ends a domain, and forgets it.
///
/// # Errors
/// libvirt's words.
pub(crate) async fn end(host: &Host, name: &VmName) -> Result<()> {
    for what in ["destroy", "undefine"] {
        virsh(host, &[what, name.as_str()], limits::LIBVIRT).await?;
    }
    Ok(())
}

/// The process of a domain's QEMU, as numbered here: libvirt and agents of the host number theirs for themselves.
///
/// # Errors
/// There is none on the host.
pub(crate) async fn pid_of(host: &Host, name: &VmName) -> Result<u32> {
    let started_for = format!("guest={name},");
    for pid in network::processes(host.namespace()).await {
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        // Whatever its QEMU is called, nothing else has such a word.
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        if words.any(|word| word.starts_with(started_for.as_bytes())) {
            return Ok(pid);
        }
    }
    bail!("no QEMU of domain {name} runs on host {}", host.name)
}

/// What libvirt keeps of a domain's last migration, as `virsh domjobinfo --rawstats` prints it.
pub(crate) struct Job<'a>(pub(crate) &'a str);

impl Job<'_> {
    /// What QEMU said of it; nothing where libvirt does not say.
    pub(crate) fn totals(&self) -> QemuTotals {
        QemuTotals {
            payload_bytes: self.number("memory_processed"),
            rounds: self.number("memory_iteration"),
        }
    }

    fn number(&self, wanted: &str) -> u64 {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| name.trim() == wanted);
        found.map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::definition::define;
    use crate::settings::{Contents, LocalDisk};

    #[test]
    fn a_job_tells_what_was_sent_and_in_how_many_rounds() {
        let told = Job(
            "Job type: 5\ntime_elapsed: 812\nmemory_processed: 73400320\n\
                        memory_iteration: 3\ndowntime: 41\n\n",
        )
        .totals();
        assert_eq!((told.payload_bytes, told.rounds), (73_400_320, 3));
        let nothing = Job("").totals();
        assert_eq!((nothing.payload_bytes, nothing.rounds), (0, 0));
    }

    #[test]
    fn a_guest_boots_as_a_domain_what_it_boots_without_libvirt() {
        let settings = GuestSettings {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            machine: "q35".into(),
            memory: Bytes(256 << 20),
            vcpus: 2,
            content: Bytes(64 << 20),
            contents: Contents::Mix,
            mix: "files=1".into(),
            common: 0,
            dirty: "none".parse().unwrap(),
            touch: 512,
            verify: Bytes(0),
            seed: 1,
            disk: None,
        };
        let image = Image {
            kernel: "/k/vmlinuz".into(),
            initramfs: "/lab/initramfs".into(),
            folder: "/lab".into(),
        };
        let (name, here) = ("peer".parse().unwrap(), Path::new("/lab/here"));
        let qemu = Path::new("/lab/peer.qemu");
        let xml = of_guest(&name, &settings, &image, here, qemu).unwrap();
        let own = define(&name, &settings, &image, here).unwrap();
        let words = own.args.iter().skip_while(|arg| *arg != "-append").nth(1);
        for part in [
            "<name>peer</name>".to_owned(),
            "<memory unit='b'>268435456</memory><vcpu>2</vcpu>".to_owned(),
            "<kernel>/k/vmlinuz</kernel><initrd>/lab/initramfs</initrd>".to_owned(),
            format!("<cmdline>{}</cmdline>", words.unwrap()),
            "<serial type='unix'><source mode='bind' path='/lab/here/peer.serial'/>".to_owned(),
            "<emulator>/lab/peer.qemu</emulator>".to_owned(),
        ] {
            assert!(xml.contains(&part), "{part} in {xml}");
        }
        assert!(!xml.contains("<disk") && !xml.contains("qemu:commandline"));

        // Behind the disk of its files, which is the same for all hosts.
        for (contents, target) in [(Contents::Mix, "vda"), (Contents::Userland, "vdb")] {
            let disk = LocalDisk {
                size: Bytes(8 << 20),
                content: Bytes(4 << 20),
                dirty: "none".parse().unwrap(),
            };
            let settings = GuestSettings {
                contents,
                disk: Some(disk),
                ..settings.clone()
            };
            let xml = of_guest(&name, &settings, &image, here, qemu).unwrap();
            let own = format!(
                "type='qcow2'/><source file='/lab/here/peer.qcow2'/><target dev='{target}' bus='virtio'/></disk>"
            );
            assert!(
                xml.contains(&own) && xml.contains("drover.disk=4194304:0:0"),
                "{xml}"
            );
        }
    }

    #[test]
    fn whatever_stands_in_a_name_or_a_path_stays_within_its_place() {
        let xml = idle("a<b&'c", Path::new("/opt/q&a/qemu"));
        assert!(xml.contains("<name>a&lt;b&amp;&apos;c</name>"), "{xml}");
        assert!(
            xml.contains("<emulator>/opt/q&amp;a/qemu</emulator>"),
            "{xml}"
        );
        assert!(
            xml.starts_with("<domain type='qemu'>") && !xml.contains("kernel"),
            "{xml}"
        );
    }
}
