//! What is wanted: of each VM, and of the cluster as a whole.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{BitRate, Bytes, HostName};
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::words::Word;

/// What is wanted for one VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VmPolicy {
    /// Groups whose VMs are to be on one host. One that is hard for a VM is hard for all of its VMs.
    pub together: Vec<Membership>,
    /// Groups whose VMs are to be on different hosts. Two of them never meet if it is hard for either.
    pub apart: Vec<Membership>,
    /// Where it may be.
    pub pinned: Pins,
    /// Higher ones move first: 0 to 100.
    pub priority: u8,
    /// What to do where it cannot move.
    pub cannot_move: CannotMove,
    /// How long it is given to shut down for that, in seconds: 1 to 3600. One that takes longer runs on.
    // A policy that does not name it has the digest that it had before there was such a key.
    #[serde(skip_serializing_if = "is_usual")]
    pub stop_within_seconds: u32,
}

fn is_usual(seconds: &u32) -> bool {
    *seconds == limits::STOP_SECONDS
}

impl Default for VmPolicy {
    fn default() -> Self {
        Self {
            together: Vec::new(),
            apart: Vec::new(),
            pinned: Pins::default(),
            priority: 0,
            cannot_move: CannotMove::default(),
            stop_within_seconds: limits::STOP_SECONDS,
        }
    }
}

/// That a VM belongs to a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// The group.
    pub group: Word,
    /// Whether it may be broken where there is no other way.
    #[serde(default)]
    pub strength: Strength,
}

/// Whether a rule may be broken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// Never.
    #[default]
    Hard,
    /// Where a guest would find no place otherwise.
    Soft,
}

/// Where a VM may be: on one of the hosts, if any are named, and on a host with all of the labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pins {
    /// The hosts; none means every host.
    pub hosts: BTreeSet<HostName>,
    /// Labels that the host must have.
    pub labels: BTreeMap<Word, Word>,
}

/// What happens to a VM that cannot move off a host that is drained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CannotMove {
    /// There is no plan.
    #[default]
    Block,
    /// It runs on where it is, and the host does not become empty.
    Skip,
    /// Its memory is written to disk, and it goes on from there when its host is back.
    Suspend,
    /// It is shut down, and started again when its host is back.
    StopAndStart,
}

/// What is wanted of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterPolicy {
    /// Memory that stays free on each host.
    pub headroom: Headroom,
    /// What the cluster must be able to lose afterwards, and at every moment until then.
    pub keep: KeepLosses,
    /// The label that says which failure domain a host is in, such as `rack`.
    pub failure_domain: Option<Word>,
    /// Whether VMs that are kept apart are kept in different failure domains.
    pub spread: Spread,
    /// Migrations to one host at once.
    pub inbound: u32,
    /// Migrations from one host at once.
    pub outbound: u32,
    /// Migrations in the cluster at once; none as many as its hosts may have.
    pub at_once: Option<u32>,
    /// The most that one guest was seen to fill of a line; none where one fills any line.
    pub guest_bandwidth: Option<BitRate>,
    /// vCPUs per 100 CPUs of a host: 400 is four on each.
    pub vcpus_percent: u32,
    /// Facts that are older, in seconds, are not planned with.
    pub facts_at_most_seconds: u64,
    /// Whether a guest may move to an older QEMU than it runs on.
    pub allow_older_qemu: bool,
    /// Whether guests of other hosts may be moved to make room.
    pub allow_displacing: bool,
}

impl Default for ClusterPolicy {
    /// As careful as the products that people come from: one host may be lost, one migration at a
    /// time in each direction, four vCPUs on a CPU, facts of a minute.
    fn default() -> Self {
        Self {
            headroom: Headroom::Percent { percent: 5 },
            keep: KeepLosses::default(),
            failure_domain: None,
            spread: Spread::default(),
            inbound: 1,
            outbound: 2,
            at_once: None,
            guest_bandwidth: None,
            vcpus_percent: 400,
            facts_at_most_seconds: 60,
            allow_older_qemu: false,
            allow_displacing: false,
        }
    }
}

impl ClusterPolicy {
    /// Migrations in the cluster at once. Where nothing is said, only what bounds a run whose hosts may
    /// have more together.
    #[must_use]
    pub fn in_cluster(&self) -> u32 {
        self.at_once.unwrap_or(limits::AT_ONCE_IN_CLUSTER)
    }
}

/// Memory that stays free on each host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Headroom {
    /// As much on each.
    Size {
        /// How much.
        bytes: Bytes,
    },
    /// A part of its memory, rounded up.
    Percent {
        /// 0 to 100.
        percent: u8,
    },
}

/// How many hosts or failure domains may be lost, with a place for every guest that was on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepLosses {
    /// How many at once.
    pub losses: u32,
    /// Of what.
    pub of: LossOf,
}

impl Default for KeepLosses {
    fn default() -> Self {
        Self {
            losses: 1,
            of: LossOf::Host,
        }
    }
}

/// What is lost at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossOf {
    /// A host.
    Host,
    /// All hosts of a failure domain. A host without its label is a domain by itself.
    FailureDomain,
}

/// What failure domains mean for VMs that are kept apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Nothing.
    #[default]
    Ignore,
    /// Different ones where there is a choice.
    Prefer,
    /// Different ones, as hard as the group itself.
    Require,
}
