//! What processors do on their own.

use std::collections::BTreeMap;

use crate::facts::Host;
use crate::finding::{Answer, Found, Severity, Verdict};

/// Governors that let processors run at full rate once there is work.
const QUICK: [&str; 3] = ["performance", "schedutil", "ondemand"];

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
        cost: None,
        change: None,
        by_hand: Some(
            "tuned-adm profile virtual-host, or cpupower frequency-set -g performance".into(),
        ),
    }))
}

fn counted(words: &BTreeMap<String, u32>) -> String {
    let words = words
        .iter()
        .map(|(word, count)| format!("{word} on {count} CPUs"));
    words.collect::<Vec<_>>().join(", ")
}
