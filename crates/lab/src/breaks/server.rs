//! A server of two nodes with an adapter for each NIC, as its files tell of it.

use std::collections::BTreeMap;

use super::answers::WHOLE;
use super::fabric::{ALIKE, Fabric, PORT, Port};
use serde_json::{Value, json};

/// Folders of the lab's machine that are not the server's.
pub(super) const NOT_ITS: [&str; 2] = ["sys/devices/system/cpu", "sys/devices/system/node"];

/// Processors of each of its two nodes.
const OF_NODE: u32 = 4;

/// Queues of an adapter, each with an interrupt.
const QUEUES: u32 = WHOLE.queues;

/// The first interrupt of the first adapter.
const INTERRUPT: u32 = 60;

/// How long it has been up: ten days.
const UPTIME: &str = "864000.00 6912000.00";

/// What a processor took in, of packets.
const TAKEN: u32 = 10_000_000;

/// Where it tells that.
pub(super) const SOFTNET: &str = "proc/net/softnet_stat";

/// Where processors are.
const CPUS: &str = "sys/devices/system/cpu";

/// Settings, where the lab's machine may have others, or tells hosts nothing of them.
const SETTINGS: [(&str, &str); 7] = [
    ("kernel/numa_balancing", "0"),
    ("net/core/netdev_budget", "300"),
    ("net/core/netdev_budget_usecs", "2000"),
    ("net/core/netdev_max_backlog", "1000"),
    ("net/ipv4/tcp_congestion_control", "cubic"),
    // A connection fills a line of 100 Gbit/s.
    ("net/ipv4/tcp_rmem", "4096 131072 33554432"),
    ("net/ipv4/tcp_wmem", "4096 16384 33554432"),
];

/// An RDMA device with addresses of both kinds, below its folder.
const RDMA: [(&str, &str); 7] = [
    ("fw_ver", "26.35.1012"),
    ("ports/1/state", "4: ACTIVE"),
    ("ports/1/phys_state", "5: LinkUp"),
    ("ports/1/link_layer", "Ethernet"),
    ("ports/1/gid_attrs/types/0", "IB/RoCE v1"),
    ("ports/1/gid_attrs/types/1", "RoCE v2"),
    ("ports/1/hw_counters/packet_seq_err", "0"),
];

/// Texts of files, by their paths below `/`.
pub type Files = BTreeMap<String, String>;

type File = (String, String);

/// All that the rules ask of files of such a server, beside what a lab's host has of its own.
pub(super) fn files(nics: &[String]) -> Files {
    let mut files = bare_server();
    for (number, nic) in (0..).zip(nics) {
        files.extend(adapter(number, nic));
    }
    files
}

/// A server of two nodes of four processors with nothing wrong, and without adapters.
#[must_use]
pub fn bare_server() -> Files {
    let mut files: Files = processors().into_iter().collect();
    files.insert("proc/uptime".to_owned(), UPTIME.to_owned());
    files.insert(SOFTNET.to_owned(), softnet(0, 0));
    files.insert("proc/irq/default_smp_affinity".to_owned(), "ff".to_owned());
    files.extend(SETTINGS.map(|(name, value)| (format!("proc/sys/{name}"), value.to_owned())));
    files
}

/// What its kernel would tell of an adapter by netlink, in place of what it tells of a veth.
pub(super) fn tell(number: usize, nic: &mut Value) {
    nic["ethtool"] = WHOLE.told();
    // A veth has what the lab holds its rate down with.
    nic["qdisc"] = json!("mq");
    nic["interface"]["speed"] = json!(u64::from(WHOLE.speed) * 1_000_000);
    nic["interface"]["rdma"] = json!(rdma(number));
    // Each at a switch of its own, which the other server's is at as well.
    let switch = number + 1;
    let port = Port { switch, ..PORT };
    Fabric { port, ..ALIKE }.tell(nic);
}

/// Where that file of each processor is.
pub(super) fn of_processors(file: &str) -> impl Iterator<Item = String> {
    (0..2 * OF_NODE).map(move |cpu| format!("{CPUS}/cpu{cpu}/{file}"))
}

/// A line for each processor: what it took in, dropped and left for later, and what nobody asks for. The first one has all that is wrong.
pub(super) fn softnet(dropped: u32, squeezed: u32) -> String {
    let line = |(dropped, squeezed): (u32, u32)| {
        format!("{TAKEN:08x} {dropped:08x} {squeezed:08x} 00000000")
    };
    let others = (1..2 * OF_NODE).map(|_| line((0, 0)));
    let lines = std::iter::once(line((dropped, squeezed))).chain(others);
    lines.collect::<Vec<_>>().join("\n")
}

fn processors() -> Vec<File> {
    let mut files = vec![(format!("{CPUS}/online"), format!("0-{}", 2 * OF_NODE - 1))];
    for cpu in 0..2 * OF_NODE {
        let (node, core) = (cpu / OF_NODE, cpu % OF_NODE);
        let of = |file: &str, text: String| (format!("{CPUS}/cpu{cpu}/{file}"), text);
        files.extend([
            of("topology/physical_package_id", node.to_string()),
            of("topology/core_id", core.to_string()),
            of("cpufreq/scaling_governor", "performance".to_owned()),
            of("cpufreq/scaling_driver", "acpi-cpufreq".to_owned()),
        ]);
    }
    files.extend((0..2).map(|node| {
        let path = format!("sys/devices/system/node/node{node}/cpulist");
        (path, cpus_of(node))
    }));
    files
}

fn cpus_of(node: u32) -> String {
    format!("{}-{}", node * OF_NODE, (node + 1) * OF_NODE - 1)
}

fn rdma(number: usize) -> String {
    format!("mlx5_{number}")
}

/// Each in a slot of its own, near the first node.
fn adapter(number: usize, nic: &str) -> Vec<File> {
    let of = |file: String, text: &str| (format!("sys/class/net/{nic}/{file}"), text.to_owned());
    let slot = format!("0000:{:02x}:00.0", 0x3b + number);
    let uevent = format!("DRIVER=mlx5_core\nPCI_ID=15B3:1015\nPCI_SLOT_NAME={slot}");
    let mut files = vec![
        of("device/uevent".into(), &uevent),
        of("device/local_cpulist".into(), &cpus_of(0)),
        of("statistics/rx_packets".into(), "10000000"),
    ];
    let device = format!("sys/class/infiniband/{}", rdma(number));
    files.extend(RDMA.map(|(file, text)| (format!("{device}/{file}"), text.to_owned())));
    files.extend((0..2).map(|place| {
        let of = format!("{device}/ports/1/gid_attrs/ndevs/{place}");
        (of, nic.to_owned())
    }));
    for which in ["current", "max"] {
        files.push(of(format!("device/{which}_link_speed"), "8.0 GT/s PCIe"));
        files.push(of(format!("device/{which}_link_width"), "8"));
    }
    for queue in 0..QUEUES {
        let interrupt = INTERRUPT + number as u32 * QUEUES + queue;
        let cpu = (queue % OF_NODE).to_string();
        files.extend([
            of(
                format!("queues/tx-{queue}/xps_cpus"),
                &format!("{:02x}", 1 << (queue % OF_NODE)),
            ),
            of(format!("queues/rx-{queue}/rps_cpus"), "00"),
            of(format!("device/msi_irqs/{interrupt}"), "msix"),
            (
                format!("proc/irq/{interrupt}/smp_affinity_list"),
                cpu.clone(),
            ),
            (format!("proc/irq/{interrupt}/effective_affinity_list"), cpu),
        ]);
    }
    files
}
