//! An adapter's interrupts, moved by a real kernel: by the doctor's plan, and back.

use std::collections::BTreeSet;
use std::fs;

use drover_types::CpuSet;

use super::agent::Host;
use crate::here::{Said, Until, nic, report, said, sh, until};

const ADAPTER: &str = "near1";

/// No adapter of a machine that QEMU emulates so is on a node. The kernel takes it from people whose firmware does not tell, and tells it as
/// if that had.
const ON_THE_SECOND_NODE: &str = "echo 1 >/sys/class/net/near1/device/numa_node";

const ON_THE_FIRST: &str = "for irq in /sys/class/net/near1/device/msi_irqs/*; do
    echo 0-1 >/proc/irq/${irq##*/}/smp_affinity_list
done";

const AS_IT_WAS: &str = "for irq in /sys/class/net/near1/device/msi_irqs/*; do
    echo 0-3 >/proc/irq/${irq##*/}/smp_affinity_list
done
echo -1 >/sys/class/net/near1/device/numa_node";

/// The processors of each node.
const NODES: [&str; 2] = ["0-1", "2-3"];

/// The kernel moves an interrupt as it comes for the next time.
fn packets() {
    sh("busybox ping -c 2 -W 2 10.9.1.2");
}

/// Those of its queues, which the driver has come every two seconds, also without a packet. One more tells of the link alone.
fn of_queues() -> BTreeSet<u32> {
    let of_queue = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let name = rest.split_ascii_whitespace().next_back()?;
        let is_one = name.starts_with(&format!("{ADAPTER}-"));
        is_one.then(|| number.trim().parse().unwrap())
    };
    let all = fs::read_to_string("/proc/interrupts").unwrap();
    all.lines().filter_map(of_queue).collect()
}

/// Those of its interrupts that a processor of that node takes.
async fn taken_at(node: usize) -> BTreeSet<u32> {
    packets();
    let node: CpuSet = NODES[node].parse().unwrap();
    let read = nic(ADAPTER).await.interrupts;
    let all = read.get().unwrap().iter();
    let there = all.filter(|irq| !irq.effective.and(&node).is_empty());
    there.map(|irq| irq.number).collect()
}

/// How often these came at each node since the host was started.
fn counted(interrupts: &BTreeSet<u32>) -> [u64; 2] {
    let mut counted = [0; 2];
    for line in fs::read_to_string("/proc/interrupts").unwrap().lines() {
        let Some((number, counts)) = line.split_once(':') else {
            continue;
        };
        let number = number.trim().parse();
        if number.is_ok_and(|number| interrupts.contains(&number)) {
            let counts = counts.split_ascii_whitespace().take(4);
            for (cpu, count) in counts.enumerate() {
                counted[cpu / 2] += count.parse::<u64>().unwrap();
            }
        }
    }
    counted
}

/// Waits until a node's processors take all of these, and the other's none.
async fn all_come_at(node: usize, interrupts: &BTreeSet<u32>) {
    until(
        async || taken_at(node).await,
        |there| interrupts.is_subset(there),
    )
    .await;
    let between = async || {
        let before = counted(interrupts);
        packets();
        let after = counted(interrupts);
        [
            after[node] - before[node],
            after[1 - node] - before[1 - node],
        ]
    };
    until(between, |[here, there]| *here > 0 && *there == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host, which a test in main.rs of its folder starts"]
async fn interrupts_of_another_node_are_moved_near_their_adapter_and_back() {
    let host = Host::start().await;
    let _as_it_was = Until(AS_IT_WAS);
    sh(ON_THE_SECOND_NODE);
    sh(ON_THE_FIRST);
    let far = of_queues();
    assert!(far.len() > 1, "{far:?}");
    all_come_at(0, &far).await;
    let before = host.facts().await;
    let all = report().await;
    let Said::Found(read) = said(&all, "nic-interrupts", ADAPTER) else {
        panic!("{all:#?}");
    };
    let far_away = "processors of another node (20 where its own is 10)";
    assert!(read.ends_with(far_away), "{read}");

    let file = host.place.path("tune.plan");
    let path = file.to_str().unwrap();
    host.done(&["doctor", "plan", "-o", path]);
    let plan = fs::read_to_string(&file).unwrap();
    for irq in &far {
        let line = format!("#   echo 2-3 > /proc/irq/{irq}/smp_affinity_list");
        assert!(plan.lines().any(|found| found == line), "{line}\n{plan}");
    }
    host.done(&["doctor", "apply", path]);
    all_come_at(1, &far).await;
    // Others are told where they were until they come.
    let plan = host.done(&["doctor", "plan"]);
    for irq in &far {
        assert!(
            !plan.contains(&format!("/proc/irq/{irq}/")),
            "{irq}\n{plan}"
        );
    }

    host.done(&["doctor", "undo"]);
    all_come_at(0, &far).await;
    host.settles_to(&before).await;
}
