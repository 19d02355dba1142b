//! What the kernel finds when it has started: modules, names for its NICs, and the way to this machine's files.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::host::{Adapter, Program};
use super::modules::Module;
use crate::command;
use crate::guest::cpio::Archive;
use crate::guest::static_program;

/// Where the caller's folder is.
pub const OUT: &str = "/run/out";

/// In that folder: the program's exit status.
pub(super) const STATUS: &str = "status";

/// Modules without which there are no files.
pub(super) const MODULES: [&str; 3] = ["virtio_pci", "9pnet_virtio", "9p"];

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
for folder in tmp run var/tmp; do $b mount -t tmpfs tmpfs \"/root/$folder\"; done
$b mkdir -p /root/run/out /root/run/lock /root/run/netns
$b mount -t 9p -o \"$files\" out /root/run/out
for folder in dev proc sys; do $b mount -o move \"/$folder\" \"/root/$folder\"; done
$b cp /start /root/run/start
$b chroot /root /bin/sh /run/start
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

/// A word for a shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
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
    fn words_of_the_program_are_words_whatever_is_in_them() {
        let program = Program {
            words: vec!["/bin/echo".into(), "it's; reboot".into()],
            environment: vec![("KEY".into(), "$(reboot)".into())],
        };
        let text = start(&program);
        assert!(text.contains("export KEY='$(reboot)'\n"), "{text}");
        assert!(
            text.contains("'/bin/echo' 'it'\\''s; reboot'\necho $? >/run/out/status\n"),
            "{text}"
        );
    }
}
