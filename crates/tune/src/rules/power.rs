//! What processors do on their own.

use std::collections::BTreeMap;

use crate::change::{Change, Disruption, Step};
use crate::cost::of_frequency;
use crate::facts::{Host, Policy};
use crate::finding::{Answer, Found, Severity, Verdict};

/// Governors that let processors run at full rate once there is work.
const QUICK: [&str; 3] = ["performance", "schedutil", "ondemand"];

/// The governor, and the preference, for speed.
const PERFORMANCE: &str = "performance";

/// What people do that lasts.
const KEPT: &str = "tuned-adm profile virtual-host keeps it so; or until the next start";

/// Drivers with which `powersave` follows the work as well: the hardware, or they themselves, choose the rate
/// (`Documentation/admin-guide/pm/intel_pstate.rst`, `amd-pstate.rst`).
const FOLLOW_WORK: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// Processors run at their full rate while there is work.
pub fn governor(host: &Host) -> Verdict {
    let governors = host.processors.governors.get()?;
    let drivers = host.processors.drivers.get()?;
    let follow = drivers
        .keys()
        .all(|driver| FOLLOW_WORK.contains(&driver.as_str()));
    let is_slow = |name: &str| !(QUICK.contains(&name) || name == "powersave" && follow);
    if !governors.keys().any(|name| is_slow(name)) {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("{}, by {}", counted(governors), counted(drivers)),
        expected: "performance, or schedutil".into(),
        why: "processors stay at a low rate, and QEMU, codecs and encryption with them".into(),
        cost: at_least(host).filter(|_| governors.contains_key("powersave")),
        change: change(host, "scaling_governor", |policy| {
            let to = quickest(policy).filter(|_| is_slow(&policy.governor))?;
            Some((policy.governor.clone(), to))
        }),
        by_hand: Some(format!("{KEPT}: cpupower frequency-set -g performance")),
        lines: Vec::new(),
    }))
}

/// The best governor that a policy may have.
fn quickest(policy: &Policy) -> Option<&'static str> {
    let mut all = [PERFORMANCE, "schedutil"].into_iter();
    all.find(|name| policy.available.contains(*name))
}

/// Sets that file of each policy of which something is told that it has, and what it is to have.
fn change(
    host: &Host,
    file: &str,
    of: impl Fn(&Policy) -> Option<(String, &'static str)>,
) -> Option<Change> {
    let policies = host.processors.policies.known()?.iter();
    let steps = policies.filter_map(|(number, policy)| {
        let (from, to) = of(policy)?;
        Some(Step::File {
            path: format!("sys/devices/system/cpu/cpufreq/policy{number}/{file}"),
            from,
            to: to.to_owned(),
        })
    });
    let steps: Vec<Step> = steps.collect();
    let disruption = Disruption::Safe;
    (!steps.is_empty()).then_some(Change { disruption, steps })
}

/// What it costs that processors stay at the lowest rate that they may have.
fn at_least(host: &Host) -> Option<String> {
    let frequencies = host.processors.frequencies.known()?;
    of_frequency(frequencies.least, frequencies.most)
}

/// Preferences that keep the rate down; `balance_performance` and `default` rise with the work.
const SPARING: [&str; 2] = ["power", "balance_power"];

/// Hardware that chooses its own rate is told to choose for speed.
pub fn preference(host: &Host) -> Verdict {
    let drivers = host.processors.drivers.get()?;
    let has_one = |driver: &String| FOLLOW_WORK.contains(&driver.as_str());
    if !drivers.keys().any(has_one) {
        return Ok(Answer::NotAbout);
    }
    let preferences = host.processors.preferences.get()?;
    let is_sparing = |word: &String| SPARING.contains(&word.as_str());
    if !preferences.keys().any(is_sparing) {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: counted(preferences),
        expected: "performance, or balance_performance".into(),
        why: "processors rise late and not to their full rate, and QEMU, codecs and encryption with them".into(),
        cost: None,
        // With the governor performance the kernel takes no preference, and needs none.
        change: change(host, "energy_performance_preference", |policy| {
            let sparing = policy.preference.as_ref().filter(|word| is_sparing(word));
            let from = sparing.filter(|_| policy.governor != PERFORMANCE)?;
            Some((from.clone(), PERFORMANCE))
        }),
        by_hand: Some(format!("{KEPT}: cpupower set --epp performance")),
        lines: Vec::new(),
    }))
}

/// A state that takes as long to wake from is none of deep sleep: 10 us are Intel's C1E, and C6 takes 133 and more.
const QUICK_US: u32 = 20;

/// Processors wake quickly while a guest moves, or have no state that they wake from slowly.
pub fn sleep(host: &Host) -> Verdict {
    let states = host.processors.idle.get()?;
    let slow = states.iter().filter(|(_, us)| **us > QUICK_US);
    let mut slow: Vec<_> = slow.map(|(name, us)| (name.as_str(), *us)).collect();
    if slow.is_empty() {
        return Ok(Answer::Right);
    }
    let waking = host.waking.get()?;
    let held = waking.held_us.get();
    let most = held.map_or(u32::MAX, |held| {
        waking.wished_us.map_or(*held, |wished| wished.min(*held))
    });
    // The kernel leaves states out that take longer.
    slow.retain(|(_, us)| *us <= most);
    let Some((name, us)) = slow.into_iter().max_by_key(|(_, us)| *us) else {
        return Ok(Answer::Right);
    };
    let (kept, by_hand) = match held {
        Err(why) => (
            format!("the agent cannot keep them from it: {why}"),
            "have the agent open /dev/cpu_dma_latency for writing: a container has to be given it"
                .to_owned(),
        ),
        Ok(_) => (
            waking.wished_us.map_or_else(
                || "migration.cpu_latency is off".to_owned(),
                |us| format!("migration.cpu_latency is {us} µs"),
            ),
            format!(
                "cpu_latency = \"{QUICK_US}us\" below [migration] in the agent's configuration, and restart it: it holds processors only while \
                 a guest moves"
            ),
        ),
    };
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("processors take {us} µs to wake from {name}, and {kept}"),
        expected: format!("{QUICK_US} µs at most while a guest moves"),
        why: "what waits for a line, for QEMU or for the other host is woken that much later: in the last round, and for each page of postcopy"
            .into(),
        cost: Some(format!("each wake takes up to {us} µs instead of {QUICK_US}")),
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }))
}

/// Nobody moves guests' memory between nodes while it is copied.
pub fn numa_balancing(host: &Host) -> Verdict {
    if host.processors.nodes.get()?.len() < 2 {
        return Ok(Answer::NotAbout);
    }
    if host.setting("kernel.numa_balancing")? == "0" {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: "kernel.numa_balancing is on, on a host with several nodes".into(),
        expected: "0 where guests are pinned to nodes".into(),
        why: "the kernel takes pages away to see who wants them, and moves them: a migration touches all of them, and its threads wait for each"
            .into(),
        cost: None,
        change: None,
        by_hand: Some(
            "if each guest's processors and memory are pinned to one node: sysctl -w kernel.numa_balancing=0. Guests that are not pinned are better off with it"
                .into(),
        ),
        lines: Vec::new(),
    }))
}

/// Words, and how many CPUs have each.
pub(crate) fn counted(words: &BTreeMap<String, u32>) -> String {
    let words = words
        .iter()
        .map(|(word, count)| format!("{word} on {count} CPUs"));
    words.collect::<Vec<_>>().join(", ")
}
