//! How long processors were in which of their idle states, as cpuidle counts (`Documentation/admin-guide/pm/cpuidle.rst`).

use std::collections::BTreeMap;
use std::path::Path;

use drover_types::{CpuSet, IdleTime};

use crate::error::HostError;
use crate::files::{optional, read};
use crate::limits::IDLE_STATES;

const CPUS: &str = "sys/devices/system/cpu";

/// The time since the host's start of all processors that are online, by state, the one that is left most quickly first. A
/// state that a processor is in at the moment counts when it is left.
///
/// Reads three files for each state of each processor: 5 ms on a host with 128 of them that have four states.
///
/// # Errors
/// [`HostError::NoIdleStates`], and [`HostError::Read`] and [`HostError::Form`] where `/sys` is not mounted.
pub fn idle_times(root: &Path) -> Result<Vec<IdleTime>, HostError> {
    let online = format!("{CPUS}/online");
    let cpus: CpuSet = read(root, &online)?.parse().map_err(|_| HostError::Form {
        path: root.join(&online),
        what: "list of CPUs",
    })?;
    let mut times: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for cpu in cpus.iter() {
        let states = root.join(format!("{CPUS}/cpu{cpu}/cpuidle"));
        let state = |number: u32| state(&states.join(format!("state{number}")));
        for (key, time) in (0..IDLE_STATES).map_while(state) {
            let sum = times.entry(key).or_default();
            *sum = sum.saturating_add(time);
        }
    }
    if times.is_empty() {
        return Err(HostError::NoIdleStates);
    }
    let time = |((latency_us, state), time_us)| IdleTime {
        state,
        latency_us,
        time_us,
    };
    Ok(times.into_iter().map(time).collect())
}

fn state(folder: &Path) -> Option<((u32, String), u64)> {
    let text = |name| optional(&folder.join(name));
    let latency = text("latency")?.parse().ok()?;
    Some(((latency, text("name")?), text("time")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(online: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let cpus = root.path().join(CPUS);
        fs::create_dir_all(&cpus).unwrap();
        fs::write(cpus.join("online"), online).unwrap();
        root
    }

    fn add(root: &Path, cpu: u32, states: &[(&str, u32, u64)]) {
        for (number, (name, latency, time)) in states.iter().enumerate() {
            let folder = root.join(format!("{CPUS}/cpu{cpu}/cpuidle/state{number}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("name"), format!("{name}\n")).unwrap();
            fs::write(folder.join("latency"), format!("{latency}\n")).unwrap();
            fs::write(folder.join("time"), format!("{time}\n")).unwrap();
        }
    }

    #[test]
    fn times_of_all_processors_are_added_up_by_state() {
        let root = host("0-1\n");
        add(
            root.path(),
            0,
            &[("POLL", 0, 5), ("C1", 2, 100), ("C6", 133, 7)],
        );
        add(
            root.path(),
            1,
            &[("POLL", 0, 1), ("C1", 2, 50), ("C6", 133, 3)],
        );
        // It is not online.
        add(root.path(), 2, &[("C1", 2, 9999)]);
        let times = idle_times(root.path()).unwrap();
        let seen: Vec<_> = times
            .iter()
            .map(|time| (time.state.as_str(), time.latency_us, time.time_us))
            .collect();
        assert_eq!(seen, [("POLL", 0, 6), ("C1", 2, 150), ("C6", 133, 10)]);
    }

    #[test]
    fn a_host_without_cpuidle_is_told_apart_from_one_that_never_slept() {
        let root = host("0-3\n");
        assert!(matches!(
            idle_times(root.path()),
            Err(HostError::NoIdleStates)
        ));
        add(root.path(), 0, &[("C1", 2, 0)]);
        assert_eq!(idle_times(root.path()).unwrap()[0].time_us, 0);
    }

    #[test]
    fn what_this_machine_counts_never_becomes_less() {
        let root = Path::new("/");
        let Ok(before) = idle_times(root) else {
            return eprintln!("skipped, because this machine's kernel counts no idle states");
        };
        let after = idle_times(root).unwrap();
        let grew = |(after, before): (&IdleTime, &IdleTime)| after.time_us >= before.time_us;
        assert!(after.iter().zip(&before).all(grew), "{before:?} {after:?}");
    }
}
