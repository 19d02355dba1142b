//! What a lab needs of the machine, checked before anything is changed.

use std::path::Path;

use anyhow::{Result, bail};

use crate::command;

/// A program, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("mount", "mount"),
    ("busybox", "busybox-static"),
    ("sh", "dash"),
];

/// Checks that the caller may make namespaces and that every program is there.
///
/// # Errors
/// Everything that is missing, with what to install.
pub fn check(qemu: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "not root: the lab makes network namespaces and shapes their interfaces; run it with \
             sudo (it touches no interface of this machine)"
        );
    }
    let mut missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(program, _)| command::find(program).is_none())
        .copied()
        .collect();
    if !qemu.is_file() {
        missing.push((qemu.to_str().unwrap_or("qemu"), "qemu-system-x86"));
    }
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
