//! Network interfaces as agents tell each other of them, and the paths between two hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::BitRate;

/// Text that is no network in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a network: write 10.0.1.0/24 or fd00:1::/64")]
pub struct InvalidNetwork {
    text: String,
}

/// An address with its prefix length: an interface's own address, or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpNetwork {
    address: IpAddr,
    prefix: u8,
}

impl IpNetwork {
    /// `None` when the prefix is longer than the address.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= longest).then_some(Self { address, prefix })
    }

    /// The address, host bits included.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Every link has such addresses by itself.
    #[must_use]
    pub fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }

    /// The network itself: without host bits.
    #[must_use]
    pub fn network(&self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix));
                IpAddr::V4((address.to_bits() & mask.unwrap_or(0)).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix));
                IpAddr::V6((address.to_bits() & mask.unwrap_or(0)).into())
            }
        };
        Self {
            address,
            prefix: self.prefix,
        }
    }

    /// Whether `address` lies in this network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                let (own, other) = (u64::from(own.to_bits()), u64::from(other.to_bits()));
                own >> shift == other >> shift
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix);
                let cut = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
                cut(own.to_bits()) == cut(other.to_bits())
            }
            _ => false,
        }
    }

    /// Whether both addresses lie in the same network, each by its own prefix.
    #[must_use]
    pub fn shares_network(&self, other: &Self) -> bool {
        self.prefix == other.prefix && self.contains(other.address)
    }
}

impl FromStr for IpNetwork {
    type Err = InvalidNetwork;
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let parsed = text
            .split_once('/')
            .and_then(|(address, prefix)| Self::new(address.parse().ok()?, prefix.parse().ok()?));
        parsed.ok_or_else(|| InvalidNetwork {
            text: text.chars().take(60).collect(),
        })
    }
}

impl TryFrom<String> for IpNetwork {
    type Error = InvalidNetwork;
    fn try_from(text: String) -> Result<Self, InvalidNetwork> {
        text.parse()
    }
}

impl From<IpNetwork> for String {
    fn from(network: IpNetwork) -> String {
        network.to_string()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A network interface of a host, as its agent read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's name, such as `eth0`.
    pub name: String,
    /// Its addresses with their prefixes.
    pub addresses: Vec<IpNetwork>,
    /// Negotiated link rate; `None` where the driver tells none.
    pub speed: Option<BitRate>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Administratively up, with carrier.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// The RDMA device on this interface, such as `mlx5_0`; `None` where there is none.
    pub rdma: Option<String>,
}

/// How an interface of a host stands on others of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// Those that it stands on right away: a VLAN's port, a bond's members, a bridge's ports.
    pub on: BTreeSet<String>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// The kernel may have its largest packet follow theirs, as it does with a bridge that nobody has set.
    pub follows: bool,
    /// It has an address by which other hosts are reached, beside those that every link has.
    pub has_address: bool,
}

/// A path's number within one session, in the order of preference.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PathId(pub u16);

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One end of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathEnd {
    /// The interface's name on its host.
    pub interface: String,
    /// The address that lanes are bound or connected to.
    pub address: IpAddr,
}

/// A pair of interfaces, one on each host, that reach each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Its number within the session.
    pub id: PathId,
    /// The end at the source.
    pub source: PathEnd,
    /// The end at the destination.
    pub destination: PathEnd,
    /// The slower end's link rate, where known.
    pub rate: Option<BitRate>,
    /// The smaller end's MTU in bytes.
    pub mtu: u32,
}

/// What counts as one address where places are shared out: in IPv6 everybody has 2^64 of them.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses_at_every_prefix_length() {
        assert!(network("10.0.1.7/24").contains("10.0.1.200".parse().unwrap()));
        assert!(!network("10.0.1.7/24").contains("10.0.2.7".parse().unwrap()));
        assert!(network("0.0.0.0/0").contains("192.0.2.1".parse().unwrap()));
        assert!(network("::/0").contains("fd00::1".parse().unwrap()));
        assert!(!network("::/0").contains("10.0.0.1".parse().unwrap()));
        assert!(network("fd00:1::1/128").contains("fd00:1::1".parse().unwrap()));
    }

    #[test]
    fn prefixes_longer_than_the_address_are_refused() {
        for bad in [
            "10.0.0.0/33",
            "fd00::/129",
            "10.0.0.0",
            "10.0.0.0/",
            "/8",
            "a/8",
        ] {
            assert!(bad.parse::<IpNetwork>().is_err(), "{bad}");
        }
    }

    #[test]
    fn neighbours_in_one_ipv6_network_are_one() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("fd00::1"), of("fd00::ffff:1"));
        assert_ne!(of("fd00::1"), of("fd00:0:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
