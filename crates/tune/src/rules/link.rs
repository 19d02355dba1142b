//! Cables, and what is agreed on over them.

use drover_types::BitRate;

use super::media::negotiate;
use super::of_nic;
use super::used::is_used;
use crate::change::{Change, Disruption, NicSetting, fec_words, quoted};
use crate::cost::of_rate;
use crate::facts::{Duplex, Host, Link, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::negotiation::Negotiation;
use crate::rates::{in_common, listed};

/// From this rate on links have error correction.
const WITH_FEC: BitRate = BitRate(25_000_000_000);

/// A link has the highest rate that both of its ends have, and what is between them.
pub fn speed(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let link = nic.link.get()?;
    let forced = link.by_hand;
    let Some(now) = link.speed.filter(|_| nic.carrier) else {
        return if forced && !nic.carrier {
            Ok(Answer::Found(forced_and_down(host, nic, link)))
        } else {
            Err(Because::from("it has no carrier"))
        };
    };
    let Some(best) = in_common(link, nic.module.known()).last().copied() else {
        return Err(Because::from(
            "its driver tells no rates that it could have",
        ));
    };
    if now >= best {
        return Ok(Answer::Right);
    }
    let offers = link.advertised.last().is_some_and(|most| *most >= best);
    let is_given = link.negotiates.is_none();
    let why = match (forced, offers) {
        _ if is_given => "nothing is negotiated",
        (true, _) => "its rate was set by hand",
        (false, false) => "it does not offer more",
        (false, true) => "its end, the cable or the switch's port agreed on less",
    };
    // Of an end that tells nothing nobody knows what it is made for; what this one has by hand is at least worth a look.
    let severity = match (link.peer.is_empty(), (forced || !offers) && !is_given) {
        (false, _) => Severity::Critical,
        (true, true) => Severity::Warning,
        (true, false) => Severity::Notice,
    };
    let change = not_by_hand(nic, link);
    let by_hand = if is_given {
        Some(format!(
            "see what this end and the switch's port are set to, if they can do {best}; a virtual machine's adapter has what its host gives it"
        ))
    } else if forced {
        None
    } else if offers {
        Some(format!(
            "look at the cable, and at the rate of the switch's port: both have to do {best}"
        ))
    } else {
        Some(format!(
            "have it offer all of its rates: `drover nic set {} {} speed auto`; and see who sets that at its start",
            quoted(&host.name),
            quoted(&nic.name)
        ))
    };
    Ok(Answer::Found(Found {
        severity,
        read: format!("{now}, {why}"),
        expected: format!("{best}"),
        why: "a migration takes as long as its lines let it".into(),
        cost: of_rate(now, best),
        change,
        by_hand,
        lines: Vec::new(),
    }))
}

/// Has an end that was set by hand negotiate again, where what is set is told, so that it can be taken back.
fn not_by_hand(nic: &Nic, link: &Link) -> Option<Change> {
    let from = Negotiation::of(link).ok().filter(|_| link.by_hand)?;
    Some(of_nic(
        Disruption::BouncesLink,
        nic,
        NicSetting::Negotiation,
        from.to_string(),
        Negotiation::All.to_string(),
    ))
}

/// A port without a cable looks the same.
fn forced_and_down(host: &Host, nic: &Nic, link: &Link) -> Found {
    Found {
        severity: Severity::Notice,
        read: "no carrier, and its rate was set by hand (Autoneg is not advertised)".into(),
        expected: "a carrier, or a rate that is negotiated".into(),
        why: "a port of another rate stays down until both are set alike".into(),
        cost: None,
        change: None,
        by_hand: Some(format!(
            "if it has a cable: {}; or set it to what the switch's port is set to; it can have {}",
            negotiate(host, nic, link),
            listed(&link.supported)
        )),
        lines: Vec::new(),
    }
}

/// A link carries both ways at once.
pub fn duplex(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let link = nic.link.get()?;
    // Adapters that know no rates do not know this either, and say half.
    let duplex = link
        .duplex
        .filter(|_| nic.carrier && !link.supported.is_empty());
    match duplex {
        None => Err(Because::from("its driver does not tell")),
        Some(Duplex::Full) => Ok(Answer::Right),
        Some(Duplex::Half) => Ok(Answer::Found(Found {
            severity: Severity::Critical,
            read: "half duplex".into(),
            expected: "full duplex".into(),
            why:
                "what is sent collides with what arrives; one end negotiates and the other does not"
                    .into(),
            cost: None,
            change: not_by_hand(nic, link),
            by_hand: Some("have both ends negotiate, this one and the switch's port".into()),
            lines: Vec::new(),
        })),
    }
}

/// A link that is down is not so for its error correction.
pub fn fec(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let link = nic.link.get()?;
    if link.supported.last().is_none_or(|most| *most < WITH_FEC) {
        return Ok(Answer::NotAbout);
    }
    let fec = nic.fec.get()?;
    if nic.carrier || fec.automatic {
        return Ok(Answer::Right);
    }
    // Drivers tell what the hardware chose as if it were configured: only beside a rate by hand it surely is.
    if !link.by_hand {
        return Err(Because::from(
            "it has no carrier, and nothing tells that somebody set its error correction",
        ));
    }
    let configured = fec_words(&fec.configured);
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "no carrier, and its rate and error correction were set by hand: {configured}"
        ),
        expected: "chosen by the hardware".into(),
        why: "at 25 Gbit/s and more both ends need the same one, or there is no link".into(),
        cost: None,
        change: Some(of_nic(
            Disruption::BouncesLink,
            nic,
            NicSetting::Fec,
            configured,
            "auto",
        )),
        by_hand: None,
        lines: Vec::new(),
    }))
}
