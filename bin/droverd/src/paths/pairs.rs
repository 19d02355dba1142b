//! Which pairs of interfaces are asked, and which of them at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use drover_api::PathLeftOut;
use drover_migrate::paths::{self, Candidate, LeftOut, LeftOutReason, Selected, Side, choose};
use drover_types::{BitRate, HostName, Interface, PathEnd, with_sources};

use crate::migration::leads_there;

/// A pair of interfaces that a migration would use, were it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The end that asks.
    pub near: PathEnd,
    /// The one that answers.
    pub far: PathEnd,
    /// Rate of the slower link, where known.
    pub rate: Option<BitRate>,
}

/// What each interface stands on: VLANs of one port share its line.
pub type Ports = BTreeMap<String, BTreeSet<String>>;

/// Those of interfaces of this host; where that cannot be read each counts as a line of its own.
pub async fn ports(own: &[Interface]) -> Ports {
    let names: Vec<&str> = own.iter().map(|nic| nic.name.as_str()).collect();
    let read = drover_host::ports(Path::new("/"), &names).await;
    read.unwrap_or_else(|error| {
        let error = with_sources(&error);
        tracing::warn!(error, "not known which interfaces share a line");
        Ports::new()
    })
}

/// What is asked, and why the rest is not.
#[derive(Debug, Default)]
pub struct Pairs {
    /// As a migration would choose them.
    pub chosen: Vec<Pair>,
    /// Interfaces of the near host that are in none.
    pub left_out: Vec<LeftOut>,
}

/// What a host has in use with what the other one offers: those in one network, and those of which nobody claims that they reach
/// each other. `own` are all its interfaces.
pub fn candidates(
    own: &[Interface],
    ours: &Selected,
    theirs: &Selected,
) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut all = paths::candidates(ours, theirs);
    all.retain(|candidate| leads_there(own, candidate));
    all.into_iter()
        .partition(|one| one_network(ours, theirs, &one.source, &one.destination))
}

/// The pairs among the candidates that are claimed or were answered.
pub fn pairs(ours: &Selected, theirs: &Selected, answered: &[Candidate]) -> Pairs {
    let pairing = choose(ours, theirs, answered);
    let chosen: Vec<Pair> = pairing
        .paths
        .into_iter()
        .map(|path| Pair {
            near: path.source,
            far: path.destination,
            rate: path.rate,
        })
        .collect();
    let mut left_out = pairing.left_out;
    left_out.retain(|left| {
        let used = chosen
            .iter()
            .any(|pair| pair.near.interface == left.interface);
        left.side == Side::Source && left.reason != LeftOutReason::Loopback && !used
    });
    Pairs { chosen, left_out }
}

fn one_network(ours: &Selected, theirs: &Selected, near: &PathEnd, far: &PathEnd) -> bool {
    let of = |selected: &Selected, end: &PathEnd| {
        let mut all = selected.endpoints.iter();
        let same =
            all.find(|one| one.interface == end.interface && one.address.address() == end.address);
        same.map(|found| found.address)
    };
    let both = of(ours, near).zip(of(theirs, far));
    both.is_some_and(|(near, far)| near.shares_network(&far))
}

/// Interfaces that are somebody's: with hardware, or an address that is not just the link's own. All others lead to guests and
/// containers, or have their addresses above them, and there may be a thousand of them.
pub fn matter(own: &[Interface], has_hardware: impl Fn(&str) -> bool) -> Vec<Interface> {
    let own = own.iter();
    let matter = own.filter(|nic| {
        let mut addresses = nic.addresses.iter();
        addresses.any(|at| !is_link_local(at.address())) || has_hardware(&nic.name)
    });
    matter.cloned().collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// What of an interface was left out, as it is told.
pub fn told(near: &HostName, far: &HostName, left: LeftOut) -> PathLeftOut {
    use LeftOutReason::{NoPeer, OverLimit, SameAddress};
    let of_pair = matches!(left.reason, NoPeer | OverLimit { .. } | SameAddress { .. });
    PathLeftOut {
        near: near.clone(),
        far: of_pair.then(|| far.clone()),
        nic: Some(left.interface),
        why: left.reason.to_string(),
    }
}

/// Pairs that are asked at the same time: no line is in two of them, so that none is loss to another, and each has its whole share.
pub fn waves(pairs: Vec<Pair>, near: &Ports, far: &Ports) -> Vec<Vec<Pair>> {
    let mut waves: Vec<Vec<Pair>> = Vec::new();
    for pair in pairs {
        let meets = |other: &Pair| {
            let (one, another) = (&other.near.interface, &pair.near.interface);
            let (far_one, far_another) = (&other.far.interface, &pair.far.interface);
            share_a_line(&|nic| near.get(nic), one, another)
                || share_a_line(&|nic| far.get(nic), far_one, far_another)
        };
        match waves.iter_mut().find(|wave| !wave.iter().any(meets)) {
            Some(wave) => wave.push(pair),
            None => waves.push(vec![pair]),
        }
    }
    waves
}

/// Whether two interfaces of one host share its line, by what each stands on; one of which that is not told stands on itself.
pub fn share_a_line<'p>(
    ports: &dyn Fn(&str) -> Option<&'p BTreeSet<String>>,
    one: &str,
    other: &str,
) -> bool {
    let of = |nic: &str| {
        let itself = || BTreeSet::from([nic.to_owned()]);
        ports(nic).cloned().unwrap_or_else(itself)
    };
    one == other || !of(one).is_disjoint(&of(other))
}

#[cfg(test)]
mod tests {
    use drover_migrate::paths::{Selection, select};

    use super::*;

