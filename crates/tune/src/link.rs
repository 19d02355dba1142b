//! What somebody wants one link to be: which step that is, why it is none, and what may come of it.

use std::collections::BTreeSet;

use drover_types::BitRate;

use crate::change::{NicSetting, Step, fec_words};
use crate::facts::{Host, Kind, Link, Nic, Port};
use crate::negotiation::{Negotiation, is_full_of, rate_of_mode};
use crate::rates::listed;

/// Corrections of errors by the words of `ethtool --set-fec`, and by the kernel's names among the modes of links.
const CORRECTIONS: [(&str, &str); 4] = [
    ("off", "None"),
    ("rs", "RS"),
    ("baser", "BASER"),
    ("llrs", "LLRS"),
];

/// What makes a rate one that is set by hand, whatever the other end does.
pub(crate) const FORCED: &str = "-forced";

/// From here on ends of twisted pairs have to agree.
const AGREED: BitRate = BitRate(1_000_000_000);

/// What is wanted of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkWish {
    /// A rate, agreed on where the other end may be there to agree on it.
    Rate(BitRate),
    /// A rate by hand, whatever the other end does.
    ByHand(BitRate),
    /// The rate that both ends agree on, of all that this one can.
    Agreed,
    /// How errors are corrected: `auto`, `off`, `rs`, `baser` or `llrs`.
    Correction(String),
}

/// What is to be done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStep {
    /// What is set.
    pub step: Step,
    /// What may keep the link down, or makes others worse.
    pub warnings: Vec<String>,
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// No text that anything can be made of.
    #[error("{text:?} is no {what}: {expected}")]
    Words {
        /// As it was given.
        text: String,
        /// What it was to be.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// It stands on others, which have the links.
    #[error("{nic} is no adapter: set those below it, {}", lower.join(", "))]
    Upper {
        /// The interface.
        nic: String,
        /// What it stands on.
        lower: Vec<String>,
    },
    /// Nobody turned it on, so that there can be no link.
    #[error("{nic} is off, so that nothing would show whether its link comes up")]
    Off {
        /// The interface.
        nic: String,
    },
    /// It does not tell what it can, or what it is set to.
    #[error("it is not known what {nic} {what}: {why}")]
    Untold {
        /// The interface.
        nic: String,
        /// What is not known.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// Not one that the adapter has.
    #[error("{nic} cannot have {wanted}; it supports {supported}")]
    Unsupported {
        /// The interface.
        nic: String,
        /// What is wanted.
        wanted: String,
        /// What it could have.
        supported: String,
    },
    /// Its ends have to agree.
    #[error(
        "{nic} has twisted pairs, whose ends have to agree from 1 Gbit/s on: {rate} is not set by hand"
    )]
    Pairs {
        /// The interface.
        nic: String,
        /// What is wanted.
        rate: BitRate,
    },
    /// It is so.
    #[error("{nic} is set to that already: {words}")]
    Already {
        /// The interface.
        nic: String,
        /// As `ethtool` says it.
        words: String,
    },
}

impl LinkWish {
    /// A rate such as `10G` or `100M`, the same by hand (`10G-forced`), or `auto`.
    ///
    /// # Errors
    /// It is none.
    pub fn speed(text: &str) -> Result<Self, LinkError> {
        if text == "auto" {
            return Ok(Self::Agreed);
        }
        let (rate, forced) = match text.strip_suffix(FORCED) {
            Some(rate) => (rate, true),
            None => (text, false),
        };
        let short = rate.ends_with(['k', 'K', 'm', 'M', 'g', 'G']);
        let rate = if short {
            format!("{rate}bit")
        } else {
            rate.to_owned()
        };
        let wish = if forced { Self::ByHand } else { Self::Rate };
        rate.parse().map(wish).map_err(|_| LinkError::Words {
            text: text.chars().take(40).collect(),
            what: "rate of a link",
            expected: "write 10G, 25G, 1gbit, 100M, one of these by hand (10G-forced), or auto",
        })
    }

    /// A correction of errors, or `auto`.
    ///
    /// # Errors
    /// It is none.
    pub fn correction(text: &str) -> Result<Self, LinkError> {
        let is_known = text == "auto" || CORRECTIONS.iter().any(|(word, _)| *word == text);
        is_known
            .then(|| Self::Correction(text.to_owned()))
            .ok_or_else(|| LinkError::Words {
                text: text.chars().take(40).collect(),
                what: "correction of errors",
                expected: "write auto, off, rs, baser or llrs",
            })
    }

