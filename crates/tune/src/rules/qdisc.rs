//! What holds packets back before they come to an adapter.

use super::used::is_used;
use crate::change::quoted;
use crate::facts::{Host, Kind, Nic};
use crate::finding::{Answer, Found, Severity, Verdict};

/// Queueing disciplines that hold packets to a rate, or lose or delay some as they are told.
const HOLD: [&str; 2] = ["netem", "tbf"];

/// Those that may, by how they are set.
const MAY_HOLD: [&str; 4] = ["cake", "cbq", "hfsc", "htb"];

/// Those that have a queue of their own for each of the adapter's, or none.
const OF_QUEUES: [&str; 5] = ["mq", "mqprio", "multiq", "noqueue", "taprio"];

/// Those that stand below `mq` as well, for one queue, and have nothing that somebody set up.
const OF_ONE_QUEUE: [&str; 4] = ["fq", "fq_codel", "fq_pie", "pfifo_fast"];

/// Nothing holds packets back, and no lock is all queues'.
pub fn discipline(host: &Host, nic: &Nic) -> Verdict {
    if !is_used(host, nic) || nic.kind != Kind::Adapter {
        return Ok(Answer::NotAbout);
    }
    let kind = nic.qdisc.get()?.as_str();
    let (holds, may) = (HOLD.contains(&kind), MAY_HOLD.contains(&kind));
    let dev = quoted(&nic.name);
    let look = format!("tc -s qdisc show dev {dev}");
    let found = |severity, read, expected: &str, why: &str, by_hand| {
        Ok(Answer::Found(Found {
            severity,
            read,
            expected: expected.to_owned(),
            why: why.to_owned(),
            cost: None,
            change: None,
            by_hand: Some(by_hand),
            lines: Vec::new(),
        }))
    };
    if holds || may {
        return found(
            if holds {
                Severity::Warning
            } else {
                Severity::Notice
            },
            format!("its packets go through {kind}"),
            "nothing that holds them to a rate",
            "a link tells its own rate whatever is allowed of it: migrations get what is set there, and take so much longer",
            format!("{look} tells what is set; if it is not meant: tc qdisc del dev {dev} root"),
        );
    }
    let queues = nic.channels.known().map_or(1, |channels| channels.combined);
    if OF_QUEUES.contains(&kind) || queues < 2 {
        return Ok(Answer::Right);
    }
    found(
        Severity::Notice,
        format!("{kind} is all {queues} queues'"),
        "mq, with one below it for each queue",
        "all processors that send wait for one lock",
        match OF_ONE_QUEUE.contains(&kind) {
            true => format!(
                "sysctl -w net.core.default_qdisc={kind}, then tc qdisc replace dev {dev} root mq; {look} tells more"
            ),
            false => format!("{look} tells what it is for; without it there is one for each queue"),
        },
    )
}
