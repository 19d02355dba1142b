//! How many processors a host has, and how many of them the agent may use.

use std::path::Path;

use crate::error::HostError;
use crate::files::{optional, read};
use crate::limits::CPUS;

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
    let online = ranges(&read(root, ONLINE)?)
        .filter(|list| count(list) > 0)
        .ok_or_else(form)?;
    let allowed = optional(&root.join(STATUS)).and_then(|status| {
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        ranges(list)
    });
    let usable = match allowed {
        Some(allowed) => overlap(&online, &allowed),
        None => count(&online),
    };
    Ok(Cpus {
        online: count(&online),
        usable: usable.max(1),
    })
}

/// `0-3,7` as inclusive ranges (cpuset(7), "List format").
fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last <= CPUS).then_some((first, last))
    };
    list.trim()
        .split(',')
        .filter(|part| !part.is_empty())
        .map(range)
        .collect()
}

fn count(ranges: &[(u32, u32)]) -> u32 {
    ranges
        .iter()
        .map(|(first, last)| last - first + 1)
        .fold(0, u32::saturating_add)
}

fn overlap(one: &[(u32, u32)], other: &[(u32, u32)]) -> u32 {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let common = pairs.map(|(a, b)| {
        let (first, last) = (a.0.max(b.0), a.1.min(b.1));
        if first <= last { last - first + 1 } else { 0 }
    });
    common.fold(0, u32::saturating_add)
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
        for bad in ["", "a", "3-1", "0-99999999999", "-1", "0-65537"] {
            assert!(of(bad, None).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn this_machine_has_a_processor() {
        let cpus = cpus(Path::new("/")).unwrap();
        assert!(cpus.usable >= 1 && cpus.usable <= cpus.online);
    }
}
