//! What stands on what among the interfaces of this network namespace, and what the kernel makes of an interface's largest packet when that
//! of one below it changes.
//!
//! ```text
//!   br0.7     a VLAN: its `over` is br0
//!   br0       a bridge
//!   eth0      its `port_of` is br0
//! ```

use std::collections::{BTreeMap, BTreeSet};

use drover_types::Layer;
use rtnetlink::packet_route::address::AddressMessage;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::error::HostError;
use crate::interfaces::{ask, network};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    links: Vec<Link>,
    /// Indexes of those that have an address by which other hosts are reached.
    addressed: BTreeSet<u32>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Its largest packet, in bytes.
    pub(crate) mtu: u32,
    pub(crate) fits: Fits,
    /// The index of the one that it stands on, if that is one.
    over: Option<u32>,
    /// That of the bridge or bond that it is a port of.
    port_of: Option<u32>,
}

/// What becomes of an interface's largest packet when that of one below it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    /// It becomes smaller with it, and never larger again (`vlan_device_event`, `macvlan_device_event`, `macsec_notify`).
    Shrinks,
    /// It becomes the same (`ipvlan_adjust_mtu`).
    Follows,
    /// That of the smallest port, unless somebody has set it since the bridge was made (`br_mtu_auto_adjust`): which of both is told nowhere.
    Bridge,
    /// It stays, and says nothing of what is sent: that of a VRF is 65575.
    Apart,
    /// It stays, as a bond's does.
    Stays,
}

/// How each interface of this network namespace stands on others.
///
/// # Errors
/// As [`crate::interfaces`].
pub async fn layers() -> Result<BTreeMap<String, Layer>, HostError> {
    Ok(Stack::read().await?.layers())
}

/// One of a test: its name, largest packet, what becomes of that, what it stands on and what it is a port of.
#[cfg(test)]
pub(crate) type Made<'a> = (&'a str, u32, Fits, Option<&'a str>, Option<&'a str>);

impl Stack {
    /// As the kernel tells it now.
    ///
    /// # Errors
    /// As [`crate::interfaces`].
    pub(crate) async fn read() -> Result<Self, HostError> {
        let (links, addresses) = ask().await?;
        let addressed = addresses.iter().filter(|message| reaches_others(message));
        Ok(Self {
            links: links.iter().filter_map(Link::of).collect(),
            addressed: addressed.map(|message| message.header.index).collect(),
        })
    }

