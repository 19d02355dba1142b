//! What a lab is made of: hosts, NICs, and the guest in it.

mod contents;
mod disk;
mod guest;

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
pub use contents::Contents;
pub use disk::LocalDisk;
use drover_types::{BitRate, Bytes, ReductionMode};
pub use guest::{Dirty, GUEST, GuestSettings};
pub(crate) use guest::{Named, named};
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::network::HOSTS;

/// A lab's name: labs of different names run side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

/// The name of a lab that was not given one.
pub const DEFAULT_NAME: &str = "lab";

impl LabName {
    /// What `drover lab COMMAND` needs to mean this lab: nothing for that of the default name.
    #[must_use]
    pub fn option(&self) -> String {
        match self.0.as_str() {
            DEFAULT_NAME => String::new(),
            name => format!(" --name {name}"),
        }
    }
}

impl FromStr for LabName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits = (1..=20).contains(&text.len());
        // No dash: the namespaces of lab `x` are `drover-x-*`, and `x-y` must not be among them.
        if !fits
            || !text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        {
            bail!("lab name {text:?} is not usable: 1 to 20 characters of a-z and 0-9");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for LabName {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> Self {
        name.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rate of every NIC, from `1gbit`, `1gbit,500mbit` or `none`.
///
/// One rate is every NIC's; more than one are the NICs' in turn.
///
/// # Errors
/// No rate, or a number of rates that is neither 1 nor that of the NICs.
pub fn nic_rates(text: &str, nics: Option<usize>) -> Result<Vec<Option<BitRate>>> {
    let mut rates = Vec::new();
    for part in text.split(',') {
        rates.push(match part.trim() {
            "none" => None,
            rate => Some(rate.parse::<BitRate>()?).filter(|rate| rate.0 > 0),
        });
    }
    let count = nics.unwrap_or(if rates.len() == 1 { 2 } else { rates.len() });
    if !(1..=limits::NICS).contains(&count) {
        bail!(
            "{count} NICs are not possible: between 1 and {}",
            limits::NICS
        );
    }
    match rates.len() {
        1 => Ok(vec![rates[0]; count]),
        given if given == count => Ok(rates),
        given => bail!("{given} rates for {count} NICs: give one for all, or one for each"),
    }
}

/// How a NIC is addressed: as it should be, or as it is found to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addressing {
    /// A network of IPv4 for each pair of NICs.
    #[default]
    V4,
    /// A network of IPv6, and nothing of IPv4.
    V6,
    /// Nothing but what IPv6 gives every interface by itself.
    LinkLocal,
    /// The same address on both hosts, as two bridges that nobody connected have.
    Duplicate,
    /// IPv4, but the second host answers by another NIC.
    Asymmetric,
}

impl Addressing {
    const ALL: [(Self, &'static str); 5] = [
        (Self::V4, "v4"),
        (Self::V6, "v6"),
        (Self::LinkLocal, "link-local"),
        (Self::Duplicate, "duplicate"),
        (Self::Asymmetric, "asymmetric"),
    ];

    fn word(self) -> &'static str {
        let own = Self::ALL.iter().find(|(way, _)| *way == self);
        own.map_or("otherwise", |(_, word)| word)
    }

    /// Whether each host can be reached at an address of its own on such a NIC.
    #[must_use]
    pub fn can_be_named(self) -> bool {
        !matches!(self, Self::LinkLocal | Self::Duplicate)
    }
}

impl FromStr for Addressing {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.iter().find(|(_, word)| *word == text) {
            Some((addressing, _)) => Ok(*addressing),
            None => {
                let words = Self::ALL.map(|(_, word)| word).join(", ");
                bail!("{text:?} is no way to address a NIC: {words}")
            }
        }
    }
}

/// A whole lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabSettings {
    /// Its name.
    pub name: LabName,
    /// How many hosts it has.
    #[serde(default = "a_pair")]
    pub hosts: usize,
    /// Every host's NICs, each connected to the same one of every other host; with its rate.
    pub nics: Vec<Option<BitRate>>,
    /// How they are addressed, in turn; those that it does not name by IPv4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addressing: Vec<Addressing>,
    /// Largest packet on them, in bytes.
    pub mtu: u32,
    /// How the agents are configured.
    #[serde(default)]
    pub agents: AgentSettings,
}

