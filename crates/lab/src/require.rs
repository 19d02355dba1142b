//! What a lab needs of the machine, checked before anything is changed.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use drover_types::Bytes;

use crate::guest::contents;
use crate::machine::available_memory;
use crate::settings::{GuestSettings, LabSettings, LocalDisk};
use crate::{command, limits};

/// A program, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("mount", "mount"),
    ("busybox", "busybox-static"),
    ("sh", "dash"),
];

/// The same, for faults.
const FAULTS: [(&str, &str); 3] = [
    ("nft", "nftables"),
    ("ss", "iproute2"),
    ("sysctl", "procps"),
];

/// The same, for an emulated host.
const EMULATED: [(&str, &str); 5] = [
    ("setpriv", "util-linux"),
    ("busybox", "busybox-static"),
    ("xz", "xz-utils"),
    ("ip", "iproute2"),
    ("mount", "mount"),
];

/// What gives guests interfaces of their host.
const TUN: &str = "/dev/net/tun";

/// Checks that the caller may make namespaces and that every program is there.
///
/// # Errors
/// Everything that is missing, with what to install.
pub fn check(qemu: &Path) -> Result<()> {
    check_root()?;
    let mut missing = missing(&PROGRAMS);
    if !qemu.is_file() {
        missing.push((qemu.to_str().unwrap_or("qemu"), "qemu-system-x86"));
    }
    refuse(&missing)
}

/// Checks that the caller may make hosts, and that every program is there that they are made with.
///
/// # Errors
/// Everything that is missing, with what to install.
pub fn check_hosts() -> Result<()> {
    check_root()?;
    refuse(&missing(&PROGRAMS))
}

/// Checks that every program is there that harms NICs.
///
/// # Errors
/// Everything that is missing, with what to install.
pub fn check_faults() -> Result<()> {
    refuse(&missing(&FAULTS))
}

/// Checks that guests can have an interface of their host.
///
/// # Errors
/// The kernel has none, or does not let the caller.
pub fn check_taps() -> Result<()> {
    let opened = File::options().read(true).write(true).open(TUN);
    let failed = || format!("{TUN} cannot be opened (modprobe tun)");
    opened.with_context(failed).map(drop)
}

/// Checks that this machine has what an emulated host is made with: its files are read by root, and modules unpacked.
///
/// # Errors
/// Everything that is missing, with what to install.
pub(crate) fn check_emulated(qemu: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("not root: an emulated host reads all files of this machine");
    }
    let mut missing = missing(&EMULATED);
    if !qemu.is_file() {
        missing.push((qemu.to_str().unwrap_or("qemu"), "qemu-system-x86"));
    }
    refuse(&missing)
}

fn check_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "not root: the lab makes network namespaces and shapes their interfaces; run it with \
             sudo (it touches no interface of this machine)"
        );
    }
    Ok(())
}

type Program<'a> = (&'a str, &'a str);

fn missing<'a>(programs: &[Program<'a>]) -> Vec<Program<'a>> {
    let absent = |(program, _): &&Program<'a>| command::find(program).is_none();
    programs.iter().filter(absent).copied().collect()
}