    #[cfg(test)]
    pub(crate) fn made(links: &[Made<'_>]) -> Self {
        let index = |name: &str| {
            let at = links.iter().position(|(own, ..)| *own == name);
            at.map(|at| at as u32)
        };
        let link = |(name, mtu, fits, over, port_of): &Made<'_>| Link {
            index: index(name).unwrap(),
            name: (*name).to_owned(),
            mtu: *mtu,
            fits: *fits,
            over: over.and_then(index),
            port_of: port_of.and_then(index),
        };
        Self {
            links: links.iter().map(link).collect(),
            addressed: BTreeSet::new(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    fn layers(&self) -> BTreeMap<String, Layer> {
        let names = self.links.iter().map(|link| (link.index, &link.name));
        let names: BTreeMap<u32, &String> = names.collect();
        let mut ports: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for link in &self.links {
            if let Some(of) = link.port_of {
                ports.entry(of).or_default().insert(link.name.clone());
            }
        }
        let layer = |link: &Link| {
            let mut on = ports.get(&link.index).cloned().unwrap_or_default();
            let over = link.over.and_then(|over| names.get(&over));
            on.extend(over.map(|over| (*over).clone()));
            let layer = Layer {
                on,
                mtu: link.mtu,
                follows: link.fits == Fits::Follows
                    || (link.fits == Fits::Bridge && self.may_follow(link)),
                has_address: self.addressed.contains(&link.index),
            };
            (link.name.clone(), layer)
        };
        self.links.iter().map(layer).collect()
    }

    /// What stands on it right away.
    pub(crate) fn on<'s>(&'s self, link: &'s Link) -> impl Iterator<Item = &'s Link> {
        let index = Some(link.index);
        let upper = move |other: &&Link| other.over == index || link.port_of == Some(other.index);
        self.links.iter().filter(upper)
    }

    /// Whether a bridge may have its largest packet follow its ports: one that has not that of its smallest port was set by hand.
    pub(crate) fn may_follow(&self, bridge: &Link) -> bool {
        let index = Some(bridge.index);
        let ports = self.links.iter().filter(|link| link.port_of == index);
        ports.map(|port| port.mtu).min() == Some(bridge.mtu)
    }
}

impl Link {
    /// `None` of one without a name.
    fn of(message: &LinkMessage) -> Option<Self> {
        let (mut name, mut mtu) = (None, 0);
        let (mut link, mut is_elsewhere, mut port_of) = (None, false, None);
        let mut told: &[LinkInfo] = &[];
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(own) => name = Some(own.clone()),
                LinkAttribute::Mtu(own) => mtu = *own,
                LinkAttribute::Link(index) => link = Some(*index),
                LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
                LinkAttribute::Controller(index) => port_of = Some(*index),
                LinkAttribute::LinkInfo(info) => told = info,
                _ => {}
            }
        }
        let kind = told.iter().find_map(|told| match told {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        });
        // The index of one of another network namespace may be another one's here.
        let over = over(kind, link, told).filter(|_| !is_elsewhere);
        Some(Self {
            index: message.header.index,
            name: name.filter(|name| !name.is_empty())?,
            mtu,
            fits: fits(kind),
            over,
            port_of,
        })
    }
}

/// Every link has one of its own by itself, and a VRF that of a loopback.
fn reaches_others(message: &AddressMessage) -> bool {
    network(message).is_some_and(|own| !own.is_link_local() && !own.address().is_loopback())
}

fn fits(kind: Option<&InfoKind>) -> Fits {
    match kind {
        Some(InfoKind::Vlan | InfoKind::MacVlan | InfoKind::MacVtap | InfoKind::MacSec) => {
            Fits::Shrinks
        }
        Some(InfoKind::IpVlan | InfoKind::IpVtap) => Fits::Follows,
        Some(InfoKind::Bridge) => Fits::Bridge,
        Some(InfoKind::Vrf) => Fits::Apart,
        _ => Fits::Stays,
    }
}

/// What others have as their link is another thing: of a veth its other end.
fn over(kind: Option<&InfoKind>, link: Option<u32>, told: &[LinkInfo]) -> Option<u32> {
    match kind? {
        InfoKind::Vlan
        | InfoKind::MacVlan
        | InfoKind::MacVtap
        | InfoKind::MacSec
        | InfoKind::IpVlan
        | InfoKind::IpVtap => link,
        InfoKind::Vxlan => told.iter().find_map(|told| match told {
            LinkInfo::Data(InfoData::Vxlan(all)) => all.iter().find_map(|one| match one {
                InfoVxlan::Link(index) => Some(*index),
                _ => None,
            }),
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::address::AddressAttribute;

    use super::*;

    fn told(index: u32, attributes: &[LinkAttribute]) -> Link {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes.to_vec();
        Link::of(&message).unwrap()
    }

    fn kind(kind: InfoKind) -> LinkAttribute {
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)])
    }

    #[test]
    fn a_vlan_is_over_its_link_a_veth_over_nothing_and_a_port_below_its_bridge() {
        let name = |name: &str| LinkAttribute::IfName(name.to_owned());
        let link = || LinkAttribute::Link(3);
        let vlan = told(
            5,
            &[
                name("v"),
                LinkAttribute::Mtu(9000),
                link(),
                kind(InfoKind::Vlan),
            ],
        );
        let (over, fits) = (Some(3), Fits::Shrinks);
        assert_eq!((vlan.over, vlan.fits, vlan.mtu), (over, fits, 9000));
        let elsewhere = [
            name("v"),
            link(),
            LinkAttribute::LinkNetNsId(0),
            kind(InfoKind::Vlan),
        ];
        assert_eq!(told(5, &elsewhere).over, None);
        let veth = [
            name("p"),
            link(),
            LinkAttribute::Controller(7),
            kind(InfoKind::Veth),
        ];
        let veth = told(6, &veth);
        assert_eq!(
            (veth.over, veth.port_of, veth.fits),
            (None, Some(7), Fits::Stays)
        );
        let vxlan = InfoData::Vxlan(vec![InfoVxlan::Link(3)]);
        let vxlan = vec![LinkInfo::Kind(InfoKind::Vxlan), LinkInfo::Data(vxlan)];
        let vxlan = told(8, &[name("x"), LinkAttribute::LinkInfo(vxlan)]);
        assert_eq!((vxlan.over, vxlan.fits), (Some(3), Fits::Stays));
    }

    #[test]
    fn what_reaches_others_is_no_address_of_a_link_itself_and_none_of_a_loopback() {
        let reaches = |address: &str| {
            let mut message = AddressMessage::default();
            let address = address.parse().unwrap();
            message.attributes = vec![AddressAttribute::Address(address)];
            message.header.prefix_len = 8;
            reaches_others(&message)
        };
        let all = ["10.0.0.1", "fd00::1", "fe80::1", "169.254.0.1", "127.0.0.1"];
        assert_eq!(all.map(reaches), [true, true, false, false, false]);
    }

    #[test]
    fn a_bridge_may_follow_its_ports_unless_it_differs_from_the_smallest_of_them() {
        let bridge = |mtu: u32| {
            let stack = Stack::made(&[
                ("br0", mtu, Fits::Bridge, None, None),
                ("eth0", 9000, Fits::Stays, None, Some("br0")),
                ("tap0", 1500, Fits::Stays, None, Some("br0")),
                ("eth1", 1400, Fits::Stays, None, None),
            ]);
            stack.may_follow(stack.find("br0").unwrap())
        };
        assert_eq!([1400, 1500, 9000].map(bridge), [false, true, false]);
    }

    #[test]
    fn what_stands_on_an_interface_is_what_is_over_it_and_what_it_is_a_port_of() {
        let stack = Stack::made(&[
            ("eth0", 9000, Fits::Stays, None, Some("br0")),
            ("br0", 9000, Fits::Bridge, None, None),
            ("eth0.7", 1500, Fits::Shrinks, Some("eth0"), None),
            ("br0.7", 1500, Fits::Shrinks, Some("br0"), None),
        ]);
        let on = |name: &str| -> Vec<&str> {
            let on = stack.on(stack.find(name).unwrap());
            on.map(|link| link.name.as_str()).collect()
        };
        assert_eq!(on("eth0"), ["br0", "eth0.7"]);
        assert_eq!(on("br0"), ["br0.7"]);
        assert_eq!(on("br0.7"), [""; 0]);
        let addressed = BTreeSet::from([stack.find("br0").unwrap().index]);
        let layers = Stack { addressed, ..stack }.layers();
        let told = |name: &str| {
            let layer = &layers[name];
            assert_eq!(layer.has_address, name == "br0", "{name}");
            let on = layer.on.iter().map(String::as_str);
            (Vec::from_iter(on), layer.mtu, layer.follows)
        };
        assert_eq!(told("eth0"), (vec![], 9000, false));
        assert_eq!(told("br0"), (vec!["eth0"], 9000, true));
        assert_eq!(told("br0.7"), (vec!["br0"], 1500, false));
    }
}
