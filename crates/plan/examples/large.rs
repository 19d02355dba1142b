//! Plans for a cluster of 500 hosts and 10,000 VMs, and prints how long each plan took and the most
//! memory that the process had.

use std::error::Error;
use std::time::Instant;

use drover_plan::inventory::{GuestCpu, Host, HostCpu, HostState, Inventory, Vm, VmState};
use drover_plan::plan::Step;
use drover_plan::policy::{
    CannotMove, ClusterPolicy, KeepLosses, LossOf, Membership, Spread, Strength, VmPolicy,
};
use drover_plan::request::Avoid;
use drover_plan::{Progress, Request, Word, check_move, plan};
use drover_types::{BitRate, ByteRate, Bytes};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HOSTS: usize = 500;
const VMS: usize = 10_000;
const GIB: u64 = 1 << 30;

/// Moves that are looked at once more, for the time that one takes.
const LOOKS: usize = 100;

/// The same numbers in each run (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn words(words: &[&str]) -> Result<std::collections::BTreeSet<Word>> {
    Ok(words
        .iter()
        .map(|word| word.parse())
        .collect::<std::result::Result<_, _>>()?)
}

/// Three kinds of hosts in racks of 25, 512 GiB each.
fn host(index: usize) -> Result<Host> {
    let features = [
        &["avx2"][..],
        &["avx2", "avx512f"],
        &["avx2", "avx512f", "amx-tile"],
    ];
    Ok(Host {
        name: format!("host-{index:03}").parse()?,
        state: HostState::Ready,
        facts_age_seconds: 5,
        memory: Bytes(512 * GIB),
        memory_for_host: Bytes(16 * GIB),
        cpus: 128,
        cpu: HostCpu {
            model: ["EPYC-Milan", "EPYC-Genoa", "SapphireRapids"][index % 3].parse()?,
            features: words(features[index % 3])?,
            models: words(&["x86-64-v2", "x86-64-v3"])?,
        },
        labels: [("rack".parse()?, format!("r{}", index / 25).parse()?)].into(),
        bandwidth: BitRate(50_000_000_000),
        qemu: "10.0.2".parse()?,
        inbound: None,
        outbound: None,
        lacks: [].into(),
        disks: Default::default(),
    })
}

/// 4 to 32 GiB; a third in groups of three that are kept apart, some that need a newer processor.
fn vm(index: usize, numbers: &mut Numbers) -> Result<Vm> {
    let memory = GIB * [4, 8, 8, 16, 16, 16, 32][usize::try_from(numbers.below(7))?];
    let at = match index % 10 {
        0 => 2 + 3 * (index / 10 % 166),
        _ => index % HOSTS,
    };
    let apart = (index < VMS / 3)
        .then(|| format!("group-{}", index / 3).parse())
        .transpose()?;
    let features: &[&str] = if index.is_multiple_of(10) {
        &["amx-tile"]
    } else {
        &["avx2"]
    };
    Ok(Vm {
        name: format!("vm-{index:05}").parse()?,
        host: format!("host-{at:03}").parse()?,
        called: None,
        moving_to: None,
        state: VmState::Running,
        memory: Bytes(memory),
        memory_used: Bytes(memory / 4 * (1 + numbers.below(4))),
        vcpus: u32::try_from(memory / GIB / 2)?,
        cpu: GuestCpu::Named {
            model: Some("x86-64-v3".parse()?),
            features: words(features)?,
        },
        dirty_rate: Some(ByteRate(numbers.below(2 * GIB))),
        working_set: Some(Bytes(memory / 16)),
        downtime_limit_ms: 300,
        throttle_most: Some(Default::default()),
        deadline: None,
        needs: [].into(),
        disks: None,
        blockers: Vec::new(),
        policy: VmPolicy {
            apart: apart
                .map(|group| Membership {
                    group,
                    strength: Strength::Hard,
                })
                .into_iter()
                .collect(),
            cannot_move: CannotMove::Block,
            ..VmPolicy::default()
        },
    })
}

fn memory_peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" "),
    )
}

fn drain(count: usize) -> Result<Request> {
    let hosts = (0..count).map(|index| format!("host-{:03}", 1 + index * 7 % (HOSTS - 1)).parse());
    Ok(Request::Drain {
        hosts: hosts.collect::<std::result::Result<_, _>>()?,
        avoid: Avoid::new(),
        with_disks: false,
    })
}

fn main() -> Result<()> {
    let mut numbers = Numbers(1);
    let inventory = Inventory {
        hosts: (0..HOSTS).map(host).collect::<Result<_>>()?,
        vms: (0..VMS)
            .map(|index| vm(index, &mut numbers))
            .collect::<Result<_>>()?,
    };
    let racks = ClusterPolicy {
        failure_domain: Some("rack".parse()?),
        keep: KeepLosses {
            losses: 1,
            of: LossOf::FailureDomain,
        },
        ..ClusterPolicy::default()
    };
    let two_hosts = ClusterPolicy {
        keep: KeepLosses {
            losses: 2,
            of: LossOf::Host,
        },
        ..ClusterPolicy::default()
    };
    let spread = ClusterPolicy {
        spread: Spread::Require,
        ..racks.clone()
    };
    let rebalance = Request::Rebalance {
        min_gain: 1,
        most_moves: 500,
        avoid: Avoid::new(),
        with_disks: false,
    };
    let cases = [
        (
            "drain 1, any host may be lost",
            ClusterPolicy::default(),
            drain(1)?,
        ),
        (
            "drain 50, any host may be lost",
            ClusterPolicy::default(),
            drain(50)?,
        ),
        ("drain 50, any rack may be lost", racks, drain(50)?),
        ("drain 50, any two hosts may be lost", two_hosts, drain(50)?),
        ("drain 50, groups in different racks", spread, drain(50)?),
        (
            "rebalance, 500 moves at most",
            ClusterPolicy::default(),
            rebalance,
        ),
    ];
    for (name, policy, request) in cases {
        let start = Instant::now();
        let answer = plan(&inventory, &policy, &request);
        let seconds = start.elapsed().as_secs_f64();
        let peak = memory_peak().unwrap_or_else(|| "unknown".to_owned());
        match answer {
            Ok(plan) => println!(
                "{name}: {seconds:.2} s, {} moves, {} ms expected, {} ms by the lines; peak {peak}",
                plan.steps.len(),
                plan.expected.ms.expected,
                plan.expected.bound_ms
            ),
            Err(refusal) => println!("{name}: {seconds:.2} s, refused: {refusal}; peak {peak}"),
        }
    }
    look_again(&inventory)
}

/// How long it takes to look at one move of a plan once more.
fn look_again(inventory: &Inventory) -> Result<()> {
    let (policy, request) = (ClusterPolicy::default(), drain(50)?);
    let plan = plan(inventory, &policy, &request)?;
    let waits = |step: &Step| (step.vm.clone(), (step.to.clone(), Progress::Waits));
    let round = plan.steps.iter().map(waits).collect();
    let start = Instant::now();
    for step in plan.steps.iter().take(LOOKS) {
        let way = (&step.vm, &step.from, &step.to);
        check_move(inventory, &policy, &request, way, &round)?;
    }
    let each = start.elapsed() / u32::try_from(LOOKS)?;
    println!("one move looked at once more: {each:.1?}");
    Ok(())
}
