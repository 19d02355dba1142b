//! A host, its peers, and everything at a glance.

use std::net::SocketAddr;
use std::path::PathBuf;

use drover_types::{Bytes, HostName, Interface};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::cordon::CordonView;
use super::libvirt::LibvirtView;
use super::limit::LimitView;
use super::migration::MigrationView;
use super::vm::VmView;
use crate::error::Refusal;
use crate::schema::InterfaceSchema;

/// The version of the routes and types, the `v1` in every path.
pub const API_VERSION: u32 = 1;

/// The versions of the protocol between two relays that an agent speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolRange {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

impl ProtocolRange {
    /// The newest version that both speak.
    #[must_use]
    pub fn newest_common(self, other: Self) -> Option<u32> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// Memory of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryView {
    /// All of it.
    #[schema(value_type = u64)]
    pub total: Bytes,
    /// What the kernel says can be used without swapping (`MemAvailable`).
    #[schema(value_type = u64)]
    pub available: Bytes,
}

/// A host as its agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its name in the configuration.
    #[schema(value_type = String)]
    pub host: HostName,
    /// The agent's version.
    pub version: String,
    /// The version of this API.
    pub api_version: u32,
    /// Versions of the relays' protocol.
    pub protocol: ProtocolRange,
    /// Every interface, those that no migration would use included.
    #[schema(value_type = Vec<InterfaceSchema>)]
    pub interfaces: Vec<Interface>,
    /// Memory.
    pub memory: MemoryView,
    /// CPUs that are online.
    pub cpus: u32,
    /// The QEMU binaries that peers may have started here.
    #[schema(value_type = Vec<String>)]
    pub qemu_binaries: Vec<PathBuf>,
    /// That it takes no guests; none when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonView>,
    /// Domains of libvirt's can be moved here: its libvirt is reached.
    #[serde(default)]
    pub takes_domains: bool,
    /// Disks of guests of the agents' own can come with them.
    #[serde(default)]
    pub takes_disks: bool,
}

/// Another host of the cluster, and whether its agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerView {
    /// Its name, as in its certificate.
    #[schema(value_type = String)]
    pub host: HostName,
    /// Where its agent is asked, in this order.
    #[schema(value_type = Vec<String>)]
    pub api: Vec<SocketAddr>,
    /// Whether it answered just now.
    pub reachable: bool,
    /// Its agent's version, when it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it is not reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Refusal>,
}

/// Host, guests, migrations and peers in one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// This host.
    pub host: HostView,
    /// Every guest that is defined or runs here.
    pub vms: Vec<VmView>,
    /// Migrations under way and the recent ones, newest first.
    pub migrations: Vec<MigrationView>,
    /// The other hosts of the cluster.
    pub peers: Vec<PeerView>,
    /// Limits on what migrations may carry.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// Why no checkpoints are added or used here for now: their directory is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints_away: Option<String>,
    /// What there is of libvirt here; none of an agent that does not know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_agree_on_the_newest_version_that_both_speak() {
        let range = |min, max| ProtocolRange { min, max };
        assert_eq!(range(1, 3).newest_common(range(2, 5)), Some(3));
        assert_eq!(range(1, 1).newest_common(range(1, 1)), Some(1));
        assert_eq!(range(1, 2).newest_common(range(3, 4)), None);
        assert_eq!(range(3, 4).newest_common(range(1, 2)), None);
    }
}
