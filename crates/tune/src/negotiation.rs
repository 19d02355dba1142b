//! How the rate of a link comes about, in the words of `ethtool -s NIC autoneg`.
//!
//! ```text
//! on                                                    agreed on; this end offers all that it can
//! on speed 10000 duplex full                            agreed on; it offers only modes of this rate
//! on advertise 1000baseT/Full on 100baseT/Full off      agreed on; it offers these, and not those
//! off speed 10000 duplex full                           set by hand
//! ```
//! What is there is told by one of the last two, so that it can be taken back to the letter.

use std::collections::BTreeSet;
use std::fmt;

use drover_types::BitRate;

use crate::facts::{Duplex, Link};

/// How the rate of a link comes about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Negotiation {
    /// Both ends agree, and this one offers all that it can.
    All,
    /// Both ends agree, and this one offers only modes of this rate, in Mbit/s, in both directions at once.
    Rate(u32),
    /// Both ends agree, and this one offers modes or does not, by the kernel's names.
    Modes(Vec<(String, bool)>),
    /// It is set by hand.
    ByHand {
        /// In Mbit/s.
        mbit: u32,
        /// Both directions at once.
        full: bool,
    },
}

impl Negotiation {
    /// What is there of a link.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn of(link: &Link) -> Result<Self, &'static str> {
        match (link.negotiates, link.speed) {
            (None, _) => Err("there is nothing to agree on"),
            // Some drivers say that they negotiate only once they have.
            (Some(on), _) if on || !link.by_hand => {
                let modes = link.modes.supported.iter();
                let modes = modes.filter(|mode| rate_of_mode(mode).is_some());
                let offered = |mode: &String| link.modes.advertised.contains(mode);
                Ok(Self::Modes(
                    modes.map(|mode| (mode.clone(), offered(mode))).collect(),
                ))
            }
            (_, None) => Err("the rate that is set is not told without a carrier"),
            (_, Some(rate)) => Ok(Self::ByHand {
                mbit: u32::try_from(rate.0 / 1_000_000).unwrap_or(u32::MAX),
                full: link.duplex != Some(Duplex::Half),
            }),
        }
    }

    /// From its words.
    #[must_use]
    pub fn read(words: &str) -> Option<Self> {
        match words.split(' ').collect::<Vec<_>>()[..] {
            ["on"] => Some(Self::All),
            ["on", "speed", mbit, "duplex", "full"] => Some(Self::Rate(mbit.parse().ok()?)),
            ["on", "advertise", ref modes @ ..] => Some(Self::Modes(read_modes(modes)?)),
            ["off", "speed", mbit, "duplex", duplex @ ("full" | "half")] => Some(Self::ByHand {
                mbit: mbit.parse().ok()?,
                full: duplex == "full",
            }),
            _ => None,
        }
    }

    /// Whether what is there, by its words, is what somebody's words say. Of modes those that are offered count, in any order: what an
    /// adapter could offer beside them may be told otherwise while its link is down, as i40e does.
    #[must_use]
    pub fn is(there: &str, said: &str) -> bool {
        if there == said {
            return true;
        }
        match (Self::read(there), Self::read(said)) {
            (Some(Self::Modes(there)), Some(Self::Modes(said))) => {
                offered(&there) == offered(&said)
            }
            (Some(Self::Modes(modes)), Some(Self::All)) => {
                !modes.is_empty() && modes.iter().all(|(_, is_offered)| *is_offered)
            }
            (Some(Self::Modes(modes)), Some(Self::Rate(mbit))) => {
                let offered = offered(&modes);
                !offered.is_empty() && offered.iter().all(|mode| is_full_of(mode, mbit))
            }
            _ => false,
        }
    }
}

fn offered(modes: &[(String, bool)]) -> BTreeSet<&str> {
    let offered = modes.iter().filter(|(_, is_offered)| *is_offered);
    offered.map(|(mode, _)| mode.as_str()).collect()
}

/// Whether a mode has this rate, in Mbit/s, in both directions at once: as those have that say nothing of it (`10000baseR_FEC`).
pub(crate) fn is_full_of(mode: &str, mbit: u32) -> bool {
    let rate = BitRate(u64::from(mbit) * 1_000_000);
    !mode.ends_with("/Half") && rate_of_mode(mode) == Some(rate)
}

/// The rate of a mode such as `25000baseCR/Full`; none of what is no rate, such as `Autoneg`.
#[must_use]
pub fn rate_of_mode(mode: &str) -> Option<BitRate> {
    let (mbit, _) = mode.split_once("base")?;
    let mbit: u64 = mbit.parse().ok()?;
    (mbit > 0).then(|| BitRate(mbit.saturating_mul(1_000_000)))
}

fn read_modes(words: &[&str]) -> Option<Vec<(String, bool)>> {
    let (pairs, rest) = words.as_chunks::<2>();
    let read = |[mode, switch]: &[&str; 2]| {
        let is_offered = match *switch {
            "on" => true,
            "off" => false,
            _ => return None,
        };
        Some(((*mode).to_owned(), is_offered))
    };
    rest.is_empty()
        .then(|| pairs.iter().map(read).collect())
        .flatten()
}

impl fmt::Display for Negotiation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("on"),
            Self::Rate(mbit) => write!(f, "on speed {mbit} duplex full"),
            Self::Modes(modes) => {
                f.write_str("on advertise")?;
                modes.iter().try_for_each(|(mode, is_offered)| {
                    write!(f, " {mode} {}", if *is_offered { "on" } else { "off" })
                })
            }
            Self::ByHand { mbit, full } => {
                let duplex = if *full { "full" } else { "half" };
                write!(f, "off speed {mbit} duplex {duplex}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "on advertise 1000baseT/Full on 100baseT/Full off 100baseT/Half off";

    #[test]
    fn every_way_is_read_as_it_is_written_and_nothing_else_is() {
        for words in [
            "on",
            "on speed 1000 duplex full",
            TWO,
            "off speed 100 duplex half",
        ] {
            let read = Negotiation::read(words).unwrap();
            assert_eq!(read.to_string(), words);
        }
        for strange in [
            "",
            "off",
            "on ",
            "on speed x duplex full",
            "on speed 1000 duplex half",
            "on advertise 1000baseT/Full",
            "on advertise 1000baseT/Full maybe",
            "off speed -1 duplex full",
        ] {
            assert_eq!(Negotiation::read(strange), None, "{strange:?}");
        }
    }

    #[test]
    fn what_is_there_is_what_was_wanted_if_it_offers_that_and_to_the_letter_if_it_is_to_be_as_before()
     {
        for said in [
            "on speed 1000 duplex full",
            TWO,
            // Told in another order, and with others that could be offered.
            "on advertise 10000baseSR/Full off 100baseT/Half off 1000baseT/Full on",
        ] {
            assert!(Negotiation::is(TWO, said), "{said}");
        }
        for said in [
            "on",
            "on speed 100 duplex full",
            "on advertise 1000baseT/Full on 100baseT/Full on 100baseT/Half off",
            "off speed 1000 duplex full",
        ] {
            assert!(!Negotiation::is(TWO, said), "{said}");
        }
        assert!(Negotiation::is("on advertise 1000baseT/Full on", "on"));
        let half = "on advertise 100baseT/Half on";
        assert!(!Negotiation::is(half, "on speed 100 duplex full"));
        let nothing = "on advertise 100baseT/Full off";
        assert!(!Negotiation::is(nothing, "on speed 100 duplex full"));
        assert!(!Negotiation::is("off speed 100 duplex full", "on"));
    }
}
