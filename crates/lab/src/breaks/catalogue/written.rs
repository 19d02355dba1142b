//! What no namespace has, written into what was captured of the second host: its processors, adapters, bridges and bonds.

use super::Written::{Answers as Told, File, OfProcessors, Qdisc, Softnet};
use super::{Break, Written, upon, written};
use crate::breaks::answers::{Answers, WHOLE};

pub(super) const WRITTEN: &[Break] = &[
    written(
        "governor",
        "processors stay at their lowest rate",
        "cpu-governor",
        "b",
        &[
            File(
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave",
            ),
            File(
                "sys/devices/system/cpu/cpu5/cpufreq/scaling_governor",
                "powersave",
            ),
        ],
    ),
    written(
        "sparing",
        "hardware that chooses the rate of processors saves energy",
        "cpu-preference",
        "b",
        &[
            OfProcessors("cpufreq/scaling_driver", "intel_pstate"),
            OfProcessors("cpufreq/scaling_governor", "powersave"),
            OfProcessors("cpufreq/energy_performance_preference", "balance_power"),
        ],
    ),
    written(
        "balancing",
        "the kernel moves memory between nodes",
        "numa-balancing",
        "b",
        &[File("proc/sys/kernel/numa_balancing", "1")],
    ),
    written(
        "yielding",
        "connections send less as soon as others send",
        "tcp-congestion",
        "b",
        &[
            File(
                "proc/sys/net/ipv4/tcp_available_congestion_control",
                "reno cubic vegas",
            ),
            File("proc/sys/net/ipv4/tcp_congestion_control", "vegas"),
        ],
    ),
    written(
        "backlog",
        "packets that are handed to another processor find no place there",
        "net-backlog",
        "b",
        &[Softnet {
            dropped: 80_000,
            squeezed: 0,
        }],
    ),
    written(
        "budget",
        "processors leave packets for later, and both adapters drop some, each fewer than is found of one",
        "net-budget",
        "b",
        &[
            Softnet {
                dropped: 0,
                squeezed: 8000,
            },
            File("sys/class/net/nic0/statistics/rx_missed_errors", "800"),
            File("sys/class/net/nic1/statistics/rx_missed_errors", "800"),
        ],
    ),
    written(
        "rate-capped",
        "the rate of a link of 25 Gbit/s was set to 1 by hand",
        "link-speed",
        "b nic0",
        &[Told(Answers {
            speed: 1000,
            by_hand: true,
            ..WHOLE
        })],
    ),
    written(
        "slower-peer",
        "one host has an adapter of 10 Gbit/s, the other one of 25",
        "pair-speed",
        "a and b nic0",
        &[Told(Answers {
            speed: 10_000,
            most: 10_000,
            ..WHOLE
        })],
    ),
    written(
        "half-duplex",
        "a link carries one way at a time",
        "link-duplex",
        "b nic0",
        &[Told(Answers {
            half: true,
            ..WHOLE
        })],
    ),
    written(
        "slot",
        "an adapter of 25 Gbit/s has one lane of its slot",
        "pci-slot",
        "b nic0",
        &[File("sys/class/net/nic0/device/current_link_width", "1")],
    ),
    written(
        "queues",
        "an adapter of 25 Gbit/s has one queue",
        "nic-queues",
        "b nic0",
        &[Told(Answers { queues: 1, ..WHOLE })],
    ),
    written(
        "interrupts",
        "processors of another node take the interrupts of an adapter",
        "nic-interrupts",
        "b nic0",
        &[
            File("proc/irq/60/smp_affinity_list", "4"),
            File("proc/irq/60/effective_affinity_list", "4"),
            File("proc/irq/61/smp_affinity_list", "5"),
            File("proc/irq/61/effective_affinity_list", "5"),
        ],
    ),
    written(
        "one-processor",
        "one processor takes the interrupts of all queues of an adapter",
        "nic-crowded",
        "b nic0",
        &[
            File("proc/irq/61/smp_affinity_list", "0"),
            File("proc/irq/61/effective_affinity_list", "0"),
            File("proc/irq/62/smp_affinity_list", "0"),
            File("proc/irq/62/effective_affinity_list", "0"),
            File("proc/irq/63/smp_affinity_list", "0"),
            File("proc/irq/63/effective_affinity_list", "0"),
        ],
    ),
    written(
        "spread",
        "an adapter hands all packets to one of its queues",
        "nic-spread",
        "b nic0",
        &[Told(Answers { spread: 1, ..WHOLE })],
    ),
    written(
        "send-queues",
        "all processors send by one of an adapter's four queues",
        "nic-xps",
        "b nic0",
        &[
            File("sys/class/net/nic0/queues/tx-0/xps_cpus", "ff"),
            File("sys/class/net/nic0/queues/tx-1/xps_cpus", "00"),
            File("sys/class/net/nic0/queues/tx-2/xps_cpus", "00"),
            File("sys/class/net/nic0/queues/tx-3/xps_cpus", "00"),
        ],
    ),
    written(
        "held-to-a-rate",
        "packets are held to a rate before they come to an adapter",
        "nic-qdisc",
        "b nic0",
        &[Qdisc("tbf")],
    ),
    written(
        "steering",
        "packets are handed on to other processors, as was once set for another adapter",
        "nic-steering",
        "b nic0",
        &[File("sys/class/net/nic0/queues/rx-0/rps_cpus", "ff")],
    ),
    written(
        "ring",
        "an adapter has 64 places for packets in each queue",
        "nic-ring",
        "b nic0",
        &[Told(Answers { ring: 64, ..WHOLE })],
    ),
    written(
        "coalescing",
        "an adapter interrupts for each packet",
        "nic-coalescing",
        "b nic0",
        &[Told(Answers {
            wait: Some(0),
            ..WHOLE
        })],
    ),
    written(
        "offloads",
        "an adapter leaves checksums and joining of what arrives to the processors",
        "nic-offloads",
        "b nic0",
        &[Told(Answers {
            off: &["rx-checksum", "rx-gro"],
            ..WHOLE
        })],
    ),
    upon(
        BRIDGE,
        written(
            "lro",
            "the adapter below a bridge joins packets that are to be forwarded",
            "nic-lro",
            "b nic0",
            &[Told(Answers { lro: true, ..WHOLE })],
        ),
    ),
    upon(
        LARGE_BRIDGE,
        written(
            "bridge-mtu",
            "a bridge sends packets of 9000 bytes over an adapter that takes 1500",
            "mtu-layers",
            "b br0",
            &[Told(WHOLE)],
        ),
    ),
    upon(
        BOND,
        written(
            "standby",
            "of a bond of two adapters only one carries",
            "bond-mode",
            "b bond0",
            &[
                IS_BOND,
                File("sys/class/net/bond0/bonding/mode", "active-backup 1"),
                File("sys/class/net/bond0/bonding/active_slave", "nic0"),
                File(MEMBERS[0], "up"),
                File(MEMBERS[1], "up"),
            ],
        ),
    ),
    upon(
        BOND,
        written(
            "member-lost",
            "of a bond of two adapters one is down",
            "bond-members",
            "b bond0",
            &[
                IS_BOND,
                File("sys/class/net/bond0/bonding/mode", "802.3ad 4"),
                File("sys/class/net/bond0/bonding/xmit_hash_policy", "layer3+4 1"),
                File(MEMBERS[0], "up"),
                File(MEMBERS[1], "down"),
            ],
        ),
    ),
    written(
        "damaged",
        "a cable damages one packet of a thousand",
        "link-errors",
        "b nic0",
        &[File("sys/class/net/nic0/statistics/rx_errors", "10000")],
    ),
    written(
        "firmware",
        "two adapters of one kind have different firmware",
        "pair-adapter",
        "a and b nic0",
        &[File("sys/class/infiniband/mlx5_0/fw_ver", "26.31.2006")],
    ),
];

const BRIDGE: &[&str] = &[
    "b: ip link add br0 type bridge",
    "b: ip link set nic0 master br0",
];

const LARGE_BRIDGE: &[&str] = &[
    BRIDGE[0],
    BRIDGE[1],
    "b: ip link set nic0 mtu 1500",
    "b: ip link set br0 mtu 9000 up",
];

/// The kernel here may have no bonds: a bridge lends its ports.
const BOND: &[&str] = &[
    "b: ip link add bond0 type bridge",
    "b: ip link set nic0 master bond0",
    "b: ip link set nic1 master bond0",
    "b: ip link set bond0 up",
    "b: ip address add 10.78.0.2/24 dev bond0",
];
const IS_BOND: Written = File("sys/class/net/bond0/uevent", "DEVTYPE=bond");
const MEMBERS: [&str; 2] = [
    "sys/class/net/nic0/bonding_slave/mii_status",
    "sys/class/net/nic1/bonding_slave/mii_status",
];
