//! Paths that were asked about: what is claimed of them, and what crosses.

use std::collections::BTreeSet;

use super::slot;
use crate::cost::{of_packets, under_loss};
use crate::facts::{Answers, Carried, Crossing, Fact, HeldUpBy, Path, PathEnd, Slot};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Of a hundred packets, how many may be lost: one is within chance.
const LOST_MOST: u32 = 1;

/// Of a hundred, from how many on a connection all but stands still.
const LOST_CRITICAL: u32 = 10;

/// Of a link's rate, what its payload has to be, in percent: headers take 6 of a hundred with packets of 1500 bytes, and the rest is for
/// the beginning and what else crosses. Test-NetStack has the same.
const CARRIED_LEAST: u64 = 85;

/// Below this part a migration takes twice its time.
const CARRIED_CRITICAL: u64 = 50;

/// What a load waited for, as it is added to what was read, and what people can do about that.
pub(super) type Waited = (String, String);

/// A packet where it is not known how large it may be.
const USUAL: u32 = 1500;

/// What is asked is answered.
pub fn reach(path: &Path) -> Verdict {
    if !is_silent(path)? {
        return Ok(Answer::Right);
    }
    let (near, far) = (&path.near, &path.far);
    let read = match &path.refused {
        Some(why) => format!(
            "the kernel of {} sends nothing from {} by {} to {}: {why}",
            near.host, near.address, near.nic, far.address
        ),
        None => format!(
            "nothing from {} reaches {} and comes back",
            near.address, far.address
        ),
    };
    Ok(found(
        Severity::Critical,
        read,
        "answers".into(),
        "a migration that counts on the path does without it",
        Some(
            match path.answers.known().filter(|_| path.refused.is_none()) {
                Some(answers) => format!(
                    "all of what it would carry: {0} of {0} packets were lost",
                    answers.asked
                ),
                None => "all of what it would carry: nothing is sent".to_owned(),
            },
        ),
        format!(
            "see that {} of {} and {} of {} are in one network, and that no firewall keeps UDP out",
            near.nic, near.host, far.nic, far.host
        ),
    ))
}

/// Answers arrive by the interface that is claimed.
pub fn arrival(path: &Path) -> Verdict {
    if is_silent(path)? {
        return Ok(Answer::NotAbout);
    }
    let others = elsewhere(path, path.arrivals.get()?);
    if others.is_empty() {
        return Ok(Answer::Right);
    }
    Ok(found(
        Severity::Critical,
        format!("answers arrive by {}", others.join(" and ")),
        format!("by {}", path.near.nic),
        "a lane hears only what arrives by its own interface, so none comes about",
        None,
        format!(
            "see by which interface {host} sends to {} (ip route get {}): remove a route that leads elsewhere, \
             or give each interface of {host} a network of its own, or a rule by source address, or have {near} answer ARP \
             for an address by its own interface alone (arp_ignore=1)",
            path.near.address,
            path.near.address,
            host = path.far.host,
            near = path.near.host,
        ),
    ))
}

/// Those by which answers arrive beside the one that is claimed.
fn elsewhere<'p>(path: &Path, arrivals: &'p BTreeSet<String>) -> Vec<&'p str> {
    let all = arrivals.iter().map(String::as_str);
    all.filter(|nic| *nic != path.near.nic).collect()
}

/// What crosses is counted by the interfaces that are claimed. Each counts headers and all else as well: less than what crossed means that it
/// crossed another one.
pub fn counted(path: &Path) -> Verdict {
    // Where answers arrive elsewhere that is told, and no more is to be said of it.
    if is_silent(path)? || !elsewhere(path, path.arrivals.get()?).is_empty() {
        return Ok(Answer::NotAbout);
    }
    let counted = path.counted.get()?;
    let (near, far) = (&path.near, &path.far);
    let all = [
        (
            (far, near),
            Way::Received,
            counted.far.received,
            counted.asked,
        ),
        ((far, near), Way::Sent, counted.far.sent, counted.answered),
        ((near, far), Way::Sent, counted.near.sent, counted.asked),
        (
            (near, far),
            Way::Received,
            counted.near.received,
            counted.answered,
        ),
    ];
    let mut all = all.into_iter();
    let short = all.find(|(_, _, counted, crossed)| counted < crossed);
    let Some(((end, peer), way, counted, crossed)) = short else {
        return Ok(Answer::Right);
    };
    Ok(way.found(end, peer, (counted, crossed)))
}

/// Which way an interface counts.
enum Way {
    Received,
    Sent,
}

