//! Facts of a host's processors.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::CpuSet;
use serde::{Deserialize, Serialize};

use super::Fact;

/// The processors of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// Those that are online.
    pub online: Fact<CpuSet>,
    /// Those of them that nobody keeps the kernel off: neither isolated (`isolcpus`), nor without a clock's tick (`nohz_full`), nor left out
    /// of where interrupts are taken unless somebody says otherwise (`irqaffinity`).
    #[serde(default)]
    pub housekeeping: Fact<CpuSet>,
    /// On which core each is: hyperthreads share one.
    pub cores: Fact<BTreeMap<u32, Core>>,
    /// The NUMA nodes that have processors.
    pub nodes: Fact<Vec<Node>>,
    /// How many of them each governor of their frequency has.
    pub governors: Fact<BTreeMap<String, u32>>,
    /// How many of them each driver of their frequency has.
    pub drivers: Fact<BTreeMap<String, u32>>,
    /// How many of them each preference of energy or performance has (`energy_performance_preference`).
    #[serde(default)]
    pub preferences: Fact<BTreeMap<String, u32>>,
    /// Who chooses the rate of one or several of them, by the number of the policy (`cpufreq/policyN`).
    #[serde(default)]
    pub policies: Fact<BTreeMap<u32, Policy>>,
    /// How fast they may run.
    #[serde(default)]
    pub frequencies: Fact<Frequencies>,
    /// Idle states that any of them may go into, with the most microseconds that one takes to wake from each.
    #[serde(default)]
    pub idle: Fact<BTreeMap<String, u32>>,
}

/// Who keeps processors from sleeping deeply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waking {
    /// Microseconds that they may take to wake while a guest moves, if the agent has its way (`migration.cpu_latency`); none where it asks
    /// for nothing.
    pub wished_us: Option<u32>,
    /// The same as the kernel holds them to it now, whoever asks (`/dev/cpu_dma_latency`); not known where the agent cannot ask.
    pub held_us: Fact<u32>,
}

/// How the rate of some processors is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its governor.
    pub governor: String,
    /// Governors that it may have.
    pub available: BTreeSet<String>,
    /// Energy or performance, where its hardware chooses (`energy_performance_preference`).
    pub preference: Option<String>,
}

/// How fast processors may run, in kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequencies {
    /// The lowest that one of them is let go down to (`scaling_min_freq`).
    pub least: u64,
    /// The highest that one of them can (`cpuinfo_max_freq`).
    pub most: u64,
}

/// A core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Core {
    /// Socket.
    pub package: u32,
    /// Number there.
    pub core: u32,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors.
    pub cpus: CpuSet,
    /// How far it is to the memory of each node, by its number, in tenths of the way to its own (ACPI's SLIT: 10 is itself); empty where the
    /// kernel does not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distances: BTreeMap<u32, u32>,
}

impl Processors {
    /// How many cores these processors are on.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn cores_of(&self, cpus: &CpuSet) -> Result<u32, &str> {
        let cores = self.cores.get()?;
        let mut on: Vec<Core> = cpus
            .iter()
            .filter_map(|cpu| cores.get(&cpu).copied())
            .collect();
        on.sort_unstable();
        on.dedup();
        Ok(on.len() as u32)
    }
}
