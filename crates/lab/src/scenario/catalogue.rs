//! The scenarios.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::settings::{Addressing, AgentSettings, LabName, LabSettings, nic_rates};

/// Something that happens, and what must hold then.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What happens.
    pub what: &'static str,
    /// On which NICs.
    pub shape: Shape,
    /// How often in each repeat.
    pub times: usize,
    /// The faults: those of the first time, of the second, and from the first again.
    faults: &'static [&'static [&'static str]],
    /// What must hold beside every guest's arrival.
    pub targets: &'static [Target],
}

/// The NICs of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Two of 1 Gbit/s.
    Pair,
    /// 1000, 500, 200 and 100 Mbit/s.
    Unequal,
    /// Two of 1 Gbit/s, the second host answering by the other one of what came by the second.
    Asymmetric,
    /// Two of 1 Gbit/s, the second with the same address on both hosts.
    Duplicate,
    /// Two of 1 Gbit/s, with nothing but IPv6.
    V6,
    /// Two of 1 Gbit/s, the second with a link-local address only.
    LinkLocal,
    /// 32 of 100 Mbit/s.
    Many,
}

/// What must hold. Of several runs the median counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// At most so many milliseconds more than the lines that were left would have needed.
    Extra(f64),
    /// The guest's longest silence is at most as long as without silent loss: as that of the moves over
    /// all lines, or of those over the lines that are left, and a heartbeat.
    Gap,
    /// At most so many milliseconds more than the lines that no fault touched take alone.
    ExtraAlone(f64),
    /// At least such a part of all lines' rates together reaches the guest.
    Share(f64),
    /// At least such a part of the rate of the lines that are left is used.
    ShareOfLeft(f64),
    /// At least so many paths are used.
    Paths(usize),
    /// Every NIC is used, or said not to be and why.
    Told,
}

/// What the issue allows beyond the lines that were left.
const EXTRA: Target = Target::Extra(300.0);

/// The name of the scenario that shows what the lines left do alone.
pub(super) const ALONE: &str = "alone";

/// All of them, those on one shape together.
pub const CATALOGUE: &[Scenario] = &[
    Scenario {
        name: ALONE,
        what: "one NIC of two known to be down before: what is left, alone",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["down nic=1 at=before"]],
        targets: &[EXTRA],
    },
    Scenario {
        name: "cut",
        what: "one NIC of two silently cut in the bulk",
        shape: Shape::Pair,
        times: 4,
        faults: &[
            &["cut nic=1 at=20%"],
            &["cut nic=1 at=40%"],
            &["cut nic=1 at=60%"],
            &["cut nic=1 at=80%"],
        ],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "cut-each",
        what: "each NIC in turn silently cut in the bulk",
        shape: Shape::Pair,
        times: 2,
        faults: &[&["cut nic=0 at=50%"], &["cut nic=1 at=50%"]],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "cut-switchover",
        what: "one NIC silently cut when the guest has stopped",
        shape: Shape::Pair,
        times: 2,
        faults: &[&["cut nic=1 at=switchover"], &["cut nic=0 at=switchover"]],
        targets: &[EXTRA],
    },
    Scenario {
        name: "cut-return",
        what: "one NIC silently cut and back after 1 s",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["cut nic=1 at=25% for=1s"]],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "one-way",
        what: "one NIC loses what one end sends",
        shape: Shape::Pair,
        times: 2,
        faults: &[
            &["cut nic=1 from=source at=50%"],
            &["cut nic=1 from=destination at=50%"],
        ],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "down",
        what: "one NIC's link goes down, at either end",
        shape: Shape::Pair,
        times: 2,
        faults: &[
            &["down nic=1 from=source at=50%"],
            &["down nic=1 from=destination at=50%"],
        ],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "flap",
        what: "one NIC silently comes and goes every 250 ms",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["flap nic=1 every=250ms"]],
        // A path that is there for 125 ms at a time may be worth nothing, but must not cost.
        targets: &[Target::ExtraAlone(300.0)],
    },
    Scenario {
        name: "outage",
        what: "both NICs silently cut for 5 s",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["cut nic=all at=50% for=5s"]],
        // TCP sends again after 0.2, 0.6, 1.4, 3.0 and 6.2 s: 1.2 s after the lines are back.
        targets: &[Target::Extra(1500.0)],
    },
    Scenario {
        name: "kill",
        what: "one NIC's connections reset at random every 250 ms",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["kill nic=1 every=250ms"]],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "slow",
        what: "one NIC slowed to a tenth half-way",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["rate nic=1 to=0.1 at=50%"]],
        targets: &[Target::ShareOfLeft(0.90)],
    },
    Scenario {
        name: "large",
        what: "one NIC loses packets above 1500 bytes, from the start and half-way",
        shape: Shape::Pair,
        times: 2,
        faults: &[
            &["large nic=1 above=1500 at=before"],
            &["large nic=1 above=1500 at=50%"],
        ],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "rename",
        what: "one interface renamed half-way",
        shape: Shape::Pair,
        times: 1,
        faults: &[&["rename nic=1 at=50%"]],
        targets: &[EXTRA, Target::Gap],
    },
    Scenario {
        name: "unequal",
        what: "NICs of 1000, 500, 200 and 100 Mbit/s",
        shape: Shape::Unequal,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Share(0.95)],
    },
    Scenario {
        name: "asymmetric",
        what: "the second host answers by another NIC",
        shape: Shape::Asymmetric,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Told],
    },
    Scenario {
        name: "duplicate",
        what: "one NIC has the same address on both hosts",
        shape: Shape::Duplicate,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Told],
    },
    Scenario {
        name: "v6",
        what: "nothing but IPv6",
        shape: Shape::V6,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Paths(2)],
    },
    Scenario {
        name: "link-local",
        what: "one NIC has a link-local address only",
        shape: Shape::LinkLocal,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Told],
    },
    Scenario {
        name: "many",
        what: "32 paths",
        shape: Shape::Many,
        times: 1,
        faults: &[&[]],
        targets: &[Target::Paths(32)],
    },
];

