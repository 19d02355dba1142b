//! Packets between an adapter's interrupt and who takes them (`net.core`).
//!
//! What is counted of them has 32 bits for each processor, and is of packets that were joined: it is held against what interfaces count.

use drover_types::BitRate;

use super::counted::{days, too_many};
use super::stack::fastest;
use super::used::is_used;
use crate::change::{Change, Disruption, Step};
use crate::cost::{PACKET_BITS, of_loss};
use crate::facts::{Counters, Host};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// What whose ends are guests' and containers' have for packets: seldom larger ones.
const PACKET: u32 = 1500;

/// Packets that a processor takes in one turn, and for how long, in microseconds: twice what the kernel has of itself at 1000 Hz, as Red
/// Hat's guide to network tuning says for processors that run out of either.
const BUDGET: [(&str, u64); 2] = [
    ("net.core.netdev_budget", 600),
    ("net.core.netdev_budget_usecs", 4000),
];

/// What the interfaces that are used have received, and what adapters dropped for want of a place.
fn received(host: &Host) -> Result<(u64, u64), Because> {
    let used = host.nics.iter().filter(|nic| is_used(host, nic));
    let known: Vec<&Counters> = used.filter_map(|nic| nic.counters.known()).collect();
    if known.is_empty() {
        return Err("no interface in use tells what it received".into());
    }
    let sum = |of: fn(&Counters) -> u64| {
        let all = known.iter().map(|counters| of(counters));
        all.fold(0, u64::saturating_add)
    };
    Ok((sum(|it| it.received), sum(|it| it.receive_missed)))
}

/// Packets that are handed on find a place.
pub fn backlog(host: &Host) -> Verdict {
    let (softnet, days) = (host.softnet.get()?, days(host)?);
    let (all, _) = received(host)?;
    if !too_many(softnet.dropped, all, days) {
        return Ok(Answer::Right);
    }
    let name = "net.core.netdev_max_backlog";
    let (line, _) = fastest(host)?;
    let (now, wanted) = (number(host, name)?, places(line));
    // A few more places mend nothing.
    let helps = wanted / 2 >= now;
    let steps = vec![Step::setting(name, &now.to_string(), wanted.to_string())];
    let disruption = Disruption::Safe;
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "{} packets found no place in a processor's queue of {now}, since the host was started; {all} were received",
            softnet.dropped
        ),
        expected: format!("{wanted} places: what {line} bring in 1 ms"),
        why: "packets that are handed to another processor, or to a guest's or container's end, wait there: TCP takes a lost one for a line that is full".into(),
        cost: of_loss(PACKET, softnet.dropped, all, Some(line)),
        change: helps.then_some(Change { disruption, steps }),
        by_hand: (!helps).then(|| {
            "look whether it becomes more: if so, see what the processors that drop them do (/proc/net/softnet_stat, second column), and `nic-steering`"
                .to_owned()
        }),
        lines: Vec::new(),
    }))
}

/// Packets of a line that come in a millisecond, in a power of two.
fn places(line: BitRate) -> u64 {
    (line.0 / 1000).div_ceil(PACKET_BITS).next_power_of_two()
}

/// Processors come to the end of what has arrived: where adapters drop packets, and turns end before that.
pub fn budget(host: &Host) -> Verdict {
    let (softnet, days) = (host.softnet.get()?, days(host)?);
    let (all, missed) = received(host)?;
    if !too_many(missed, all, days) || softnet.squeezed < missed / BUDGET[0].1 {
        return Ok(Answer::Right);
    }
    let mut steps = Vec::new();
    let mut read = Vec::new();
    for (name, wanted) in BUDGET {
        let now = number(host, name)?;
        read.push(format!("{name} is {now}"));
        if now < wanted {
            steps.push(Step::setting(name, &now.to_string(), wanted.to_string()));
        }
    }
    if steps.is_empty() {
        return Ok(Answer::Right);
    }
    let line = fastest(host).ok().map(|(line, _)| line);
    let used = host.nics.iter().filter(|nic| is_used(host, nic));
    let packet = used.map(|nic| nic.mtu).max();
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "adapters dropped {missed} packets, and {} times some were left for a later turn, since the host was started: {}",
            softnet.squeezed,
            read.join(", ")
        ),
        expected: format!("{} packets, {} µs", BUDGET[0].1, BUDGET[1].1),
        why: "packets wait in the adapter while its processor does something else, and are dropped there".into(),
        cost: of_loss(packet.unwrap_or(PACKET), missed, all.saturating_add(missed), line),
        change: Some(Change {
            disruption: Disruption::Safe,
            steps,
        }),
        by_hand: None,
        lines: Vec::new(),
    }))
}

fn number(host: &Host, name: &str) -> Result<u64, Because> {
    let value = host.setting(name)?;
    let number = value.parse();
    number.map_err(|_| Because(format!("{name} is {value:?}, no number")))
}
