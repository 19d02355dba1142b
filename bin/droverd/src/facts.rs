//! Facts of this host, as the agent tells them.

use std::collections::BTreeMap;
use std::path::Path;

use drover_api::{API_VERSION, CordonView, HostView, MemoryView, ProtocolRange};
use drover_host::{HostError, Processor};
use drover_tune::facts::Slot;
use drover_types::{Interface, Placement};
use drover_wire::VersionRange;

use crate::config::Config;

/// Where facts are read from: this machine itself.
pub const ROOT: &str = "/";

/// The host's memory now.
///
/// # Errors
/// The kernel does not tell it.
pub fn memory() -> Result<MemoryView, HostError> {
    let memory = drover_host::memory(Path::new(ROOT))?;
    Ok(MemoryView {
        total: memory.total,
        available: memory.available,
    })
}

/// The host's network interfaces.
///
/// # Errors
/// The kernel does not tell them.
pub async fn interfaces() -> Result<Vec<Interface>, HostError> {
    drover_host::interfaces(Path::new(ROOT)).await
}

/// Whether there is a device below this interface, by the kernel's word.
pub fn has_hardware(nic: &str) -> bool {
    drover_host::has_hardware(Path::new(ROOT), nic)
}

/// How often the carrier of this interface went or came, where that is known.
pub fn carrier_changes(nic: &str) -> Option<u64> {
    drover_host::carrier_changes(Path::new(ROOT), nic)
}

/// How the slot of this interface's adapter works now, where it has one that limits it.
pub fn slot(nic: &str) -> Option<Slot> {
    drover_host::slot(Path::new(ROOT), nic)
}

/// Where lanes over these interfaces are to run.
///
/// # Errors
/// The kernel does not tell its interfaces.
pub async fn placements(names: &[&str]) -> Result<BTreeMap<String, Placement>, HostError> {
    drover_host::placements(Path::new(ROOT), names).await
}

/// The host's kind of processor.
///
/// # Errors
/// The kernel does not tell it.
pub fn processor() -> Result<Processor, HostError> {
    drover_host::processor(Path::new(ROOT))
}

/// CPUs that are online.
///
/// # Errors
/// The kernel does not tell them.
pub fn cpus() -> Result<u32, HostError> {
    Ok(drover_host::cpus(Path::new(ROOT))?.online)
}

/// CPUs of them that this agent and its relays may use.
///
/// # Errors
/// As [`cpus`].
pub fn usable_cpus() -> Result<u32, HostError> {
    Ok(drover_host::cpus(Path::new(ROOT))?.usable)
}

/// Versions of the relays' protocol that this agent speaks.
pub fn protocol() -> ProtocolRange {
    let range = VersionRange::SUPPORTED;
    ProtocolRange {
        min: range.min.0.into(),
        max: range.max.0.into(),
    }
}

/// This host as peers and the command line see it.
///
/// # Errors
/// The kernel does not tell its memory, CPUs or interfaces.
pub async fn host(
    config: &Config,
    cordon: Option<CordonView>,
    takes_domains: bool,
) -> Result<HostView, HostError> {
    Ok(HostView {
        host: config.host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version: API_VERSION,
        protocol: protocol(),
        interfaces: interfaces().await?,
        memory: memory()?,
        cpus: cpus()?,
        qemu_binaries: config.qemu_binaries.clone(),
        cordon,
        takes_domains,
        takes_disks: true,
    })
}
