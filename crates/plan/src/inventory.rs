//! The facts that a plan is made from: hosts, what they have, and the VMs on them.
//!
//! Facts are data with their age; whoever collects them owns the clock. Reading them in does not
//! make them consistent: [`crate::plan`] refuses an inventory that contradicts itself.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::{
    AtDeadline, BitRate, ByteRate, Bytes, Deadline, HostName, ThrottleMost, VmName,
};
use serde::{Deserialize, Serialize};

use crate::policy::VmPolicy;
use crate::words::{QemuVersion, Text, Word};

/// All hosts of a cluster and all VMs on them. The order of neither matters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The VMs.
    pub vms: Vec<Vm>,
}

impl Inventory {
    /// Brings both into the order of their names.
    pub fn sort(&mut self) {
        self.hosts
            .sort_unstable_by(|one, other| one.name.cmp(&other.name));
        self.vms
            .sort_unstable_by(|one, other| one.name.cmp(&other.name));
    }
}

/// What may happen on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// Takes guests.
    Ready,
    /// Keeps its guests and takes no more.
    Cordoned,
    /// Does not answer; what is known of it is what it said last.
    Unreachable,
}

/// A host and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// What may happen on it.
    pub state: HostState,
    /// Seconds since these facts, and those of the VMs on it, were true.
    pub facts_age_seconds: u64,
    /// Its memory.
    pub memory: Bytes,
    /// What of it the host needs for itself.
    pub memory_for_host: Bytes,
    /// CPUs (hardware threads) that guests may use.
    pub cpus: u32,
    /// What its processor is and can do.
    pub cpu: HostCpu,
    /// Labels, such as `rack` = `r1`.
    #[serde(default)]
    pub labels: BTreeMap<Word, Word>,
    /// What its NICs for migrations carry together.
    pub bandwidth: BitRate,
    /// Its QEMU.
    pub qemu: QemuVersion,
    /// Migrations to it at once, where not as everywhere.
    #[serde(default)]
    pub inbound: Option<u32>,
    /// Migrations from it at once, where not as everywhere.
    #[serde(default)]
    pub outbound: Option<u32>,
    /// What VMs need and was looked for on it and is not there, by the words of [`Vm::needs`], and how that shows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacks: BTreeMap<Text, Text>,
    /// Its room for disks that come with VMs.
    #[serde(default, skip_serializing_if = "DiskRoom::is_empty")]
    pub disks: DiskRoom,
}

/// A host's room for files of disks that come with VMs ([`Vm::disks`]), by the folder that they would be in: of several on one file
/// system one stands for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRoom {
    /// What is free.
    pub free: BTreeMap<Text, Bytes>,
    /// What the disks of each VM may come to there, less the files of its own that they replace.
    pub wanted: BTreeMap<VmName, BTreeMap<Text, Bytes>>,
}

impl DiskRoom {
    fn is_empty(&self) -> bool {
        self.free.is_empty() && self.wanted.is_empty()
    }
}

/// In front of names of processors' models and features that QEMU emulates: they depend on QEMU, and not on the host's processor.
pub const EMULATED: &str = "tcg/";

/// A host's processor as guests see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCpu {
    /// What it is.
    pub model: Word,
    /// The features that a guest may be given.
    pub features: BTreeSet<Word>,
    /// QEMU's named models that run here with all that belongs to them (QMP `query-cpu-definitions`,
    /// those without `unavailable-features`).
    #[serde(default)]
    pub models: BTreeSet<Word>,
}

impl HostCpu {
    /// The features that a guest has to which all of the processor is passed. None where no QEMU tells of the hardware.
    pub fn passed(&self) -> impl Iterator<Item = &Word> {
        let features = self.features.iter();
        features.filter(|feature| !feature.as_str().starts_with(EMULATED))
    }
}

/// What a guest was given as its processor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum GuestCpu {
    /// A named model, and features beside it.
    Named {
        /// The model; none where the features say all.
        #[serde(default)]
        model: Option<Word>,
        /// Features that it must be given.
        #[serde(default)]
        features: BTreeSet<Word>,
    },
    /// All that its host has: it moves only to hosts with the same processor and at least the same
    /// features.
    Passthrough,
}

/// What a VM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmState {
    /// Runs.
    Running,
    /// Is in memory and stands still.
    Paused,
    /// Is not in memory.
    Stopped,
}

/// What an agent does that says nothing of it.
#[allow(clippy::unnecessary_wraps, reason = "the default of an option")]
fn throttled() -> Option<ThrottleMost> {
    Some(ThrottleMost::default())
}

/// How long a guest's memory may be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyDeadline {
    /// So long.
    pub seconds: Deadline,
    /// What is done then.
    pub then: AtDeadline,
}

/// Disks that are copied with a VM, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disks {
    /// Bytes that the guest sees: what there is to be carried at most.
    pub size: Bytes,
    /// Bytes that it has written to so far: what there is to be carried, for all else is a hole.
    pub allocated: Bytes,
}

/// A VM and what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its name.
    pub name: VmName,
    /// What people call it, where that is not its name: a domain of libvirt's is named by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Text>,
    /// The host that it is on.
    pub host: HostName,
    /// Where it is being moved to already. It counts on both hosts, and stays out of the plan.
    #[serde(default)]
    pub moving_to: Option<HostName>,
    /// What it does.
    pub state: VmState,
    /// Memory that is kept for it, its QEMU's own included.
    pub memory: Bytes,
    /// Memory that it has written to so far: what there is to be carried.
    pub memory_used: Bytes,
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its processor.
    pub cpu: GuestCpu,
    /// What a host has to have for it beside room, a processor and QEMU, each in words, such as a network of libvirt's. A host takes it
    /// that is not known to lack any ([`Host::lacks`]).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<Text>,
    /// Disks that only its host has, which are copied with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Disks>,
    /// How fast it writes to pages; none where it was not sampled.
    #[serde(default)]
    pub dirty_rate: Option<ByteRate>,
    /// The memory that it keeps writing to; none where that is not known.
    #[serde(default)]
    pub working_set: Option<Bytes>,
    /// How long it may stand still, in milliseconds.
    pub downtime_limit_ms: u64,
    /// The most of its time that its hypervisor may have it stand still so that its migration ends; none where it
    /// is not slowed down.
    #[serde(default = "throttled")]
    pub throttle_most: Option<ThrottleMost>,
    /// What is done where its memory is not copied in time; none where it may take for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<CopyDeadline>,
    /// Why it cannot be moved: by its hypervisor's word (QMP `query-migrate`, `blocked-reasons`), such as for a device
    /// of the host that was given to it, or by its agent's.
    #[serde(default)]
    pub blockers: Vec<Text>,
    /// What is wanted for it.
    #[serde(default)]
    pub policy: VmPolicy,
}
