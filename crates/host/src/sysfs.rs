//! What `/sys` tells of an interface: its link rate and its RDMA device.
//!
//! A process that entered a network namespace without mounting `/sys` anew sees there the
//! interfaces of another namespace, some with the same names. So an interface's folder counts
//! only if its index and its hardware address are those that netlink gave.

use std::path::{Path, PathBuf};

use drover_types::BitRate;

use crate::files::{entries, optional};

/// Which interface is meant, by what netlink says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) hardware_address: Vec<u8>,
}

/// The interface's folder, if it is that interface's.
pub(crate) fn folder(root: &Path, identity: &Identity) -> Option<PathBuf> {
    // A name with a slash would leave the folder; the kernel allows none.
    if identity.name.contains('/') || identity.name.starts_with('.') {
        return None;
    }
    let folder = root.join("sys/class/net").join(&identity.name);
    let index: u32 = optional(&folder.join("ifindex"))?.parse().ok()?;
    let address = optional(&folder.join("address"))?;
    let octets: Vec<String> = identity
        .hardware_address
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect();
    (index == identity.index && address == octets.join(":")).then_some(folder)
}

/// Whether there is a device below the interface of this name: not below those of guests, or of the kernel alone.
#[must_use]
pub fn has_hardware(root: &Path, nic: &str) -> bool {
    root.join("sys/class/net").join(nic).join("device").exists()
}

/// The negotiated rate; `None` where the driver gives none (-1, 0, an error).
pub(crate) fn speed(folder: &Path) -> Option<BitRate> {
    let mbit: i64 = optional(&folder.join("speed"))?.parse().ok()?;
    megabits(u64::try_from(mbit).ok()?)
}

/// Megabits per second as drivers give them; what stands for "unknown" is `None`.
pub(crate) fn megabits(mbit: u64) -> Option<BitRate> {
    let known = mbit > 0 && mbit < u64::from(u32::MAX);
    known.then(|| BitRate(mbit.saturating_mul(1_000_000)))
}

/// The RDMA device on this interface: that of its PCI device, or one whose port carries its name
/// (a soft device has no PCI device; Linux `Documentation/ABI/stable/sysfs-class-infiniband`).
pub(crate) fn rdma(root: &Path, folder: &Path, name: &str) -> Option<String> {
    let own = entries(&folder.join("device/infiniband"));
    let device = own.into_iter().next().or_else(|| {
        let all = entries(&root.join("sys/class/infiniband"));
        all.into_iter().find(|device| carries(device, name))
    })?;
    device.file_name()?.to_str().map(str::to_owned)
}

fn carries(device: &Path, name: &str) -> bool {
    if optional(&device.join("parent")).as_deref() == Some(name) {
        return true;
    }
    let ports = entries(&device.join("ports"));
    let mut gids = ports
        .iter()
        .flat_map(|port| entries(&port.join("gid_attrs/ndevs")));
    gids.any(|gid| optional(&gid).as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/class/net/ens1f0/ifindex", "4\n");
        write(
            root.path(),
            "sys/class/net/ens1f0/address",
            "b8:ce:f6:00:00:01\n",
        );
        write(root.path(), "sys/class/net/ens1f0/speed", "25000\n");
        root
    }

    fn identity() -> Identity {
        let hardware_address = vec![0xb8, 0xce, 0xf6, 0, 0, 1];
        Identity {
            name: "ens1f0".into(),
            index: 4,
            hardware_address,
        }
    }

    #[test]
    fn the_rate_of_a_captured_interface_is_read() {
        let root = tree();
        let folder = folder(root.path(), &identity()).unwrap();
        assert_eq!(speed(&folder), Some(BitRate(25_000_000_000)));
    }

    #[test]
    fn hardware_is_what_has_a_device_below_it() {
        let root = tree();
        assert!(!has_hardware(root.path(), "ens1f0"));
        write(root.path(), "sys/class/net/ens1f0/device/uevent", "");
        assert!(has_hardware(root.path(), "ens1f0"));
        assert!(!has_hardware(root.path(), "tap0"));
    }

    #[test]
    fn rates_that_mean_unknown_are_none() {
        let root = tree();
        let folder = folder(root.path(), &identity()).unwrap();
        for unknown in ["-1\n", "0\n", "4294967295\n", "", "Invalid argument"] {
            write(root.path(), "sys/class/net/ens1f0/speed", unknown);
            assert_eq!(speed(&folder), None, "{unknown:?}");
        }
        fs::remove_file(folder.join("speed")).unwrap();
        assert_eq!(speed(&folder), None);
    }

    #[test]
    fn an_interface_of_another_namespace_with_the_same_name_does_not_count() {
        let root = tree();
        let other_index = Identity {
            index: 5,
            ..identity()
        };
        assert_eq!(folder(root.path(), &other_index), None);
        let other_address = Identity {
            hardware_address: vec![2; 6],
            ..identity()
        };
        assert_eq!(folder(root.path(), &other_address), None);
        let absent = Identity {
            name: "eth9".into(),
            ..identity()
        };
        assert_eq!(folder(root.path(), &absent), None);
        let leaving = Identity {
            name: "../net/ens1f0".into(),
            ..identity()
        };
        assert_eq!(folder(root.path(), &leaving), None);
    }

    #[test]
    fn the_rdma_device_of_an_adapter_is_that_of_its_pci_device() {
        let root = tree();
        let net = folder(root.path(), &identity()).unwrap();
        assert_eq!(rdma(root.path(), &net, "ens1f0"), None);
        fs::create_dir_all(net.join("device/infiniband/mlx5_0")).unwrap();
        assert_eq!(rdma(root.path(), &net, "ens1f0").as_deref(), Some("mlx5_0"));
    }

    #[test]
    fn a_soft_rdma_device_is_found_by_the_interface_its_port_names() {
        let root = tree();
        let net = folder(root.path(), &identity()).unwrap();
        let ndevs = "sys/class/infiniband/rxe1/ports/1/gid_attrs/ndevs/0";
        write(root.path(), "sys/class/infiniband/rxe0/parent", "eth7\n");
        write(root.path(), ndevs, "ens1f0\n");
        assert_eq!(rdma(root.path(), &net, "ens1f0").as_deref(), Some("rxe1"));
        assert_eq!(rdma(root.path(), &net, "eth7").as_deref(), Some("rxe0"));
    }
}
