//! What agents and hosts hold between two moves, and whether it grows.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use drover_types::Bytes;
use serde::{Deserialize, Serialize};

use super::Round;
use crate::agent::Agent;
use crate::host::Host;
use crate::lab::Lab;
use crate::network;
use crate::usage::own_memory;

/// Descriptors that an agent may have more than at first: connections of control that are kept
/// open for the next request.
const DESCRIPTORS: usize = 6;

/// Threads that an agent may have more: those for files come as they are needed, and go when they
/// had nothing to do for 10 s.
const THREADS: usize = 8;

/// Memory that an agent may have more after any one round than either had at first: what the
/// allocator keeps of a round that needed more than others. Agents that lost nothing were seen to
/// keep between 10 and 55 MiB from one round to the next.
const MEMORY: u64 = 48 << 20;

/// Memory that an agent may have more at the end by its trend. With what is kept varying by 10 MiB,
/// the trend of 150 rounds is right to 3 MiB.
const TREND: f64 = 12.0 * 1024.0 * 1024.0;

/// Rounds from which on a trend tells anything; the first quarter of them is left out, in which
/// every agent comes to need what it needs.
const TREND_ROUNDS: usize = 150;

/// Records of moves that an agent may keep: its own bound (200) and those under way.
const RECORDS: usize = 204;

/// What one agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHeld {
    /// Memory of its own, without files that are mapped.
    pub memory: Bytes,
    /// Threads.
    pub threads: usize,
    /// Descriptors.
    pub descriptors: usize,
}

/// What one host holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostHeld {
    /// Its agent.
    pub agent: AgentHeld,
    /// The names of its processes.
    pub processes: Vec<String>,
    /// Its files, without logs and records of moves.
    pub files: BTreeSet<String>,
    /// Records of moves.
    pub records: usize,
    /// Rules that drop packets, left by faults.
    pub rules: usize,
}

/// What a lab holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Both hosts.
    pub hosts: Vec<HostHeld>,
    /// Its network namespaces.
    pub namespaces: usize,
    /// Mounts of this machine that are the lab's.
    pub mounts: usize,
}

impl Held {
    pub(super) async fn look(lab: &Lab, agents: &[Agent]) -> Result<Self> {
        let mut hosts = Vec::new();
        for agent in agents {
            hosts.push(host(agent).await?);
        }
        let name = &lab.settings().name;
        let own = [
            format!("drover-{name}-"),
            lab.folder().display().to_string(),
        ];
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read mounts")?;
        Ok(Self {
            hosts,
            namespaces: network::namespaces(name).await?.len(),
            mounts: mounts
                .lines()
                .filter(|line| own.iter().any(|own| line.contains(own.as_str())))
                .count(),
        })
    }
}

async fn host(agent: &Agent) -> Result<HostHeld> {
    let host = &agent.host;
    let mut processes = Vec::new();
    for pid in network::processes(host.namespace()).await {
        let path = format!("/proc/{}/comm", pid.as_raw_nonzero());
        // One that has just ended is none.
        if let Ok(name) = fs::read_to_string(path) {
            processes.push(name.trim().to_owned());
        }
    }
    processes.sort_unstable();
    let mut files = BTreeSet::new();
    let folder = host.folder();
    list(folder, folder, &mut files)?;
    let is_record = |file: &String| file.starts_with("state/migrations/");
    let records = files.iter().filter(|file| is_record(file)).count();
    files.retain(|file| !is_record(file) && !file.ends_with(".log"));
    Ok(HostHeld {
        agent: of_agent(agent.pid)?,
        processes,
        files,
        records,
        rules: rules(host).await,
    })
}

async fn rules(host: &Host) -> usize {
    let words = ["netns", "exec", host.namespace(), "nft", "list", "ruleset"];
    let rules = crate::command::run("ip", &words).await.unwrap_or_default();
    rules.lines().filter(|line| line.contains("drop")).count()
}

fn of_agent(pid: u32) -> Result<AgentHeld> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("agent {pid} is gone"))?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
            .with_context(|| format!("{path} has no {name}"))
    };
    let descriptors =
        fs::read_dir(format!("/proc/{pid}/fd")).context("cannot count descriptors")?;
    Ok(AgentHeld {
        memory: Bytes(own_memory(pid).unwrap_or(0)),
        threads: usize::try_from(number("Threads:")?)?,
        descriptors: descriptors.count(),
    })
}

fn list(top: &Path, folder: &Path, files: &mut BTreeSet<String>) -> Result<()> {
    // What is removed meanwhile is not there.
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(top, &path, files)?;
        } else if let Ok(name) = path.strip_prefix(top) {
            files.insert(name.display().to_string());
        }
    }
    Ok(())
}

