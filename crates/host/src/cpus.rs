//! How many processors a host has, and how many of them the agent may use.

use std::path::{Component, Path};

use drover_types::CpuSet;

use crate::error::HostError;
use crate::files::{optional, read};

const ONLINE: &str = "sys/devices/system/cpu/online";
const STATUS: &str = "proc/self/status";
const GROUP: &str = "proc/self/cgroup";
const GROUPS: &str = "sys/fs/cgroup";

/// A host's processors, hyperthreads counted each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpus {
    /// Online.
    pub online: u32,
    /// Online, in the agent's affinity mask, which a cpuset narrows, and no more than the quotas of its control groups are worth, rounded up
    /// (`cpu.max` of version 2); all where that cannot be read.
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
    let usable = usable.min(quota(root).unwrap_or(u32::MAX));
    Ok(Cpus {
        online: online.count(),
        usable: usable.max(1),
    })
}

/// The least that the agent's control group and those above it may use together, in processors; none where none of them has a quota.
fn quota(root: &Path) -> Option<u32> {
    let own = optional(&root.join(GROUP))?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut group = root.join(GROUPS);
    // In a container that is its group, and what is told is below it; the host's root has no quota. A group beyond what is mounted here
    // begins with `..`, and is not looked for.
    let first = optional(&group.join("cpu.max"));
    let below = Path::new(own).components().map_while(|part| match part {
        Component::Normal(name) => {
            group.push(name);
            Some(optional(&group.join("cpu.max")))
        }
        _ => None,
    });
    let all = std::iter::once(first).chain(below).flatten();
    all.filter_map(|text| processors(&text)).min()
}

/// Of a quota and its period in microseconds; none where it is `max`, or makes no sense.
fn processors(quota: &str) -> Option<u32> {
    let (quota, period) = quota.split_once(' ')?;
    let [quota, period]: [u64; 2] = [quota.parse().ok()?, period.parse().ok()?];
    let whole = (period > 0).then(|| quota.div_ceil(period))?;
    u32::try_from(whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_files(files: &[(&str, &str)]) -> Result<Cpus, HostError> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        cpus(root.path())
    }

    fn of(online: &str, status: Option<&str>) -> Result<Cpus, HostError> {
        let status = status.map(|status| (STATUS, status));
        let files: Vec<_> = [(ONLINE, online)].into_iter().chain(status).collect();
        of_files(&files)
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
    fn no_more_are_usable_than_the_least_quota_of_its_control_groups_is_worth() {
        const OWN: &str = "sys/fs/cgroup/system.slice/droverd.service/cpu.max";
        const ABOVE: &str = "sys/fs/cgroup/system.slice/cpu.max";
        let group = "1:cpu:/other\n0::/system.slice/droverd.service\n";
        let usable = |group, own, above| {
            let files = [
                (ONLINE, "0-7\n"),
                (GROUP, group),
                (OWN, own),
                (ABOVE, above),
            ];
            of_files(&files).unwrap().usable
        };
        let none = "max 100000\n";
        assert_eq!(usable(group, none, none), 8);
        assert_eq!(usable(group, "250000 100000\n", none), 3);
        assert_eq!(usable(group, "250000 100000\n", "50000 100000\n"), 1);
        assert_eq!(usable(group, "1600000 100000\n", none), 8);
        // Of another group, beyond what is mounted here, of version 1, or nonsense.
        for group in [
            "0::/user.slice",
            "0::/../system.slice",
            "1:cpu:/system.slice",
            "0::/",
        ] {
            assert_eq!(
                usable(group, "100000 100000", "100000 100000"),
                8,
                "{group}"
            );
        }
        for bad in ["", "1", "1 0", "-1 100000", "99999999999999999999 1", "a b"] {
            assert_eq!(usable(group, bad, none), 8, "{bad}");
        }
        let in_a_container = [
            (ONLINE, "0-7\n"),
            (GROUP, "0::/\n"),
            ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ];
        assert_eq!(of_files(&in_a_container).unwrap().usable, 2);
        // A quota of nothing at all cannot be.
        assert_eq!(usable(group, "0 100000", none), 1);
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
