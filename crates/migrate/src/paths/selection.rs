//! What an operator includes, excludes and prefers, applied to one host's interfaces.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use drover_types::{BitRate, Interface, IpNetwork};
use serde::{Deserialize, Serialize};

use super::{LeftOut, LeftOutReason, Side};
use crate::limits::{ADDRESSES, INTERFACES};

/// Longest glob: an interface's name has at most 15 characters.
const GLOB_LIMIT: usize = 64;

/// Networks or interfaces: `10.0.0.0/8`, `eth0`, `ens*`, `mlx?`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// Every address in this network.
    Network(IpNetwork),
    /// Every interface whose name this matches; `*` stands for any characters, `?` for one.
    Name(String),
}

/// Text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no network or interface: write 10.0.0.0/8, fd00::/8, eth0 or ens*, at most \
     {GLOB_LIMIT} characters"
)]
pub struct InvalidPattern {
    text: String,
}

impl Pattern {
    fn matches(&self, interface: &Interface, address: IpAddr) -> bool {
        match self {
            Self::Network(network) => network.contains(address),
            Self::Name(glob) => glob_matches(glob.as_bytes(), interface.name.as_bytes()),
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;
    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = || InvalidPattern {
            text: text.chars().take(GLOB_LIMIT + 1).collect(),
        };
        if text.contains('/') {
            return text.parse().map(Self::Network).map_err(|_| invalid());
        }
        let allowed = |c: char| c.is_ascii_graphic() && c != ',';
        // A lone address would match no name and do nothing in silence.
        let fits = !text.is_empty() && text.len() <= GLOB_LIMIT && text.chars().all(allowed);
        if fits && text.parse::<IpAddr>().is_err() {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(invalid())
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;
    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Name(glob) => f.write_str(glob),
        }
    }
}

/// Matches `*` and `?` without recursion: after a mismatch only the last `*` is tried again, so
/// the time is bounded by the product of both lengths.
fn glob_matches(glob: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while position < name.len() {
        match glob.get(at) {
            Some(b'*') => {
                retry = Some((at, position));
                at += 1;
            }
            Some(&c) if c == b'?' || c == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    at = star + 1;
                    position = from + 1;
                }
                None => return false,
            },
        }
    }
    glob.get(at..)
        .is_some_and(|rest| rest.iter().all(|c| *c == b'*'))
}

/// The configuration's `[networks]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Only these; all when empty.
    pub include: Vec<Pattern>,
    /// Never these; wins over `include`.
    pub exclude: Vec<Pattern>,
    /// These first, in this order; the others after them.
    pub order: Vec<Pattern>,
}

/// An address of an interface that may carry a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The interface's name.
    pub interface: String,
    /// The address with its prefix.
    pub address: IpNetwork,
    /// Its place in the operator's order, 0 first; `usize::MAX` where that does not name it.
    pub rank: usize,
    /// The link rate, where known.
    pub speed: Option<BitRate>,
    /// The MTU in bytes.
    pub mtu: u32,
}

/// What a host offers, and what it does not and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// By rank, then by interface and address.
    pub endpoints: Vec<Endpoint>,
    /// In the order of the interfaces.
    pub left_out: Vec<LeftOut>,
}

/// Applies a selection to the interfaces of the host on `side`.
#[must_use]
pub fn select(side: Side, interfaces: &[Interface], selection: &Selection) -> Selected {
    let mut selected = Selected::default();
    for (index, interface) in interfaces.iter().enumerate() {
        let mut leave_out = |address: Option<IpAddr>, reason| {
            let interface = interface.name.clone();
            selected.left_out.push(LeftOut {
                side,
                interface,
                address,
                reason,
            });
        };
        if let Some(reason) = unfit(index, interface) {
            leave_out(None, reason);
            continue;
        }
        for (number, address) in interface.addresses.iter().enumerate() {
            match judge(number, interface, address.address(), selection) {
                Err(reason) => leave_out(Some(address.address()), reason),
                Ok(rank) => selected.endpoints.push(Endpoint {
                    interface: interface.name.clone(),
                    address: *address,
                    rank,
                    speed: interface.speed,
                    mtu: interface.mtu,
                }),
            }
        }
    }
    selected.endpoints.sort_by(|one, other| {
        (one.rank, &one.interface, one.address).cmp(&(other.rank, &other.interface, other.address))
    });
    selected
}

fn unfit(index: usize, interface: &Interface) -> Option<LeftOutReason> {
    if interface.loopback {
        Some(LeftOutReason::Loopback)
    } else if !interface.up {
        Some(LeftOutReason::Down)
    } else if interface.addresses.is_empty() {
        Some(LeftOutReason::NoAddress)
    } else if index >= INTERFACES {
        Some(LeftOutReason::OverLimit { limit: INTERFACES })
    } else {
        None
    }
}

fn judge(
    number: usize,
    interface: &Interface,
    address: IpAddr,
    selection: &Selection,
) -> Result<usize, LeftOutReason> {
    if !routable(address) {
        return Err(LeftOutReason::NotRoutable);
    }
    let matches = |pattern: &&Pattern| pattern.matches(interface, address);
    if let Some(pattern) = selection.exclude.iter().find(matches) {
        return Err(LeftOutReason::Excluded {
            pattern: pattern.clone(),
        });
    }
    if !selection.include.is_empty() && selection.include.iter().find(matches).is_none() {
        return Err(LeftOutReason::NotIncluded);
    }
    if number >= ADDRESSES {
        return Err(LeftOutReason::OverLimit { limit: ADDRESSES });
    }
    let ranked = selection
        .order
        .iter()
        .position(|pattern| pattern.matches(interface, address));
    Ok(ranked.unwrap_or(usize::MAX))
}

/// Link-local addresses need an interface to be complete, which no peer can give.
fn routable(address: IpAddr) -> bool {
    let special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !special && !link_local
}