    /// The step that does it to an interface of that host.
    ///
    /// # Errors
    /// There is none.
    pub fn step(&self, host: &Host, nic: &Nic) -> Result<LinkStep, LinkError> {
        if matches!(nic.kind, Kind::Bond | Kind::Bridge | Kind::Vlan) {
            let (nic, lower) = (nic.name.clone(), nic.lower.clone());
            return Err(LinkError::Upper { nic, lower });
        }
        if !nic.up {
            let nic = nic.name.clone();
            return Err(LinkError::Off { nic });
        }
        let link = nic.link.get();
        let link = link.map_err(|why| untold(nic, "can", why))?;
        let mut step = match self {
            Self::Rate(rate) => of_rate(nic, link, *rate, false),
            Self::ByHand(rate) => of_rate(nic, link, *rate, true),
            Self::Agreed => of_agreement(nic, link),
            Self::Correction(word) => of_correction(nic, link, word),
        }?;
        let bonds = host.nics.iter().filter(|upper| upper.kind == Kind::Bond);
        let bonds = bonds.filter(|bond| bond.lower.contains(&nic.name));
        step.warnings
            .extend(bonds.map(|bond| self.of_member(bond, nic)));
        Ok(step)
    }

    /// What becomes of a bond whose member is set.
    fn of_member(&self, bond: &Nic, nic: &Nic) -> String {
        let name = &bond.name;
        if bond.lower.len() < 2 {
            return format!("it is the only member of {name}, which has no link meanwhile either");
        }
        let told = bond.bond.as_ref().and_then(|told| told.known());
        let Some(told) = told else {
            return format!("it is a member of {name}, of which it is not known how it uses them");
        };
        let mode = &told.mode;
        let becomes = match self {
            _ if told.carrying.as_ref() == Some(&nic.name) => {
                "it is the one that carries: another one takes over meanwhile"
            }
            Self::Correction(_) => "the others carry its part meanwhile",
            _ if told.one_carries() => "it may take over at that rate",
            _ if mode == "802.3ad" => {
                "members of one rate carry together there: with another rate it carries nothing, or the others do"
            }
            _ => "a bond takes its members for alike: a slow one holds up its share",
        };
        format!("it is a member of {name} ({mode}): {becomes}")
    }
}

fn untold(nic: &Nic, what: &'static str, why: &str) -> LinkError {
    LinkError::Untold {
        nic: nic.name.clone(),
        what,
        why: why.to_owned(),
    }
}

fn set(nic: &Nic, what: NicSetting, from: String, to: String, warnings: Vec<String>) -> LinkStep {
    let nic = nic.name.clone();
    LinkStep {
        step: Step::Nic {
            nic,
            what,
            from,
            to,
        },
        warnings,
    }
}

/// How its rate comes about now, unless it is so already.
fn now(nic: &Nic, link: &Link, to: &Negotiation) -> Result<String, LinkError> {
    let from = Negotiation::of(link).map_err(|why| untold(nic, "is set to", why))?;
    let from = from.to_string();
    if Negotiation::is(&from, &to.to_string()) {
        let (nic, words) = (nic.name.clone(), format!("autoneg {from}"));
        return Err(LinkError::Already { nic, words });
    }
    Ok(from)
}

/// Whether its ends have to agree on a rate: from 1 Gbit/s on those of twisted pairs have to, if only on who of both has the clock (IEEE
/// 802.3, 40 and 55).
pub(crate) fn has_to_agree(nic: &Nic, rate: BitRate) -> bool {
    nic.port.known() == Some(&Port::TwistedPair) && rate >= AGREED
}

/// There is no link, and nothing is heard of an end that would agree: a port whose rate was set by hand is like that.
fn hears_nobody(nic: &Nic, link: &Link) -> bool {
    !nic.carrier && link.peer.is_empty() && link.modes.peer.is_empty()
}

/// A rate as somebody writes it: `10G`, `100M`.
pub(crate) fn word(rate: BitRate) -> String {
    let mbit = rate.0 / 1_000_000;
    if mbit.is_multiple_of(1000) {
        format!("{}G", mbit / 1000)
    } else {
        format!("{mbit}M")
    }
}

