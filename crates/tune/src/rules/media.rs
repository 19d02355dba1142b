//! Cables and modules, and links that are down.

use drover_types::BitRate;

use super::of_nic;
use super::used::is_used;
use crate::change::{Change, Disruption, NicSetting, fec_words, quoted};
use crate::cost::of_rate;
use crate::facts::{Down, Host, Kind, Link, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::link::{FORCED, has_to_agree, word};
use crate::negotiation::Negotiation;
use crate::rates::{in_common, listed};

/// Slower rates are no example of what somebody sets a switch's port to.
const LEAST_EXAMPLE: BitRate = BitRate(1_000_000_000);

/// A cable or module carries what both ends can.
pub fn module(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let (module, link) = (nic.module.get()?, nic.link.get()?);
    let Some(carries) = module.carries.last() else {
        return Err(Because::from("its module does not tell what it carries"));
    };
    let Some(could) = in_common(link, None).last().copied() else {
        return Err(Because::from(
            "its driver tells no rates that it could have",
        ));
    };
    let read = format!("{} carries {}", module.form, listed(&module.carries));
    if in_common(link, Some(module)).is_empty() {
        let mut both = link.supported.clone();
        both.retain(|rate| link.peer.is_empty() || link.peer.contains(rate));
        return Ok(Answer::Found(Found {
            severity: Severity::Critical,
            read,
            expected: format!("one of {}", listed(&both)),
            why: "without a rate in common there is no link".into(),
            cost: None,
            change: None,
            by_hand: Some(format!("a cable or modules for {could} at both ends")),
            lines: Vec::new(),
        }));
    }
    if *carries >= could {
        return Ok(Answer::Right);
    }
    let both_could = !link.peer.is_empty();
    Ok(Answer::Found(Found {
        severity: if both_could {
            Severity::Warning
        } else {
            Severity::Notice
        },
        read,
        expected: format!("{could}"),
        why: if both_could {
            "both ends could have more than what is between them"
        } else {
            "this end could have more; what the other one could, it does not tell"
        }
        .into(),
        cost: of_rate(*carries, could).filter(|_| both_could),
        change: None,
        by_hand: Some(format!("a cable or modules for {could} at both ends")),
        lines: Vec::new(),
    }))
}

/// An interface that is used has a link.
pub fn down(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    if nic.carrier {
        return Ok(Answer::Right);
    }
    let Some(down) = nic.down.get()? else {
        return Err(Because::from(
            "it has no carrier, and its driver does not tell why",
        ));
    };
    let told = Told::of(down, has_to_agree(nic, LEAST_EXAMPLE));
    let read = match &down.detail {
        Some(detail) => format!("no carrier: {} ({detail})", down.state),
        None => format!("no carrier: {}", down.state),
    };
    Ok(Answer::Found(Found {
        severity: told.severity,
        read,
        expected: told.expected.to_owned(),
        why: told.why.to_owned(),
        cost: None,
        change: told.change(nic),
        by_hand: told.by_hand(host, nic),
        lines: Vec::new(),
    }))
}

/// What a person is told of it.
struct Told {
    severity: Severity,
    expected: &'static str,
    why: &'static str,
    mend: Mend,
}

/// What makes a link come.
enum Mend {
    /// Both ends by hand, or both by themselves.
    SameWay,
    /// The same error correction.
    Fec,
    /// Whatever is to be done there.
    ByHand(&'static str),
}

impl Told {
    /// Of a link whose ends have to agree, or may be set by hand as well.
    fn of(down: &Down, agree: bool) -> Self {
        use Severity::{Critical, Notice};
        let told = |severity, expected, why, mend| Self {
            severity,
            expected,
            why,
            mend,
        };
        let detail = down.detail.as_deref();
        match (down.state.as_str(), detail) {
            ("autoneg", Some("an-fec-mismatch-during-override")) => told(
                Critical,
                "one error correction at both ends",
                "the ends chose different error correction (FEC), and a link needs one",
                Mend::Fec,
            ),
            ("autoneg", Some("an-no-hcd")) => told(
                Critical,
                "a rate that both ends offer",
                "the ends negotiate, and offer no rate in common",
                Mend::ByHand(
                    "have both ends offer all of their rates, and look whether the cable is for one of both",
                ),
            ),
            ("autoneg", Some("an-no-partner-detected-force-mode")) => told(
                Critical,
                "an end that runs at the rate that is set here",
                "this end's rate was set by hand, and nothing at that rate is heard of the other one",
                Mend::SameWay,
            ),
            ("autoneg", _) if agree => told(
                Critical,
                "both ends negotiate",
                "this end waits for one that negotiates, as ends of twisted pairs have to from 1 Gbit/s on",
                Mend::SameWay,
            ),
            ("autoneg", _) => told(
                Critical,
                "both ends negotiate, or both have the same rate by hand",
                "a port whose rate was set by hand does not negotiate, and this end waits for it: there is no link until this one is set by \
                 hand, too",
                Mend::SameWay,
            ),
            (
                "link-logical-mismatch",
                Some("llm-fc-fec-is-not-locked" | "llm-rs-fec-is-not-locked"),
            ) => told(
                Critical,
                "one error correction at both ends",
                "the error correction (FEC) of this end does not understand the other one's",
                Mend::Fec,
            ),
            ("link-logical-mismatch", _) => told(
                Critical,
                "one rate and one error correction at both ends",
                "something is heard that this end does not understand: another rate, or other error correction",
                Mend::SameWay,
            ),
            ("link-training-failure" | "bad-signal-integrity" | "calibration-failure", _) => told(
                Critical,
                "a signal that is understood",
                "the signal of the cable is too bad, or of a rate that this end does not have",
                Mend::ByHand("replace the cable or its modules; a shorter one if it is copper"),
            ),
            ("no-cable", _) => told(
                Notice,
                "a cable",
                "the interface has an address, and nothing is in its port",
                Mend::ByHand("put a cable in, or take its address away"),
            ),
            ("cable-issue" | "eeprom-issue" | "module", _) => told(
                Critical,
                "a cable or module that the adapter takes",
                "the adapter does not take what is in its port",
                Mend::ByHand("look at the adapter's list of cables and modules, and replace it"),
            ),
            ("power-budget-exceeded" | "overheat", _) => told(
                Critical,
                "a module within its power and warmth",
                "the adapter has turned its module off",
                Mend::ByHand(
                    "look at the machine's cooling, and use a module that takes less power",
                ),
            ),
            _ => told(
                Notice,
                "a link",
                "the kernel has a reason that this version does not know",
                Mend::ByHand("look at the cable, and at the switch's port"),
            ),
        }
    }

    fn change(&self, nic: &Nic) -> Option<Change> {
        let fec = nic.fec.known().filter(|fec| !fec.automatic)?;
        let from = fec_words(&fec.configured);
        let chosen = || of_nic(Disruption::BouncesLink, nic, NicSetting::Fec, from, "auto");
        matches!(self.mend, Mend::Fec).then(chosen)
    }

    fn by_hand(&self, host: &Host, nic: &Nic) -> Option<String> {
        match self.mend {
            Mend::ByHand(what) => Some(what.to_owned()),
            Mend::Fec => Some(same_correction(host, nic)),
            Mend::SameWay => Some(same_way(host, nic)),
        }
    }
}

/// As [`same_way`]. What the hardware chose is told as if it were configured.
fn same_correction(host: &Host, nic: &Nic) -> String {
    let set = nic.fec.known().filter(|fec| !fec.automatic);
    match set.map(|fec| fec_words(&fec.configured)) {
        Some(words) => format!("or set the switch's port to what this end is set to: {words}"),
        None => format!(
            "see what the switch's port is set to, and set this end alike: `drover nic set {} {} fec rs`, or baser, or off",
            quoted(&host.name),
            quoted(&nic.name)
        ),
    }
}

/// The other end is a switch's port, which only people can ask.
fn same_way(host: &Host, nic: &Nic) -> String {
    let asked = "see what the switch's port is set to";
    let Some(link) = nic.link.known() else {
        return format!("{asked}, and set both ends alike");
    };
    let example = an_example(link, nic);
    if link.by_hand {
        let again = negotiate(host, nic, link);
        let else_alike = match example {
            Some(rate) if has_to_agree(nic, rate) => "have it negotiate, if it does not",
            _ => "or else the same rate as there",
        };
        return format!("{asked}: if it negotiates, {again}; {else_alike}");
    }
    match example {
        Some(rate) if !has_to_agree(nic, rate) => format!(
            "{asked}: have it negotiate, or set this end alike, by hand: `drover nic set {} {} speed {}{FORCED}` for {rate}",
            quoted(&host.name),
            quoted(&nic.name),
            word(rate)
        ),
        _ => format!("{asked}, and have it negotiate"),
    }
}

/// What has an end negotiate again. What is not told could not be taken back, so that `drover nic set` does not begin.
pub(super) fn negotiate(host: &Host, nic: &Nic, link: &Link) -> String {
    let name = quoted(&nic.name);
    if Negotiation::of(link).is_ok() {
        return format!("`drover nic set {} {name} speed auto`", quoted(&host.name));
    }
    format!(
        "`ethtool -s {name} autoneg on`, which nothing takes back: the rate that is set is not told"
    )
}

/// A port that was set by hand has mostly the rate below the best one.
fn an_example(link: &Link, nic: &Nic) -> Option<BitRate> {
    let rates = in_common(link, nic.module.known());
    let rates = rates.into_iter().rev();
    rates.filter(|rate| *rate >= LEAST_EXAMPLE).nth(1)
}
