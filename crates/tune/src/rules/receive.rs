//! Packets between an adapter's interrupt and who takes them (`net.core`).

use drover_types::BitRate;

use super::counted::{days, too_many};
use super::stack::fastest;
use crate::change::{Change, Disruption, Step};
use crate::facts::Host;
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// The usual largest packet, in bits: whose ends are guests' and containers' seldom have larger ones.
const PACKET_BITS: u64 = 1500 * 8;

/// Packets that the kernel takes at once, and for how long, in microseconds: twice its own least, as Red Hat's guide to tuning says for
/// processors that run out of either.
const BUDGET: [(&str, u64); 2] = [
    ("net.core.netdev_budget", 600),
    ("net.core.netdev_budget_usecs", 8000),
];

/// Packets that are taken until the kernel's own budget is used up.
const AT_ONCE: u64 = 300;

/// So many of a hundred packets may come in a turn that was cut short.
const CUT_SHORT: u64 = 10;

/// Packets that are handed on find a place.
pub fn backlog(host: &Host) -> Verdict {
    let (softnet, days) = (host.softnet.get()?, days(host)?);
    if !too_many(softnet.dropped, softnet.processed, days) {
        return Ok(Answer::Right);
    }
    let name = "net.core.netdev_max_backlog";
    let (line, _) = fastest(host)?;
    let (now, wanted) = (number(host, name)?, places(line));
    let steps = vec![Step::setting(name, &now.to_string(), wanted.to_string())];
    let disruption = Disruption::Safe;
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "{} of {} packets found no place in a processor's queue of {now}, since the host was started",
            softnet.dropped, softnet.processed
        ),
        expected: format!("{wanted} places: what {line} bring in 1 ms"),
        why: "packets that are handed to another processor, or to a guest's or container's end, wait there: TCP takes a lost one for a line that is full".into(),
        cost: None,
        change: (now < wanted).then_some(Change { disruption, steps }),
        by_hand: (now >= wanted).then(|| {
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

/// Processors come to the end of what has arrived.
pub fn budget(host: &Host) -> Verdict {
    let softnet = host.softnet.get()?;
    let cut_short = softnet.squeezed.saturating_mul(AT_ONCE);
    if cut_short.saturating_mul(100) <= softnet.processed.saturating_mul(CUT_SHORT) {
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
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        read: format!(
            "{} times packets were left for a later turn, since the host was started: {}",
            softnet.squeezed,
            read.join(", ")
        ),
        expected: format!("{} packets, {} µs", BUDGET[0].1, BUDGET[1].1),
        why: "packets wait in the adapter while its processor does something else, and are dropped there".into(),
        cost: None,
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
