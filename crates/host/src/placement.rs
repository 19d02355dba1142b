//! Near which processors an interface's hardware is.
//!
//! A bond, bridge or VLAN has no hardware of its own: what it stands on is found by the `lower_*`
//! links that the kernel keeps in its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drover_types::{CpuSet, Placement};

use crate::error::HostError;
use crate::files::{entries, optional};
use crate::interfaces::folders;
use crate::limits::{LOWER_DEPTH, PARENTS, PORTS};

const NODES: &str = "sys/devices/system/node";

/// Where lanes over each of these interfaces are to run; `root` is where `/sys` is below.
///
/// # Errors
/// As [`crate::interfaces`].
pub async fn placements(
    root: &Path,
    names: &[&str],
) -> Result<BTreeMap<String, Placement>, HostError> {
    let folders = folders(root, names).await?;
    let nodes = Nodes::of(root);
    let place = |name: &&str| {
        let placement = match folders.get(*name) {
            Some(folder) => near(&nodes, folder),
            None => Placement::anywhere("/sys tells nothing of it in this network namespace"),
        };
        ((*name).to_owned(), placement)
    };
    Ok(names.iter().map(place).collect())
}

/// The host's NUMA nodes that have processors.
#[derive(Debug, Default)]
pub(crate) struct Nodes(BTreeMap<u32, CpuSet>);

impl Nodes {
    pub(crate) fn of(root: &Path) -> Self {
        let node = |folder: PathBuf| {
            let name = folder.file_name()?.to_str()?;
            let number = name.strip_prefix("node")?.parse().ok()?;
            let cpus: CpuSet = optional(&folder.join("cpulist"))?.parse().ok()?;
            (!cpus.is_empty()).then_some((number, cpus))
        };
        let all = entries(&root.join(NODES));
        Self(all.into_iter().filter_map(node).collect())
    }

    /// The devices that the interface with this folder stands on.
    ///
    /// # Errors
    /// Why nothing is near any of them, to be read after "because".
    pub(crate) fn hardware(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        if self.0.len() < 2 {
            return Err("the host has one NUMA node".to_owned());
        }
        let mut devices = Vec::new();
        hardware(folder, LOWER_DEPTH, &mut devices);
        if devices.is_empty() {
            return Err("it is virtual".to_owned());
        }
        Ok(devices)
    }

    /// The node that a device is on, and the processors near it: never fewer than the node's. Which of them serve it is
    /// for its queues to say.
    ///
    /// # Errors
    /// Why that is not known, likewise.
    pub(crate) fn near(&self, device: &Path) -> Result<(u32, CpuSet), String> {
        let (node, local) = node_of(device).ok_or("its hardware tells no NUMA node")?;
        let whole = self.0.get(&node);
        let whole = whole.ok_or_else(|| format!("NUMA node {node} has no CPUs"))?;
        Ok((node, whole.or(&local)))
    }
}

/// Where lanes over the interface with this folder are to run.
fn near(nodes: &Nodes, folder: &Path) -> Placement {
    let near = nodes.hardware(folder).and_then(|devices| {
        let near = devices.iter().map(|device| nodes.near(device));
        near.collect::<Result<Vec<_>, _>>()
    });
    let near = match near {
        Ok(near) => near,
        Err(why) => return Placement::anywhere(why),
    };
    let mut on = Vec::new();
    let mut cpus = CpuSet::default();
    for (node, of_device) in near {
        cpus = cpus.or(&of_device);
        on.push(node);
    }
    on.sort_unstable();
    on.dedup();
    if on.len() == nodes.0.len() {
        return Placement::anywhere("its hardware is on every NUMA node");
    }
    Placement::Near { nodes: on, cpus }
}

/// The devices that an interface stands on. A guest's tap in a bridge is none.
fn hardware(folder: &Path, depth: usize, devices: &mut Vec<PathBuf>) {
    let device = folder.join("device");
    if device.exists() {
        if devices.len() < PORTS {
            devices.push(device);
        }
        return;
    }
    if depth == 0 {
        return;
    }
    for lower in entries(folder) {
        let name = lower.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("lower_")) {
            hardware(&lower, depth - 1, devices);
        }
    }
}

