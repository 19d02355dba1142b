//! Hosts and VMs with few words.

use drover_plan::inventory::{GuestCpu, Host, HostCpu, HostState, Inventory, Vm, VmState};
use drover_plan::policy::{
    CannotMove, ClusterPolicy, Headroom, KeepLosses, LossOf, Membership, Strength,
};
use drover_plan::request::Avoid;
use drover_plan::{Request, Word};
use drover_types::{BitRate, ByteRate, Bytes, HostName, VmName};

pub const GIB: u64 = 1 << 30;

pub fn word(text: &str) -> Word {
    text.parse().unwrap()
}

pub fn host_name(text: &str) -> HostName {
    text.parse().unwrap()
}

pub fn vm_name(text: &str) -> VmName {
    text.parse().unwrap()
}

/// Ready, 16 CPUs, a line of 10 Gbit/s, all of its memory for guests.
pub fn host(name: &str, gib: u64) -> Host {
    Host {
        name: host_name(name),
        state: HostState::Ready,
        facts_age_seconds: 2,
        memory: Bytes(gib * GIB),
        memory_for_host: Bytes(0),
        cpus: 16,
        cpu: HostCpu {
            model: word("EPYC-Milan"),
            features: ["avx2", "sse4.2"].map(word).into(),
            models: [word("x86-64-v3")].into(),
        },
        labels: [].into(),
        bandwidth: BitRate(10_000_000_000),
        qemu: "10.0.2".parse().unwrap(),
        inbound: None,
        outbound: None,
        lacks: [].into(),
        disks: Default::default(),
    }
}

pub fn in_rack(mut host: Host, rack: &str) -> Host {
    host.labels.insert(word("rack"), word(rack));
    host
}

/// Runs, 2 vCPUs, has written to all of its memory and writes 10 MiB/s.
pub fn vm(name: &str, host: &str, gib: u64) -> Vm {
    Vm {
        name: vm_name(name),
        host: host_name(host),
        called: None,
        moving_to: None,
        state: VmState::Running,
        memory: Bytes(gib * GIB),
        memory_used: Bytes(gib * GIB),
        vcpus: 2,
        cpu: GuestCpu::Named {
            model: Some(word("x86-64-v3")),
            features: [word("avx2")].into(),
        },
        dirty_rate: Some(ByteRate(10 << 20)),
        working_set: None,
        downtime_limit_ms: 300,
        needs: [].into(),
        disks: None,
        blockers: Vec::new(),
        throttle_most: Some(Default::default()),
        deadline: None,
        policy: drover_plan::policy::VmPolicy::default(),
    }
}

pub fn membership(group: &str, strength: Strength) -> Membership {
    Membership {
        group: word(group),
        strength,
    }
}

pub fn apart(mut vm: Vm, group: &str) -> Vm {
    vm.policy.apart.push(membership(group, Strength::Hard));
    vm
}

pub fn together(mut vm: Vm, group: &str) -> Vm {
    vm.policy.together.push(membership(group, Strength::Hard));
    vm
}

pub fn pinned(mut vm: Vm, hosts: &[&str]) -> Vm {
    vm.policy.pinned.hosts = hosts.iter().map(|name| host_name(name)).collect();
    vm
}

pub fn or_else(mut vm: Vm, then: CannotMove) -> Vm {
    vm.policy.cannot_move = then;
    vm
}

pub fn inventory<const H: usize, const V: usize>(hosts: [Host; H], vms: [Vm; V]) -> Inventory {
    Inventory {
        hosts: hosts.into(),
        vms: vms.into(),
    }
}

/// Nothing is kept free and nothing has to be lost.
pub fn loose() -> ClusterPolicy {
    ClusterPolicy {
        headroom: Headroom::Percent { percent: 0 },
        keep: KeepLosses {
            losses: 0,
            of: LossOf::Host,
        },
        ..ClusterPolicy::default()
    }
}

pub fn drain(hosts: &[&str]) -> Request {
    drain_avoiding(hosts, &[])
}

pub fn drain_avoiding(hosts: &[&str], avoid: &[(&str, &[&str])]) -> Request {
    Request::Drain {
        hosts: hosts.iter().map(|name| host_name(name)).collect(),
        avoid: avoiding(avoid),
        with_disks: false,
    }
}

/// Guests, and hosts to which moves of them failed.
pub fn avoiding(avoid: &[(&str, &[&str])]) -> Avoid {
    let hosts = |names: &[&str]| names.iter().map(|name| host_name(name)).collect();
    let pairs = avoid.iter().map(|(vm, names)| (vm_name(vm), hosts(names)));
    pairs.collect()
}

pub fn resume(host: &str, homes: &[&str]) -> Request {
    Request::Resume {
        host: host_name(host),
        homes: homes.iter().map(|name| vm_name(name)).collect(),
        avoid: Avoid::new(),
        with_disks: false,
    }
}