/// What agents of a lab are told beside what they are always told; of what is missing, as they have it by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// How bytes are reduced.
    pub reduction: Option<ReductionMode>,
    /// The memory in which guests that arrive share pages.
    pub shared_pages: Option<Bytes>,
    /// Disk space for pages of guests that left.
    #[serde(default)]
    pub checkpoints: Option<Bytes>,
}

/// The hosts of a lab that was not told how many.
fn a_pair() -> usize {
    2
}

impl LabSettings {
    /// Whether such a lab can be.
    ///
    /// # Errors
    /// Too few hosts or too many, or more than two with addresses that only a pair can have.
    pub fn check(&self) -> Result<()> {
        if !(2..=HOSTS.len()).contains(&self.hosts) {
            let (hosts, most) = (self.hosts, HOSTS.len());
            bail!("{hosts} hosts are not possible: between 2 and {most}");
        }
        let of_pairs =
            |way: &&Addressing| matches!(way, Addressing::Duplicate | Addressing::Asymmetric);
        if self.hosts > 2
            && let Some(way) = self.addressing.iter().find(of_pairs)
        {
            bail!(
                "only two hosts can be addressed {}, not {}",
                way.word(),
                self.hosts
            );
        }
        Ok(())
    }

    /// The home of a guest by its number, where guests are spread over the hosts.
    #[must_use]
    pub fn home_of(&self, guest: usize) -> usize {
        guest % self.hosts.max(1)
    }

    /// The names of its hosts.
    #[must_use]
    pub fn host_names(&self) -> &'static [&'static str] {
        &HOSTS[..self.hosts.min(HOSTS.len())]
    }

    /// How a NIC is addressed.
    #[must_use]
    pub fn addressing_of(&self, nic: usize) -> Addressing {
        self.addressing.get(nic).copied().unwrap_or_default()
    }

    /// All NICs' rates together; `None` when one is not limited.
    #[must_use]
    pub fn total_rate(&self) -> Option<BitRate> {
        self.nics.iter().copied().sum::<Option<BitRate>>()
    }

    /// The number of the fastest NIC, the first of several.
    #[must_use]
    pub fn fastest(&self) -> usize {
        let rate = |nic: &Option<BitRate>| nic.map_or(u64::MAX, |rate| rate.0);
        let best = self.nics.iter().map(rate).max();
        self.nics
            .iter()
            .position(|nic| Some(rate(nic)) == best)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rate_is_every_nics_and_several_count_the_nics() {
        let gbit = Some(BitRate(1_000_000_000));
        assert_eq!(nic_rates("1gbit", None).unwrap(), [gbit, gbit]);
        assert_eq!(nic_rates("none", Some(3)).unwrap(), [None, None, None]);
        let mixed = nic_rates("1gbit,500mbit,none", None).unwrap();
        assert_eq!(mixed, [gbit, Some(BitRate(500_000_000)), None]);
    }

    #[test]
    fn rates_that_do_not_match_the_nics_are_refused_with_both_numbers() {
        let refused = nic_rates("1gbit,1gbit", Some(3)).unwrap_err().to_string();
        assert!(refused.contains("2 rates for 3 NICs"), "{refused}");
        assert!(nic_rates("fast", None).is_err());
        assert!(nic_rates("1gbit", Some(0)).is_err());
    }

    #[test]
    fn lab_names_cannot_reach_into_another_lab() {
        for bad in ["", "a-b", "A", "a/b", "..", "abcdefghijklmnopqrstu"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_fastest_nic_is_the_first_of_the_fastest() {
        let lab = |text| LabSettings {
            name: "x".parse().unwrap(),
            hosts: 2,
            nics: nic_rates(text, None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
            agents: AgentSettings::default(),
        };
        assert_eq!(lab("200mbit,1gbit,1gbit").fastest(), 1);
        assert_eq!(lab("200mbit,none").fastest(), 1);
        assert_eq!(lab("200mbit,none").total_rate(), None);
        assert_eq!(
            lab("1gbit,500mbit").total_rate(),
            Some(BitRate(1_500_000_000))
        );
    }
}
