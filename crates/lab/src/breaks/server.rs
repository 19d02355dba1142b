//! A server of two nodes with an adapter for each NIC, as its files tell of it.

use super::answers::WHOLE;
use serde_json::{Value, json};

/// Folders of the lab's machine that are not the server's.
pub(super) const NOT_ITS: [&str; 2] = ["sys/devices/system/cpu", "sys/devices/system/node"];

/// Processors of each of its two nodes.
const OF_NODE: u32 = 4;

/// Queues of an adapter, each with an interrupt.
const QUEUES: u32 = WHOLE.queues;

/// The first interrupt of the first adapter.
const INTERRUPT: u32 = 60;

/// A file: its path below `/`, and its text.
pub(super) type File = (String, String);

/// All that the rules ask of files of such a server, beside what a lab's host has of its own.
pub(super) fn files(nics: &[String]) -> Vec<File> {
    let mut files = processors();
    for (number, nic) in (0..).zip(nics) {
        files.extend(adapter(number, nic));
    }
    // A connection fills a line of 25 Gbit/s.
    let buffers = [("tcp_rmem", "4096 131072"), ("tcp_wmem", "4096 16384")];
    files.extend(buffers.map(|(name, least)| {
        let path = format!("proc/sys/net/ipv4/{name}");
        (path, format!("{least} 33554432"))
    }));
    files
}

/// What its kernel would tell of an adapter by netlink, in place of what it tells of a veth.
pub(super) fn tell(number: usize, nic: &mut Value) {
    nic["ethtool"] = WHOLE.told();
    // A veth has what the lab holds its rate down with.
    nic["qdisc"] = json!("mq");
    nic["interface"]["speed"] = json!(u64::from(WHOLE.speed) * 1_000_000);
    nic["interface"]["rdma"] = json!(rdma(number as u32));
}

fn processors() -> Vec<File> {
    let folder = "sys/devices/system/cpu";
    let mut files = vec![(format!("{folder}/online"), format!("0-{}", 2 * OF_NODE - 1))];
    for cpu in 0..2 * OF_NODE {
        let (node, core) = (cpu / OF_NODE, cpu % OF_NODE);
        let of = |file: &str, text: String| (format!("{folder}/cpu{cpu}/{file}"), text);
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

fn rdma(number: u32) -> String {
    format!("mlx5_{number}")
}

/// Each in a slot of its own, near the first node.
fn adapter(number: u32, nic: &str) -> Vec<File> {
    let of = |file: String, text: &str| (format!("sys/class/net/{nic}/{file}"), text.to_owned());
    let slot = format!("0000:{:02x}:00.0", 0x3b + number);
    let uevent = format!("DRIVER=mlx5_core\nPCI_ID=15B3:1015\nPCI_SLOT_NAME={slot}");
    let mut files = vec![
        of("device/uevent".into(), &uevent),
        of("device/local_cpulist".into(), &cpus_of(0)),
        of("statistics/rx_packets".into(), "10000000"),
        (
            format!("sys/class/infiniband/{}/fw_ver", rdma(number)),
            "26.35.1012".to_owned(),
        ),
    ];
    for which in ["current", "max"] {
        files.push(of(format!("device/{which}_link_speed"), "8.0 GT/s PCIe"));
        files.push(of(format!("device/{which}_link_width"), "8"));
    }
    for queue in 0..QUEUES {
        let interrupt = INTERRUPT + number * QUEUES + queue;
        let cpu = (queue % OF_NODE).to_string();
        files.extend([
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
