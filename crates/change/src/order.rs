//! What a process is to carry out.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use drover_tune::lasting::{ByHand, NotKept, Rewrite};
use drover_types::HostName;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// A plan, and what has to work afterwards as it did before. In the plan's folder before the first record of its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What is done.
    pub plan: Plan,
    /// Paths to other hosts. Those that work before have to work after.
    pub paths: Vec<PathTo>,
    /// Interfaces of the plan that have to have a carrier afterwards, whether they have one before or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Migrations that were under way from or to this host as it was made: what crosses beside them tells nothing of its paths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moving: usize,
    /// How it is to last beyond a restart, if it is to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasts>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Order {
    /// Files that are rewritten once all is proved.
    #[must_use]
    pub fn files(&self) -> &[Rewrite] {
        self.lasting.as_ref().map_or(&[], |lasts| &lasts.files)
    }
}

/// What lasts beyond a restart by files that are written, and what does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lasts {
    /// What is written.
    pub files: Vec<Rewrite>,
    /// What people have to do, that the rest lasts.
    pub by_hand: Vec<ByHand>,
    /// Settings that nobody keeps.
    pub not_kept: Vec<NotKept>,
}

/// A path to another host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathTo {
    /// The other host.
    pub host: HostName,
    /// The interface of this one.
    pub nic: String,
    /// The address on it.
    pub from: IpAddr,
    /// Where the other one answers.
    pub to: SocketAddr,
}

impl fmt::Display for PathTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            nic,
            from,
            to,
        } = self;
        write!(f, "{nic} {from} to {host} {to}")
    }
}
