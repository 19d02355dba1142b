//! Sets of processors, and on which of them the threads of an interface's lanes run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::CPUS;
use crate::words::in_short;

/// Text that is no set of processors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no list of CPUs: write 0-3,8, each below {CPUS}")]
pub struct InvalidCpus {
    text: String,
}

/// A set of processors by their numbers, written as the kernel writes it: `0-3,8` (cpuset(7), "List
/// format").
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    /// First and last, in order, apart from each other.
    ranges: Vec<(u32, u32)>,
}

impl CpuSet {
    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        let lengths = self.ranges.iter().map(|(first, last)| last - first + 1);
        lengths.fold(0, u32::saturating_add)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Each.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Those in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let others = |one: &(u32, u32)| {
            let one = *one;
            let common = other.ranges.iter();
            common.map(move |other| (one.0.max(other.0), one.1.min(other.1)))
        };
        let common = self.ranges.iter().flat_map(others);
        Self::of(common.filter(|(first, last)| first <= last).collect())
    }

    /// Those in either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self::of([&self.ranges[..], &other.ranges].concat())
    }

    fn of(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }
}

impl FromIterator<u32> for CpuSet {
    /// Numbers that no processor has are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let numbers = numbers.into_iter().filter(|number| *number < CPUS);
        Self::of(numbers.map(|number| (number, number)).collect())
    }
}

impl FromStr for CpuSet {
    type Err = InvalidCpus;
    fn from_str(text: &str) -> Result<Self, InvalidCpus> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < CPUS).then_some((first, last))
        };
        let parts = text.trim().split(',').filter(|part| !part.is_empty());
        let ranges: Option<Vec<_>> = parts.map(range).collect();
        ranges.map(Self::of).ok_or_else(|| InvalidCpus {
            text: in_short(text.to_owned()),
        })
    }
}

impl TryFrom<String> for CpuSet {
    type Error = InvalidCpus;
    fn try_from(text: String) -> Result<Self, InvalidCpus> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> String {
        cpus.to_string()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Where the threads of an interface's lanes run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Near its hardware.
    Near {
        /// The NUMA nodes that its hardware is on.
        nodes: Vec<u32>,
        /// Those CPUs.
        cpus: CpuSet,
    },
    /// Wherever the scheduler sees fit.
    Anywhere {
        /// Why, to be read after "because".
        why: String,
    },
}

impl Placement {
    /// Anywhere, for this reason.
    #[must_use]
    pub fn anywhere(why: impl Into<String>) -> Self {
        Self::Anywhere { why: why.into() }
    }
}

/// An interface, by its addresses, and where its lanes' threads are to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicPlacement {
    /// The addresses that lanes begin or end at.
    pub addresses: Vec<std::net::IpAddr>,
    /// Where.
    pub placement: Placement,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_of_the_kernel_are_read_and_written_alike() {
        for text in ["0", "0-3", "0-3,8-11,15", "1,3,5", ""] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set(" 3,0-1,2 \n").to_string(), "0-3");
        assert_eq!(set("0-3,8").count(), 5);
        assert!(set("\n").is_empty());
        assert!(set("0-65535").count() == CPUS);
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for bad in ["a", "3-1", "0-99999999999", "-1", "0-65536", "0-", "1-2-3"] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad:?}");
        }
        let json = serde_json::from_str::<CpuSet>("\"0-x\"");
        assert!(json.unwrap_err().to_string().contains("no list of CPUs"));
    }

    proptest! {
        #[test]
        fn common_and_joined_sets_are_those_of_their_numbers(
            one in prop::collection::btree_set(0u32..80, 0..40),
            other in prop::collection::btree_set(0u32..80, 0..40),
        ) {
            let (a, b): (CpuSet, CpuSet) = (one.iter().copied().collect(), other.iter().copied().collect());
            prop_assert!(a.and(&b).iter().eq(one.intersection(&other).copied()));
            prop_assert!(a.or(&b).iter().eq(one.union(&other).copied()));
            prop_assert_eq!(a.count() as usize, one.len());
            prop_assert_eq!(set(&a.to_string()), a);
        }
    }
}