/// The node of a device, and the processors that it names itself. Those on a bus without nodes
/// (virtio, auxiliary) have a parent that knows.
fn node_of(device: &Path) -> Option<(u32, CpuSet)> {
    let device = device.canonicalize().ok()?;
    let mut parents = device.ancestors().take(PARENTS);
    let knows = parents.find(|parent| parent.join("numa_node").is_file())?;
    // -1: the firmware does not tell.
    let node = optional(&knows.join("numa_node"))?.parse().ok()?;
    let local = optional(&knows.join("local_cpulist"));
    let local = local.and_then(|list| list.parse().ok());
    Some((node, local.unwrap_or_default()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A tree as of a machine with two sockets: the interfaces' folders lie below their devices, as
    /// in `/sys`.
    pub(crate) struct Tree(pub(crate) tempfile::TempDir);

    impl Tree {
        pub(crate) fn new(nodes: &[(u32, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (node, cpus) in nodes {
                tree.write(&format!("{NODES}/node{node}/cpulist"), cpus);
            }
            tree.write(&format!("{NODES}/online"), "0-1\n");
            tree
        }

        pub(crate) fn two_sockets() -> Self {
            Self::new(&[(0, "0-15,32-47\n"), (1, "16-31,48-63\n")])
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn net(&self, device: &str, name: &str) {
            let net = self.0.path().join(device).join("net").join(name);
            fs::create_dir_all(&net).unwrap();
            symlink("../..", net.join("device")).unwrap();
            self.class(&net, name);
        }

        fn class(&self, net: &Path, name: &str) {
            let class = self.0.path().join("sys/class/net");
            fs::create_dir_all(&class).unwrap();
            symlink(net, class.join(name)).unwrap();
        }

        /// A PCI device with one interface.
        pub(crate) fn pci(&self, slot: &str, name: &str, node: &str, local: &str) {
            let device = format!("sys/devices/pci0000:00/{slot}");
            self.write(&format!("{device}/numa_node"), node);
            self.write(&format!("{device}/local_cpulist"), local);
            self.net(&device, name);
        }

        /// A bond, bridge, VLAN or veth.
        pub(crate) fn on_top(&self, name: &str, lower: &[&str]) {
            let net = self.0.path().join("sys/devices/virtual/net").join(name);
            fs::create_dir_all(&net).unwrap();
            for lower in lower {
                let below = self.0.path().join("sys/class/net").join(lower);
                symlink(below, net.join(format!("lower_{lower}"))).unwrap();
            }
            self.class(&net, name);
        }

        fn near(&self, name: &str) -> Placement {
            let folder = self.0.path().join("sys/class/net").join(name);
            near(&Nodes::of(self.0.path()), &folder)
        }
    }

    fn on(nodes: &[u32], cpus: &str) -> Placement {
        Placement::Near {
            nodes: nodes.to_vec(),
            cpus: cpus.parse().unwrap(),
        }
    }

    #[test]
    fn an_adapter_is_near_the_cpus_of_its_node() {
        let tree = Tree::two_sockets();
        tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-15,32-47\n");
        tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
        assert_eq!(tree.near("ens1f0"), on(&[0], "0-15,32-47"));
        assert_eq!(tree.near("ens5f0"), on(&[1], "16-31,48-63"));
    }

    #[test]
    fn a_device_that_names_fewer_cpus_is_near_all_of_its_node() {
        let tree = Tree::two_sockets();
        tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-19\n");
        assert_eq!(tree.near("ens5f0"), on(&[1], "16-31,48-63"));
        tree.pci("0000:b0:00.0", "ens6f0", "1\n", "what");
        assert_eq!(tree.near("ens6f0"), on(&[1], "16-31,48-63"));
    }

    #[test]
    fn a_bond_is_near_the_nodes_of_all_its_members() {
        let nodes = [(0, "0-7"), (1, "8-15"), (2, "16-23"), (3, "24-31")];
        let tree = Tree::new(&nodes);
        tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-7\n");
        tree.pci("0000:af:00.0", "ens5f0", "2\n", "16-23\n");
        tree.on_top("bond0", &["ens1f0", "ens5f0"]);
        assert_eq!(tree.near("bond0"), on(&[0, 2], "0-7,16-23"));
        // And what is on top of it.
        tree.on_top("bond0.100", &["bond0"]);
        tree.on_top("br0", &["bond0.100", "vnet3"]);
        assert_eq!(tree.near("br0"), on(&[0, 2], "0-7,16-23"));
    }

    #[test]
    fn a_bond_over_all_nodes_is_near_none() {
        let tree = Tree::two_sockets();
        tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-15,32-47\n");
        tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
        tree.on_top("bond0", &["ens1f0", "ens5f0"]);
        let everywhere = Placement::anywhere("its hardware is on every NUMA node");
        assert_eq!(tree.near("bond0"), everywhere);
    }

    #[test]
    fn a_vlan_and_a_bridge_with_taps_are_near_the_adapter_below() {
        let tree = Tree::two_sockets();
        tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
        tree.on_top("ens5f0.40", &["ens5f0"]);
        tree.on_top("vnet0", &[]);
        tree.on_top("br0", &["ens5f0.40", "vnet0"]);
        for name in ["ens5f0.40", "br0"] {
            assert_eq!(tree.near(name), on(&[1], "16-31,48-63"), "{name}");
        }
    }

    #[test]
    fn a_device_on_a_bus_without_nodes_is_where_its_parent_is() {
        let tree = Tree::two_sockets();
        let pci = "sys/devices/pci0000:80/0000:80:03.0";
        tree.write(&format!("{pci}/numa_node"), "1\n");
        tree.write(&format!("{pci}/local_cpulist"), "16-31,48-63\n");
        tree.net(&format!("{pci}/virtio0"), "eth0");
        assert_eq!(tree.near("eth0"), on(&[1], "16-31,48-63"));
    }

    #[test]
    fn an_interface_without_a_known_node_is_near_none_and_says_why() {
        let tree = Tree::two_sockets();
        tree.pci("0000:00:03.0", "eth0", "-1\n", "0-63\n");
        tree.on_top("veth0", &[]);
        tree.on_top("bridge", &["veth0"]);
        tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-15,32-47\n");
        tree.on_top("bond0", &["ens1f0", "eth0"]);
        tree.pci("0000:00:04.0", "eth4", "7\n", "\n");
        for (name, why) in [
            ("eth0", "its hardware tells no NUMA node"),
            ("veth0", "it is virtual"),
            ("bridge", "it is virtual"),
            ("bond0", "its hardware tells no NUMA node"),
            ("eth4", "NUMA node 7 has no CPUs"),
        ] {
            assert_eq!(tree.near(name), Placement::anywhere(why), "{name}");
        }
    }

    #[test]
    fn a_host_with_one_node_of_processors_places_nothing() {
        let one = Placement::anywhere("the host has one NUMA node");
        // Memory without processors is a node, too.
        for nodes in [&[(0, "0-3\n")][..], &[(0, "0-3\n"), (1, "\n")], &[]] {
            let tree = Tree::new(nodes);
            tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-3\n");
            assert_eq!(tree.near("ens1f0"), one, "{nodes:?}");
        }
    }

    #[test]
    fn interfaces_that_stand_on_each_other_end_the_search() {
        let tree = Tree::two_sockets();
        tree.on_top("a", &["b"]);
        tree.on_top("b", &["a"]);
        assert_eq!(tree.near("a"), Placement::anywhere("it is virtual"));
    }

    #[tokio::test]
    async fn interfaces_of_this_machine_are_placed_or_say_why_not() {
        let placed = placements(Path::new("/"), &["lo", "none"]).await.unwrap();
        assert_eq!(placed.len(), 2);
        for (name, placement) in placed {
            assert!(matches!(placement, Placement::Anywhere { .. }), "{name}");
        }
    }
}
