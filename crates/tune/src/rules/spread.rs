//! How packets are spread over the queues of an adapter, and how its parts are.

use drover_types::BitRate;

use super::queues::{OF_QUEUE, carries};
use super::used::is_used;
use crate::change::quoted;
use crate::cost::of_rate;
use crate::facts::{Host, Kind, Nic, Spread};
use crate::finding::{Answer, Found, Severity, Verdict};

/// A queue with so many times the places of another one gets so many times its connections.
const SKEW: u32 = 2;

/// Every queue gets its part of the packets.
pub fn spread(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let queues = nic.channels.get()?.combined;
    if queues < 2 {
        return Ok(Answer::NotAbout);
    }
    let spread = nic.spread.get()?;
    let places = &spread.places;
    let used = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let most = places.values().max().copied().unwrap_or(0);
    let least = places.values().min().copied().unwrap_or(0);
    let is_skewed = most > least.saturating_mul(SKEW);
    if used >= queues && !is_skewed {
        return Ok(Answer::Right);
    }
    let read = if used < queues {
        format!("packets go to {used} of {queues} queues")
    } else {
        format!("one queue has {most} places in the table, and another one {least}")
    };
    Ok(Answer::Found(Found {
        severity: if used.saturating_mul(2) <= queues {
            Severity::Warning
        } else {
            Severity::Notice
        },
        read,
        expected: format!("all {queues}, alike"),
        why: "a queue is served by one processor: those that get more are full while others rest"
            .into(),
        cost: nic
            .link
            .known()
            .and_then(|link| cost(spread, queues, link.speed?)),
        change: None,
        by_hand: Some(format!("ethtool -X {} default", quoted(&nic.name))),
        lines: Vec::new(),
    }))
}

/// The queue with the most places is full first: by then all others carry what they have beside it.
fn cost(spread: &Spread, queues: u32, line: BitRate) -> Option<String> {
    let all = spread.places.values().copied().map(u64::from).sum::<u64>();
    let most = spread.places.values().max().copied().map(u64::from)?;
    let now = OF_QUEUE.0.saturating_mul(all).checked_div(most)?;
    let (now, could) = (line.min(BitRate(now)), carries(queues, line));
    of_rate(now, could).filter(|_| now < could)
}

/// No part of an adapter is broken.
pub fn health(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let broken = nic.health.get()?.iter().filter(|part| part.in_error);
    let broken: Vec<String> = broken
        .map(|part| format!("{} ({} errors)", part.name, part.errors))
        .collect();
    if broken.is_empty() {
        return Ok(Answer::Right);
    }
    let slot = nic.pci.known().map_or("SLOT", |pci| pci.slot.as_str());
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: format!("in error: {}", broken.join(", ")),
        expected: "all healthy".into(),
        why: "the driver found a fault of the adapter and could not mend it: packets may stand still, or the adapter may be reset".into(),
        cost: None,
        change: None,
        by_hand: Some(format!(
            "`devlink health show pci/{slot}` says more; keep what it dumps for the vendor, then `devlink health recover`"
        )),
        lines: Vec::new(),
    }))
}
