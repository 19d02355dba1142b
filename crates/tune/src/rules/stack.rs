//! Settings of TCP.

use drover_types::{BitRate, Bytes};

use super::is_used;
use crate::change::{Change, Disruption, Step};
use crate::facts::Host;
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Longest round trip that one lane is to fill a line over, in ms: hosts of one cluster, and queues in their switches.
const ROUND_TRIP_MS: u64 = 1;

/// The kernel's own largest buffer, below which nobody goes without meaning it.
const USUAL: Bytes = Bytes(4 << 20);

/// A connection may have what its line holds in flight.
pub fn buffers(host: &Host) -> Verdict {
    let used = host.nics.iter().filter(|nic| is_used(host, nic));
    let rates = used.filter_map(|nic| nic.link.known()?.speed);
    let rate = rates.max().ok_or("no interface in use tells its rate")?;
    let wanted = wanted(rate);
    let mut steps = Vec::new();
    let mut read = Vec::new();
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let value = host.setting(name)?;
        let numbers: Vec<u64> = value
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [least, usual, most] = numbers[..] else {
            return Err(Because(format!("{name} is {value:?}, not three numbers")));
        };
        if most < wanted.0 {
            read.push(format!("{name} up to {}", Bytes(most)));
            let to = format!("{least} {usual} {}", wanted.0);
            steps.push(Step::setting(name, value, to));
        }
    }
    if steps.is_empty() {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity: Severity::Warning,
        read: read.join(", "),
        expected: format!("{wanted}: {rate} for {ROUND_TRIP_MS} ms, twice"),
        why: "a connection cannot have more on its way than its buffers hold".into(),
        cost: None,
        change: Some(Change {
            disruption: Disruption::Safe,
            steps,
        }),
        by_hand: None,
    }))
}

/// Twice what the line holds, as the kernel counts its own needs in the buffer, in whole MiB.
fn wanted(rate: BitRate) -> Bytes {
    let in_flight = rate.0 / 8 * ROUND_TRIP_MS / 1000;
    let mib = (2 * in_flight).div_ceil(1 << 20);
    Bytes((mib << 20).max(USUAL.0))
}

/// Round trips are measured, and old packets known.
pub fn timestamps(host: &Host) -> Verdict {
    let why = "lines of 10 Gbit/s and more use up TCP's numbers within seconds: without stamps old packets pass for new ones";
    on(host, "net.ipv4.tcp_timestamps", Severity::Notice, why)
}

/// Windows may be larger than 64 KiB.
pub fn window(host: &Host) -> Verdict {
    let why = "a connection has 64 KiB on its way at most, so that a round trip of 1 ms leaves 0.5 Gbit/s";
    on(host, "net.ipv4.tcp_window_scaling", Severity::Critical, why)
}

/// A setting that is not to be 0.
fn on(host: &Host, name: &str, severity: Severity, why: &str) -> Verdict {
    let value = host.setting(name)?;
    if value != "0" {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity,
        read: format!("{name} is 0"),
        expected: "1".into(),
        why: why.to_owned(),
        cost: None,
        change: Some(Change {
            disruption: Disruption::Safe,
            steps: vec![Step::setting(name, value, "1")],
        }),
        by_hand: None,
    }))
}
