//! Processors: their cores and nodes, and how fast they run.

use std::collections::BTreeMap;

use drover_tune::facts::{Core, Fact, Frequencies, Node, Policy, Processors};
use drover_types::CpuSet;

use super::folder::of_mask;
use super::tree::Tree;
use crate::limits::IDLE_STATES;

const CPUS: &str = "sys/devices/system/cpu";
const POLICIES: &str = "sys/devices/system/cpu/cpufreq";
const NODES: &str = "sys/devices/system/node";

pub(super) fn processors(tree: &Tree) -> Processors {
    let online = match tree.text(&format!("{CPUS}/online")) {
        Err(why) => Fact::Unknown(why),
        Ok(list) => match list.parse::<CpuSet>() {
            Ok(cpus) => Fact::Known(cpus),
            Err(error) => Fact::Unknown(error.to_string()),
        },
    };
    let cpus: Vec<u32> = online
        .known()
        .map(|cpus| cpus.iter().collect())
        .unwrap_or_default();
    Processors {
        housekeeping: match &online {
            Fact::Known(online) => Fact::Known(housekeeping(tree, online)),
            Fact::Unknown(why) => Fact::Unknown(why.clone()),
        },
        cores: cores(tree, &cpus),
        nodes: nodes(tree),
        governors: words(tree, &cpus, "cpufreq/scaling_governor"),
        drivers: words(tree, &cpus, "cpufreq/scaling_driver"),
        preferences: words(tree, &cpus, "cpufreq/energy_performance_preference"),
        policies: policies(tree),
        frequencies: frequencies(tree, &cpus),
        idle: idle(tree, &cpus),
        online,
    }
}

/// Files that are not there, or say `(null)`, keep nobody off.
fn housekeeping(tree: &Tree, online: &CpuSet) -> CpuSet {
    let set = |file: &str| -> CpuSet { tree.parsed(&format!("{CPUS}/{file}")).unwrap_or_default() };
    let off = set("isolated").or(&set("nohz_full"));
    let mask = tree.text("proc/irq/default_smp_affinity").ok();
    let taken = mask.and_then(|mask| of_mask(&mask));
    let has = |cpu: &u32, set: &CpuSet| set.iter().any(|one| one == *cpu);
    let keeps = |cpu: &u32| !has(cpu, &off) && taken.as_ref().is_none_or(|taken| has(cpu, taken));
    online.iter().filter(keeps).collect()
}

fn policies(tree: &Tree) -> Fact<BTreeMap<u32, Policy>> {
    let all = tree.numbered(POLICIES, "policy").into_iter();
    let policies = all.filter_map(|(number, name)| {
        let file = |file: &str| tree.text(&format!("{POLICIES}/{name}/{file}")).ok();
        let available = file("scaling_available_governors").unwrap_or_default();
        let policy = Policy {
            governor: file("scaling_governor")?,
            available: available
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect(),
            preference: file("energy_performance_preference"),
        };
        Some((number, policy))
    });
    let policies: BTreeMap<u32, Policy> = policies.collect();
    if policies.is_empty() {
        return Fact::unknown("the kernel tells of nobody who chooses its CPUs' rate");
    }
    Fact::Known(policies)
}

fn frequencies(tree: &Tree, cpus: &[u32]) -> Fact<Frequencies> {
    let all = |file: &str| -> Vec<u64> {
        let paths = cpus
            .iter()
            .map(|cpu| format!("{CPUS}/cpu{cpu}/cpufreq/{file}"));
        paths.filter_map(|path| tree.parsed(&path)).collect()
    };
    let least = all("scaling_min_freq").into_iter().min();
    let most = all("cpuinfo_max_freq").into_iter().max();
    match least.zip(most) {
        Some((least, most)) => Fact::Known(Frequencies { least, most }),
        None => Fact::unknown("no CPU tells how fast it may run"),
    }
}

/// Those that nobody has switched off.
fn idle(tree: &Tree, cpus: &[u32]) -> Fact<BTreeMap<String, u32>> {
    let mut states: BTreeMap<String, u32> = BTreeMap::new();
    let mut are_told = false;
    for cpu in cpus {
        let state = |number| {
            let folder = format!("{CPUS}/cpu{cpu}/cpuidle/state{number}");
            let latency: u32 = tree.parsed(&format!("{folder}/latency"))?;
            let name = tree.text(&format!("{folder}/name")).ok()?;
            let off = tree.parsed::<u8>(&format!("{folder}/disable"));
            Some((name, latency, off.unwrap_or(0) != 0))
        };
        for (name, latency, is_off) in (0..IDLE_STATES).map_while(state) {
            are_told = true;
            if !is_off {
                let most = states.entry(name).or_default();
                *most = latency.max(*most);
            }
        }
    }
    if !are_told {
        return Fact::unknown(
            "no CPU tells of its idle states: a guest's host has a say in them, or the machine's setup",
        );
    }
    Fact::Known(states)
}

fn cores(tree: &Tree, cpus: &[u32]) -> Fact<BTreeMap<u32, Core>> {
    let mut cores = BTreeMap::new();
    for cpu in cpus {
        let number = |what| tree.parsed(&format!("{CPUS}/cpu{cpu}/topology/{what}"));
        let (Some(package), Some(core)) = (number("physical_package_id"), number("core_id")) else {
            return Fact::unknown(format!("of CPU {cpu} it is not told on which core it is"));
        };
        cores.insert(*cpu, Core { package, core });
    }
    if cores.is_empty() {
        return Fact::unknown("no CPU is known");
    }
    Fact::Known(cores)
}

