//! Facts of a host's processors.

use std::collections::BTreeMap;

use drover_types::CpuSet;
use serde::{Deserialize, Serialize};

use super::Fact;

/// The processors of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// Those that are online.
    pub online: Fact<CpuSet>,
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
    /// How fast they may run.
    #[serde(default)]
    pub frequencies: Fact<Frequencies>,
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
