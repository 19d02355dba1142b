//! What there is of the host's libvirt.

use std::collections::BTreeMap;

use drover_api::VmState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::moment::word;
use crate::libvirt::{Contact, Seen, state};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Domains {
    state: String,
}

/// Nothing of a host on which it is not used.
pub fn register(registry: &mut Registry, seen: &Seen) {
    if matches!(seen.contact, Contact::Off | Contact::Absent(_)) {
        return;
    }
    let is_connected: Gauge = Gauge::default();
    if let Contact::Connected {
        daemon, hypervisor, ..
    } = &seen.contact
    {
        is_connected.set(1);
        let versions = [
            ("version", daemon.clone()),
            ("hypervisor", hypervisor.clone()),
        ];
        registry.register(
            "libvirt",
            "libvirtd, while it is reached",
            Info::new(versions),
        );
    }
    registry.register(
        "libvirt_connected",
        "Whether libvirt is reached, where it is used",
        is_connected,
    );
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    if let Some(domains) = &seen.domains {
        let told = domains.told.iter().map(|domain| state(domain.state));
        let untold = domains.untold.iter().map(|_| VmState::Unknown);
        for state in told.chain(untold) {
            *counts.entry(word(&state)).or_default() += 1;
        }
    }
    let family: Family<Domains, Gauge> = Family::default();
    for (state, count) in counts {
        family.get_or_create(&Domains { state }).set(count);
    }
    registry.register(
        "libvirt_domains",
        "Domains of this host's libvirt, as it told of them last",
        family,
    );
}
