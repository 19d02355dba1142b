//! The rules: what is looked at, in one table. How to add one: `docs/DOCTOR.md`.

mod counted;
mod dcb;
mod dcbx;
mod guests;
mod interrupts;
mod layers;
mod link;
mod media;
mod near;
mod offloads;
mod pairs;
mod paths;
mod power;
mod qdisc;
mod queues;
mod rdma;
mod receive;
mod roce;
mod slot;
mod spread;
mod stack;
mod steering;
mod switches;
mod together;
mod used;

use crate::change::{Change, Disruption, NicSetting, Step};
use crate::facts::{Host, Nic, Path};
use crate::finding::{Subject, Verdict};
use crate::sources::{Source, sources};
pub(crate) use dcb::{listed as priorities, shared};
pub(crate) use dcbx::manager;
pub(crate) use guests::{Net, Placed, network::each};
use pairs::OfTwo;
pub(crate) use power::counted as on_cpus;
pub(crate) use switches::called;

/// One thing that is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name, by which it is explained and asked for.
    pub name: &'static str,
    /// What it looks at, and what it wants.
    pub wants: &'static str,
    /// Where the kernel's or the field's documentation says so.
    pub source: &'static str,
    pub(crate) asks: Asks,
}

impl Rule {
    /// The same as [`Self::source`], each document by itself, with its address where that is known.
    #[must_use]
    pub fn documentation(&self) -> Vec<Source> {
        sources(self.source)
    }
}

