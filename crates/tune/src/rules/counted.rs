//! What was counted since the host was started. One reading does not tell when: what was mended since is still in it.

use super::used::is_used;
use crate::cost::of_loss;
use crate::facts::{Host, Nic};
use crate::finding::{Answer, Found, Severity, Verdict};

const DAY_S: u64 = 24 * 3600;

/// Carriers that come and go with a start of the host or a driver, and in a day: a switch that is updated, a cable that is moved.
const CHANGES: u64 = 10;
const CHANGES_A_DAY: u64 = 1;

/// One damaged packet of so many is more than a good cable has: a frame of 1500 bytes has 12,000 bits, and cables are
/// made for less than one bad bit in 10^12.
const PACKETS: u64 = 1_000_000;

/// Fewer than these in a day say nothing.
const PACKETS_A_DAY: u64 = 100;

/// Whole days since the host's start.
pub(super) fn days(host: &Host) -> Result<u64, &str> {
    Ok(host.uptime_s.get()? / DAY_S)
}

/// Whether so many of all packets are more than chance has in so many days.
pub(super) fn too_many(bad: u64, all: u64, days: u64) -> bool {
    bad >= PACKETS_A_DAY * days.max(1) && bad.saturating_mul(PACKETS) > all
}

/// A carrier stays.
pub fn flaps(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let changes = *nic.carrier_changes.get()?;
    let days = days(host)?;
    let most = CHANGES + CHANGES_A_DAY * days;
    if changes <= most {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("its carrier came or went {changes} times, {}", since(days)),
        expected: format!("{most} times at most"),
        why: "each time lanes are lost, and what they had on their way crosses again".into(),
        cost: None,
        change: None,
        by_hand: Some(
            "look whether it becomes more: if so, replace the cable or its modules, and ask the switch for its side"
                .into(),
        ),
        lines: Vec::new(),
    }))
}

/// Next to no packet is damaged or dropped, arriving or leaving, nor any part of one beyond correction.
pub fn errors(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let counters = nic.counters.get()?;
    let days = days(host)?;
    let (damaged, missed) = (counters.receive_errors, counters.receive_missed);
    let bad = damaged.saturating_add(missed);
    let mut read = Vec::new();
    let are_many = too_many(bad, counters.received, days);
    if are_many {
        read.push(format!(
            "of {} packets {damaged} arrived damaged, and {missed} were dropped",
            counters.received
        ));
    }
    // They are on the wire where no packet is, too, and may have parts of several: what was lost, they do not tell.
    let blocks = nic.fec.known().and_then(|fec| fec.uncorrected);
    let blocks = blocks.filter(|blocks| too_many(*blocks, counters.received, days));
    read.extend(blocks.map(|blocks| {
        format!("{blocks} blocks arrived with more errors than their correction (FEC) mends")
    }));
    let arrive = !read.is_empty();
    let (sent, not_sent) = (
        counters.sent.unwrap_or(0),
        counters.send_errors.unwrap_or(0),
    );
    if too_many(not_sent, sent, days) {
        read.push(format!("of {sent} to be sent {not_sent} did not leave"));
    }
    if read.is_empty() {
        return Ok(Answer::Right);
    }
    // Where both are bad, what arrives is looked at first: its cable is the other direction's, too.
    let mend = match arrive {
        true if damaged > 0 || blocks.is_some() => "replace the cable or its modules",
        true => {
            "more places in its ring, more queues, or fewer guests on the processors that serve it"
        }
        false => {
            "see which errors its driver tells (ethtool -S), and replace the cable or its modules"
        }
    };
    let (lost, of) = match arrive {
        true if are_many => (bad, counters.received),
        true => (0, 0),
        false => (not_sent, sent),
    };
    let line = nic.link.known().and_then(|link| link.speed);
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("{}, {}", read.join("; "), since(days)),
        expected: format!("fewer than one in a million, or than {PACKETS_A_DAY} a day"),
        why: "TCP takes each packet that is lost for a line that is full, and sends more slowly"
            .into(),
        cost: of_loss(nic.mtu, lost, of.saturating_add(lost), line),
        change: None,
        by_hand: Some(format!(
            "look whether it becomes more (`--since` tells, of a host that was not restarted): if so, {mend}"
        )),
        lines: Vec::new(),
    }))
}

fn since(days: u64) -> String {
    match days {
        0 => "since the host was started less than a day ago".to_owned(),
        1 => "since the host was started a day ago".to_owned(),
        _ => format!("since the host was started {days} days ago"),
    }
}
