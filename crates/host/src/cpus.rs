//! How many processors a host has, and how many of them the agent may use.

use std::path::Path;

use drover_types::CpuSet;

use crate::error::HostError;
use crate::files::{optional, read};

const ONLINE: &str = "sys/devices/system/cpu/online";
const STATUS: &str = "proc/self/status";

/// A host's processors, hyperthreads counted each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpus {
    /// Online.
    pub online: u32,
    /// Online, and in the agent's affinity mask; all where that cannot be read.
    pub usable: u32,
}

/// Reads the processors of the host whose root directory is `root`.
///
/// # Errors
///
/// [`HostError::Read`] and [`HostError::Form`] where `/sys` is not mounted.
pub fn cpus(root: &Path) -> Result<Cpus, HostError> {
    let form = || HostError::Form {
        path: root.join(ONLINE),
        what: "list of CPUs",
    };
    let online: Option<CpuSet> = read(root, ONLINE)?.parse().ok();
    let online = online.filter(|cpus| !cpus.is_empty()).ok_or_else(form)?;
    let allowed = optional(&root.join(STATUS)).and_then(|status| {
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        list.parse().ok()
    });
    let usable = match allowed {
        Some(allowed) => online.and(&allowed).count(),
        None => online.count(),
    };
    Ok(Cpus {
        online: online.count(),
        usable: usable.max(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(online: &str, status: Option<&str>) -> Result<Cpus, HostError> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [(ONLINE, Some(online)), (STATUS, status)] {
            if let Some(text) = text {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
        }
        cpus(root.path())
    }

    #[test]
    fn online_processors_are_counted_from_the_list_of_ranges() {
        assert_eq!(
            of("0-3,8-11,15\n", None).unwrap(),
            Cpus {
                online: 9,
                usable: 9
            }
        );
        assert_eq!(
            of("0\n", None).unwrap(),
            Cpus {
                online: 1,
                usable: 1
            }
        );
    }

    #[test]
    fn only_those_in_the_affinity_mask_are_usable() {
        let status = "Name:\tdroverd\nCpus_allowed:\t3\nCpus_allowed_list:\t2-5,40\n";
        assert_eq!(
            of("0-3\n", Some(status)).unwrap(),
            Cpus {
                online: 4,
                usable: 2
            }
        );
    }

    #[test]
    fn lists_that_are_none_are_errors() {
        for bad in ["", "a", "3-1", "0-99999999999", "-1", "0-65536"] {
            assert!(of(bad, None).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn this_machine_has_a_processor() {
        let cpus = cpus(Path::new("/")).unwrap();
        assert!(cpus.usable >= 1 && cpus.usable <= cpus.online);
    }
}
