//! Interfaces that stand on each other.

use drover_types::BitRate;

use super::of_nic;
use super::used::is_in_use;
use crate::change::{Disruption, NicSetting};
use crate::cost::of_rate;
use crate::facts::{Bond, Host, Kind, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::rates::highest;
use crate::settable::MTU_LEAST;

/// Policies by which all packets between two hosts take one member.
const BY_HOST: [&str; 4] = ["layer2", "layer2+3", "encap2+3", "vlan+srcmac"];

/// Modes in which the policy decides which member carries. A team has no name for its own: it is a program in the kernel.
const BY_POLICY: [&str; 3] = ["802.3ad", "balance-xor", "loadbalance"];

/// What stands on an interface has no larger packets than it.
pub fn mtu(host: &Host, nic: &Nic) -> Verdict {
    // Of others, such as a VRF, the size means nothing.
    let stands = matches!(nic.kind, Kind::Bond | Kind::Bridge | Kind::Vlan);
    if !stands {
        return Ok(Answer::NotAbout);
    }
    // Guests' ends of a bridge are theirs.
    let below = nic.lower.iter().filter_map(|name| host.nic(name));
    let below = below.filter(|lower| lower.kind != Kind::Virtual);
    let Some(least) = below.min_by_key(|lower| lower.mtu) else {
        return Ok(Answer::NotAbout);
    };
    if nic.mtu <= least.mtu {
        return Ok(Answer::Right);
    }
    let (name, mtu) = (&least.name, least.mtu);
    // The kernel lowers what stands on it as well, and takes addresses away below the least: neither comes back with the size.
    let is_below = |upper: &Nic| upper.lower.contains(&nic.name);
    let alone = mtu >= MTU_LEAST && !host.nics.iter().any(is_below);
    let change = alone.then(|| {
        let (from, to) = (nic.mtu.to_string(), mtu.to_string());
        of_nic(Disruption::BouncesLink, nic, NicSetting::Mtu, from, to)
    });
    let network = format!(
        "set {name} to {}, if the network behind it carries that",
        nic.mtu
    );
    let by_hand = if alone {
        format!("or {network}")
    } else {
        format!("{network}; or set this one and what stands on it to {mtu}")
    };
    Ok(Answer::Found(Found {
        severity: Severity::Critical,
        read: format!("packets of {} bytes, over {name} with {mtu}", nic.mtu),
        expected: format!("{mtu} bytes at most"),
        why: "large packets vanish, small ones arrive: connections are made, and stand still"
            .into(),
        cost: None,
        change,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }))
}

/// A bond's connections are spread over its members.
pub fn bond(host: &Host, nic: &Nic) -> Verdict {
    let Some(bond) = nic.bond.as_ref().filter(|_| is_in_use(host, nic)) else {
        return Ok(Answer::NotAbout);
    };
    let bond = bond.get()?;
    if nic.lower.len() < 2 {
        return Ok(Answer::Right);
    }
    let all = together(host, nic);
    let found = |read: String, expected: &str, why: &str| {
        Ok(Answer::Found(Found {
            severity: Severity::Warning,
            read,
            expected: expected.to_owned(),
            why: why.to_owned(),
            cost: fastest(host, nic).zip(all).and_then(|(one, all)| of_rate(one, all)),
            change: None,
            by_hand: Some(
                "set it where the bond is made, and at the switch; or give each adapter a network of its own, \
                 without a bond: Drover uses all of them at once"
                    .to_owned(),
            ),
            lines: Vec::new(),
        }))
    };
    if bond.one_carries() {
        return found(
            format!("mode {}", bond.mode),
            "a mode in which all members carry",
            "only one of its members carries a migration",
        );
    }
    match policy(bond)? {
        Some(hash) if BY_HOST.contains(&hash) => found(
            format!("mode {}, members chosen by {hash}", bond.mode),
            "layer3+4",
            "all connections between two hosts take the same member",
        ),
        _ => Ok(Answer::Right),
    }
}

/// What decides which member takes a packet, in modes in which something does.
pub(super) fn policy(bond: &Bond) -> Result<Option<&str>, Because> {
    if !BY_POLICY.contains(&bond.mode.as_str()) {
        return Ok(None);
    }
    let hash = bond.hash.as_deref();
    Ok(Some(hash.ok_or("it does not tell what decides")?))
}

/// All members of a bond carry, and are alike.
pub fn members(host: &Host, nic: &Nic) -> Verdict {
    let Some(bond) = nic.bond.as_ref().filter(|_| is_in_use(host, nic)) else {
        return Ok(Answer::NotAbout);
    };
    let bond = bond.get()?;
    // Its other members wait to take over, at whatever rate they have.
    if bond.one_carries() {
        return Ok(Answer::Right);
    }
    let idle = |member: &&String| !bond.active.contains(member) || in_other_group(bond, member);
    let (idle, carrying): (Vec<&String>, Vec<&String>) = nic.lower.iter().partition(idle);
    if idle.is_empty() {
        return rates(host, nic);
    }
    let now = sum(carrying.into_iter().map(|name| could(host, name)));
    let idle: Vec<String> = idle.iter().map(|member| state(bond, member)).collect();
    Ok(Answer::Found(Found {
        severity: Severity::Critical,
        read: idle.join(", "),
        expected: "all members carry".into(),
        why: "its part of the bond's rate is missing".into(),
        cost: now
            .zip(together(host, nic))
            .and_then(|(now, all)| of_rate(now, all)),
        change: None,
        by_hand: Some(
            "look at its cable, and whether the switch's port is in the same group".into(),
        ),
        lines: Vec::new(),
    }))
}

/// The rate of a member, or that which it could have, where it has no link.
fn could(host: &Host, member: &str) -> Option<BitRate> {
    let member = host.nic(member)?;
    let link = member.link.known()?;
    link.speed
        .filter(|_| member.carrier)
        .or_else(|| highest(member))
}

fn sum(mut rates: impl Iterator<Item = Option<BitRate>>) -> Option<BitRate> {
    let add = |sum: BitRate, rate: Option<BitRate>| Some(BitRate(sum.0.saturating_add(rate?.0)));
    rates.try_fold(BitRate(0), add)
}

/// What all members of a bond could carry together.
fn together(host: &Host, bond: &Nic) -> Option<BitRate> {
    sum(bond.lower.iter().map(|name| could(host, name)))
}

/// The most that one member carries alone.
fn fastest(host: &Host, bond: &Nic) -> Option<BitRate> {
    bond.lower.iter().filter_map(|name| could(host, name)).max()
}

/// By `802.3ad` only one group of ports carries at a time.
fn in_other_group(bond: &Bond, member: &str) -> bool {
    let (own, of) = (bond.aggregator, bond.aggregators.get(member));
    own.zip(of).is_some_and(|(own, of)| own != *of)
}

fn state(bond: &Bond, member: &String) -> String {
    match (bond.aggregator, bond.aggregators.get(member)) {
        (Some(own), Some(of)) if own != *of && bond.active.contains(member) => {
            format!("{member} is in group {of}, and group {own} carries")
        }
        _ => format!("{member} does not carry"),
    }
}

fn rates(host: &Host, nic: &Nic) -> Verdict {
    let mut rates = Vec::new();
    for name in &nic.lower {
        let member = host
            .nic(name)
            .ok_or_else(|| Because(format!("{name} was not read")))?;
        rates.push((member.link.get()?.speed, name));
    }
    rates.sort_unstable();
    match (rates.first(), rates.last()) {
        (Some((slow, of)), Some((fast, than))) if slow != fast => {
            let shown = |rate: &Option<BitRate>| match rate {
                Some(rate) => rate.to_string(),
                None => "no rate".to_owned(),
            };
            Ok(Answer::Found(Found {
                severity: Severity::Warning,
                read: format!("{of} has {}, {than} has {}", shown(slow), shown(fast)),
                expected: "one rate".into(),
                why: "a bond takes its members for alike: the slow one holds up its share".into(),
                cost: slow.zip(together(host, nic)).and_then(|(slow, all)| {
                    let alike = slow.0.saturating_mul(nic.lower.len() as u64);
                    of_rate(BitRate(alike), all)
                }),
                change: None,
                by_hand: Some("use adapters of one rate, or each without the bond".into()),
                lines: Vec::new(),
            }))
        }
        _ => Ok(Answer::Right),
    }
}