impl Way {
    /// An end that counted less than what crossed.
    fn found(&self, end: &PathEnd, peer: &PathEnd, (counted, crossed): (u64, u64)) -> Answer {
        let PathEnd { host, nic, .. } = end;
        let (severity, what, why, by_hand) = match self {
            Self::Received => (
                Severity::Critical,
                "received",
                "a lane hears only what arrives by its own interface, so none comes about",
                format!(
                    "{host} answers ARP for {} by other interfaces, too, or something between leads there: give each interface of {host} a network \
                     of its own, or have it answer by its own interface alone (arp_ignore=1)",
                    end.address
                ),
            ),
            Self::Sent => (
                Severity::Warning,
                "sent",
                "those bytes cross another interface, and another line, than the path's",
                format!(
                    "see by which interface {host} sends to {0} (ip route get {0} from {1}): give each of its interfaces a network of its own, or a \
                     rule by source address",
                    peer.address, end.address
                ),
            ),
        };
        found(
            severity,
            format!("{crossed} bytes crossed, and {nic} of {host} {what} {counted} meanwhile"),
            format!("all of them by {nic}"),
            why,
            None,
            by_hand,
        )
    }
}

/// The kernel would take the same interface.
pub fn route(path: &Path) -> Verdict {
    let route = path.route.get()?;
    if *route == path.near.nic {
        return Ok(Answer::Right);
    }
    Ok(found(
        Severity::Warning,
        format!("the route to {} leaves by {route}", path.far.address),
        format!("by {}, which has {}", path.near.nic, path.near.address),
        "what a host accepts is answered by its routes: those bytes cross another interface than the path's",
        None,
        "give each interface a network of its own, or a rule by source address".into(),
    ))
}

/// What both ends take crosses, both ways.
pub fn mtu(path: &Path) -> Verdict {
    if is_silent(path)? {
        return Ok(Answer::NotAbout);
    }
    let claimed = path.near.mtu.min(path.far.mtu);
    let both = [&path.there, &path.back];
    let known = both.iter().filter_map(|crossing| crossing.known());
    let short: Vec<&Crossing> = known.filter(|crossing| crossing.size < claimed).collect();
    let Some(size) = short.iter().map(|crossing| crossing.size).min() else {
        // One that is short is found whatever is known of the other.
        let _ = (path.there.get()?, path.back.get()?);
        return Ok(Answer::Right);
    };
    let vanish = short.iter().any(|crossing| crossing.vanish);
    let bytes = |crossing: &Fact<Crossing>| match crossing.get() {
        Ok(crossing) => crossing.size.to_string(),
        Err(why) => format!("an unknown number (because {why})"),
    };
    let (severity, why) = if vanish {
        let why =
            "larger packets vanish: connections open, and stand still with the first full packet";
        (Severity::Critical, why)
    } else {
        let why = "a route, or a router that says so, takes less than both ends, so more packets carry the same bytes";
        (Severity::Notice, why)
    };
    Ok(found(
        severity,
        format!(
            "{} bytes cross there, {} back",
            bytes(&path.there),
            bytes(&path.back)
        ),
        format!("{claimed} bytes, as both ends take"),
        why,
        if vanish {
            of_packets(size, claimed).map(|packets| {
                format!("connections stand still; with {size} bytes at both ends {packets}")
            })
        } else {
            of_packets(size, claimed)
        },
        format!("have what lies between carry {claimed} bytes, or set both ends to {size}"),
    ))
}

/// Next to nothing is lost.
pub fn loss(path: &Path) -> Verdict {
    if is_silent(path)? {
        return Ok(Answer::NotAbout);
    }
    let Answers { asked, answered } = *path.answers.get()?;
    let lost = asked.saturating_sub(answered);
    let in_hundred = |count: u32| u64::from(count) * u64::from(asked);
    let lost_of_all = u64::from(lost) * 100;
    if lost_of_all <= in_hundred(LOST_MOST) {
        return Ok(Answer::Right);
    }
    let critical = lost_of_all >= in_hundred(LOST_CRITICAL);
    let packet = path.there.known().map_or(USUAL, |crossing| crossing.size);
    Ok(found(
        if critical {
            Severity::Critical
        } else {
            Severity::Warning
        },
        format!("{lost} of {asked} packets were lost"),
        "none".into(),
        "each loss halves what a connection sends, until round trips have won it back",
        path.round_trip
            .known()
            .and_then(|trip| cost(path, *trip, packet, (lost, asked))),
        "see `link-errors` of both ends, and the counters of the switch between them".into(),
    ))
}

/// It carries what both of its ends say they can.
pub fn rate(path: &Path) -> Verdict {
    let Some(carried) = &path.carried else {
        return Ok(Answer::NotAbout);
    };
    let carried = carried.get()?;
    let Some(most) = carried.most() else {
        return Err("neither end's driver tells its rate".into());
    };
    let Some((percent, severity)) = falls_short(carried.rate, most) else {
        return Ok(Answer::Right);
    };
    let (waited, by_hand) = waited_for(path, carried);
    let limit = if carried.line.is_some_and(|line| most < line) {
        "it was allowed to"
    } else {
        "its slower link has"
    };
    Ok(found(
        severity,
        format!(
            "{} carries {} Mbit/s to {} of {}{waited}",
            path.near.nic,
            carried.rate / 1_000_000,
            path.far.nic,
            path.far.host
        ),
        at_least(most, limit),
        "a migration by this path takes so much longer",
        Some(format!(
            "{} of what it could carry: a GiB takes {:.1} s in place of {:.1} s",
            percent_of(percent),
            seconds_of_a_gib(carried.rate),
            seconds_of_a_gib(most)
        )),
        by_hand,
    ))
}

