//! What a lab is made of: hosts, NICs, and the guest in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use drover_probe::settings::{PAGE, Rate};
use drover_types::{BitRate, Bytes, VmName};
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

/// How the guest rewrites its memory, from `16MiB@64MiB`, `16MiB@max` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dirty {
    /// The part that is rewritten in turn.
    pub working_set: Bytes,
    /// Bytes of pages a second; `None` is as fast as the guest can.
    pub rate: Option<Bytes>,
}

impl FromStr for Dirty {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self {
                working_set: Bytes(0),
                rate: Some(Bytes(0)),
            });
        }
        let Some((size, rate)) = text.split_once('@') else {
            bail!("{text:?} is no dirty rate: write 16MiB@64MiB (a second), 16MiB@max or none");
        };
        let rate = match rate {
            "max" => None,
            rate => Some(rate.strip_suffix("/s").unwrap_or(rate).parse()?),
        };
        Ok(Self {
            working_set: size.parse()?,
            rate,
        })
    }
}

impl TryFrom<String> for Dirty {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Dirty> for String {
    fn from(dirty: Dirty) -> Self {
        match (dirty.working_set.0, dirty.rate) {
            (0, _) => "none".to_owned(),
            (set, None) => format!("{set}@max"),
            (set, Some(rate)) => format!("{set}@{}", rate.0),
        }
    }
}

impl fmt::Display for Dirty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.working_set.0, self.rate) {
            (0, _) => f.write_str("nothing rewritten"),
            (_, None) => write!(f, "{} rewritten as fast as it can", self.working_set),
            (_, Some(rate)) => write!(f, "{} rewritten at {rate}/s", self.working_set),
        }
    }
}

/// The guest of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSettings {
    /// The QEMU that runs it.
    pub qemu: PathBuf,
    /// Its machine type.
    pub machine: String,
    /// Its memory.
    pub memory: Bytes,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// The part of the memory that is filled and verified.
    pub content: Bytes,
    /// With what: shares as [`drover_probe::content::Mix`] reads them.
    pub mix: String,
    /// What of it is rewritten.
    pub dirty: Dirty,
    /// Bytes changed each time a page is rewritten.
    pub touch: u32,
    /// Bytes a second that it verifies while nobody asks for more.
    #[serde(default = "unasked")]
    pub verify: Bytes,
    /// Everything random follows from it.
    pub seed: u64,
}

/// What a guest that was not told otherwise verifies.
fn unasked() -> Bytes {
    Bytes(drover_probe::settings::Settings::default().verify)
}

/// Memory that the kernel, the programs and the corpus need beside the content. Seen: a guest of
/// 256 MiB takes 170 MiB of content and no more.
const OWN_MEMORY: u64 = 88 << 20;

/// Kept by the kernel for each page of memory (`struct page` and the like), as a part of it.
const KEPT_PART: u64 = 32;

/// What a guest's memory is a multiple of, where it follows from its contents.
const MEMORY_STEP: u64 = 64 << 20;

impl GuestSettings {
    /// Memory that is enough for so much content.
    #[must_use]
    pub fn memory_for(content: Bytes) -> Bytes {
        let own = (content.0 + OWN_MEMORY) / (KEPT_PART - 1) * KEPT_PART + KEPT_PART;
        Bytes(own.next_multiple_of(MEMORY_STEP))
    }

    /// What the probe is told.
    ///
    /// # Errors
    /// A mix that is none, or contents that do not fit the memory.
    pub fn probe(&self) -> Result<drover_probe::settings::Settings> {
        let room = self
            .memory
            .0
            .saturating_sub(OWN_MEMORY + self.memory.0 / KEPT_PART);
        if self.content.0 > room {
            bail!(
                "{} of content do not fit a guest of {}: at most {}",
                self.content,
                self.memory,
                Bytes(room)
            );
        }
        let pages = |bytes: Bytes| usize::try_from(bytes.0).map(|bytes| bytes / PAGE);
        Ok(drover_probe::settings::Settings {
            seed: self.seed,
            pages: pages(self.content)?.max(1),
            mix: self.mix.parse()?,
            working_set: pages(self.dirty.working_set)?,
            rewrite: self
                .dirty
                .rate
                .map_or(Rate::Max, |rate| Rate::Bytes(rate.0)),
            touch: usize::try_from(self.touch)?.clamp(8, PAGE),
            verify: self.verify.0,
        })
    }
}