    fn nic(name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        Interface {
            name: name.into(),
            addresses: addresses.collect(),
            speed: None,
            mtu: 1500,
            up: true,
            loopback: name == "lo",
            tx_queues: 1,
            rx_queues: 1,
            rdma: None,
        }
    }

    fn asked(own: &[Interface], other: &[Interface]) -> Pairs {
        let all = Selection::default();
        let ours = select(Side::Source, own, &all);
        let theirs = select(Side::Destination, other, &all);
        let (claimed, _) = candidates(own, &ours, &theirs);
        pairs(&ours, &theirs, &claimed)
    }

    fn names(pairs: &[Pair]) -> Vec<String> {
        let name = |pair: &Pair| format!("{}-{}", pair.near.interface, pair.far.interface);
        pairs.iter().map(name).collect()
    }

    #[test]
    fn interfaces_of_one_network_are_asked_and_one_that_has_no_peer_is_told() {
        let own = [
            nic("lo", &["127.0.0.1/8"]),
            nic("a0", &["10.0.0.1/24"]),
            nic("a1", &["10.0.1.1/24"]),
            nic("a2", &[]),
        ];
        let other = [nic("b0", &["10.0.0.2/24"]), nic("b1", &["10.0.1.2/24"])];
        let found = asked(&own, &other);
        assert_eq!(names(&found.chosen), ["a0-b0", "a1-b1"]);
        let left: Vec<_> = found.left_out.iter().map(|left| &left.interface).collect();
        assert_eq!(left, ["a2"]);
    }

    #[test]
    fn interfaces_of_different_networks_are_asked_where_they_answered() {
        let own = [nic("a0", &["10.0.0.1/24"]), nic("a1", &["10.1.0.1/24"])];
        let other = [nic("b0", &["10.8.0.2/24"]), nic("b1", &["10.9.0.2/24"])];
        let all = Selection::default();
        let ours = select(Side::Source, &own, &all);
        let theirs = select(Side::Destination, &other, &all);
        let (claimed, across) = candidates(&own, &ours, &theirs);
        assert_eq!((claimed.len(), across.len()), (0, 4));
        // Whichever it is: none is guessed.
        for one in across {
            let name = format!("{}-{}", one.source.interface, one.destination.interface);
            let found = pairs(&ours, &theirs, &[one]);
            assert_eq!(names(&found.chosen), [name]);
            assert_eq!(found.left_out.len(), 1);
        }
    }

    #[test]
    fn interfaces_of_guests_are_nobodys_and_what_is_wrong_with_one_alone_names_no_other_host() {
        let own = [
            nic("tap0", &["fe80::1/64"]),
            nic("br0", &["10.0.0.1/24"]),
            nic("eth0", &[]),
            nic("veth1", &[]),
        ];
        let kept = matter(&own, |name| name == "eth0");
        let kept: Vec<_> = kept.into_iter().map(|nic| nic.name).collect();
        assert_eq!(kept, ["br0", "eth0"]);
        let (near, far) = ("a".parse().unwrap(), "b".parse().unwrap());
        let far_of = |reason| {
            let left = LeftOut {
                side: Side::Source,
                interface: "eth0".into(),
                address: None,
                reason,
            };
            told(&near, &far, left).far
        };
        assert_eq!(far_of(LeftOutReason::NoAddress), None);
        assert_eq!(far_of(LeftOutReason::NoPeer), Some(far.clone()));
    }

    #[test]
    fn no_interface_is_asked_on_two_paths_at_once() {
        let own: Vec<_> = (1..=4)
            .map(|at| nic(&format!("a{at}"), &[&format!("10.0.0.{at}/24")]))
            .collect();
        let found = asked(
            &own,
            &[nic("b0", &["10.0.0.9/24"]), nic("b1", &["10.0.0.8/24"])],
        );
        assert_eq!(found.chosen.len(), 4);
        let waves = waves(found.chosen.clone(), &Ports::new(), &Ports::new());
        // Those beyond the first two share an interface of the other host with them.
        assert_eq!(waves[0].len(), 2);
        for wave in &waves {
            for (at, pair) in wave.iter().enumerate() {
                for other in &wave[at + 1..] {
                    assert_ne!(pair.near.interface, other.near.interface);
                    assert_ne!(pair.far.interface, other.far.interface);
                }
            }
        }
        let mut all = names(&waves.concat());
        all.sort();
        assert_eq!(all, names(&found.chosen));
    }

    #[test]
    fn vlans_of_one_port_at_either_end_are_asked_one_after_the_other() {
        let own = [
            nic("a0.1", &["10.0.1.1/24"]),
            nic("a0.2", &["10.0.2.1/24"]),
            nic("a1", &["10.0.3.1/24"]),
        ];
        let other = [
            nic("b0", &["10.0.1.2/24"]),
            nic("b1.2", &["10.0.2.2/24"]),
            nic("b1.3", &["10.0.3.2/24"]),
        ];
        let chosen = asked(&own, &other).chosen;
        let stands = |names: &[&str], port: &str| -> Ports {
            let on = |name: &&str| ((*name).to_owned(), BTreeSet::from([port.to_owned()]));
            names.iter().map(on).collect()
        };
        let near = stands(&["a0.1", "a0.2"], "a0");
        let far = stands(&["b1.2", "b1.3"], "b1");
        let waves = |near: &Ports, far: &Ports| {
            let waves = waves(chosen.clone(), near, far);
            waves.iter().map(|wave| names(wave)).collect::<Vec<_>>()
        };
        let none = Ports::new();
        assert_eq!(waves(&none, &none).len(), 1);
        assert_eq!(waves(&near, &none).len(), 2);
        let both = waves(&near, &far);
        assert_eq!(both, [vec!["a0.1-b0", "a1-b1.3"], vec!["a0.2-b1.2"]]);
    }
}
