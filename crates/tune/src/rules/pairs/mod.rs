//! Two hosts on one network.

mod alike;
mod whole;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Display;

use drover_types::{BitRate, IpNetwork};

pub use self::alike::{adapter, bond, dcb, dcbx, rdma, switch};
pub use self::whole::{clock, cpu, qemu};
use super::used::{is_in_use, rate};
use crate::cost::{of_packets, of_rate};
use crate::facts::{Host, Kind, Layers, Nic};
use crate::finding::{Answer, Found, Severity, Verdict};

/// What a link of unknown rate counts as among others, as for a migration.
const UNKNOWN_RATE: BitRate = BitRate(1_000_000_000);

/// An interface of each of two hosts; neither of what is about both as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The first host's.
    pub near: Option<String>,
    /// The other one's.
    pub far: Option<String>,
}

impl Ends {
    fn of(near: &Nic, far: &Nic) -> Self {
        Self {
            near: Some(near.name.clone()),
            far: Some(far.name.clone()),
        }
    }
}

/// What a rule says of two hosts, by what of them it is about.
pub(crate) type OfTwo = Vec<(Ends, Verdict)>;

/// Interfaces of two hosts that share a network, each with each. One that is off leads nowhere, whatever address is left on it.
fn shared<'h>(host: &'h Host, other: &'h Host) -> Vec<(&'h Nic, &'h Nic)> {
    let (near, far) = (leading(host), leading(other));
    let mut shared = Vec::new();
    for near in near {
        let partners = far.iter().filter(|far| reaches(near, far));
        shared.extend(partners.map(|far| (near, *far)));
    }
    shared
}

/// Those that may lead to another host. Whether something with an address stands on an interface takes a look at all of them: guests' ends,
/// of which there may be thousands, have none of their own, and share no network whatever stands on them.
fn leading(host: &Host) -> Vec<&Nic> {
    let addressed = host.nics.iter().filter(|nic| nic.is_addressed());
    addressed.filter(|nic| may_lead_out(host, nic)).collect()
}

/// Whether two interfaces have addresses of one network.
fn reaches(near: &Nic, far: &Nic) -> bool {
    let mut own = near.addresses.iter();
    own.any(|own| far.addresses.iter().any(|far| are_one(own, far)))
}

/// Two addresses of one network. What every link has by itself says nothing.
fn are_one(own: &IpNetwork, far: &IpNetwork) -> bool {
    // A network that each host has for itself, such as a container's bridge, has one address everywhere.
    !own.is_link_local() && own.address() != far.address() && own.network() == far.network()
}

/// Those of [`shared`] that are compared, each interface once: as by a migration, those first that carry most. Of these the ones of one
/// rate, or else of the nearest, and then those that are called the same.
fn matched<'h>(host: &'h Host, other: &'h Host) -> Vec<(&'h Nic, &'h Nic)> {
    let shared = shared(host, other);
    let order = shared.iter().enumerate().map(|(at, &(near, far))| {
        let own = rate(host, near).unwrap_or(UNKNOWN_RATE);
        let there = rate(other, far).unwrap_or(UNKNOWN_RATE);
        let is_other = near.name != far.name;
        (Reverse(own.min(there)), own.max(there), is_other, at)
    });
    let mut order: Vec<_> = order.collect();
    order.sort_unstable();
    let (mut nears, mut fars) = (BTreeSet::<&str>::new(), BTreeSet::<&str>::new());
    let mut chosen = Vec::new();
    for (.., at) in order {
        let (near, far) = shared[at];
        let (own, there) = (near.name.as_str(), far.name.as_str());
        if !nears.contains(own) && !fars.contains(there) {
            nears.insert(own);
            fars.insert(there);
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|at| shared[at]).collect()
}

/// Of each interface and its partner.
fn each(host: &Host, other: &Host, ask: impl Fn(&Nic, &Nic) -> Verdict) -> OfTwo {
    of(matched(host, other), ask)
}

fn of(pairs: Vec<(&Nic, &Nic)>, ask: impl Fn(&Nic, &Nic) -> Verdict) -> OfTwo {
    let pairs = pairs.into_iter();
    pairs
        .map(|(nic, far)| (Ends::of(nic, far), ask(nic, far)))
        .collect()
}

/// What each end has, by the name of its host: `a eth0 has 9000 bytes, b eth0 1500`.
fn at_ends(
    near: (&Host, &Nic),
    own: impl Display,
    far: (&Host, &Nic),
    there: impl Display,
) -> String {
    let [near, far] = [near, far].map(|(host, nic)| format!("{} {}", host.name, nic.name));
    format!("{near} has {own}, {far} {there}")
}