impl Scenario {
    /// What goes wrong the time of this number, from 0.
    #[must_use]
    pub fn faults(&self, time: usize) -> Vec<Fault> {
        let words = self.faults[time % self.faults.len()];
        words.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Whether anything goes wrong while the guest moves.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.faults.iter().any(|faults| !faults.is_empty())
    }
}

impl Shape {
    /// All of them, in the order of the catalogue.
    pub const ALL: [Self; 7] = [
        Self::Pair,
        Self::Unequal,
        Self::Asymmetric,
        Self::Duplicate,
        Self::V6,
        Self::LinkLocal,
        Self::Many,
    ];

    /// What they are.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Pair => "two NICs of 1 Gbit/s",
            Self::Unequal => "NICs of 1000, 500, 200 and 100 Mbit/s",
            Self::Asymmetric => "two NICs of 1 Gbit/s, answers by another one",
            Self::Duplicate => "two NICs of 1 Gbit/s, one address twice",
            Self::V6 => "two NICs of 1 Gbit/s, nothing but IPv6",
            Self::LinkLocal => "two NICs of 1 Gbit/s, one link-local",
            Self::Many => "32 NICs of 100 Mbit/s",
        }
    }

    /// Hosts with such NICs.
    ///
    /// # Errors
    /// None, as long as the catalogue's own words are right.
    pub fn lab(self, name: &LabName) -> Result<LabSettings> {
        let rates = match self {
            Self::Unequal => "1gbit,500mbit,200mbit,100mbit",
            Self::Many => "100mbit",
            _ => "1gbit,1gbit",
        };
        let nics = nic_rates(rates, (self == Self::Many).then_some(crate::limits::NICS))?;
        let addressing = match self {
            Self::Pair | Self::Unequal | Self::Many => Vec::new(),
            Self::Asymmetric => vec![Addressing::V4, Addressing::Asymmetric],
            Self::Duplicate => vec![Addressing::V4, Addressing::Duplicate],
            Self::V6 => vec![Addressing::V6, Addressing::V6],
            Self::LinkLocal => vec![Addressing::V4, Addressing::LinkLocal],
        };
        Ok(LabSettings {
            name: name.clone(),
            hosts: 2,
            nics,
            addressing,
            mtu: 9000,
            agents: AgentSettings::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault;

    #[test]
    fn every_fault_of_the_catalogue_is_one_and_its_lab_can_have_it() {
        let name: LabName = "x".parse().unwrap();
        for scenario in CATALOGUE {
            let lab = scenario.shape.lab(&name).unwrap();
            assert!(scenario.times > 0 && !scenario.faults.is_empty());
            for (time, words) in scenario.faults.iter().enumerate() {
                let faults = scenario.faults(time);
                assert_eq!(faults.len(), words.len(), "{}: {words:?}", scenario.name);
                fault::check(&lab, &faults).unwrap();
            }
        }
    }

    #[test]
    fn names_are_unique_and_those_of_one_shape_stand_together() {
        let mut names: Vec<_> = CATALOGUE.iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CATALOGUE.len());
        let shapes: Vec<_> = CATALOGUE.iter().map(|scenario| scenario.shape).collect();
        let mut grouped = shapes.clone();
        grouped.dedup();
        assert_eq!(grouped, Shape::ALL);
    }

    #[test]
    fn the_bulk_cut_comes_twenty_times_in_five_repeats() {
        let cut = CATALOGUE.iter().find(|scenario| scenario.name == "cut");
        assert_eq!(cut.map(|scenario| scenario.times * 5), Some(20));
    }
}