/// What is more than in the rounds that it is compared with; empty when nothing is.
pub(super) fn growth(baseline: &[&Held], now: &Held) -> Vec<String> {
    let mut grown = Vec::new();
    let most = |value: &dyn Fn(&Held) -> u64| baseline.iter().map(|held| value(held)).max();
    let mut check = |what: &str, allowed: u64, value: &dyn Fn(&Held) -> u64| {
        let Some(before) = most(value) else { return };
        let after = value(now);
        if after > before + allowed {
            grown.push(format!(
                "{what}: {after}, at first {before} (+{allowed} allowed)"
            ));
        }
    };
    for (number, name) in network::HOSTS.iter().enumerate() {
        let agent = |held: &Held| held.hosts.get(number).map(|host| host.agent);
        check(
            &format!("threads of agent {name}"),
            THREADS as u64,
            &|held| agent(held).map_or(0, |agent| agent.threads as u64),
        );
        check(
            &format!("descriptors of agent {name}"),
            DESCRIPTORS as u64,
            &|held| agent(held).map_or(0, |agent| agent.descriptors as u64),
        );
        let of_host = |held: &Held, count: fn(&HostHeld) -> usize| {
            held.hosts.get(number).map_or(0, |host| count(host) as u64)
        };
        check(&format!("processes of host {name}"), 0, &|held| {
            of_host(held, |host| host.processes.len())
        });
        check(&format!("rules of host {name}"), 0, &|held| {
            of_host(held, |host| host.rules)
        });
    }
    let memory = |held: &Held| {
        let agents = held.hosts.iter().map(|host| host.agent.memory.0);
        agents.max().unwrap_or(0)
    };
    check("bytes of the larger agent", MEMORY, &memory);
    check("namespaces", 0, &|held| held.namespaces as u64);
    check("mounts", 0, &|held| held.mounts as u64);
    for (number, name) in network::HOSTS.iter().enumerate() {
        let Some(host) = now.hosts.get(number) else {
            continue;
        };
        let known = |file: &&String| {
            let mut hosts = baseline.iter().filter_map(|held| held.hosts.get(number));
            hosts.any(|host| host.files.contains(*file))
        };
        let new: Vec<_> = host
            .files
            .iter()
            .filter(|file| !known(file))
            .cloned()
            .collect();
        if !new.is_empty() && !baseline.is_empty() {
            grown.push(format!("new files on host {name}: {}", new.join(", ")));
        }
        if host.records > RECORDS {
            let records = host.records;
            grown.push(format!(
                "records of moves on host {name}: {records}, {RECORDS} allowed"
            ));
        }
    }
    grown
}

/// What an agent's memory grew by over all rounds, by the line through all of them, if that is too
/// much.
pub(super) fn trend(rounds: &[Round]) -> Option<String> {
    for (number, name) in network::HOSTS.iter().enumerate() {
        let points: Vec<_> = rounds
            .iter()
            .skip(rounds.len() / 4)
            .filter_map(|round| {
                let host = round.held.as_ref()?.hosts.get(number)?;
                Some((round.number as f64, host.agent.memory.0 as f64))
            })
            .collect();
        let Some(slope) = slope(&points).filter(|_| rounds.len() >= TREND_ROUNDS) else {
            continue;
        };
        let whole = slope * points.len() as f64;
        if whole > TREND {
            return Some(format!(
                "the memory of agent {name} grows by {:.0} KiB a move: {:.1} MiB in {} moves",
                slope / 1024.0,
                whole / f64::from(1 << 20),
                points.len()
            ));
        }
    }
    None
}

/// The slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let under: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    (under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(memory: u64, descriptors: usize) -> Held {
        let host = HostHeld {
            agent: AgentHeld {
                memory: Bytes(memory),
                threads: 20,
                descriptors,
            },
            processes: vec!["droverd".to_owned()],
            files: ["droverd.toml".to_owned()].into(),
            records: 4,
            rules: 0,
        };
        Held {
            hosts: vec![host.clone(), host],
            namespaces: 2,
            mounts: 0,
        }
    }

    #[test]
    fn what_varies_is_allowed_and_what_grows_is_told_with_its_numbers() {
        let before = held(20 << 20, 27);
        assert!(growth(&[&before], &held(40 << 20, 30)).is_empty());
        assert!(
            growth(&[], &held(1 << 40, 1000)).is_empty(),
            "nothing to compare with"
        );
        let grown = growth(&[&before], &held(20 << 20, 34));
        assert_eq!(grown.len(), 2, "both agents: {grown:?}");
        assert_eq!(
            grown[0],
            "descriptors of agent a: 34, at first 27 (+6 allowed)"
        );
        let grown = growth(&[&before], &held(69 << 20, 27));
        assert!(
            grown[0].starts_with("bytes of the larger agent"),
            "{grown:?}"
        );
    }

    #[test]
    fn a_process_a_rule_a_file_or_a_mount_more_is_one_too_many() {
        let before = held(0, 27);
        let mut now = before.clone();
        now.hosts[1].processes.push("qemu-system-x86".to_owned());
        now.hosts[0].rules = 1;
        now.hosts[0].files.insert("run/vms/guest/pid".to_owned());
        now.mounts = 1;
        now.hosts[1].records = 300;
        let grown = growth(&[&before], &now).join("\n");
        for words in [
            "processes of host b: 2",
            "rules of host a: 1",
            "vms/guest/pid",
            "mounts: 1",
            "300",
        ] {
            assert!(grown.contains(words), "{words}: {grown}");
        }
    }

    #[test]
    fn a_line_through_points_has_their_slope() {
        let points: Vec<_> = (0..10)
            .map(|x| (f64::from(x), 5.0 + 3.0 * f64::from(x)))
            .collect();
        assert!((slope(&points).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(slope(&points[..1]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn this_process_holds_something() {
        let own = of_agent(std::process::id()).unwrap();
        assert!(own.memory.0 > 0 && own.threads > 0 && own.descriptors > 2);
    }
}