fn refuse(missing: &[Program<'_>]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    bail!(
        "missing: {}; install with: apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    )
}

/// The first version whose emulation keeps track of every write of a guest that is being moved.
///
/// Older ones forget to: a fast path of `cpu_physical_memory_sync_dirty_bitmap` leaves the emulated
/// TLB as it was (qemu-devel, February 2024, "physmem: Fix migration dirty bitmap coherency with TCG
/// memory access", meant for 9.0). Tried: 7.2, which damages guests, and 10.0, which does not; the
/// versions between are taken from that discussion. The figures stand in docs/LAB.md.
const EMULATION_IS_RIGHT: (u32, u32) = (9, 0);

/// Checks that this QEMU can move a running guest on this machine without damaging it.
///
/// # Errors
/// It cannot; what to use instead.
pub async fn check_guest(qemu: &Path) -> Result<()> {
    if has_hardware_virtualisation() {
        return Ok(());
    }
    let told = command::run(&qemu.to_string_lossy(), &["--version"]).await?;
    let Some(version) = version(&told) else {
        bail!("{} does not tell its version: {told:?}", qemu.display());
    };
    if version < EMULATION_IS_RIGHT {
        bail!(
            "this machine has no hardware virtualisation, and QEMU {}.{} ({}) loses writes of an \
             emulated guest while it is moved, by whatever method; use QEMU 9.0 or newer (Debian \
             12: apt-get install -t bookworm-backports qemu-system-x86), or another machine",
            version.0,
            version.1,
            qemu.display()
        );
    }
    Ok(())
}

/// Checks that this machine has what the contents of these guests are made with.
///
/// # Errors
/// What is missing, with what to install.
pub fn check_contents(guests: &[GuestSettings]) -> Result<()> {
    let all = guests.iter().map(|guest| guest.contents);
    all.collect::<BTreeSet<_>>()
        .into_iter()
        .try_for_each(contents::check)
}

/// Checks that this machine has the memory that guests of a lab take.
///
/// # Errors
/// It has less; both numbers.
pub fn check_memory(lab: &LabSettings, guests: &[GuestSettings]) -> Result<()> {
    fits(lab, guests, available_memory())
}

fn fits(lab: &LabSettings, guests: &[GuestSettings], available: Option<Bytes>) -> Result<()> {
    let needed = needed(lab, guests);
    match available {
        Some(available) if needed > available && !guests.is_empty() => bail!(
            "guests do not fit: {} on {} hosts take {needed} of memory (each its own, those of \
             one host twice while it is emptied, and {} that agents leave free), and this machine \
             has {available} left; ask for fewer guests, or smaller ones (--memory of one, \
             --content of several)",
            guests.len(),
            lab.hosts,
            Bytes(limits::HEADROOM)
        ),
        _ => Ok(()),
    }
}

/// Memory for all guests, while those of the fullest host are on two.
fn needed(lab: &LabSettings, guests: &[GuestSettings]) -> Bytes {
    let of_host = |host: usize| -> u64 {
        let all = guests.iter().enumerate();
        let at_home = all.filter(|(number, _)| lab.home_of(*number) == host);
        at_home.map(|(_, guest)| guest.memory.0).sum()
    };
    let hosts: Vec<u64> = (0..lab.hosts).map(of_host).collect();
    let fullest = hosts.iter().max().copied().unwrap_or_default();
    Bytes(hosts.iter().sum::<u64>() + fullest + limits::HEADROOM)
}

/// Checks that there is room where a lab's hosts keep a guest's own disk, on two of them while it moves.
///
/// # Errors
/// There is less; both numbers, and where there may be more.
pub(crate) fn check_disks(folder: &Path, disk: &LocalDisk) -> Result<()> {
    let room = rustix::fs::statvfs(folder)
        .with_context(|| format!("cannot look at {}", folder.display()))?;
    let free = Bytes(room.f_bavail.saturating_mul(room.f_frsize));
    let needed = Bytes(disk.content.0.saturating_mul(2));
    if needed > free {
        bail!(
            "{disk} takes {needed} on two hosts, and {} has {free} left: have DROVER_LAB_RUN name a folder with more room, or write less \
             (--disk-content)",
            folder.display()
        );
    }
    Ok(())
}

/// Major and minor of `QEMU emulator version 10.0.2 (…)`.
fn version(told: &str) -> Option<(u32, u32)> {
    let mut numbers = told
        .split("version ")
        .nth(1)?
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether this machine can run a stock guest kernel with hardware help. `/dev/kvm` alone does
/// not tell: it may be there without it.
#[must_use]
pub fn has_hardware_virtualisation() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text
        .lines()
        .find(|line| line.starts_with("flags"))
        .unwrap_or("");
    flags
        .split_whitespace()
        .any(|flag| flag == "vmx" || flag == "svm")
        && Path::new("/dev/kvm").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_qemu_are_read_from_its_own_words() {
        assert_eq!(
            version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\n"),
            Some((10, 0))
        );
        assert_eq!(
            version("QEMU emulator version 7.2.22 (Debian 1:7.2)"),
            Some((7, 2))
        );
        assert_eq!(version("command not found"), None);
    }

    fn lab(hosts: usize) -> LabSettings {
        LabSettings {
            name: "x".parse().unwrap(),
            hosts,
            nics: vec![None],
            addressing: Vec::new(),
            mtu: 9000,
            agents: crate::settings::AgentSettings::default(),
        }
    }

    fn guests(memory: &[u64]) -> Vec<GuestSettings> {
        let guest = |mib: &u64| GuestSettings {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            machine: "q35".into(),
            memory: Bytes(mib << 20),
            vcpus: 1,
            content: Bytes(0),
            contents: crate::settings::Contents::Mix,
            mix: "files=1".into(),
            common: 0,
            dirty: "none".parse().unwrap(),
            touch: 512,
            verify: Bytes(0),
            seed: 1,
            disk: None,
        };
        memory.iter().map(guest).collect()
    }

    #[test]
    fn guests_take_their_memory_and_those_of_the_fullest_host_twice() {
        let mib = |lab, memory: &[u64]| needed(&lab, &guests(memory)).0 >> 20;
        assert_eq!(mib(lab(2), &[1024]), 1024 + 1024 + 512);
        // At home on a, b and a again.
        assert_eq!(mib(lab(2), &[100, 200, 300]), 600 + 400 + 512);
        assert_eq!(mib(lab(3), &[100, 200, 300]), 600 + 300 + 512);
    }

    #[test]
    fn guests_that_do_not_fit_this_machine_are_refused_with_both_numbers() {
        let (lab, all) = (lab(3), guests(&[1024, 1024]));
        let room = |mib: u64| Some(Bytes(mib << 20));
        assert!(fits(&lab, &all, room(3584)).is_ok());
        assert!(fits(&lab, &all, None).is_ok());
        assert!(fits(&lab, &[], room(1)).is_ok());
        let refused = fits(&lab, &all, room(3072)).unwrap_err().to_string();
        for words in ["2 on 3 hosts take 3.5 GiB", "has 3 GiB left", "--content"] {
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_missing_qemu_is_named_with_the_package_that_has_it() {
        let missing = check(Path::new("/no/qemu")).unwrap_err().to_string();
        if rustix::process::geteuid().is_root() {
            assert!(
                missing.contains("/no/qemu") && missing.contains("qemu-system-x86"),
                "{missing}"
            );
        } else {
            assert!(missing.contains("not root"), "{missing}");
        }
    }
}
