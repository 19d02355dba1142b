//! Two hosts on one network.

use drover_types::IpNetwork;

use super::used::{is_in_use, rate};
use crate::cost::of_rate;
use crate::facts::{Fact, Host, Kind, Layers, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Interfaces of two hosts that share a network: those of the first host, and their partners.
fn shared<'h>(host: &'h Host, other: &'h Host) -> impl Iterator<Item = (&'h Nic, &'h Nic)> {
    host.nics.iter().filter_map(|nic| {
        let reaches = |far: &&Nic| {
            let near = nic.addresses.iter();
            near.flat_map(|own| far.addresses.iter().map(move |far| (own, far)))
                .any(|(own, far)| are_one(own, far))
        };
        Some((nic, other.nics.iter().find(reaches)?))
    })
}

/// Two addresses of one network. What every link has by itself says nothing.
fn are_one(own: &IpNetwork, far: &IpNetwork) -> bool {
    // A network that each host has for itself, such as a container's bridge, has one address everywhere.
    !own.is_link_local() && own.address() != far.address() && own.network() == far.network()
}

fn each(host: &Host, other: &Host, ask: impl Fn(&Nic, &Nic) -> Verdict) -> Vec<(String, Verdict)> {
    let pairs = shared(host, other);
    pairs
        .map(|(nic, far)| (nic.name.clone(), ask(nic, far)))
        .collect()
}

/// No address of a network is two hosts'.
pub fn address(host: &Host, other: &Host) -> Vec<(String, Verdict)> {
    let mut twice: Vec<(String, Verdict)> = Vec::new();
    for nic in host.nics.iter().filter(|nic| may_lead_out(host, nic)) {
        for own in nic.addresses.iter().filter(|own| is_of_a_network(own)) {
            let has = |far: &&Nic| {
                let same = |address: &IpNetwork| address.address() == own.address();
                may_lead_out(other, far) && far.addresses.iter().any(same)
            };
            let Some(far) = other.nics.iter().find(has) else {
                continue;
            };
            let found = address_found(own, far, &other.name);
            twice.push((nic.name.clone(), Ok(Answer::Found(found))));
        }
    }
    let is_told = |nic: &str| twice.iter().any(|(found, _)| found == nic);
    let right: Vec<_> = shared(host, other)
        .filter(|(nic, _)| !is_told(&nic.name))
        .map(|(nic, _)| (nic.name.clone(), Ok(Answer::Right)))
        .collect();
    [twice, right].concat()
}

/// A bridge without hardware is each host's own, and has one address everywhere.
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

/// Both ends of a network have the same largest packet.
pub fn mtu(host: &Host, other: &Host) -> Vec<(String, Verdict)> {
    each(host, other, |nic, far| {
        if nic.mtu == far.mtu {
            return Ok(Answer::Right);
        }
        let least = nic.mtu.min(far.mtu);
        Ok(Answer::Found(Found {
            severity: Severity::Warning,
            read: format!("{} bytes, and {} of {}", nic.mtu, far.mtu, far.name),
            expected: "the same".into(),
            why: "the larger packets of one are lost at the other, unless a switch or router tells"
                .into(),
            cost: None,
            change: None,
            by_hand: Some(format!(
                "set both to {least}, unless the whole path is known to carry more"
            )),
            lines: Vec::new(),
        }))
    })
}

/// Both ends of a network have the same rate.
pub fn speed(host: &Host, other: &Host) -> Vec<(String, Verdict)> {
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
            read: format!("{own}, and {there} of {}", far.name),
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

/// Both ends of a network have the same adapter, driver and firmware.
pub fn adapter(host: &Host, other: &Host) -> Vec<(String, Verdict)> {
    each(host, other, |nic, far| {
        let mut differ = Vec::new();
        let mut unknown = None;
        for (what, own, far) in [
            ("adapter", &nic.model, &far.model),
            ("driver", &nic.driver, &far.driver),
            ("firmware", &nic.firmware, &far.firmware),
        ] {
            match (own, far) {
                (Fact::Known(own), Fact::Known(far)) if own != far => {
                    differ.push(format!("{what} {own}, and {far}"));
                }
                (Fact::Known(_), Fact::Known(_)) => {}
                (Fact::Unknown(why), _) | (_, Fact::Unknown(why)) => {
                    unknown = Some(format!("{what}: {why}"));
                }
            }
        }
        match unknown {
            Some(why) if differ.is_empty() => Err(Because(why)),
            _ if differ.is_empty() => Ok(Answer::Right),
            _ => Ok(Answer::Found(Found {
                severity: Severity::Notice,
                read: differ.join("; "),
                expected: "the same".into(),
                why: "what one can the other may not, and each has faults of its own".into(),
                cost: None,
                change: None,
                by_hand: Some("bring both to one version".into()),
                lines: Vec::new(),
            })),
        }
    })
}
