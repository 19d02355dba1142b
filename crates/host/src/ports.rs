//! Which interfaces others stand on at the bottom: VLANs of one port share its line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::HostError;
use crate::files::entries;
use crate::interfaces::folders;
use crate::limits::{LOWER_DEPTH, PORTS};

/// Of each of these interfaces those that it stands on and that stand on nothing: with hardware where any of them has some, as a bridge's
/// other ports are guests' and containers'. One that stands on nothing stands on itself. `root` is where `/sys` is below.
///
/// # Errors
/// As [`crate::interfaces`].
pub async fn ports(
    root: &Path,
    names: &[&str],
) -> Result<BTreeMap<String, BTreeSet<String>>, HostError> {
    let folders = folders(root, names).await?;
    let of = |name: &&str| {
        let mut bottom = Bottom::default();
        match folders.get(*name) {
            Some(folder) => bottom.look(name, folder, LOWER_DEPTH),
            None => bottom.others.extend([(*name).to_owned()]),
        }
        let Bottom { hardware, others } = bottom;
        let ports = if hardware.is_empty() {
            others
        } else {
            hardware
        };
        ((*name).to_owned(), ports)
    };
    Ok(names.iter().map(of).collect())
}

#[derive(Debug, Default)]
struct Bottom {
    hardware: BTreeSet<String>,
    others: BTreeSet<String>,
}

impl Bottom {
    fn look(&mut self, name: &str, folder: &Path, depth: usize) {
        let has_hardware = folder.join("device").exists();
        let mut lower = Vec::new();
        if depth > 0 && !has_hardware {
            lower = entries(folder);
            lower.retain(|entry| lower_name(entry).is_some());
        }
        let found = if has_hardware {
            &mut self.hardware
        } else {
            &mut self.others
        };
        if lower.is_empty() && found.len() < PORTS {
            found.insert(name.to_owned());
        }
        for entry in &lower {
            if let Some(name) = lower_name(entry) {
                self.look(name, entry, depth - 1);
            }
        }
    }
}

fn lower_name(entry: &Path) -> Option<&str> {
    entry.file_name()?.to_str()?.strip_prefix("lower_")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn bottom(net: &Path, name: &str) -> (Vec<String>, Vec<String>) {
        let mut bottom = Bottom::default();
        bottom.look(name, &net.join(name), LOWER_DEPTH);
        let Bottom { hardware, others } = bottom;
        (hardware.into_iter().collect(), others.into_iter().collect())
    }

    #[test]
    fn a_vlan_stands_on_its_port_a_bond_on_all_of_its_own_and_a_circle_ends() {
        let net = tempfile::tempdir().unwrap();
        let net = net.path();
        for (name, hardware, lower) in [
            ("eth0", true, &[][..]),
            ("eth1", true, &[]),
            ("tap0", false, &[]),
            ("bond0", false, &["eth0", "eth1"]),
            ("br0", false, &["bond0", "tap0"]),
            ("br0.7", false, &["br0"]),
            ("one", false, &["other"]),
            ("other", false, &["one"]),
        ] {
            fs::create_dir(net.join(name)).unwrap();
            if hardware {
                fs::create_dir(net.join(name).join("device")).unwrap();
            }
            for lower in lower {
                let below = net.join(lower);
                symlink(below, net.join(name).join(format!("lower_{lower}"))).unwrap();
            }
        }
        let told = |name: &str| bottom(net, name);
        let both = vec!["eth0".to_owned(), "eth1".to_owned()];
        assert_eq!(told("eth0"), (vec!["eth0".to_owned()], vec![]));
        assert_eq!(told("bond0"), (both.clone(), vec![]));
        assert_eq!(told("br0.7"), (both, vec!["tap0".to_owned()]));
        assert_eq!(told("tap0"), (vec![], vec!["tap0".to_owned()]));
        // Whoever it is: it ends.
        assert_eq!(told("one").1.len(), 1);
    }
}