fn of_rate(nic: &Nic, link: &Link, rate: BitRate, forced: bool) -> Result<LinkStep, LinkError> {
    let modes = &link.modes.supported;
    let full = |mode: &&String| mode.ends_with("/Full");
    let rates = modes
        .iter()
        .filter(full)
        .filter_map(|mode| rate_of_mode(mode));
    let rates: BTreeSet<BitRate> = rates.collect();
    if rates.is_empty() {
        return Err(untold(nic, "can", "its driver tells no rates"));
    }
    if !rates.contains(&rate) {
        return Err(LinkError::Unsupported {
            nic: nic.name.clone(),
            wanted: rate.to_string(),
            supported: listed(&rates),
        });
    }
    let mbit = u32::try_from(rate.0 / 1_000_000).unwrap_or(u32::MAX);
    let pairs = has_to_agree(nic, rate);
    let can_agree = modes.contains("Autoneg");
    if forced && pairs && can_agree {
        let nic = nic.name.clone();
        return Err(LinkError::Pairs { nic, rate });
    }
    let may_agree = !link.by_hand && !hears_nobody(nic, link);
    let to = if can_agree && !forced && (may_agree || pairs) {
        Negotiation::Rate(mbit)
    } else {
        Negotiation::ByHand { mbit, full: true }
    };
    let from = now(nic, link, &to)?;
    let mut warnings = in_the_way(nic, link, rate, &to);
    let by_itself = can_agree && !forced && !link.by_hand;
    if by_itself && matches!(to, Negotiation::ByHand { .. }) {
        warnings.push(
            "there is no link, and nothing is heard of the other end: the rate is set by hand"
                .to_owned(),
        );
    }
    Ok(set(
        nic,
        NicSetting::Negotiation,
        from,
        to.to_string(),
        warnings,
    ))
}

/// What keeps a link from coming up with a rate, as far as it is known.
fn in_the_way(nic: &Nic, link: &Link, rate: BitRate, to: &Negotiation) -> Vec<String> {
    let mut warnings = Vec::new();
    if !link.peer.is_empty() && !link.peer.contains(&rate) {
        let offers = listed(&link.peer);
        warnings.push(format!("the other end does not offer {rate}, but {offers}"));
    }
    let module = nic.module.known();
    if let Some(module) = module.filter(|module| !module.carries.is_empty())
        && !module.carries.contains(&rate)
    {
        let carries = listed(&module.carries);
        warnings.push(format!(
            "its {} does not carry {rate}, but {carries}",
            module.form
        ));
    }
    if matches!(to, Negotiation::ByHand { .. }) {
        warnings.push(format!(
            "nothing is negotiated: the other end has to be set to {rate} as well"
        ));
    }
    warnings
}

fn of_agreement(nic: &Nic, link: &Link) -> Result<LinkStep, LinkError> {
    if !link.modes.supported.contains("Autoneg") {
        return Err(LinkError::Unsupported {
            nic: nic.name.clone(),
            wanted: "a rate that is agreed on".to_owned(),
            supported: listed(&link.supported),
        });
    }
    let from = now(nic, link, &Negotiation::All)?;
    let to = Negotiation::All.to_string();
    let mut warnings = Vec::new();
    if link.by_hand {
        warnings.push("the other end has to negotiate as well".to_owned());
    }
    Ok(set(nic, NicSetting::Negotiation, from, to, warnings))
}

fn of_correction(nic: &Nic, link: &Link, word: &str) -> Result<LinkStep, LinkError> {
    let fec = nic.fec.get();
    let fec = fec.map_err(|why| untold(nic, "corrects", why))?;
    let modes = &link.modes.supported;
    let known: Vec<&str> = CORRECTIONS
        .iter()
        .filter(|(_, mode)| modes.contains(*mode))
        .map(|(word, _)| *word)
        .collect();
    // Where its driver tells none it is the kernel's to refuse.
    if word != "auto" && !known.is_empty() && !known.contains(&word) {
        return Err(LinkError::Unsupported {
            nic: nic.name.clone(),
            wanted: format!("the correction {word}"),
            supported: known.join(", "),
        });
    }
    let from = if fec.automatic {
        "auto".to_owned()
    } else {
        fec_words(&fec.configured)
    };
    if from == word {
        let (nic, words) = (nic.name.clone(), format!("encoding {from}"));
        return Err(LinkError::Already { nic, words });
    }
    let mut warnings = Vec::new();
    if word != "auto" {
        warnings.push("the other end has to correct errors the same way".to_owned());
    }
    let to = word.to_owned();
    Ok(set(nic, NicSetting::Fec, from, to, warnings))
}

/// The modes of a rate among those that a link has, by the words of what is there; none where it was set by hand.
pub(crate) fn modes_of(from: &str, mbit: u32) -> Vec<String> {
    match Negotiation::read(from) {
        Some(Negotiation::Modes(modes)) => {
            let modes = modes.into_iter().map(|(mode, _)| mode);
            modes.filter(|mode| is_full_of(mode, mbit)).collect()
        }
        _ => Vec::new(),
    }
}
