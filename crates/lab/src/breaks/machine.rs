//! What hosts of a lab see of the machine that they are on: its processors, what they took in, its memory, and what the kernel gives each
//! new namespace. A machine that is not as the doctor wants it has that found of every host.
//!
//! # Invariant
//! Only what the rules below find is put down to the machine, and it is named wherever findings are shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::catalogue::Break;

/// Rules about a host as a whole that read what a namespace has of its machine.
const SEES: [&str; 8] = [
    "cpu-governor",
    "cpu-preference",
    "cpu-sleep",
    "numa-balancing",
    "tcp-buffers",
    "tcp-congestion",
    "net-backlog",
    "net-budget",
];

const JOINED: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const HUGE: &str = "sys/kernel/mm/hugepages";

/// Pages of 1 GiB that the catalogue's guest takes which has its memory of such.
const TAKEN: u64 = 16;

/// What is found of the machine itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfMachine(BTreeMap<String, String>);

impl OfMachine {
    /// What the doctor's document has of it that looked at a lab where none of it was wrong on purpose.
    #[must_use]
    pub fn of(told: &Value) -> Self {
        let findings = told["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let seen = findings.iter().filter_map(|finding| {
            let rule = finding["rule"]
                .as_str()
                .filter(|rule| SEES.contains(rule))?;
            let read = finding["read"].as_str().unwrap_or_default();
            is_whole_host(finding).then(|| (rule.to_owned(), read.to_owned()))
        });
        Self(seen.collect())
    }

    /// Whether a finding of that document is the machine's.
    #[must_use]
    pub fn has(&self, finding: &Value) -> bool {
        let rule = finding["rule"].as_str().unwrap_or_default();
        self.0.contains_key(rule) && is_whole_host(finding)
    }

    /// Why it cannot be told whether this is found in a lab of this machine, if so.
    pub(super) fn hides(&self, broken: &Break) -> Option<String> {
        let is_hidden = !broken.is_written() && self.0.contains_key(broken.rule);
        is_hidden.then(|| format!("this machine itself has {}", broken.rule))
    }

    /// Rules, and what was read.
    pub fn each(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(rule, read)| (rule.as_str(), read.as_str()))
    }
}

fn is_whole_host(finding: &Value) -> bool {
    let subject = &finding["subject"];
    ["other", "nic", "far", "guest", "domain"]
        .iter()
        .all(|part| subject[*part].is_null())
}

/// Why this is not wrong with hosts of this machine, or is not found first, if so.
pub(super) fn obstacle(broken: &Break) -> Option<String> {
    obstacle_below(Path::new("/"), broken)
}

fn obstacle_below(root: &Path, broken: &Break) -> Option<String> {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    match broken.rule {
        "guest-prealloc" => text(JOINED).contains("[never]").then(|| {
            format!("this machine joins no pages to huge ones, which is found first (/{JOINED} is never)")
        }),
        "guest-huge-pages" => {
            let names = fs::read_dir(root.join(HUGE));
            if !names.is_ok_and(|mut names| names.next().is_some()) {
                return Some(format!("this machine's kernel has no huge pages (/{HUGE})"));
            }
            let number = |file: &str| {
                let text = text(&format!("{HUGE}/hugepages-1048576kB/{file}"));
                text.trim().parse::<u64>().unwrap_or_default()
            };
            let free = number("free_hugepages").saturating_sub(number("resv_hugepages"));
            (free >= TAKEN).then(|| {
                format!("this machine has {free} free huge pages of 1 GiB, and the guest takes {TAKEN}")
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::catalogue::named;
    use super::*;

    #[test]
    fn what_a_namespace_has_of_its_machine_is_the_machines_and_nothing_else_is() {
        let of =
            |rule: &str, subject: Value| json!({ "rule": rule, "subject": subject, "read": "r" });
        let host = json!({ "host": "a", "other": null, "nic": null });
        let (governor, window) = (
            of("cpu-governor", host.clone()),
            of("tcp-window", host.clone()),
        );
        let buffers = of("tcp-buffers", host);
        let machine = OfMachine::of(&json!({ "findings": [governor, window, buffers] }));
        let rules: Vec<_> = machine.each().collect();
        assert_eq!(rules, [("cpu-governor", "r"), ("tcp-buffers", "r")]);
        assert!(machine.has(&governor) && !machine.has(&window));
        let of_nic = json!({ "host": "a", "nic": "nic0" });
        assert!(!machine.has(&of("cpu-governor", of_nic)));
        let hidden = |name: &str| machine.hides(named(name).unwrap()).is_some();
        // A server is laid over the machine's processors.
        assert!(hidden("send-buffer") && !hidden("governor") && !hidden("window"));
    }

    #[test]
    fn a_machine_whose_memory_keeps_a_guest_from_being_wrong_says_so() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let why = |name: &str| obstacle_below(root.path(), named(name).unwrap());
        assert!(why("guest-backing").unwrap().contains("no huge pages"));
        put(JOINED.to_owned(), "always madvise [never]\n");
        assert!(why("guest-filled").unwrap().contains("never"));
        put(JOINED.to_owned(), "always [madvise] never\n");
        assert_eq!(why("guest-filled"), None);
        let gib = |file: &str| format!("{HUGE}/hugepages-1048576kB/{file}");
        put(gib("free_hugepages"), "20\n");
        assert!(why("guest-backing").unwrap().contains("20 free"));
        put(gib("resv_hugepages"), "5\n");
        assert_eq!(why("guest-backing"), None);
        assert_eq!(why("window"), None);
    }
}
