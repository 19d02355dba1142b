//! What an operator asks for.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{HostName, VmName};
use serde::{Deserialize, Serialize};

/// Hosts to which a guest is not moved, since a move of it there failed a moment ago. Names that the
/// inventory does not have are no error: the guest or the host may be gone.
///
/// A guest that is named here is never stopped, suspended or waited for where it finds no other place:
/// it runs on, whatever its policy wants, and the others are planned without it. It may still be
/// started anew on the hosts that it avoids, should its own be lost.
pub type Avoid = BTreeMap<VmName, BTreeSet<HostName>>;

/// What a plan is wanted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Move every guest off these hosts.
    Drain {
        /// The hosts.
        hosts: BTreeSet<HostName>,
        /// What is not moved where.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        avoid: Avoid,
        /// Disks that only their own host has are copied with the guests that have them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_disks: bool,
    },
    /// Let a host take guests again, and bring home those that left it.
    Resume {
        /// The host.
        host: HostName,
        /// The VMs that left it, in the order in which they left; empty to bring none home.
        homes: Vec<VmName>,
        /// What is not moved where.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        avoid: Avoid,
        /// Disks that only their own host has are copied with the guests that have them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_disks: bool,
    },
    /// Move guests from full hosts to less full ones.
    Rebalance {
        /// Nothing moves for less: by how much the standard deviation of the hosts' loads has to
        /// shrink, in hundredths of a percentage point.
        min_gain: u32,
        /// At most so many guests.
        most_moves: u32,
        /// What is not moved where.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        avoid: Avoid,
        /// Disks that only their own host has are copied with the guests that have them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_disks: bool,
    },
}

impl Request {
    /// Whether this host's own state is what the request is about to change.
    #[must_use]
    pub fn is_about(&self, name: &HostName) -> bool {
        match self {
            Self::Drain { hosts, .. } => hosts.contains(name),
            Self::Resume { host, .. } => host == name,
            Self::Rebalance { .. } => false,
        }
    }

    /// What is not moved where.
    #[must_use]
    pub fn avoid(&self) -> &Avoid {
        match self {
            Self::Drain { avoid, .. }
            | Self::Resume { avoid, .. }
            | Self::Rebalance { avoid, .. } => avoid,
        }
    }

    /// Whether disks that only their own host has are copied with the guests that have them.
    #[must_use]
    pub fn with_disks(&self) -> bool {
        match self {
            Self::Drain { with_disks, .. }
            | Self::Resume { with_disks, .. }
            | Self::Rebalance { with_disks, .. } => *with_disks,
        }
    }
}
