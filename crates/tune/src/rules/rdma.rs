//! RDMA devices. Drover does not use them yet: all are notices, for those that will and for others on the same lines.

use std::collections::BTreeMap;

use drover_types::Bytes;

use super::used::is_used;
use crate::cost::of_pieces;
use crate::facts::{Host, Nic, Rdma};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// What the kernel keeps of a packet for RDMA's headers (`iboe_get_mtu`): 40 for IPv6, 8 for UDP, 12, 4 and 28 of RDMA's own, the last for
/// what is atomic, and 4 for a checksum.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// The largest piece that RDMA sends at once, in bytes.
const LARGEST: u32 = 4096;

/// Fewer than these in a day say nothing.
const LOST_A_DAY: u64 = 100;
const DAY_S: u64 = 24 * 3600;

/// Less than that waits says nothing.
const WAITED_LEAST: u64 = 1 << 30;

/// Bytes that are sent for each that could have been, at the least.
const SENT_FOR_EACH: u64 = 10;

/// Where a counter ends: it has 32 bits, and stays there (PortXmitWait).
const WAITED_MOST: u64 = u32::MAX as u64;

/// The same of what is sent, in words of four bytes (PortXmitData), where an adapter has no larger ones.
const SENT_MOST: u64 = 4 * u32::MAX as u64;

fn of<'n>(host: &Host, nic: &'n Nic) -> Result<Option<&'n Rdma>, Because> {
    match nic.rdma.as_ref().filter(|_| is_used(host, nic)) {
        Some(rdma) => Ok(Some(rdma.get()?)),
        None => Ok(None),
    }
}

fn found(read: String, expected: &str, why: &str, by_hand: String) -> Verdict {
    Ok(Answer::Found(notice(read, expected, why, by_hand)))
}

fn notice(read: String, expected: &str, why: &str, by_hand: String) -> Found {
    Found {
        severity: Severity::Notice,
        read,
        expected: expected.to_owned(),
        why: why.to_owned(),
        cost: None,
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }
}

/// A device works where its interface has a link.
pub fn port(host: &Host, nic: &Nic) -> Verdict {
    let Some(rdma) = of(host, nic)?.filter(|_| nic.carrier) else {
        return Ok(Answer::NotAbout);
    };
    if rdma.state == "ACTIVE" && rdma.physical == "LinkUp" {
        return lanes(rdma);
    }
    found(
        format!("{} is {}, {}", rdma.device, rdma.state, rdma.physical),
        "ACTIVE, LinkUp: its interface has a link",
        "RDMA does not work over it, and programs fall back to TCP or fail",
        format!(
            "rdma link show {}/{}, and dmesg for its driver",
            rdma.device, rdma.port
        ),
    )
}

/// A link of InfiniBand has all lanes of its cable: two or four. One is what is left of them where a lane does not work.
fn lanes(rdma: &Rdma) -> Verdict {
    if rdma.layer != "InfiniBand" || rdma.lanes != Some(1) {
        return Ok(Answer::Right);
    }
    let rate = rdma.rate.as_deref().unwrap_or("a link of 1X");
    found(
        format!("{} has one lane: {rate}", rdma.device),
        "4 lanes, or 2 of a cable that is split",
        "a link of which a lane does not work goes on by one of them: all takes two or four times as long",
        "unplug the cable at both ends, clean it, plug it in again; replace it if that does not help".into(),
    )
}

/// Addresses are of the kind that every network carries.
pub fn kinds(host: &Host, nic: &Nic) -> Verdict {
    let Some(rdma) = of(host, nic)?.filter(|rdma| rdma.layer == "Ethernet") else {
        return Ok(Answer::NotAbout);
    };
    // Those of iWARP have none.
    if !rdma.kinds.keys().any(|kind| kind.contains("RoCE")) {
        return if rdma.kinds.is_empty() {
            Err(Because::from("it tells no address on this interface"))
        } else {
            Ok(Answer::NotAbout)
        };
    }
    if rdma.kinds.contains_key("RoCE v2") {
        return Ok(Answer::Right);
    }
    found(
        format!("addresses of {} only", listed(&rdma.kinds)),
        "RoCE v2",
        "routers do not carry RoCE v1, switches do not spread it, and an end with v2 does not hear it",
        format!(
            "see whether the adapter's firmware has RoCE v2 turned on; {} has no address of that kind",
            rdma.device
        ),
    )
}