/// What a rate is of what it could be, in percent, and how much that matters; nothing where it is enough.
pub(super) fn falls_short(rate: u64, most: u64) -> Option<(u64, Severity)> {
    let percent = u128::from(rate) * 100 / u128::from(most.max(1));
    let percent = u64::try_from(percent).unwrap_or(u64::MAX);
    let severity = if percent < CARRIED_CRITICAL {
        Severity::Critical
    } else {
        Severity::Warning
    };
    (percent < CARRIED_LEAST).then_some((percent, severity))
}

/// A part in percent as it is told, whole ones rounded down: what is carried is not nothing.
pub(super) fn percent_of(percent: u64) -> String {
    match percent {
        0 => "less than 1 %".to_owned(),
        _ => format!("{percent} %"),
    }
}

/// What is expected where so much could be carried, by what `limit` says of it.
pub(super) fn at_least(most: u64, limit: &str) -> String {
    format!(
        "{} Mbit/s at least: {CARRIED_LEAST} % of the {} Mbit/s that {limit}",
        most / 100 * CARRIED_LEAST / 1_000_000,
        most / 1_000_000
    )
}

/// How many packets were sent again, where any was.
pub(super) fn sent_again(again: u64, packets: u64) -> String {
    match again {
        0 => String::new(),
        again => format!(", with {again} of {packets} packets sent again"),
    }
}

/// What the load waited for, and what to look at.
fn waited_for(path: &Path, carried: &Carried) -> Waited {
    let again = sent_again(carried.again, carried.packets);
    let too_slow = |slot: &Slot| Some(slot::carries(slot.width, slot.speed).0) < carried.most();
    let slot = carried.slot.filter(too_slow);
    match (carried.held_up_by, slot) {
        (HeldUpBy::Path, Some(Slot { width, speed })) => (
            format!(
                "; of its slot {} meanwhile{again}",
                slot::told(width, speed)
            ),
            format!(
                "look at the slot of {} in {}, and at its setting in the machine's setup: `pci-slot` says what it could be",
                path.near.nic, path.near.host
            ),
        ),
        (HeldUpBy::Path, None) => (
            again,
            format!(
                "see what holds the line to less than its rate: a switch's port or shaper (tc -s qdisc), other traffic, `path-loss`, \
                 `link-errors`, `pci-slot` of {} and {}",
                path.near.host, path.far.host
            ),
        ),
        (HeldUpBy::Near, _) => processors(&path.near.host, "had no more to send", &again),
        (HeldUpBy::Far, _) => processors(&path.far.host, "took no more", &again),
    }
}

/// Processors of a host that held a load up.
pub(super) fn processors(host: &str, what: &str, again: &str) -> Waited {
    (
        format!("; the processors of {host} {what}{again}"),
        format!(
            "see what else the processors of {host} do, and its `nic-queues`, `nic-offloads` and `cpu-governor`"
        ),
    )
}

fn seconds_of_a_gib(rate: u64) -> f64 {
    8.0 * (1u64 << 30) as f64 / rate.max(1) as f64
}

/// What one connection carries at most; none where that is all that its line does, as far as that is known.
fn cost(path: &Path, round_trip: u64, packet: u32, (lost, asked): (u32, u32)) -> Option<String> {
    let share = f64::from(lost) / f64::from(asked.max(1));
    let mbit = under_loss(round_trip, packet, share);
    let carried = path.carried.as_ref().and_then(Fact::known);
    let line = carried.and_then(|carried| carried.line);
    line.is_none_or(|line| mbit < line as f64 / 1e6)
        .then(|| {
            format!(
                "one connection carries some {mbit:.0} Mbit/s at most, by its round trip of {round_trip} µs"
            )
        })
}

fn is_silent(path: &Path) -> Result<bool, Because> {
    if path.refused.is_some() {
        return Ok(true);
    }
    let answers = path.answers.get()?;
    if answers.asked == 0 {
        return Err("nothing was asked".into());
    }
    Ok(answers.answered == 0)
}

pub(super) fn found(
    severity: Severity,
    read: String,
    expected: String,
    why: &str,
    cost: Option<String>,
    by_hand: String,
) -> Answer {
    Answer::Found(Found {
        severity,
        read,
        expected,
        why: why.into(),
        cost,
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    })
}
