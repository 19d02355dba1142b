//! Which of them can be wrong with hosts at once. Each says what is wrong, and that has to be so whatever else is.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::{Break, Written};
use crate::breaks::server::{SOFTNET, of_processors};

/// Something of hosts, beside what is [written](Written).
struct Shared {
    /// Words that end a sentence.
    what: &'static str,
    /// Who changes it.
    changed_by: &'static [&'static str],
    /// Who takes it for granted, and would not be wrong otherwise.
    taken_by: &'static [&'static str],
}

const PACKETS: &str = "the largest packets of nic0";

const SHARED: [Shared; 7] = [
    Shared {
        what: "what crosses nic1",
        changed_by: &[
            "mtu-between",
            "cut",
            "firewall",
            "loss",
            "wrong-route",
            "one-network",
            "same-address",
            "slow-line",
            "uplink",
            "incast",
        ],
        taken_by: &[],
    },
    Shared {
        what: "the largest packets of nic1",
        changed_by: &["mtu-one-side"],
        taken_by: &["mtu-between"],
    },
    Shared {
        what: PACKETS,
        changed_by: &["bridge-mtu"],
        taken_by: &["switch-frames"],
    },
    Shared {
        what: "what is above nic0",
        changed_by: &["lro", "bridge-mtu", "standby", "member-lost"],
        taken_by: &[],
    },
    Shared {
        what: "the rate of nic0's adapter",
        changed_by: &["slower-peer"],
        taken_by: &["slot", "bound"],
    },
    Shared {
        what: "how many queues nic0 has",
        changed_by: &["queues"],
        taken_by: &["one-processor", "send-queues"],
    },
    Shared {
        what: "the priorities that nic0 holds back",
        changed_by: &["lossy"],
        taken_by: &["pause"],
    },
];

/// Checks that all of it can be wrong at once.
///
/// # Errors
/// One is named twice, or of two one is not as it says beside the other.
pub(in crate::breaks) fn check_together(breaks: &[&Break]) -> Result<()> {
    for (number, other) in breaks.iter().enumerate() {
        for one in &breaks[..number] {
            if one.name == other.name {
                bail!("{} is named twice", one.name);
            }
            if let Some(why) = why_not(one, other) {
                let (one, other) = (one.name, other.name);
                bail!("{one} and {other} cannot be wrong together: {why}");
            }
        }
    }
    Ok(())
}

fn why_not(one: &Break, other: &Break) -> Option<String> {
    if let Some(same) = one.changes().intersection(&other.changes()).next() {
        return Some(format!("both change {same}"));
    }
    let undone = |one: &Break, other: &Break| one.undoes(other).or_else(|| one.cuts_off(other));
    undone(one, other).or_else(|| undone(other, one))
}

impl Break {
    fn changes(&self) -> BTreeSet<String> {
        let shared = SHARED
            .iter()
            .filter(|shared| shared.changed_by.contains(&self.name));
        let mut all: BTreeSet<String> = shared.map(|shared| shared.what.to_owned()).collect();
        for written in self.written {
            match written {
                Written::File(path, _) => _ = all.insert((*path).to_owned()),
                Written::OfProcessors(file, _) => all.extend(of_processors(file)),
                Written::Softnet { .. } => _ = all.insert(SOFTNET.to_owned()),
                Written::Answers(_) => _ = all.insert("what ethtool tells of nic0".to_owned()),
                Written::Line(_) => _ = all.insert("what is told of nic0's line".to_owned()),
                Written::Qdisc(_) => _ = all.insert("nic0's queueing discipline".to_owned()),
                Written::Mtu(_) => _ = all.insert(PACKETS.to_owned()),
            }
        }
        all
    }

    /// It changes what the other one takes for granted.
    fn undoes(&self, other: &Self) -> Option<String> {
        let changes = self.changes();
        let mut taken = SHARED
            .iter()
            .filter(|shared| shared.taken_by.contains(&other.name));
        let Shared { what, .. } = taken.find(|shared| changes.contains(shared.what))?;
        Some(format!(
            "{} changes {what}, which {} takes for granted",
            self.name, other.name
        ))
    }

    /// Agents tell what is done to hosts, and this leaves them no NIC to do it by.
    fn cuts_off(&self, other: &Self) -> Option<String> {
        let moves_nics = self.is_written() && !self.commands.is_empty();
        (moves_nics && !other.is_written()).then(|| {
            format!("{} puts NICs below another interface, and what {} does is asked of agents over them", self.name, other.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{catalogue, named};
    use super::*;

    fn refused(names: &[&str]) -> Option<String> {
        let breaks: Vec<_> = names.iter().map(|name| named(name).unwrap()).collect();
        let checked = check_together(&breaks);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn what_would_not_be_as_it_says_beside_another_one_is_refused_with_both_names() {
        for (names, why) in [
            (["queues", "ring"], "both change what ethtool tells of nic0"),
            (
                ["priorities", "switch-frames"],
                "both change what is told of nic0's line",
            ),
            (["backlog", "budget"], "both change proc/net/softnet_stat"),
            (["lro", "bridge-mtu"], "both change what "),
            (["standby", "member-lost"], "both change "),
            (["governor", "sparing"], "/cpufreq/scaling_governor"),
            (["cut", "loss"], "both change what crosses nic1"),
            (
                ["switch-frames", "rdma-pieces"],
                "rdma-pieces changes the largest packets of nic0, which switch-frames takes for granted",
            ),
            (
                ["lossy", "pause"],
                "lossy changes the priorities that nic0 holds back, which pause takes for granted",
            ),
            (
                ["slower-peer", "slot"],
                "slower-peer changes the rate of nic0's adapter, which slot takes for granted",
            ),
            (
                ["window", "standby"],
                "standby puts NICs below another interface, and what window does is",
            ),
            (["lro", "guest-queues"], "lro puts NICs below"),
        ] {
            let [one, other] = names;
            let told = refused(&names).unwrap();
            let both = format!("{one} and {other} cannot be wrong together: ");
            assert!(told.starts_with(&both) && told.contains(why), "{told}");
            assert!(refused(&[other, one]).is_some());
        }
        assert_eq!(refused(&["loss", "loss"]).unwrap(), "loss is named twice");
    }

    #[test]
    fn what_has_nothing_to_do_with_each_other_may_be_wrong_together() {
        let several = ["window", "mtu-one-side", "slot", "loss", "guest-queues"];
        assert_eq!(refused(&several), None);
        assert_eq!(refused(&["one-processor", "send-queues", "ring"]), None);
        assert!(catalogue().all(|broken| refused(&[broken.name]).is_none()));
    }

    #[test]
    fn what_is_said_of_two_is_said_of_those_that_there_are() {
        for Shared {
            what,
            changed_by,
            taken_by,
        } in SHARED
        {
            assert!(!changed_by.is_empty(), "{what}");
            for name in changed_by.iter().chain(taken_by) {
                assert!(named(name).is_ok(), "{name}");
            }
        }
        let harms = catalogue().filter(|broken| broken.harm.is_some());
        for harm in harms {
            assert!(SHARED[0].changed_by.contains(&harm.name), "{}", harm.name);
        }
    }
}
