//! Pairs the interfaces of two hosts, so that every one of them carries something.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use drover_types::{BitRate, Path, PathEnd, PathId};
use serde::{Deserialize, Serialize};

use super::matching::best;
use super::{Endpoint, LeftOut, LeftOutReason, Selected, Side};
use crate::limits::{CANDIDATES, PATHS};

/// What a link of unknown rate counts as among others: the slowest that is common.
const UNKNOWN_RATE: u64 = 1_000_000_000;

/// Two addresses that may reach each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    /// At the source.
    pub source: PathEnd,
    /// At the destination.
    pub destination: PathEnd,
}

/// The paths of a session and what they leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairing {
    /// Best first, numbered from 0.
    pub paths: Vec<Path>,
    /// Everything not used, on both hosts, with its reason.
    pub left_out: Vec<LeftOut>,
}

/// The pairs worth a probe, those that share a network first.
///
/// Interfaces that share a network with one of the other host are not tried across networks:
/// such a pair leaves the host by the wrong interface unless its routing says otherwise. An address
/// that both hosts have is in none of them: a connection to it would not leave its own host.
#[must_use]
pub fn candidates(source: &Selected, destination: &Selected) -> Vec<Candidate> {
    let near = |from: &Endpoint, to: &Endpoint| from.address.shares_network(&to.address);
    let family = |end: &Endpoint| end.address.address().is_ipv4();
    let usable = |from: &Endpoint, to: &Endpoint| {
        !has(&source.endpoints, to.address.address())
            && !has(&destination.endpoints, from.address.address())
    };
    let (mut close, mut far) = (Vec::new(), Vec::new());
    let (mut near_sources, mut near_destinations) = (BTreeSet::new(), BTreeSet::new());
    for from in &source.endpoints {
        for to in destination
            .endpoints
            .iter()
            .filter(|to| family(to) == family(from) && usable(from, to))
        {
            if near(from, to) {
                near_sources.insert(&from.interface);
                near_destinations.insert(&to.interface);
                close.push((from, to));
            } else {
                far.push((from, to));
            }
        }
    }
    far.retain(|(from, to)| {
        !near_sources.contains(&from.interface) || !near_destinations.contains(&to.interface)
    });
    let candidate = |(from, to): (&Endpoint, &Endpoint)| Candidate {
        source: end(from),
        destination: end(to),
    };
    close
        .into_iter()
        .chain(far)
        .take(CANDIDATES)
        .map(candidate)
        .collect()
}

fn has(endpoints: &[Endpoint], address: IpAddr) -> bool {
    endpoints.iter().any(|end| end.address.address() == address)
}

fn end(endpoint: &Endpoint) -> PathEnd {
    PathEnd {
        interface: endpoint.interface.clone(),
        address: endpoint.address.address(),
    }
}

/// The best pair of addresses between two interfaces.
#[derive(Debug, Clone, Copy)]
struct Link<'a> {
    source: &'a Endpoint,
    destination: &'a Endpoint,
}

impl Link<'_> {
    fn near(&self) -> bool {
        self.source
            .address
            .shares_network(&self.destination.address)
    }

    fn rank(&self) -> usize {
        self.source.rank.min(self.destination.rank)
    }

    fn rate(&self) -> Option<BitRate> {
        match (self.source.speed, self.destination.speed) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn weighed_rate(&self) -> u64 {
        // 2^50 bit/s is beyond any link; with it a sum over all of them cannot overflow.
        self.rate()
            .map_or(UNKNOWN_RATE, |rate| rate.0)
            .clamp(1, 1 << 50)
    }

    /// More pairs first, then more in one network, then the larger sum of rates.
    fn weight(&self) -> i128 {
        (1 << 80) + (i128::from(self.near()) << 70) + i128::from(self.weighed_rate())
    }
}

/// Chooses the paths among the candidates that answered their probe.
///
/// First as many pairs as possible, each interface in one of them; then every interface that is
/// left over joins the one of the other host with the most rate to spare.
#[must_use]
pub fn choose(source: &Selected, destination: &Selected, answered: &[Candidate]) -> Pairing {
    let links = links(source, destination, answered);
    let (sources, destinations) = (names(&source.endpoints), names(&destination.endpoints));
    let link = |row: usize, column: usize| links.get(&(sources[row], destinations[column]));
    let matched = best(sources.len(), destinations.len(), |row, column| {
        link(row, column).map(Link::weight)
    });
    let mut chosen: Vec<Link<'_>> = Vec::new();
    for (row, column) in matched.iter().enumerate() {
        chosen.extend(column.and_then(|column| link(row, column)));
    }
    join_left_over(&mut chosen, &links, &sources, &destinations);
    chosen.sort_by(|one, other| {
        let key = |link: &Link<'_>| (link.rank(), std::cmp::Reverse(link.weighed_rate()));
        let names = |link: &Link<'_>| (end(link.source), end(link.destination));
        key(one)
            .cmp(&key(other))
            .then_with(|| names(one).cmp(&names(other)))
    });
    let mut left_out = source.left_out.clone();
    left_out.extend(destination.left_out.iter().cloned());
    let [from, to] = [&source.endpoints, &destination.endpoints];
    left_out.extend(unused(Side::Source, &sources, &chosen, [from, to]));
    left_out.extend(unused(
        Side::Destination,
        &destinations,
        &chosen,
        [to, from],
    ));
    chosen.truncate(PATHS);
    Pairing {
        paths: chosen
            .iter()
            .zip(0..)
            .map(|(link, id)| path(link, PathId(id)))
            .collect(),
        left_out,
    }
}

