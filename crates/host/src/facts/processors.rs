//! Processors: their cores and nodes, and how fast they run.

use std::collections::BTreeMap;

use drover_tune::facts::{Core, Fact, Frequencies, Node, Processors};
use drover_types::CpuSet;

use super::tree::Tree;

const CPUS: &str = "sys/devices/system/cpu";
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
        cores: cores(tree, &cpus),
        nodes: nodes(tree),
        governors: words(tree, &cpus, "cpufreq/scaling_governor"),
        drivers: words(tree, &cpus, "cpufreq/scaling_driver"),
        preferences: words(tree, &cpus, "cpufreq/energy_performance_preference"),
        frequencies: frequencies(tree, &cpus),
        online,
    }
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
    let all = tree.numbered(NODES, "node").into_iter();
    let nodes: Vec<Node> = all
        .filter_map(|(number, name)| {
            let cpus: CpuSet = tree.parsed(&format!("{NODES}/{name}/cpulist"))?;
            (!cpus.is_empty()).then_some(Node { number, cpus })
        })
        .collect();
    if nodes.is_empty() {
        return Fact::unknown("the kernel tells of no NUMA node");
    }
    Fact::Known(nodes)
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
