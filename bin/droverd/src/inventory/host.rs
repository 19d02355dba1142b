//! This host as a plan knows it.

use drover_host::HostError;
use drover_plan::inventory::{DiskRoom, Host, HostState};
use drover_types::Bytes;

use super::{line, processor};
use crate::agent::Context;
use crate::facts;

/// What a host needs for itself is told in multiples of this: it changes with every process, and a plan must not
/// be outdated by that.
const HOST_GRAIN: Bytes = Bytes(512 << 20);

/// The host, and what was assumed of it. `of_guests` is what its guests' processes have of its memory.
///
/// # Errors
/// The kernel does not tell its memory, CPUs, processor or interfaces.
pub async fn host(context: &Context, of_guests: Bytes) -> Result<(Host, Vec<String>), HostError> {
    let config = &context.config;
    let memory = facts::memory()?;
    let model = facts::processor()?.model;
    let interfaces = facts::interfaces().await?;
    let limits = context.sharing.list(&[], &config.networks).await;
    let (bandwidth, mut notes) = line::bandwidth(&interfaces, &config.networks, &limits);
    let (offers, silent) = context.inventory.offers.of(&config.qemu_binaries).await;
    if offers.is_empty() {
        notes.push("no QEMU of `qemu.binaries` answers: it takes no guests".to_owned());
    }
    notes.extend(silent);
    let state = match context.cordon.view() {
        Some(_) => HostState::Cordoned,
        None => HostState::Ready,
    };
    let used = memory.total.0.saturating_sub(memory.available.0);
    let host = Host {
        name: config.host.clone(),
        state,
        facts_age_seconds: 0,
        memory: memory.total,
        memory_for_host: for_host(memory.total, Bytes(used), of_guests, config.memory_headroom),
        cpus: facts::cpus()?,
        cpu: processor::host_cpu(&model, &offers),
        labels: config.labels.clone(),
        bandwidth,
        qemu: processor::oldest(&offers),
        inbound: None,
        outbound: None,
        lacks: [].into(),
        disks: DiskRoom::default(),
    };
    Ok((host, notes))
}

/// What others than guests use now, and what no guest may take.
fn for_host(total: Bytes, used: Bytes, of_guests: Bytes, headroom: Bytes) -> Bytes {
    let others = used.0.saturating_sub(of_guests.0);
    let kept = others.saturating_add(headroom.0);
    let grains = kept.div_ceil(HOST_GRAIN.0);
    Bytes(grains.saturating_mul(HOST_GRAIN.0).min(total.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_what_others_than_guests_use_and_its_headroom() {
        let gib = |count: u64| Bytes(count << 30);
        let kept = |used, of_guests| for_host(gib(64), gib(used), gib(of_guests), gib(2));
        assert_eq!(kept(40, 30), gib(12));
        // Memory that guests share is counted once by the kernel, and by each of them.
        assert_eq!(kept(40, 50), gib(2));
        assert_eq!(kept(63, 0), gib(64));
        let almost = for_host(gib(64), Bytes((10 << 30) + 1), Bytes(0), Bytes(0));
        assert_eq!(
            almost,
            Bytes((10 << 30) + HOST_GRAIN.0),
            "small changes are not seen"
        );
    }
}