type Links<'a> = BTreeMap<(&'a str, &'a str), Link<'a>>;

/// The best answered pair of addresses for each pair of interfaces: in one network, then by the
/// operator's order, then as listed.
fn links<'a>(source: &'a Selected, destination: &'a Selected, answered: &[Candidate]) -> Links<'a> {
    let find = |endpoints: &'a [Endpoint], wanted: &PathEnd| {
        endpoints.iter().find(|endpoint| end(endpoint) == *wanted)
    };
    let mut answered: Vec<&Candidate> = answered.iter().collect();
    answered.sort();
    let mut links = Links::new();
    for candidate in answered {
        let (Some(from), Some(to)) = (
            find(&source.endpoints, &candidate.source),
            find(&destination.endpoints, &candidate.destination),
        ) else {
            continue;
        };
        let link = Link {
            source: from,
            destination: to,
        };
        let key = |link: &Link<'_>| (!link.near(), link.rank());
        let known = links
            .entry((&*from.interface, &*to.interface))
            .or_insert(link);
        if key(&link) < key(known) {
            *known = link;
        }
    }
    links
}

/// The interfaces' names, each once, in the order of preference.
fn names(endpoints: &[Endpoint]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for endpoint in endpoints {
        if !names.contains(&&*endpoint.interface) {
            names.push(&endpoint.interface);
        }
    }
    names
}

fn join_left_over<'a>(
    chosen: &mut Vec<Link<'a>>,
    links: &Links<'a>,
    sources: &[&'a str],
    destinations: &[&'a str],
) {
    for name in sources {
        let own: Vec<_> = links
            .values()
            .filter(|link| link.source.interface == *name)
            .collect();
        if !chosen.iter().any(|link| link.source.interface == *name) {
            let peer = |link: &Link<'a>| &*link.destination.interface;
            let spare = |link: &Link<'a>| spare(link.destination, peer(link), chosen, peer);
            chosen.extend(most(&own, spare));
        }
    }
    for name in destinations {
        let own: Vec<_> = links
            .values()
            .filter(|link| link.destination.interface == *name)
            .collect();
        if !chosen
            .iter()
            .any(|link| link.destination.interface == *name)
        {
            let peer = |link: &Link<'a>| &*link.source.interface;
            let spare = |link: &Link<'a>| spare(link.source, peer(link), chosen, peer);
            chosen.extend(most(&own, spare));
        }
    }
}

/// The link with the most to spare, in one network where there is one; the first among equals.
fn most<'a>(links: &[&Link<'a>], spare: impl Fn(&Link<'a>) -> u64) -> Option<Link<'a>> {
    let key = |link: &&&Link<'a>| (link.near(), spare(link));
    links.iter().rev().max_by_key(key).map(|link| **link)
}

/// What `peer` does not carry yet.
fn spare<'a>(
    endpoint: &Endpoint,
    peer: &str,
    chosen: &[Link<'a>],
    side: impl Fn(&Link<'a>) -> &'a str,
) -> u64 {
    let own = endpoint.speed.map_or(UNKNOWN_RATE, |rate| rate.0);
    let used = chosen
        .iter()
        .filter(|link| side(link) == peer)
        .map(Link::weighed_rate);
    own.saturating_sub(used.sum())
}

fn unused<'a>(
    side: Side,
    names: &'a [&'a str],
    chosen: &'a [Link<'a>],
    [own, other]: [&'a [Endpoint]; 2],
) -> impl Iterator<Item = LeftOut> + 'a {
    let uses = move |links: &[Link<'_>], name: &str| {
        links.iter().any(|link| match side {
            Side::Source => link.source.interface == name,
            Side::Destination => link.destination.interface == name,
        })
    };
    let same = |name: &str| {
        let mut addresses = own.iter().filter(|end| end.interface == name);
        addresses.find(|end| has(other, end.address.address()))
    };
    let kept = &chosen[..chosen.len().min(PATHS)];
    names
        .iter()
        .filter(move |name| !uses(kept, name))
        .map(move |name| {
            let reason = if uses(chosen, name) {
                LeftOutReason::OverLimit { limit: PATHS }
            } else {
                same(name).map_or(LeftOutReason::NoPeer, |end| LeftOutReason::SameAddress {
                    address: end.address.address(),
                })
            };
            LeftOut {
                side,
                interface: (*name).to_owned(),
                address: None,
                reason,
            }
        })
}

fn path(link: &Link<'_>, id: PathId) -> Path {
    Path {
        id,
        source: end(link.source),
        destination: end(link.destination),
        rate: link.rate(),
        mtu: link.source.mtu.min(link.destination.mtu),
    }
}
