//! The machine that something was measured on.

use std::fs;
use std::path::Path;

use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::require::has_hardware_virtualisation;

/// What a figure must be read with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors.
    pub cores: usize,
    /// Memory.
    pub memory: Bytes,
    /// The kernel's release.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
    /// libvirt's version, where a domain of it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<String>,
    /// Whether guests are emulated, which takes CPU from everything else.
    pub emulated: bool,
    /// Processes that wanted to run, averaged over a minute, when it was looked at.
    pub load: String,
}

impl Machine {
    /// This one, with this QEMU.
    pub async fn look(qemu: &Path) -> Self {
        let version = run(&qemu.to_string_lossy(), &["--version"])
            .await
            .unwrap_or_default();
        let version = version.lines().next().unwrap_or("unknown");
        let words = version
            .strip_prefix("QEMU emulator version ")
            .unwrap_or(version);
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: Bytes(kibibytes(&field("/proc/meminfo", "MemTotal")) << 10),
            kernel: read("/proc/sys/kernel/osrelease"),
            qemu: words.to_owned(),
            libvirt: None,
            emulated: !has_hardware_virtualisation(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

/// Memory that programs can still have; `None` where the kernel does not tell.
pub(crate) fn available_memory() -> Option<Bytes> {
    let available = kibibytes(&field("/proc/meminfo", "MemAvailable"));
    (available > 0).then_some(Bytes(available << 10))
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The value of the first line `name : value` of a file.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let found = pairs.find(|(key, _)| key.trim() == name);
    found
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn kibibytes(text: &str) -> u64 {
    text.trim_end_matches(" kB").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = Machine::look(Path::new("/no/qemu")).await;
        assert!(machine.cores > 0 && machine.memory.0 > 0 && !machine.kernel.is_empty());
        assert_eq!(machine.qemu, "unknown");
    }
}
