//! What can be wrong with hosts, in one table: its two halves are what is done to them, and what is written of them.

mod done;
mod written;

use anyhow::{Result, bail};

use super::answers::Adapter;

/// Something that is wrong with a host, or between two.
#[derive(Debug)]
pub struct Break {
    /// Its name.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// The doctor's rule that finds it.
    pub rule: &'static str,
    /// What that finding is about, in the doctor's words.
    pub about: &'static str,
    /// How many hosts it takes.
    pub hosts: usize,
    /// A fault of a wire, as `drover lab harm` takes it, seen from the first host.
    pub(super) harm: Option<&'static str>,
    /// Commands on hosts: `b: ip link set nic1 mtu 1500`; on the `switch` that joins more than two of them, too.
    pub(super) commands: &'static [&'static str],
    /// What is written into what was captured of the second host.
    pub(super) written: &'static [Written],
}

/// What a namespace cannot have, as its host's files and kernel would tell it.
#[derive(Debug)]
pub(super) enum Written {
    /// The text of a file, by its path below `/`.
    File(&'static str, &'static str),
    /// What ethtool answers of the first NIC.
    Adapter(Adapter),
}

impl Break {
    /// It is written into what was captured of a host, and not done to the host.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// Only loading paths tells it, and that takes its time.
    #[must_use]
    pub fn needs_loads(&self) -> bool {
        matches!(self.rule, "path-rate" | "path-incast" | "path-together")
    }

    /// With what the doctor is asked beside `--all`, so that it is told.
    #[must_use]
    pub fn asks(&self) -> &'static [&'static str] {
        if self.needs_loads() {
            LOADS
        } else if self.rule.starts_with("path-") {
            PATHS
        } else {
            &[]
        }
    }
}

/// What crosses a path.
pub(super) const PATHS: &[&str] = &["--paths"];

/// What paths carry alone and together. Links of a lab say that they have 10 Gbit/s whatever they carry: 200 Mbit/s are a share that each of 1 Gbit/s has,
/// and that two processors carry for several hosts.
pub(super) const LOADS: &[&str] = &["--paths", "--load=1s", "--load-share=2", "--load-together"];

/// Done to hosts of a lab, by commands there.
const fn done(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    about: &'static str,
    commands: &'static [&'static str],
) -> Break {
    Break {
        name,
        what,
        rule,
        about,
        hosts: 2,
        harm: None,
        commands,
        written: &[],
    }
}

/// Done where there are so many hosts.
const fn among(hosts: usize, broken: Break) -> Break {
    Break { hosts, ..broken }
}

/// Done to the wire between NICs.
const fn harmed(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    about: &'static str,
    harm: &'static str,
) -> Break {
    Break {
        harm: Some(harm),
        ..done(name, what, rule, about, &[])
    }
}

/// Written into what was captured.
const fn written(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    about: &'static str,
    written: &'static [Written],
) -> Break {
    Break {
        written,
        ..done(name, what, rule, about, &[])
    }
}

/// Written into what was captured after commands.
const fn upon(commands: &'static [&'static str], broken: Break) -> Break {
    Break { commands, ..broken }
}

/// All of them.
pub fn catalogue() -> impl Iterator<Item = &'static Break> + Clone {
    done::DONE.iter().chain(written::WRITTEN)
}

/// Those of these names, in their order.
///
/// # Errors
/// A name that is none.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Break>> {
    let find = |name: &String| {
        let found = catalogue().find(|broken| broken.name == name);
        found.map_or_else(|| refuse(name), Ok)
    };
    names.iter().map(find).collect()
}

fn refuse(name: &str) -> Result<&'static Break> {
    let names: Vec<_> = catalogue().map(|broken| broken.name).collect();
    bail!("nothing named {name:?} can be wrong: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fault::Fault;

    #[test]
    fn each_has_a_name_of_its_own_and_is_done_in_one_way_or_written() {
        let names: BTreeSet<_> = catalogue().map(|broken| broken.name).collect();
        assert_eq!(names.len(), catalogue().count());
        for broken in catalogue() {
            let name = broken.name;
            let ways = [
                broken.harm.is_some(),
                !broken.commands.is_empty(),
                broken.is_written(),
            ];
            assert!(ways.contains(&true), "{name}");
            assert!(broken.harm.is_none() || !broken.is_written(), "{name}");
            assert!(!broken.what.is_empty() && !broken.rule.is_empty(), "{name}");
        }
    }

    #[test]
    fn harms_are_faults_and_commands_say_on_which_host() {
        for broken in catalogue() {
            if let Some(harm) = broken.harm {
                assert!(harm.parse::<Fault>().is_ok(), "{harm}");
            }
            for command in broken.commands {
                let (host, _) = command.split_once(": ").unwrap();
                let switched = broken.hosts > 2 && host == "switch";
                assert!(["a", "b"].contains(&host) || switched, "{command}");
            }
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_are() {
        let chosen = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            super::chosen(&names)
        };
        let two = chosen(&["loss", "cut"]).unwrap();
        let names: Vec<_> = two.iter().map(|broken| broken.name).collect();
        assert_eq!(names, ["loss", "cut"]);
        let refused = chosen(&["los"]).unwrap_err().to_string();
        assert!(refused.contains("\"los\"") && refused.contains("governor"));
    }
}