/// What differs is to be the same, and people see to that.
fn found(severity: Severity, read: String, why: &str, by_hand: String) -> Found {
    Found {
        severity,
        read,
        expected: "the same".into(),
        why: why.to_owned(),
        cost: None,
        change: None,
        by_hand: Some(by_hand),
        lines: Vec::new(),
    }
}

/// No address of a network is two hosts'.
pub fn address(host: &Host, other: &Host) -> OfTwo {
    let mut twice: OfTwo = Vec::new();
    let theirs = leading(other);
    for nic in leading(host) {
        for own in nic.addresses.iter().filter(|own| is_of_a_network(own)) {
            let has = |far: &&&Nic| {
                let same = |address: &IpNetwork| address.address() == own.address();
                far.addresses.iter().any(same)
            };
            let Some(far) = theirs.iter().find(has) else {
                continue;
            };
            let found = address_found(own, far, &other.name);
            twice.push((Ends::of(nic, far), Ok(Answer::Found(found))));
        }
    }
    let is_told = |nic: &Nic| {
        let mut told = twice.iter();
        told.any(|(ends, _)| ends.near.as_ref() == Some(&nic.name))
    };
    let right: OfTwo = shared(host, other)
        .into_iter()
        .filter(|&(nic, _)| !is_told(nic))
        .map(|(nic, far)| (Ends::of(nic, far), Ok(Answer::Right)))
        .collect();
    [twice, right].concat()
}

/// Asked of those with an address. A bridge without hardware is each host's own, and has one address everywhere.
fn may_lead_out(host: &Host, nic: &Nic) -> bool {
    let is_inner = nic.kind == Kind::Bridge && Layers::of(host).carriers(nic).is_empty();
    is_in_use(host, nic) && !is_inner
}

/// One that stands for itself may be every host's, as a service's is.
fn is_of_a_network(address: &IpNetwork) -> bool {
    let alone = if address.address().is_ipv4() { 32 } else { 128 };
    !address.is_link_local() && address.prefix() < alone
}

fn address_found(own: &IpNetwork, far: &Nic, other: &str) -> Found {
    Found {
        severity: Severity::Critical,
        read: format!("{own} is also {}'s of {other}", far.name),
        expected: "an address of its own".into(),
        why: "packets for it go to one of them, now this and now that: connections break, and migrations do without the path"
            .into(),
        cost: None,
        change: None,
        by_hand: Some(format!(
            "give one of them another address, unless {} of {other} leads to another network of the same numbers",
            far.name
        )),
        lines: Vec::new(),
    }
}

/// Both ends of a network have the same largest packet, whichever they are: any two may come to send to each other. It speaks for all that
/// is asked of two ends where there are none.
pub fn mtu(host: &Host, other: &Host) -> OfTwo {
    let shared = shared(host, other);
    if shared.is_empty() {
        return vec![(Ends::default(), Err("they share no network".into()))];
    }
    of(shared, |nic, far| {
        if nic.mtu == far.mtu {
            return Ok(Answer::Right);
        }
        let least = nic.mtu.min(far.mtu);
        Ok(Answer::Found(Found {
            severity: Severity::Warning,
            read: at_ends(
                (host, nic),
                format_args!("{} bytes", nic.mtu),
                (other, far),
                far.mtu,
            ),
            expected: "the same".into(),
            why: "the larger packets of one are lost at the other, unless a switch or router tells"
                .into(),
            cost: of_packets(least, nic.mtu.max(far.mtu)),
            change: None,
            by_hand: Some(format!(
                "set both to {least}, unless the whole path is known to carry more"
            )),
            lines: Vec::new(),
        }))
    })
}

/// Both ends of a network have the same rate.
pub fn speed(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (rate(host, nic)?, rate(other, far)?);
        if own == there {
            return Ok(Answer::Right);
        }
        let (slower, of) = if own < there {
            (nic, host)
        } else {
            (far, other)
        };
        Ok(Answer::Found(Found {
            severity: Severity::Warning,
            read: at_ends((host, nic), own, (other, far), there),
            expected: "the same".into(),
            why: "the faster end is held up by the slower one, whose queues in the switch fill"
                .into(),
            cost: of_rate(own.min(there), own.max(there)),
            change: None,
            by_hand: Some(format!(
                "see what `link-speed` says of {} of {}",
                slower.name, of.name
            )),
            lines: Vec::new(),
        }))
    })
}