fn nodes(tree: &Tree) -> Fact<Vec<Node>> {
    let all = tree.numbered(NODES, "node");
    let of = |(number, name): &(u32, String)| {
        let cpus: CpuSet = tree.parsed(&format!("{NODES}/{name}/cpulist"))?;
        (!cpus.is_empty()).then(|| Node {
            number: *number,
            cpus,
            distances: distances(tree, name, &all),
        })
    };
    let nodes: Vec<Node> = all.iter().filter_map(of).collect();
    if nodes.is_empty() {
        return Fact::unknown("the kernel tells of no NUMA node");
    }
    Fact::Known(nodes)
}

/// One for each node that there is, those without processors included, in their order.
fn distances(tree: &Tree, name: &str, all: &[(u32, String)]) -> BTreeMap<u32, u32> {
    let text = tree.text(&format!("{NODES}/{name}/distance"));
    let text = text.unwrap_or_default();
    let told: Option<Vec<u32>> = text
        .split_ascii_whitespace()
        .map(|one| one.parse().ok())
        .collect();
    // Of another number of them it is not known whose each is.
    let told = told.filter(|told| told.len() == all.len());
    let numbers = all.iter().map(|(number, _)| *number);
    numbers.zip(told.unwrap_or_default()).collect()
}

/// How many CPUs have each word in that file.
fn words(tree: &Tree, cpus: &[u32], file: &str) -> Fact<BTreeMap<String, u32>> {
    let mut words = BTreeMap::new();
    for cpu in cpus {
        if let Ok(word) = tree.text(&format!("{CPUS}/cpu{cpu}/{file}")) {
            *words.entry(word).or_default() += 1;
        }
    }
    if words.is_empty() {
        return Fact::unknown(format!(
            "no CPU has {file}: a guest's host has a say in it, or the machine's setup"
        ));
    }
    Fact::Known(words)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn processors_that_somebody_keeps_the_kernel_off_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let online: CpuSet = "0-7".parse().unwrap();
        let left = || housekeeping(&Tree::at(root.path()), &online).to_string();
        assert_eq!(left(), "0-7");
        write(&format!("{CPUS}/isolated"), "\n");
        write(&format!("{CPUS}/nohz_full"), "  (null)\n");
        assert_eq!(left(), "0-7");
        write(&format!("{CPUS}/isolated"), "6-7\n");
        write(&format!("{CPUS}/nohz_full"), "4,6\n");
        assert_eq!(left(), "0-3,5");
        write("proc/irq/default_smp_affinity", "27\n");
        assert_eq!(left(), "0-2,5");
    }

    #[test]
    fn idle_states_are_told_with_the_slowest_of_all_cpus_and_without_those_that_are_switched_off() {
        let root = tempfile::tempdir().unwrap();
        let write = |cpu: u32, number: u32, (name, latency, off): (&str, u32, u32)| {
            let folder = format!("{CPUS}/cpu{cpu}/cpuidle/state{number}");
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            let (latency, off) = (latency.to_string(), off.to_string());
            for (file, text) in [("name", name), ("latency", &latency), ("disable", &off)] {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        };
        let told = || idle(&Tree::at(root.path()), &[0, 1]);
        assert!(told().get().unwrap_err().contains("no CPU tells"));
        write(0, 0, ("POLL", 0, 0));
        write(0, 1, ("C1", 2, 0));
        write(0, 2, ("C6", 133, 1));
        write(1, 0, ("C1", 3, 0));
        let expected = [("C1".to_owned(), 3), ("POLL".to_owned(), 0)];
        assert_eq!(told(), Fact::Known(expected.into()));
        // Of one of them it is not switched off.
        write(1, 1, ("C6", 127, 0));
        assert_eq!(told().known().unwrap()["C6"], 127);
    }

    #[test]
    fn nodes_are_told_with_how_far_they_are_and_those_with_memory_alone_are_counted_by() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(NODES).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (node, cpus, distance) in [
            (0, "0-3\n", "10 32 22\n"),
            (1, "4-7\n", "32 10 22\n"),
            // Memory without processors, such as a CXL device's.
            (4, "\n", "22 22 10\n"),
        ] {
            write(&format!("node{node}/cpulist"), cpus);
            write(&format!("node{node}/distance"), distance);
        }
        let told = || {
            let told = nodes(&Tree::at(root.path())).known().unwrap().clone();
            let told = told.into_iter();
            told.map(|node| (node.number, node.distances.into_iter().collect()))
                .collect::<Vec<(u32, Vec<(u32, u32)>)>>()
        };
        let first = vec![(0, 10), (1, 32), (4, 22)];
        assert_eq!(told(), [(0, first), (1, vec![(0, 32), (1, 10), (4, 22)])]);
        for strange in ["10 32\n", "10 far 22\n", ""] {
            write("node0/distance", strange);
            assert_eq!(told()[0], (0, Vec::new()), "{strange:?}");
        }
    }

    #[test]
    fn who_chooses_the_rate_is_told_by_policy_with_what_could_be_chosen() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(POLICIES).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(policies(&Tree::at(root.path())).known().is_none());
        write("policy0/scaling_governor", "powersave\n");
        write(
            "policy0/scaling_available_governors",
            "performance powersave \n",
        );
        write("policy0/energy_performance_preference", "balance_power\n");
        write("policy16/scaling_governor", "ondemand\n");
        // One whose processors are offline tells nothing.
        write("policy32/related_cpus", "32\n");
        let told = policies(&Tree::at(root.path()));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let expected = [
            (
                0,
                Policy {
                    governor: "powersave".into(),
                    available: words(&["performance", "powersave"]),
                    preference: Some("balance_power".into()),
                },
            ),
            (
                16,
                Policy {
                    governor: "ondemand".into(),
                    available: words(&[]),
                    preference: None,
                },
            ),
        ];
        assert_eq!(told, Fact::Known(expected.into()));
    }
}
