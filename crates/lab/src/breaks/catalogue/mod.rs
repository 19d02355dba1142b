//! What can be wrong with hosts, in one table: what is done to them, how guests are defined on them, and what is written of them, and of their lines.

mod done;
mod guests;
mod lines;
mod together;
mod written;

use anyhow::{Context, Result};

use super::answers::Answers;
use super::defined::Guest;
use super::fabric::Fabric;
pub(super) use guests::WHOLE as WHOLE_GUEST;
pub(super) use together::check_together;

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
    /// A guest that is defined on the second host, called as this is.
    pub(super) guest: Option<Guest>,
    /// What is written into what was captured of the second host.
    pub(super) written: &'static [Written],
    /// That is written of the first host as well.
    pub(super) everywhere: bool,
}

/// What a namespace cannot have, as its host's files and kernel would tell it.
#[derive(Debug)]
pub(super) enum Written {
    /// The text of a file, by its path below `/`.
    File(&'static str, &'static str),
    /// The text of a file of each processor, below its folder.
    OfProcessors(&'static str, &'static str),
    /// Packets that processors dropped, and how often they left some for later.
    Softnet {
        /// Of all together.
        dropped: u32,
        /// The same.
        squeezed: u32,
    },
    /// What ethtool answers of the first NIC.
    Answers(Answers),
    /// What is told of its line.
    Line(Fabric),
    /// What its packets go through before they come to it.
    Qdisc(&'static str),
    /// Its largest packet, in bytes.
    Mtu(u32),
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

    /// A guest is started for it, which takes QEMU.
    #[must_use]
    pub fn starts_guest(&self) -> bool {
        self.guest.is_some_and(|guest| guest.runs)
    }

    /// Hosts are as they were once it is undone.
    pub(super) fn leaves_hosts(&self) -> bool {
        self.harm.is_none() && self.commands.is_empty()
    }

    /// With what the doctor is asked beside `--all`, so that it is told.
    #[must_use]
    pub fn asks(&self) -> &'static [&'static str] {
        match self.rule {
            "path-rate" => LOAD,
            "path-incast" | "path-together" => LOADS,
            rule if rule.starts_with("path-") => PATHS,
            _ => &[],
        }
    }
}

/// What crosses a path.
pub(super) const PATHS: &[&str] = &["--paths"];

/// What paths carry alone. Links of a lab say that they have 10 Gbit/s whatever they carry: 100 Mbit/s are a share that each of 1 Gbit/s has,
/// and that two processors carry for several hosts.
pub(super) const LOAD: &[&str] = &["--paths", "--load=1s", "--load-share=1"];

/// The same, and what they carry together.
pub(super) const LOADS: &[&str] = &["--paths", "--load=1s", "--load-share=1", "--load-together"];

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
        guest: None,
        written: &[],
        everywhere: false,
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

/// A guest that is defined on a host.
const fn defined(
    name: &'static str,
    what: &'static str,
    rule: &'static str,
    about: &'static str,
    guest: Guest,
) -> Break {
    Break {
        guest: Some(guest),
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

/// Written of both hosts, since two that differ would be found first.
const fn everywhere(broken: Break) -> Break {
    Break {
        everywhere: true,
        ..broken
    }
}

/// Written into what was captured after commands.
const fn upon(commands: &'static [&'static str], broken: Break) -> Break {
    Break { commands, ..broken }
}

/// All of them.
pub fn catalogue() -> impl Iterator<Item = &'static Break> + Clone {
    let done = done::DONE.iter().chain(guests::GUESTS);
    done.chain(written::WRITTEN).chain(lines::LINES)
}

/// The one of this name.
///
/// # Errors
/// It is none.
pub fn named(name: &str) -> Result<&'static Break> {
    let found = catalogue().find(|broken| broken.name == name);
    found.with_context(|| {
        let names: Vec<_> = catalogue().map(|broken| broken.name).collect();
        format!("nothing named {name:?} can be wrong: {}", names.join(", "))
    })
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
                broken.guest.is_some(),
                broken.is_written(),
            ];
            assert!(ways.contains(&true), "{name}");
            let is_done = broken.harm.is_some() || broken.guest.is_some();
            assert!(!is_done || !broken.is_written(), "{name}");
            assert!(!broken.everywhere || broken.is_written(), "{name}");
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
    fn guests_are_defined_as_an_agent_takes_them() {
        let defined = catalogue().filter_map(|broken| Some((broken.name, broken.guest?)));
        let mut runs = 0;
        for (name, guest) in defined.chain([("whole", WHOLE_GUEST)]) {
            let definition = guest.definition(name).unwrap();
            assert_eq!(definition.name.as_str(), name);
            assert_eq!(definition.check(), Ok(()), "{name}");
            runs += usize::from(guest.runs);
        }
        assert!(runs > 0 && !WHOLE_GUEST.runs);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_are() {
        assert_eq!(named("loss").unwrap().name, "loss");
        let refused = named("los").unwrap_err().to_string();
        assert!(refused.contains("\"los\"") && refused.contains("governor"));
    }
}
