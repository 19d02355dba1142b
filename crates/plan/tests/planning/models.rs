//! Small clusters of every kind, for properties.

use std::collections::BTreeSet;

use drover_plan::inventory::{GuestCpu, Host, HostState, Inventory, Vm, VmState};
use drover_plan::policy::{
    CannotMove, ClusterPolicy, Headroom, KeepLosses, LossOf, Spread, Strength,
};
use drover_plan::request::Avoid;
use drover_plan::{Request, Text};
use drover_types::{BitRate, ByteRate, Bytes, HostName};
use proptest::prelude::*;
use proptest::sample::select;

use crate::build::{self, GIB, host_name, membership, word};

#[derive(Debug, Clone)]
pub struct Case {
    pub inventory: Inventory,
    pub policy: ClusterPolicy,
    pub request: Request,
}

fn text(words: &str) -> Text {
    Text::from(words.to_owned())
}

fn host(index: usize) -> impl Strategy<Value = Host> {
    let state = prop_oneof![
        8 => Just(HostState::Ready),
        2 => Just(HostState::Cordoned),
        1 => Just(HostState::Unreachable),
    ];
    let lines = select(vec![1_u64, 10, 25]);
    let limits = (prop::option::of(1_u32..4), prop::option::of(1_u32..4));
    let rest = (
        0_u64..70,
        4_u64..48,
        1_u32..12,
        select(vec!["10.0.2", "10.0.2", "7.2.0"]),
        any::<u8>(),
    );
    (state, lines, limits, rest).prop_map(
        move |(state, line, limits, (age, gib, cpus, qemu, bits))| {
            let mut host = build::host(&format!("h{index}"), gib);
            host.state = state;
            host.bandwidth = BitRate(line * 1_000_000_000);
            (host.inbound, host.outbound) = limits;
            host.facts_age_seconds = age;
            host.memory_for_host = Bytes(GIB * u64::from(bits % 3));
            host.cpus = cpus;
            host.qemu = qemu.parse().unwrap();
            if bits & 4 == 0 {
                host.cpu.features.insert(word("avx512f"));
            }
            if bits & 56 == 0 {
                host.cpu.models.clear();
            }
            let lacks = |need: &str| (text(need), text("is not there"));
            host.lacks.extend([lacks("nowhere")]);
            if bits & 10 == 2 {
                host.lacks.extend([lacks("network")]);
            }
            match bits >> 6 {
                0 => host,
                rack => build::in_rack(host, &format!("r{rack}")),
            }
        },
    )
}

fn vm(index: usize, hosts: usize) -> impl Strategy<Value = Vm> {
    let state = prop_oneof![8 => Just(VmState::Running), 1 => Just(VmState::Paused), 1 => Just(VmState::Stopped)];
    let then = select(vec![
        CannotMove::Block,
        CannotMove::Skip,
        CannotMove::Skip,
        CannotMove::Suspend,
        CannotMove::StopAndStart,
    ]);
    let groups = (0_u8..12, 0_u8..12, any::<bool>());
    let sizes = (
        1_u64..17,
        0_u64..17,
        1_u32..8,
        prop::option::of(0_u64..2_000),
    );
    (0..hosts, state, then, groups, sizes, any::<u16>(), 0..hosts).prop_map(
        move |(at, state, then, (apart, with, hard), (gib, used, vcpus, dirty), bits, pin)| {
            let mut vm = build::vm(&format!("vm{index}"), &format!("h{at}"), gib);
            let strength = if hard { Strength::Hard } else { Strength::Soft };
            vm.state = state;
            vm.memory_used = Bytes(used.min(gib) * GIB);
            vm.vcpus = vcpus;
            vm.dirty_rate = dirty.map(|mib| ByteRate(mib << 20));
            vm.policy.cannot_move = then;
            vm.policy.priority = u8::try_from(bits % 4).unwrap();
            if apart < 4 {
                vm.policy
                    .apart
                    .push(membership(["a", "b"][usize::from(apart % 2)], strength));
            }
            if with < 3 {
                vm.policy
                    .together
                    .push(membership(["t", "u"][usize::from(with % 2)], strength));
            }
            match bits >> 8 {
                0..12 => vm.cpu = GuestCpu::Passthrough,
                12..24 => vm.policy.pinned.hosts = [host_name(&format!("h{pin}"))].into(),
                24..32 => vm
                    .policy
                    .pinned
                    .labels
                    .insert(word("rack"), word("r1"))
                    .map_or((), drop),
                32..40 => vm
                    .blockers
                    .push(Text::from("VFIO device in use".to_owned())),
                40..48 if pin != at => vm.moving_to = Some(host_name(&format!("h{pin}"))),
                48..64 => {
                    let features = [word("avx512f")].into();
                    vm.cpu = GuestCpu::Named {
                        model: None,
                        features,
                    };
                }
                64..88 => vm.needs.extend([text("network"), text("pool")]),
                88..96 => vm.needs.extend([text("nowhere")]),
                _ => {}
            }
            vm
        },
    )
}

