//! What the agents of both hosts use during one move: every process of theirs, also those that
//! come and go with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use crate::counters::cpu_of_process;

/// Looks at all processes of the machine are made with each so many samples: 5 a second, some 2 ms
/// each. A process that lives shorter is not seen.
const LOOK_EACH: usize = 10;

/// CPU time and memory of the agents of a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time.
    pub cpu: Duration,
    /// The most memory of their own that they had at once, without files that are mapped.
    pub memory: Bytes,
}

/// The agents of one host, told by how their program's name begins (the relays have longer ones) and by
/// network namespace.
#[derive(Debug)]
struct Agents {
    program: String,
    namespace: PathBuf,
    /// CPU time of each at the beginning, and when it was last seen.
    processes: BTreeMap<u32, [Duration; 2]>,
    memory: u64,
}

/// The agents of source and destination.
#[derive(Debug)]
pub(crate) struct Usage {
    hosts: [Agents; 2],
    looks: usize,
}

impl Usage {
    /// Begins with the agents of these process ids.
    pub(crate) fn begin(agents: [u32; 2]) -> Result<Self> {
        let [source, destination] = agents;
        let mut usage = Self {
            hosts: [Agents::like(source)?, Agents::like(destination)?],
            looks: 0,
        };
        usage.find(true);
        Ok(usage)
    }

    /// Looks again.
    pub(crate) fn look(&mut self) {
        if self.looks.is_multiple_of(LOOK_EACH) {
            self.find(false);
            for host in &mut self.hosts {
                host.weigh();
            }
        }
        self.looks += 1;
        for host in &mut self.hosts {
            host.count();
        }
    }

    /// What source and destination used.
    pub(crate) fn used(&self) -> [Used; 2] {
        [self.hosts[0].used(), self.hosts[1].used()]
    }

    fn find(&mut self, at_first: bool) {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            let Ok(program) = fs::read_to_string(format!("/proc/{pid}/comm")) else {
                continue;
            };
            for host in &mut self.hosts {
                if program.trim().starts_with(&host.program) && host.is_on(pid) {
                    host.meet(pid, at_first);
                }
            }
        }
    }
}

fn namespace(pid: u32) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net"))
}

impl Agents {
    fn like(pid: u32) -> Result<Self> {
        let program = fs::read_to_string(format!("/proc/{pid}/comm"));
        Ok(Self {
            program: program
                .with_context(|| format!("agent {pid} is gone"))?
                .trim()
                .to_owned(),
            namespace: namespace(pid).with_context(|| format!("agent {pid} is gone"))?,
            processes: BTreeMap::new(),
            memory: 0,
        })
    }

    fn is_on(&self, pid: u32) -> bool {
        namespace(pid).is_ok_and(|space| space == self.namespace)
    }

    /// One that comes later has used all that it has used for the move.
    fn meet(&mut self, pid: u32, at_first: bool) {
        let now = cpu_of_process(pid).unwrap_or_default();
        let begin = if at_first { now } else { Duration::ZERO };
        self.processes.entry(pid).or_insert([begin, now]);
    }

    fn count(&mut self) {
        for (pid, [_, last]) in &mut self.processes {
            // What has ended keeps what it was last seen with.
            if let Ok(now) = cpu_of_process(*pid) {
                *last = now.max(*last);
            }
        }
    }

    fn weigh(&mut self) {
        let now = self.processes.keys().filter_map(|pid| own_memory(*pid));
        self.memory = self.memory.max(now.sum());
    }

    fn used(&self) -> Used {
        let each = self.processes.values();
        Used {
            cpu: each.map(|[begin, last]| last.saturating_sub(*begin)).sum(),
            memory: Bytes(self.memory),
        }
    }
}

/// Memory of a process's own in bytes, without files that are mapped.
pub(crate) fn own_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_come_later_count_from_their_start_and_those_there_from_now() {
        let own = std::process::id();
        let mut usage = Usage::begin([own, own]).unwrap();
        // Both "hosts" are this one; other tests of the same name may run beside it.
        assert!(
            usage
                .hosts
                .iter()
                .all(|host| host.processes.contains_key(&own))
        );
        let before = cpu_of_process(own).unwrap();
        let mut spent = 0u64;
        while cpu_of_process(own).unwrap() < before + Duration::from_millis(30) {
            spent = spent.wrapping_mul(31).wrapping_add(7);
        }
        usage.look();
        let [source, destination] = usage.used();
        assert!(
            source.cpu >= Duration::from_millis(20),
            "{source:?} {spent}"
        );
        assert!(destination.memory.0 > 0);

        let mut late = Agents::like(own).unwrap();
        late.meet(own, false);
        assert!(late.used().cpu >= before, "all that it has used");
        assert!(Usage::begin([u32::MAX, own]).is_err());
    }
}
