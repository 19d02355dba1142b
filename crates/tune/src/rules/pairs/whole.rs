//! Two hosts as a whole.

use std::collections::BTreeSet;

use super::{Ends, OfTwo, found};
use crate::facts::{Host, Offer, Offers};
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::rules::guests::{listed, newest};

/// How far two clocks may be from each other, in milliseconds: NTP keeps them within some, and nothing that people read has less than a
/// second.
const APART: u64 = 1000;

/// From here on it is more than a clock that runs a little fast: certificates and what waits for a time are concerned as well.
const FAR_APART: u64 = 60_000;

/// Both hosts have the same QEMU.
pub fn qemu(host: &Host, other: &Host) -> OfTwo {
    vec![(Ends::default(), versions(host, other))]
}

fn versions(host: &Host, other: &Host) -> Verdict {
    let version = |host: &Host| -> Result<String, Because> {
        let version = host.offers.get()?.version.clone();
        version.ok_or_else(|| {
            Because(format!(
                "the agent of {} does not tell of its QEMU",
                host.name
            ))
        })
    };
    let (own, there) = (version(host)?, version(other)?);
    if own == there {
        return Ok(Answer::Right);
    }
    let (older, newer) = if numbers(&own) < numbers(&there) {
        (host, other)
    } else {
        (other, host)
    };
    Ok(Answer::Found(found(
        Severity::Warning,
        format!("QEMU {own}, and {there} of {}", other.name),
        "a guest moves to an older QEMU only where its policy allows that, and not at all with a machine type that it does not know",
        format!(
            "bring {} to what {} has, once its guests are elsewhere",
            older.name, newer.name
        ),
    )))
}

/// Both hosts have the same processor.
pub fn cpu(host: &Host, other: &Host) -> OfTwo {
    vec![(Ends::default(), processors(host, other))]
}

fn processors(host: &Host, other: &Host) -> Verdict {
    let (own, there) = (host.offers.get()?, other.offers.get()?);
    // Where all is emulated processors are what QEMU makes them.
    if own.hardware.is_none() && there.hardware.is_none() {
        return Ok(Answer::NotAbout);
    }
    let offers = [of_hardware(host, own)?, of_hardware(other, there)?];
    let mut all_lack = [lacks(offers[0], offers[1]), lacks(offers[1], offers[0])];
    let is_one = own.processor == there.processor;
    if is_one && all_lack.iter().all(BTreeSet::is_empty) {
        return Ok(Answer::Right);
    }
    // The older one lacks whatever it has no name for.
    let is_comparable = own.version == there.version;
    if !is_comparable {
        if is_one {
            return Err("their QEMUs are of other versions, and know other features of it".into());
        }
        all_lack = [BTreeSet::new(), BTreeSet::new()];
    }
    let [own_lacks, lacks_there] = all_lack;
    let mut read = vec![match is_one {
        true => format!("{} at both", own.processor),
        false => format!(
            "{}, and {} of {}",
            own.processor, there.processor, other.name
        ),
    }];
    let ends = [(host, &own_lacks), (other, &lacks_there)].into_iter();
    let lacking = ends.filter(|(_, lacks)| !lacks.is_empty());
    read.extend(
        lacking
            .map(|(host, lacks)| format!("{} lacks {}", host.name, listed(lacks.iter().copied()))),
    );
    if !is_comparable {
        read.push("what either lacks is not told, as their QEMUs are of other versions".to_owned());
    }
    let why = match (own_lacks.is_empty(), lacks_there.is_empty()) {
        (true, true) => "guests with all that their processor has (host-passthrough) find another one after a move".to_owned(),
        (false, false) => "guests with all that their processor has (host-passthrough) move neither way".to_owned(),
        (true, false) => one_way(other, host),
        (false, true) => one_way(host, other),
    };
    let by_hand = match newest(&offers) {
        Some(model) => format!("give guests that are to move both ways a model that both have: {model} is the newest for servers"),
        None => "give guests that are to move both ways a model that both have; there is none of those for servers".to_owned(),
    };
    Ok(Answer::Found(found(
        Severity::Notice,
        read.join("; "),
        &why,
        by_hand,
    )))
}

fn one_way(from: &Host, to: &Host) -> String {
    format!(
        "guests with all that their processor has (host-passthrough) move one way only, from {} to {}",
        from.name, to.name
    )
}

fn of_hardware<'h>(host: &Host, offers: &'h Offers) -> Result<&'h Offer, Because> {
    let offer = offers.hardware.as_ref();
    offer.ok_or_else(|| {
        Because(format!(
            "no QEMU of {} has guests run by its processors",
            host.name
        ))
    })
}

/// What the first one has not, of what the second one has.
fn lacks<'o>(offer: &Offer, other: &'o Offer) -> BTreeSet<&'o str> {
    let all = other.features.iter().map(String::as_str);
    all.filter(|name| !offer.features.contains(*name)).collect()
}

/// Of a version, to be compared.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// The clocks of both hosts tell the same time.
pub fn clock(host: &Host, other: &Host) -> OfTwo {
    vec![(Ends::default(), clocks(host, other))]
}

fn clocks(host: &Host, other: &Host) -> Verdict {
    let (own, there) = (host.clock.get()?, other.clock.get()?);
    let apart = own.ahead_ms.abs_diff(there.ahead_ms);
    let doubt = own.doubt_ms.saturating_add(there.doubt_ms);
    if apart.saturating_add(doubt) <= APART {
        return Ok(Answer::Right);
    }
    let surely = apart.saturating_sub(doubt);
    if surely <= APART {
        return Err(Because(format!(
            "their answers took so long that clocks which seem {apart} ms apart may be {doubt} ms more or less"
        )));
    }
    let ahead = if own.ahead_ms > there.ahead_ms {
        host
    } else {
        other
    };
    Ok(Answer::Found(Found {
        expected: format!("{APART} ms at most"),
        cost: Some(format!("downtimes are told wrong by up to {apart} ms")),
        ..found(
            if surely > FAR_APART {
                Severity::Warning
            } else {
                Severity::Notice
            },
            format!("the clock of {} is {apart} ms ahead, give or take {doubt}", ahead.name),
            "downtime is told by the clocks of both hosts, what their histories and logs say does not fit together, and certificates count by them",
            "have chrony or systemd-timesyncd keep the clocks of both: `timedatectl` tells whether one does".into(),
        )
    }))
}
