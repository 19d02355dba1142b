//! Cables, what is agreed on over them, and the slots behind them.

use drover_types::BitRate;

use super::{is_used, of_nic};
use crate::change::{Disruption, NicSetting, fec_words, negotiation_words};
use crate::cost::of_rate;
use crate::facts::{Duplex, Host, Kind, Link, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Carriers that come and go with a start of the host or a driver, and in a week: a switch that is updated, a cable that is moved.
const CHANGES: u64 = 10;
const CHANGES_A_WEEK: u64 = 2;
const WEEK_S: u64 = 7 * 24 * 3600;

/// One damaged packet of so many is more than a good cable has: a frame of 1500 bytes has 12,000 bits, and cables are
/// made for less than one bad bit in 10^12.
const PACKETS: u64 = 1_000_000;

/// Fewer than these say nothing.
const PACKETS_LEAST: u64 = 100;

/// From this rate on links have error correction.
const WITH_FEC: BitRate = BitRate(25_000_000_000);

/// A link has the highest rate that both of its ends have.
pub fn speed(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let link = nic.link.get()?;
    let forced = link.negotiates == Some(false);
    let Some(now) = link.speed else {
        return if forced && !nic.carrier {
            Ok(Answer::Found(forced_and_down(link)))
        } else {
            Err(Because::from("it has no carrier"))
        };
    };
    let Some(best) = best(link) else {
        return Err(Because::from(
            "its driver tells no rates that it could have",
        ));
    };
    if now >= best {
        return Ok(Answer::Right);
    }
    let offers = link.advertised.last().is_some_and(|most| *most >= best);
    let why = match (forced, offers) {
        (true, _) => "its rate is set by hand",
        (false, false) => "it does not offer more",
        (false, true) => "its end, the cable or the switch's port agreed on less",
    };
    // Of a module's other end nothing is known: it may be made for less.
    let sure = forced || !offers || !link.peer.is_empty();
    let from = negotiation_words(link).ok().filter(|_| forced);
    let change = from.map(|from| {
        of_nic(
            Disruption::BouncesLink,
            nic,
            NicSetting::Negotiation,
            from,
            "on",
        )
    });
    let by_hand = if forced {
        None
    } else if offers {
        Some(format!(
            "look at the cable, and at the rate of the switch's port: both have to do {best}"
        ))
    } else {
        Some("have it offer all of its rates: ethtool -s NIC advertise, and who sets that at its start".into())
    };
    Ok(Answer::Found(Found {
        severity: if sure {
            Severity::Critical
        } else {
            Severity::Notice
        },
        read: format!("{now}, {why}"),
        expected: format!("{best}"),
        why: "a migration takes as long as its lines let it".into(),
        cost: of_rate(now, best),
        change,
        by_hand,
    }))
}

/// The highest rate that both ends could have, as far as the other one tells.
fn best(link: &Link) -> Option<BitRate> {
    if link.peer.is_empty() {
        return link.supported.last().copied();
    }
    link.supported.intersection(&link.peer).last().copied()
}

fn forced_and_down(link: &Link) -> Found {
    let rates: Vec<String> = link.supported.iter().map(BitRate::to_string).collect();
    Found {
        severity: Severity::Critical,
        read: "no carrier, and its rate is set by hand".into(),
        expected: "a carrier".into(),
        why: "a port that is set to another rate by hand has no link with it at all".into(),
        cost: None,
        change: None,
        by_hand: Some(format!(
            "ethtool -s NIC autoneg on, or set it to what the switch's port is set to; it can have {}",
            rates.join(", ")
        )),
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
            change: None,
            by_hand: Some("have both ends negotiate, this one and the switch's port".into()),
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
    let configured = fec_words(&fec.configured);
    Ok(Answer::Found(Found {
        severity: Severity::Critical,
        read: format!("no carrier, and its error correction is set by hand: {configured}"),
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
    }))
}

/// A carrier stays.
pub fn flaps(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let changes = *nic.carrier_changes.get()?;
    let weeks = *host.uptime_s.get()? / WEEK_S;
    let most = CHANGES + CHANGES_A_WEEK * weeks;
    if changes <= most {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("its carrier came or went {changes} times"),
        expected: format!("{most} times at most since the host was started"),
        why: "each time lanes are lost, and what they had on their way crosses again".into(),
        cost: None,
        change: None,
        by_hand: Some("replace the cable or its modules; ask the switch for its side".into()),
    }))
}

/// Next to no packet is damaged or dropped.
pub fn errors(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let counters = nic.counters.get()?;
    let (damaged, missed) = (counters.receive_errors, counters.receive_missed);
    let bad = damaged.saturating_add(missed);
    if bad < PACKETS_LEAST || bad.saturating_mul(PACKETS) <= counters.received {
        return Ok(Answer::Right);
    }
    let by_hand = if damaged > 0 {
        "replace the cable or its modules"
    } else {
        "more places in its ring, more queues, or fewer guests on the processors that serve it"
    };
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!(
            "of {} packets {damaged} arrived damaged, and {missed} were dropped",
            counters.received
        ),
        expected: "fewer than one in a million".into(),
        why: "TCP takes each for a line that is full, and sends more slowly".into(),
        cost: None,
        change: None,
        by_hand: Some(by_hand.into()),
    }))
}

/// An adapter's slot carries more than its link.
pub fn slot(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let pci = nic.pci.get()?;
    let rate = nic.link.get()?.speed;
    let (Some(rate), Some(width), Some(speed)) = (rate, pci.width, pci.speed) else {
        return Err(Because::from("its slot or its link tells no rate"));
    };
    let now = carries(width, speed);
    if now >= rate {
        return Ok(Answer::Right);
    }
    let could = carries(width, pci.speed_most.unwrap_or(speed));
    // Slots without work rest at a lower rate; their width stays.
    let rests = could >= rate;
    Ok(Answer::Found(Found {
        severity: if rests {
            Severity::Notice
        } else {
            Severity::Critical
        },
        read: format!(
            "{width} lanes of {:.1} GT/s carry some {now}",
            f64::from(speed) / 1000.0
        ),
        expected: format!("{rate}, as its link"),
        why: if rests {
            "it may rest, for want of work: look again while it carries".into()
        } else {
            "the link carries no more than its slot".into()
        },
        cost: of_rate(now, rate),
        change: None,
        by_hand: Some(format!(
            "the adapter in {} could have {} lanes of {:.1} GT/s: look at the slot, and at its setting in \
             the machine's setup",
            pci.slot,
            pci.width_most.unwrap_or(width),
            f64::from(pci.speed_most.unwrap_or(speed)) / 1000.0
        )),
    }))
}

/// What is left for packets of so many lanes, at so many millions of transfers a second: up to 5 GT/s 8 of 10 bits by their code, then 128
/// of 130; and of these some 90 % beside headers.
fn carries(width: u32, speed: u32) -> BitRate {
    let code = if speed > 5000 { 128.0 / 130.0 } else { 0.8 };
    BitRate((f64::from(width) * f64::from(speed) * 1e6 * code * 0.9) as u64)
}