/// The name of a lab's only guest, and what the names of several begin with.
pub const GUEST: &str = "guest";

/// A guest's name and what it is.
pub(crate) type Named = (VmName, GuestSettings);

/// Gives guests their names: the word, of several with a number from 1.
///
/// # Errors
/// A word that no name can begin with.
pub(crate) fn named(word: &str, guests: &[GuestSettings]) -> Result<Vec<Named>> {
    let name = |number: usize| match guests.len() {
        1 => word.parse(),
        _ => format!("{word}{}", number + 1).parse(),
    };
    let numbered = guests.iter().enumerate();
    numbered
        .map(|(number, guest)| Ok((name(number)?, guest.clone())))
        .collect()
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

    fn guest(memory: Bytes, content: Bytes) -> GuestSettings {
        GuestSettings {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            machine: "q35".into(),
            memory,
            vcpus: 1,
            content,
            mix: "files=1".into(),
            dirty: "none".parse().unwrap(),
            touch: 512,
            verify: Bytes(32 << 20),
            seed: 1,
        }
    }

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
    fn dirty_rates_are_read_as_people_write_them_and_kept_in_json() {
        for text in ["16MiB@64MiB", "16MiB@64MiB/s", "8MiB@max", "none"] {
            let dirty: Dirty = text.parse().unwrap();
            let json = serde_json::to_string(&dirty).unwrap();
            assert_eq!(serde_json::from_str::<Dirty>(&json).unwrap(), dirty);
        }
        assert!("16MiB".parse::<Dirty>().is_err());
    }

    #[test]
    fn lab_names_cannot_reach_into_another_lab() {
        for bad in ["", "a-b", "A", "a/b", "..", "abcdefghijklmnopqrstu"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_several_guests_have_numbers() {
        let guest = guest(Bytes(256 << 20), Bytes(64 << 20));
        let names = |count: usize| -> Vec<String> {
            let all = named(GUEST, &vec![guest.clone(); count]).unwrap();
            all.iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(1), ["guest"]);
        assert_eq!(names(3), ["guest1", "guest2", "guest3"]);
    }

    #[test]
    fn the_fastest_nic_is_the_first_of_the_fastest() {
        let lab = |text| LabSettings {
            name: "x".parse().unwrap(),
            hosts: 2,
            nics: nic_rates(text, None).unwrap(),
            addressing: Vec::new(),
            mtu: 9000,
        };
        assert_eq!(lab("200mbit,1gbit,1gbit").fastest(), 1);
        assert_eq!(lab("200mbit,none").fastest(), 1);
        assert_eq!(lab("200mbit,none").total_rate(), None);
        assert_eq!(
            lab("1gbit,500mbit").total_rate(),
            Some(BitRate(1_500_000_000))
        );
    }

    #[test]
    fn memory_that_follows_from_contents_is_enough_for_them_and_not_much_more() {
        for content in [1u64, 64, 100, 640, 4096] {
            let content = Bytes(content << 20);
            let memory = GuestSettings::memory_for(content);
            let room = memory.0 - OWN_MEMORY - memory.0 / KEPT_PART;
            assert!(room >= content.0, "{memory} for {content}");
            assert!(room < content.0 + 2 * MEMORY_STEP, "{memory} for {content}");
        }
    }

    #[test]
    fn contents_larger_than_the_guest_are_refused() {
        let guest = guest(Bytes(256 << 20), Bytes(250 << 20));
        let refused = guest.probe().unwrap_err().to_string();
        assert!(
            refused.contains("250 MiB of content do not fit"),
            "{refused}"
        );
    }
}