pub fn policy() -> impl Strategy<Value = ClusterPolicy> {
    let spread = select(vec![Spread::Ignore, Spread::Prefer, Spread::Require]);
    let of = select(vec![LossOf::Host, LossOf::FailureDomain]);
    (
        0_u8..15,
        0_u32..3,
        of,
        spread,
        1_u32..3,
        1_u32..4,
        any::<u8>(),
    )
        .prop_map(
            |(percent, losses, of, spread, inbound, outbound, bits)| ClusterPolicy {
                headroom: Headroom::Percent { percent },
                keep: KeepLosses { losses, of },
                failure_domain: Some(word("rack")),
                spread,
                inbound,
                outbound,
                at_once: (bits % 6 > 0).then_some(u32::from(bits % 6)),
                guest_bandwidth: (bits & 64 != 0).then_some(BitRate(3_000_000_000)),
                vcpus_percent: 300,
                allow_older_qemu: bits & 128 != 0,
                allow_displacing: bits & 8 != 0,
                ..ClusterPolicy::default()
            },
        )
}

pub fn inventory(hosts: std::ops::Range<usize>, vms: usize) -> impl Strategy<Value = Inventory> {
    hosts.prop_flat_map(move |hosts| {
        let all: Vec<_> = (0..hosts).map(host).collect();
        let vms = (0..=vms)
            .prop_flat_map(move |vms| (0..vms).map(|index| vm(index, hosts)).collect::<Vec<_>>());
        (all, vms).prop_map(|(hosts, vms)| Inventory { hosts, vms })
    })
}

/// Mostly nothing, else some guests and hosts, of which a few are not there.
fn avoid(hosts: usize, vms: usize) -> impl Strategy<Value = Avoid> {
    let names = prop::collection::btree_set(0..=hosts, 0..3);
    let some = prop::collection::btree_map(0..=vms, names, 1..5).prop_map(|pairs| {
        let hosts = |hosts: BTreeSet<usize>| hosts.iter().map(|host| numbered(*host)).collect();
        let pairs = pairs.into_iter();
        pairs
            .map(|(vm, avoided)| (build::vm_name(&format!("vm{vm}")), hosts(avoided)))
            .collect()
    });
    prop_oneof![2 => Just(Avoid::new()), 1 => some]
}

fn numbered(host: usize) -> HostName {
    host_name(&format!("h{host}"))
}

fn request(hosts: usize, vms: usize) -> impl Strategy<Value = Request> {
    let drain = prop::collection::btree_set(0..hosts, 1..3);
    let drain = (drain, avoid(hosts, vms)).prop_map(|(drained, avoid)| Request::Drain {
        hosts: drained.into_iter().map(numbered).collect(),
        avoid,
        with_disks: false,
    });
    let homes = prop::collection::vec(0..=vms, 0..8);
    let resume = (0..hosts, homes, avoid(hosts, vms));
    let resume = resume.prop_map(|(host, homes, avoid)| Request::Resume {
        host: numbered(host),
        homes: homes
            .into_iter()
            .map(|vm| build::vm_name(&format!("vm{vm}")))
            .collect(),
        avoid,
        with_disks: false,
    });
    let rebalance = (0_u32..2_000, 1_u32..10, avoid(hosts, vms));
    let rebalance = rebalance.prop_map(|(min_gain, most_moves, avoid)| Request::Rebalance {
        min_gain,
        most_moves,
        avoid,
        with_disks: false,
    });
    prop_oneof![4 => drain, 1 => resume, 1 => rebalance]
}

pub fn case() -> impl Strategy<Value = Case> {
    (inventory(2..6, 10), policy()).prop_flat_map(|(inventory, policy)| {
        let request = request(inventory.hosts.len(), inventory.vms.len());
        (Just(inventory), Just(policy), request).prop_map(|(inventory, policy, request)| Case {
            inventory,
            policy,
            request,
        })
    })
}
