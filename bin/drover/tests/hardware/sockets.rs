//! Hosts of two sockets, as others have told of theirs: which processors are of which node, and how far nodes are from each other. `README.md`
//! says where.

use std::path::Path;

use super::Machine;

/// Which processors a host has, and where they are.
pub struct Layout {
    /// Those of each node.
    pub nodes: &'static [&'static str],
    /// From each node to each.
    pub distances: &'static [&'static str],
    /// Cores of a socket, and of all sockets: what has a higher number is the second thread of one.
    pub cores: u32,
    pub threads: u32,
    /// Who chooses their rate, and how.
    pub driver: &'static str,
    pub governor: &'static str,
    pub preference: Option<&'static str>,
}

/// Two EPYC 7551: four nodes in each socket, one for each of its dies.
pub const EPYC: Layout = Layout {
    nodes: &[
        "0-7,64-71",
        "8-15,72-79",
        "16-23,80-87",
        "24-31,88-95",
        "32-39,96-103",
        "40-47,104-111",
        "48-55,112-119",
        "56-63,120-127",
    ],
    distances: &[
        "10 16 16 16 32 32 32 32",
        "16 10 16 16 32 32 32 32",
        "16 16 10 16 32 32 32 32",
        "16 16 16 10 32 32 32 32",
        "32 32 32 32 10 16 16 16",
        "32 32 32 32 16 10 16 16",
        "32 32 32 32 16 16 10 16",
        "32 32 32 32 16 16 16 10",
    ],
    cores: 32,
    threads: 128,
    driver: "acpi-cpufreq",
    governor: "schedutil",
    preference: None,
};

/// Two Xeons of 18 cores.
pub const XEON: Layout = Layout {
    nodes: &["0-17,36-53", "18-35,54-71"],
    distances: &["10 21", "21 10"],
    cores: 18,
    threads: 72,
    driver: "intel_pstate",
    governor: "powersave",
    preference: Some("balance_performance"),
};

impl Machine {
    /// A host of that layout, as Debian starts it.
    pub fn of(below: &Path, name: &str, layout: &Layout) -> Self {
        let machine = Self::new(below, name);
        let online = format!("0-{}", layout.threads - 1);
        machine.write("sys/devices/system/cpu/online", &online);
        for cpu in 0..layout.threads {
            let core = cpu % (layout.threads / 2);
            let write = |file: &str, text: &str| {
                machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/{file}"), text);
            };
            let (package, core) = (core / layout.cores, core % layout.cores);
            write("topology/physical_package_id", &package.to_string());
            write("topology/core_id", &core.to_string());
            write("cpufreq/scaling_driver", layout.driver);
            write("cpufreq/scaling_governor", layout.governor);
            if let Some(preference) = layout.preference {
                write("cpufreq/energy_performance_preference", preference);
            }
        }
        for (node, (cpus, distances)) in layout.nodes.iter().zip(layout.distances).enumerate() {
            let node = format!("sys/devices/system/node/node{node}");
            machine.write(&format!("{node}/cpulist"), cpus);
            machine.write(&format!("{node}/distance"), distances);
        }
        let words = vec!["ffffffff"; layout.threads.div_ceil(32) as usize];
        let mask = match layout.threads % 32 {
            0 => words.join(","),
            rest => format!("{:x},{}", (1_u32 << rest) - 1, words[1..].join(",")),
        };
        machine.write("proc/irq/default_smp_affinity", &mask);
        // With several nodes the kernel turns it on (CONFIG_NUMA_BALANCING_DEFAULT_ENABLED).
        machine.write("proc/sys/kernel/numa_balancing", "1");
        machine
    }
}
