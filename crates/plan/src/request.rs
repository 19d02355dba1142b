//! What an operator asks for.

use std::collections::BTreeSet;

use drover_types::{HostName, VmName};
use serde::{Deserialize, Serialize};

/// What a plan is wanted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Move every guest off these hosts.
    Drain {
        /// The hosts.
        hosts: BTreeSet<HostName>,
    },
    /// Let a host take guests again, and bring home those that left it.
    Resume {
        /// The host.
        host: HostName,
        /// The VMs that left it, in the order in which they left; empty to bring none home.
        homes: Vec<VmName>,
    },
    /// Move guests from full hosts to less full ones.
    Rebalance {
        /// Nothing moves for less: by how much the standard deviation of the hosts' loads has to
        /// shrink, in hundredths of a percentage point.
        min_gain: u32,
        /// At most so many guests.
        most_moves: u32,
    },
}

impl Request {
    /// Whether this host's own state is what the request is about to change.
    #[must_use]
    pub fn is_about(&self, name: &HostName) -> bool {
        match self {
            Self::Drain { hosts } => hosts.contains(name),
            Self::Resume { host, .. } => host == name,
            Self::Rebalance { .. } => false,
        }
    }
}
