//! Settings of TCP.

use drover_types::{BitRate, Bytes};

use super::LANES;
use super::used::{is_in_use, is_used, rate};
use crate::change::{Change, Disruption, Step};
use crate::cost::of_window;
use crate::facts::Host;
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Longest round trip that a line is to be filled over, in ms: hosts of one cluster, and queues in their switches.
const ROUND_TRIP_MS: u64 = 1;

/// The largest window without scaling: 16 bits (RFC 7323, 2).
const UNSCALED: Bytes = Bytes(65_535);

/// The kernel's own largest buffer, below which nobody goes without meaning it.
const USUAL: Bytes = Bytes(4 << 20);

/// Connections may have what their line holds in flight.
pub fn buffers(host: &Host) -> Verdict {
    let (line, path) = fastest(host)?;
    let wanted = wanted(line);
    let mut steps = Vec::new();
    let mut read = Vec::new();
    let mut severity = Severity::Notice;
    let mut smallest = u64::MAX;
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let value = host.setting(name)?;
        let numbers: Vec<u64> = value
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [least, usual, most] = numbers[..] else {
            return Err(Because(format!("{name} is {value:?}, not three numbers")));
        };
        let (one, all) = (carries(most, 1), carries(most, LANES));
        if one >= line {
            continue;
        }
        smallest = smallest.min(most);
        if all < path {
            severity = Severity::Warning;
        }
        read.push(format!(
            "{name} up to {}: {one} a connection, {all} for {LANES}",
            Bytes(most)
        ));
        let to = format!("{least} {usual} {}", wanted.0);
        steps.push(Step::setting(name, value, to));
    }
    if steps.is_empty() {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity,
        read: read.join(", "),
        expected: format!("{wanted}: {line} for {ROUND_TRIP_MS} ms, twice"),
        why: if severity == Severity::Warning {
            "a connection cannot have more on its way than its buffers hold, and all of a path's do not fill it"
        } else {
            "where a round trip takes so long, a path is filled by several connections, and not by one"
        }
        .into(),
        cost: of_window(Bytes(smallest / 2), Some(line)),
        change: Some(Change {
            disruption: Disruption::Safe,
            steps,
        }),
        by_hand: None,
        lines: Vec::new(),
    }))
}

/// The rates of the fastest line, which one connection is to fill, and of the fastest path, which all of its connections are to.
pub(super) fn fastest(host: &Host) -> Result<(BitRate, BitRate), Because> {
    let lines = host.nics.iter().filter(|nic| is_used(host, nic));
    let lines = lines.filter_map(|nic| nic.link.known()?.speed);
    let line = lines.max().ok_or("no interface in use tells its rate")?;
    let paths = host.nics.iter().filter(|nic| nic.is_addressed());
    let paths = paths.filter(|nic| is_in_use(host, nic));
    let path = paths.filter_map(|nic| rate(host, nic).ok()).max();
    Ok((line, path.unwrap_or(line)))
}

/// What so many connections carry with that buffer, over the longest round trip: half of it is for the kernel's own needs.
fn carries(buffer: u64, connections: u32) -> BitRate {
    let in_flight = u128::from(buffer) / 2 * u128::from(connections);
    let bits = in_flight * 8 * 1000 / u128::from(ROUND_TRIP_MS);
    BitRate(u64::try_from(bits).unwrap_or(u64::MAX))
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
    on(host, "net.ipv4.tcp_timestamps", Severity::Notice, why, None)
}

/// Windows may be larger than 64 KiB.
pub fn window(host: &Host) -> Verdict {
    let why = "a connection has 64 KiB on its way at most";
    let line = fastest(host).ok().map(|(line, _)| line);
    let cost = of_window(UNSCALED, line);
    let name = "net.ipv4.tcp_window_scaling";
    on(host, name, Severity::Critical, why, cost)
}

/// Algorithms that send less where others send as well: what is left of a line is theirs (tcp_lp.c, tcp_vegas.c, tcp_nv.c).
const YIELD: [&str; 3] = ["lp", "nv", "vegas"];

/// The kernel's own.
const CUBIC: &str = "cubic";

/// Connections take their part of a line.
pub fn congestion(host: &Host) -> Verdict {
    let name = "net.ipv4.tcp_congestion_control";
    let value = host.setting(name)?;
    if !YIELD.contains(&value) {
        return Ok(Answer::Right);
    }
    let all = host.setting("net.ipv4.tcp_available_congestion_control")?;
    let is_there = all.split_ascii_whitespace().any(|one| one == CUBIC);
    let disruption = Disruption::Safe;
    let steps = vec![Step::setting(name, value, CUBIC)];
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!("{name} is {value}"),
        expected: format!("{CUBIC}, or bbr"),
        why: "it sends less as soon as others send: beside them a migration gets what is left of a line".into(),
        cost: None,
        change: is_there.then_some(Change { disruption, steps }),
        by_hand: (!is_there).then(|| format!("modprobe tcp_{CUBIC}, then sysctl -w {name}={CUBIC}")),
        lines: Vec::new(),
    }))
}

/// A setting that is not to be 0.
fn on(host: &Host, name: &str, severity: Severity, why: &str, cost: Option<String>) -> Verdict {
    let value = host.setting(name)?;
    if value != "0" {
        return Ok(Answer::Right);
    }
    Ok(Answer::Found(Found {
        severity,
        read: format!("{name} is 0"),
        expected: "1".into(),
        why: why.to_owned(),
        cost,
        change: Some(Change {
            disruption: Disruption::Safe,
            steps: vec![Step::setting(name, value, "1")],
        }),
        by_hand: None,
        lines: Vec::new(),
    }))
}