/// About what a rule is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asks {
    Host(fn(&Host) -> Verdict),
    Nic(fn(&Host, &Nic) -> Verdict),
    /// Two hosts, for each pair of their interfaces that share a network, or both as a whole.
    Pair(fn(&Host, &Host) -> OfTwo),
    Path(fn(&Path) -> Verdict),
    /// Of all paths together.
    Paths(fn(&[Path]) -> Vec<(Subject, Verdict)>),
    Guest(fn(Placed<'_>) -> Verdict),
    /// For each network card of a guest.
    Card(fn(Placed<'_>, &Net<'_>) -> Verdict),
}

use Asks::{
    Card as OfCard, Guest as OfGuest, Host as OfHost, Nic as OfNic, Pair as OfPair, Path as OfPath,
    Paths as OfPaths,
};

const ETHTOOL: &str = "kernel: Documentation/networking/ethtool-netlink.rst";
const DCB: &str = "IEEE 802.1Qaz and 802.1Qbb; kernel: include/uapi/linux/dcbnl.h; man 8 dcb";
const LLDP: &str = "IEEE 802.1AB, and 802.3's annex 79";
const INFINIBAND: &str = "kernel: Documentation/ABI/stable/sysfs-class-infiniband";
const SCALING: &str = "kernel: Documentation/networking/scaling.rst";

/// Connections that a path gets at most, unless `migration.lanes_per_path_most` says otherwise.
const LANES: u32 = 8;

/// All rules, in the order in which findings of one severity are shown.
pub const RULES: &[Rule] = &[
    rule(
        "link-speed",
        "a link has the highest rate of both of its ends, and of what is between them",
        ETHTOOL,
        OfNic(link::speed),
    ),
    rule(
        "link-duplex",
        "a link carries both ways at once",
        ETHTOOL,
        OfNic(link::duplex),
    ),
    rule(
        "link-fec",
        "a link that is down is not so for its error correction",
        ETHTOOL,
        OfNic(link::fec),
    ),
    rule(
        "link-module",
        "a cable or module carries what both ends can",
        "SFF-8472, SFF-8636 and CMIS; kernel: Documentation/networking/ethtool-netlink.rst, MODULE_EEPROM_GET",
        OfNic(media::module),
    ),
    rule(
        "link-down",
        "an interface that is used has a link",
        "kernel: Documentation/networking/ethtool-netlink.rst, LINKSTATE_GET",
        OfNic(media::down),
    ),
    rule(
        "link-flaps",
        "a carrier stays",
        "kernel: Documentation/ABI/testing/sysfs-class-net, carrier_changes",
        OfNic(counted::flaps),
    ),
    rule(
        "link-errors",
        "next to no packet is damaged or dropped",
        "kernel: Documentation/networking/statistics.rst",
        OfNic(counted::errors),
    ),
    rule(
        "pci-slot",
        "an adapter's slot carries more than the links of its ports",
        "kernel: Documentation/ABI/testing/sysfs-bus-pci, current_link_speed",
        OfNic(slot::slot),
    ),
    rule(
        "mtu-layers",
        "what stands on an interface has no larger packets than it",
        "kernel: Documentation/networking/bonding.rst",
        OfNic(layers::mtu),
    ),
    rule(
        "bond-mode",
        "a bond's connections are spread over its members",
        "kernel: Documentation/networking/bonding.rst, xmit_hash_policy",
        OfNic(layers::bond),
    ),
    rule(
        "bond-members",
        "all members of a bond carry, and are alike",
        "kernel: Documentation/networking/bonding.rst",
        OfNic(layers::members),
    ),
    rule(
        "nic-queues",
        "an adapter has queues for its rate, as far as there are cores near it",
        SCALING,
        OfNic(queues::channels),
    ),
    rule(
        "nic-spread",
        "every queue gets its part of the packets",
        SCALING,
        OfNic(spread::spread),
    ),
    rule(
        "nic-health",
        "no part of an adapter is broken",
        "kernel: Documentation/networking/devlink/devlink-health.rst",
        OfNic(spread::health),
    ),
    rule(
        "nic-interrupts",
        "an adapter's interrupts are taken near it",
        "kernel: Documentation/core-api/irq/irq-affinity.rst",
        OfNic(interrupts::near_adapter),
    ),
    rule(
        "nic-crowded",
        "an adapter's queues are served by as many processors, as far as there are cores near it",
        "kernel: Documentation/core-api/irq/irq-affinity.rst",
        OfNic(interrupts::spread),
    ),
    rule(
        "nic-steering",
        "the kernel does not hand packets on that the hardware hands out already",
        SCALING,
        OfNic(steering::receive),
    ),
    rule(
        "nic-xps",
        "packets leave by all queues of an adapter",
        SCALING,
        OfNic(steering::send),
    ),
    rule(
        "nic-ring",
        "an adapter has places for a burst of packets",
        ETHTOOL,
        OfNic(queues::ring),
    ),
    rule(
        "nic-coalescing",
        "interrupts follow what arrives, or come neither for each packet nor very late",
        ETHTOOL,
        OfNic(queues::coalescing),
    ),
    rule(
        "nic-offloads",
        "segments and checksums are not the processors' work",
        "kernel: Documentation/networking/segmentation-offloads.rst",
        OfNic(offloads::offloads),
    ),
    rule(
        "nic-lro",
        "nothing that is forwarded was joined by the hardware",
        "kernel: Documentation/networking/segmentation-offloads.rst",
        OfNic(offloads::lro),
    ),
    rule(
        "nic-qdisc",
        "nothing holds packets back before an adapter",
        "man 8 tc; kernel: Documentation/networking/multiqueue.rst",
        OfNic(qdisc::discipline),
    ),
    rule(
        "dcb-pause",
        "packets are held back by pause frames, or by PFC, and not by both",
        DCB,
        OfNic(dcb::pause),
    ),
    rule(
        "dcb-peer",
        "the switch has PFC and shares as this end has them",
        DCB,
        OfNic(dcb::peer),
    ),
    rule(
        "dcb-share",
        "migrations get a share of a full line that is worth having",
        DCB,
        OfNic(dcb::share),
    ),
    rule(
        "dcb-most",
        "migrations may send at the rate of the line",
        DCB,
        OfNic(dcb::most),
    ),
    rule(
        "dcb-willing",
        "what was set here is not overwritten by a switch",
        DCB,
        OfNic(dcb::willing),
    ),
    rule(
        "dcb-agent",
        "one agent agrees with the switch on PFC and shares, in the switch's language",
        DCB,
        OfNic(dcbx::agent),
    ),
    rule(
        "dcb-lossless",
        "RDMA over Ethernet loses no packets",
        DCB,
        OfNic(dcb::lossless),
    ),
    rule(
        "dcb-rdma",
        "RDMA over Ethernet has a priority that is held back alone, where one is",
        DCB,
        OfNic(roce::priority),
    ),
    rule(
        "dcb-buffer",
        "what is held back alone has places of its own where it arrives, and enough of them",
        "IEEE 802.1Qbb; kernel: include/uapi/linux/dcbnl.h; man 8 dcb-buffer",
        OfNic(dcbx::buffer),
    ),
    rule(
        "dcb-pressure",
        "a line is not held back all the time",
        "kernel: Documentation/networking/statistics.rst, pause frames; include/uapi/linux/dcbnl.h",
        OfNic(dcb::pressure),
    ),
    rule(
        "rdma-port",
        "an RDMA device works where its interface has a link, by all lanes of its cable",
        INFINIBAND,
        OfNic(rdma::port),
    ),
    rule(
        "rdma-kind",
        "RDMA has addresses of the kind that every network carries: RoCE v2",
        INFINIBAND,
        OfNic(rdma::kinds),
    ),
    rule(
        "rdma-pieces",
        "RDMA sends the largest pieces that there are",
        "InfiniBand Architecture Specification, volume 1, annexes A16 and A17; kernel: include/rdma/ib_addr.h, iboe_get_mtu",
        OfNic(rdma::pieces),
    ),
    rule(
        "rdma-lost",
        "next to nothing is lost or late by RDMA",
        INFINIBAND,
        OfNic(rdma::lost),
    ),
    rule(
        "rdma-waits",
        "a port of InfiniBand is not kept waiting",
        "InfiniBand Architecture Specification, volume 1, 16.1.3 (PortXmitWait); kernel: Documentation/ABI/stable/sysfs-class-infiniband",
        OfNic(rdma::waits),
    ),
    rule(
        "switch-frames",
        "a switch's port takes the packets that are sent to it",
        LLDP,
        OfNic(switches::frames),
    ),
    rule(
        "switch-negotiation",
        "both ends of a cable negotiate, or neither does",
        LLDP,
        OfNic(switches::negotiation),
    ),
    rule(
        "switch-one",
        "lines of one host end at more than one switch",
        LLDP,
        OfHost(switches::one),
    ),
    rule(
        "cpu-preference",
        "hardware that chooses its own rate chooses for speed",
        "kernel: Documentation/admin-guide/pm/intel_pstate.rst, energy_performance_preference",
        OfHost(power::preference),
    ),
    rule(
        "cpu-sleep",
        "processors wake quickly while a guest moves",
        "kernel: Documentation/power/pm_qos_interface.rst; kernel: Documentation/admin-guide/pm/cpuidle.rst",
        OfHost(power::sleep),
    ),
    rule(
        "numa-balancing",
        "nobody moves guests' memory between nodes while it is copied",
        "kernel: Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
        OfHost(power::numa_balancing),
    ),
    rule(
        "cpu-governor",
        "processors run at their full rate while there is work",
        "kernel: Documentation/admin-guide/pm/cpufreq.rst",
        OfHost(power::governor),
    ),
    rule(
        "tcp-buffers",
        "connections may have what their line holds in flight",
        "kernel: Documentation/networking/ip-sysctl.rst, tcp_rmem and tcp_wmem",
        OfHost(stack::buffers),
    ),
    rule(
        "tcp-timestamps",
        "round trips are measured, and old packets known",
        "kernel: Documentation/networking/ip-sysctl.rst, tcp_timestamps",
        OfHost(stack::timestamps),
    ),
    rule(
        "tcp-window",
        "windows may be larger than 64 KiB",
        "kernel: Documentation/networking/ip-sysctl.rst, tcp_window_scaling",
        OfHost(stack::window),
    ),
    rule(
        "tcp-congestion",
        "connections take their part of a line that others use, too",
        "kernel: Documentation/networking/ip-sysctl.rst, tcp_congestion_control",
        OfHost(stack::congestion),
    ),
    rule(
        "net-backlog",
        "packets that are handed on find a place",
        "kernel: Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
        OfHost(receive::backlog),
    ),
    rule(
        "net-budget",
        "processors come to the end of what has arrived",
        "kernel: Documentation/admin-guide/sysctl/net.rst, netdev_budget",
        OfHost(receive::budget),
    ),
    rule(
        "pair-address",
        "no address of a network is two hosts'",
        "RFC 5227, 1 (address conflicts)",
        OfPair(pairs::address),
    ),
    rule(
        "pair-mtu",
        "both ends of a network have the same largest packet",
        "kernel: Documentation/networking/ip-sysctl.rst, ip_no_pmtu_disc",
        OfPair(pairs::mtu),
    ),
    rule(
        "pair-speed",
        "both ends of a network have the same rate",
        ETHTOOL,
        OfPair(pairs::speed),
    ),
    rule(
        "pair-adapter",
        "both ends of a network have the same adapter, driver and firmware",
        "kernel: Documentation/networking/devlink/devlink-info.rst",
        OfPair(pairs::adapter),
    ),
    rule(
        "pair-bond",
        "bonds at both ends of a network use their members the same way",
        "kernel: Documentation/networking/bonding.rst",
        OfPair(pairs::bond),
    ),
    rule(
        "pair-dcb",
        "both ends of a network hold back the same priorities, and share a full line the same way",
        DCB,
        OfPair(pairs::dcb),
    ),
    rule(
        "pair-dcbx",
        "PFC and shares are agreed on by the same means at both ends of a network",
        DCB,
        OfPair(pairs::dcbx),
    ),
    rule(
        "pair-rdma",
        "RDMA at both ends of a network is of one kind",
        "kernel: Documentation/ABI/stable/sysfs-class-infiniband; kernel: Documentation/ABI/testing/configfs-rdma_cm",
        OfPair(pairs::rdma),
    ),
    rule(
        "pair-switch",
        "both ends of a network are at one switch",
        LLDP,
        OfPair(pairs::switch),
    ),
    rule(
        "pair-qemu",
        "both hosts have the same QEMU",
        "QEMU: docs/devel/migration/compatibility.rst",
        OfPair(pairs::qemu),
    ),
    rule(
        "pair-cpu",
        "both hosts have the same processor",
        "QEMU: docs/system/cpu-models-x86.rst.inc",
        OfPair(pairs::cpu),
    ),
    rule(
        "pair-clock",
        "the clocks of both hosts tell the same time",
        "RFC 5905, 8; man 1 timedatectl",
        OfPair(pairs::clock),
    ),
    rule(
        "path-reach",
        "what is asked on a path is answered",
        "kernel: Documentation/networking/ip-sysctl.rst, rp_filter",
        OfPath(paths::reach),
    ),
    rule(
        "path-arrival",
        "answers arrive by the interface that the questions left by",
        "kernel: Documentation/networking/ip-sysctl.rst, rp_filter and arp_filter",
        OfPath(paths::arrival),
    ),
    rule(
        "path-counted",
        "what crosses a path is counted by the interfaces that are claimed",
        "kernel: Documentation/networking/statistics.rst; kernel: Documentation/networking/ip-sysctl.rst, arp_ignore",
        OfPath(paths::counted),
    ),
    rule(
        "path-route",
        "the kernel's route to a peer leaves by the interface that has the address",
        "kernel: Documentation/networking/ip-sysctl.rst, rp_filter",
        OfPath(paths::route),
    ),
    rule(
        "path-mtu",
        "a path carries the packets that both of its ends take",
        "RFC 2923, 2.1 (black holes); RFC 8899",
        OfPath(paths::mtu),
    ),
    rule(
        "path-loss",
        "next to no packet is lost on a path",
        "Mathis et al., The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, 1997",
        OfPath(paths::loss),
    ),
    rule(
        "path-rate",
        "a path carries at least 85 % of its slower link, where it is loaded",
        "Microsoft Test-NetStack, stage TCP 1:1; fasterdata.es.net, host tuning",
        OfPath(paths::rate),
    ),
    rule(
        "path-incast",
        "several hosts carry to one at once at least 85 % of what they carry alone, or of its links where that is less, where they are loaded together",
        "Phanishayee et al., Measurement and Analysis of TCP Throughput Collapse in Cluster-based Storage Systems, 2008",
        OfPaths(together::incast),
    ),
    rule(
        "path-together",
        "a path carries at least 85 % of what it carries alone while every host loads another, where they are loaded together",
        "RFC 2285 (fully meshed traffic)",
        OfPaths(together::each_other),
    ),
    rule(
        "guest-cpu",
        "other hosts have the processor that a guest was given",
        "QEMU: docs/system/cpu-models-x86.rst.inc",
        OfGuest(guests::processor::model),
    ),
    rule(
        "guest-mtu",
        "a guest's packets are as large as what carries them takes, and no larger",
        "VIRTIO 1.2, 5.1.4 (mtu); kernel: drivers/net/virtio_net.c",
        OfCard(guests::mtu::mtu),
    ),
    rule(
        "guest-vhost",
        "the kernel carries a guest's packets, and not QEMU",
        "QEMU: qemu-options.hx, -netdev tap; kernel: drivers/vhost/net.c",
        OfCard(guests::network::vhost),
    ),
    rule(
        "guest-queues",
        "a guest with several processors has queues for them",
        "QEMU: qemu-options.hx, -netdev tap; VIRTIO 1.2, 5.1.2",
        OfCard(guests::network::queues),
    ),
    rule(
        "guest-huge-pages",
        "other hosts have huge pages for a guest that asks for them",
        "kernel: Documentation/admin-guide/mm/hugetlbpage.rst",
        OfGuest(guests::memory::huge_pages),
    ),
    rule(
        "guest-pages",
        "a guest's memory is had by huge pages",
        "kernel: Documentation/admin-guide/mm/transhuge.rst",
        OfGuest(guests::memory::pages),
    ),
    rule(
        "guest-prealloc",
        "memory that is filled beforehand is filled by several threads",
        "QEMU: qapi/qom.json, MemoryBackendProperties",
        OfGuest(guests::memory::prealloc),
    ),
    rule(
        "guest-locked",
        "where there is RDMA, a guest's memory may be locked",
        "man 2 getrlimit, RLIMIT_MEMLOCK; QEMU: docs/rdma.txt",
        OfGuest(guests::memory::lockable),
    ),
];

const fn rule(name: &'static str, wants: &'static str, source: &'static str, asks: Asks) -> Rule {
    Rule {
        name,
        wants,
        source,
        asks,
    }
}

/// A change of one setting of an interface.
fn of_nic(
    disruption: Disruption,
    nic: &Nic,
    what: NicSetting,
    from: impl Into<String>,
    to: impl Into<String>,
) -> Change {
    let (from, to) = (from.into(), to.into());
    let nic = nic.name.clone();
    Change {
        disruption,
        steps: vec![Step::Nic {
            nic,
            what,
            from,
            to,
        }],
    }
}
