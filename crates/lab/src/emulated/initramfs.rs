//! What the kernel finds when it has started: modules, names for its NICs, and the way to this machine's files.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::host::{Adapter, Program};
use super::modules::Module;
use crate::command::{self, quoted};
use crate::guest::cpio::Archive;
use crate::guest::static_program;

/// Where the caller's folder is.
pub const OUT: &str = "/run/out";

/// In that folder: the program's exit status.
pub(super) const STATUS: &str = "status";

/// Modules without which there are no files.
pub(super) const MODULES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];

/// What the host has of its own, empty, in the place of this machine's: [`INIT`] names them.
const OWN: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// Files and folders as the kernel and programs want them, without a disk. What cannot be done is said on the console, and what
/// follows from it in the program.
const INIT: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do
    $b insmod \"$module\" || echo \"cannot load $module\"
done
while read -r address name; do
    for file in /sys/class/net/*/address; do
        read -r own <\"$file\"
        nic=${file%/address}
        [ \"$own\" != \"$address\" ] || $b ip link set dev \"${nic##*/}\" name \"$name\"
    done
done </nics
files=trans=virtio,version=9p2000.L,msize=262144
$b mount -t 9p -o \"$files,ro,cache=loose\" root /root
while read -r folder; do
    $b mkdir -p \"/seen$folder\"
    $b mount -o bind \"/root$folder\" \"/seen$folder\"
done </folders
for folder in tmp run var/tmp; do $b mount -t tmpfs tmpfs \"/root/$folder\"; done
while read -r folder; do
    $b mkdir -p \"/root$folder\"
    $b mount -o move \"/seen$folder\" \"/root$folder\"
done </folders
$b mkdir -p /root/run/out /root/run/lock /root/run/netns
$b mount -t 9p -o \"$files\" out /root/run/out
for folder in dev proc sys; do $b mount -o move \"/$folder\" \"/root/$folder\"; done
$b cp /start /root/run/start
cd /root
$b mount -o move . /
$b chroot . /bin/sh /run/start
$b sync
$b reboot -f
";

/// What is done in the machine's own files, before the program and after it.
const BEFORE: &str = "mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t configfs configfs /sys/kernel/config 2>/dev/null
ip link set dev lo up
echo emulated >/proc/sys/kernel/hostname
stty -F /dev/ttyS1 raw -echo
exec >/dev/ttyS1 2>&1
cd /
echo
";

/// Packs it.
///
/// # Errors
/// busybox is missing, or needs libraries.
pub(super) fn pack(modules: &[Module], adapters: &[Adapter], program: &Program) -> Result<Vec<u8>> {
    let busybox = command::find("busybox")
        .context("busybox is missing; install with: apt-get install busybox-static")?;
    let mut archive = Archive::new(Vec::new());
    for folder in ["dev", "proc", "sys", "root", "modules"] {
        archive.directory(folder)?;
    }
    archive.device("dev/console", 0o600, [5, 1])?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    let busybox = static_program(&busybox, "busybox-static")?;
    archive.file("bin/busybox", 0o755, &busybox)?;
    for (number, Module { name, image }) in modules.iter().enumerate() {
        // The shell gives them in the order of their names.
        let path = format!("modules/{number:03}-{name}.ko");
        archive.file(&path, 0o644, image)?;
    }
    archive.file("nics", 0o644, names(adapters).as_bytes())?;
    archive.file("folders", 0o644, hidden(&program.folders).as_bytes())?;
    archive.file("start", 0o644, start(program).as_bytes())?;
    Ok(archive.finish(ALIGNED)?)
}

/// Archives end at a multiple of this.
const ALIGNED: u64 = 4;

/// Each hardware address, and the name that its NIC is to have.
fn names(adapters: &[Adapter]) -> String {
    let mut names = String::new();
    for (number, adapter) in adapters.iter().enumerate() {
        let _ = writeln!(names, "{} {}", hardware_address(number), adapter.name);
    }
    names
}

/// Those that would not be seen below [`OWN`].
fn hidden(folders: &[PathBuf]) -> String {
    let is_hidden = |folder: &&PathBuf| OWN.iter().any(|own| folder.starts_with(own));
    let hidden = folders.iter().filter(is_hidden);
    hidden
        .map(|folder| format!("{}\n", folder.display()))
        .collect()
}

/// That of the adapter with this number; the first three octets are QEMU's own.
pub(super) fn hardware_address(number: usize) -> String {
    let number = u16::try_from(number).unwrap_or(u16::MAX);
    let [high, low] = number.to_be_bytes();
    format!("52:54:00:d0:{high:02x}:{low:02x}")
}

fn start(program: &Program) -> String {
    let mut text = BEFORE.to_owned();
    for (name, value) in &program.environment {
        let _ = writeln!(text, "export {name}={}", quoted(value));
    }
    let words: Vec<String> = program.words.iter().map(|word| quoted(word)).collect();
    let _ = writeln!(text, "{}\necho $? >{OUT}/{STATUS}", words.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nics_are_told_by_addresses_that_differ() {
        let of = |name: &str| Adapter {
            name: name.into(),
            model: "igb".into(),
            wire: 0,
        };
        let told = names(&[of("near0"), of("near1")]);
        assert_eq!(told, "52:54:00:d0:00:00 near0\n52:54:00:d0:00:01 near1\n");
        assert_eq!(hardware_address(258), "52:54:00:d0:01:02");
    }

    #[test]
    fn folders_below_those_that_the_host_has_of_its_own_are_put_there() {
        let folders = ["/tmp/checkout/target", "/home/me", "/tmpfs", "/var/tmp/a"];
        let folders = folders.map(PathBuf::from);
        assert_eq!(hidden(&folders), "/tmp/checkout/target\n/var/tmp/a\n");
        for own in OWN {
            let named = format!("{} ", own.trim_start_matches('/'));
            let line = INIT.lines().find(|line| line.contains("-t tmpfs")).unwrap();
            assert!(line.replace(';', " ").contains(&named), "{own}: {line}");
        }
    }

    #[test]
    fn words_of_the_program_are_words_whatever_is_in_them() {
        let program = Program {
            words: vec!["/bin/echo".into(), "it's; reboot".into()],
            environment: vec![("KEY".into(), "$(reboot)".into())],
            folders: Vec::new(),
        };
        let text = start(&program);
        assert!(text.contains("export KEY='$(reboot)'\n"), "{text}");
        assert!(
            text.contains("'/bin/echo' 'it'\\''s; reboot'\necho $? >/run/out/status\n"),
            "{text}"
        );
    }
}
