//! Hosts with lines of different rates, and the guests on them.

use std::collections::{BTreeMap, BTreeSet};

use drover_plan::inventory::{GuestCpu, Host, HostCpu, HostState, Inventory, Vm, VmState};
use drover_plan::policy::VmPolicy;
use drover_types::{BitRate, ByteRate, Bytes, HostName};

use crate::dice::Dice;

const GIB: u64 = 1 << 30;
const GUESTS_PER_HOST: usize = 20;

/// Hosts of 512 GiB; two of three have two ports of 25 Gbit/s, the others two of 10.
fn host(index: usize) -> Host {
    let gbit = if index % 3 == 2 { 20 } else { 50 };
    Host {
        name: format!("h{index:04}").parse().unwrap(),
        state: HostState::Ready,
        facts_age_seconds: 1,
        memory: Bytes(512 * GIB),
        memory_for_host: Bytes(16 * GIB),
        cpus: 128,
        cpu: HostCpu {
            model: "EPYC-Milan".parse().unwrap(),
            features: BTreeSet::new(),
            models: ["x86-64-v3".parse().unwrap()].into(),
        },
        labels: BTreeMap::new(),
        bandwidth: BitRate(gbit * 1_000_000_000),
        qemu: "10.0.2".parse().unwrap(),
        inbound: None,
        outbound: None,
        lacks: [].into(),
        disks: Default::default(),
    }
}

/// 4 to 32 GiB, a quarter to all of it written to; most dirty little, one in ten up to 1 GiB/s.
fn guest(index: usize, dice: &mut Dice) -> Vm {
    let memory = GIB * [4, 8, 8, 16, 16, 16, 32][usize::try_from(dice.below(7)).unwrap()];
    let busy = if dice.chance(100) { GIB } else { 64 << 20 };
    Vm {
        name: format!("g{index:05}").parse().unwrap(),
        host: format!("h{:04}", index / GUESTS_PER_HOST).parse().unwrap(),
        called: None,
        moving_to: None,
        state: VmState::Running,
        memory: Bytes(memory),
        memory_used: Bytes(memory / 4 * (1 + dice.below(4))),
        vcpus: 4,
        cpu: GuestCpu::Named {
            model: Some("x86-64-v3".parse().unwrap()),
            features: BTreeSet::new(),
        },
        dirty_rate: Some(ByteRate(dice.below(busy))),
        working_set: Some(Bytes(memory / 16)),
        downtime_limit_ms: 300,
        throttle_most: Some(Default::default()),
        deadline: None,
        needs: [].into(),
        disks: None,
        blockers: Vec::new(),
        policy: VmPolicy::default(),
    }
}

/// A cluster of so many hosts.
pub fn cluster(hosts: usize, seed: u64) -> Inventory {
    let mut dice = Dice::new(seed);
    Inventory {
        hosts: (0..hosts).map(host).collect(),
        vms: (0..hosts * GUESTS_PER_HOST)
            .map(|index| guest(index, &mut dice))
            .collect(),
    }
}

/// The hosts in groups that are drained one after another, each with hosts from everywhere.
pub fn groups(inventory: &Inventory, count: usize) -> Vec<BTreeSet<HostName>> {
    let mut groups = vec![BTreeSet::new(); count];
    for (index, host) in inventory.hosts.iter().enumerate() {
        groups[index % count].insert(host.name.clone());
    }
    groups
}