fn listed(kinds: &BTreeMap<String, u32>) -> String {
    let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
    names.join(", ")
}

/// Its pieces are as large as they can be.
pub fn pieces(host: &Host, nic: &Nic) -> Verdict {
    let Some(rdma) = of(host, nic)?.filter(|rdma| rdma.layer == "Ethernet") else {
        return Ok(Answer::NotAbout);
    };
    if nic.mtu >= LARGEST + HEADERS {
        return Ok(Answer::Right);
    }
    let fits = [2048, 1024, 512, 256]
        .into_iter()
        .find(|piece| nic.mtu >= piece + HEADERS)
        .unwrap_or(0);
    let read = format!(
        "packets of {} bytes: {} sends {fits} at a time",
        nic.mtu, rdma.device
    );
    Ok(Answer::Found(Found {
        cost: of_pieces(fits, LARGEST),
        ..notice(
            read,
            &format!("{LARGEST} bytes, in packets of {}", LARGEST + HEADERS),
            "each piece has headers of its own, and adapters manage so many packets a second and not more",
            "packets of 9000 bytes, if the whole network carries them".into(),
        )
    }))
}

/// Next to nothing is lost or late.
pub fn lost(host: &Host, nic: &Nic) -> Verdict {
    let Some(rdma) = of(host, nic)? else {
        return Ok(Answer::NotAbout);
    };
    if rdma.lost.is_empty() {
        return Err(Because::from("it does not count"));
    }
    let days = host.uptime_s.get()? / DAY_S;
    let sum = rdma
        .lost
        .values()
        .fold(0_u64, |sum, n| sum.saturating_add(*n));
    if sum < LOST_A_DAY * days.max(1) {
        return Ok(Answer::Right);
    }
    let counts = rdma.lost.iter().filter(|(_, count)| **count > 0);
    let counts: Vec<String> = counts
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    found(
        format!("{}, since the driver was started", counts.join(", ")),
        "fewer than 100 a day",
        "all that was behind a lost packet is sent again",
        "look whether it becomes more: if so, at PFC here and at the switch (`dcb-lossless`, `dcb-peer`), and at the cable".into(),
    )
}

/// A port of InfiniBand is not kept waiting.
pub fn waits(host: &Host, nic: &Nic) -> Verdict {
    let Some(rdma) = of(host, nic)?.filter(|rdma| rdma.layer == "InfiniBand") else {
        return Ok(Answer::NotAbout);
    };
    let waited = rdma.waited.ok_or("it does not count what it waits for")?;
    let sent = rdma.sent.ok_or("it does not count what it sends")?;
    let lanes = rdma
        .lanes
        .ok_or("it does not tell how many lanes its link has")?;
    // A tick is the time of one byte on each lane, or of up to 256.
    let missed = waited.saturating_mul(lanes.into());
    if missed < WAITED_LEAST || missed <= sent / SENT_FOR_EACH {
        return match waited >= WAITED_MOST {
            true => Err(Because::from(
                "its counter of what it waits for stands at its end, and counts no more",
            )),
            false => Ok(Answer::Right),
        };
    }
    if sent == SENT_MOST {
        return Err(Because::from(
            "its counter of what it sends stands at its end, and counts no more",
        ));
    }
    found(
        format!(
            "{waited} ticks in which it had something to send and could not: time for {} at least, and {} were sent",
            Bytes(missed),
            Bytes(sent)
        ),
        "less than a tenth of what is sent",
        "the other end gives it no credits, or others have their turn: all that shares its line waits as well",
        "look whether it becomes more (`--since` tells, of a host that was not restarted): if so, look for what cannot keep up, a slower port or a full one at \
         the switch, or a host that takes its packets too slowly"
            .into(),
    )
}
