//! Who is at the other end of a cable, as it says by LLDP: heard by this host's agent ([`Heard`], [`LldpSocket`]), or kept by systemd-networkd
//! (`/run/systemd/netif/lldp/INDEX`) where it listens (`LLDP=`). Never sends.
//!
//! ```text
//! kept:  length u64 little-endian, frame; again for each neighbour
//! ```

mod frame;
mod heard;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use drover_tune::facts::{HeardBy, Neighbour};

pub use self::heard::Heard;
pub use self::socket::LldpSocket;
use crate::error::HostError;
use crate::files::optional;
use crate::interfaces::{Hardware, hardware};
use crate::limits::{LLDP, LLDP_PORTS};
use crate::netlink::Answer;

/// What is kept of the interface with this index.
pub(crate) fn kept(root: &Path, index: u32) -> Answer {
    let path = root.join(format!("run/systemd/netif/lldp/{index}"));
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(LLDP).read_to_end(&mut bytes));
    read.map_err(|_| {
        "nothing here keeps what switches say by LLDP: this host's agent does while it runs, and systemd-networkd with LLDP=yes"
            .to_owned()
    })?;
    Ok(bytes)
}

/// Neighbours that systemd-networkd keeps, as far as their frames are whole.
pub(crate) fn neighbours(mut kept: &[u8]) -> Vec<Neighbour> {
    let mut all = Vec::new();
    while let Some((length, rest)) = kept.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((frame, rest)) = rest.split_at_checked(length) else {
            break;
        };
        kept = rest;
        let said = frame::said(frame, HeardBy::Networkd);
        all.extend(said.map(|said| said.neighbour));
    }
    all
}

/// How often the carrier of this interface went or came: what has not changed since says that the cable was not out. `None` where that is not known.
#[must_use]
pub fn carrier_changes(root: &Path, nic: &str) -> Option<u64> {
    let folder = root.join("sys/class/net").join(nic);
    optional(&folder.join("carrier_changes"))?.parse().ok()
}

/// Why nobody listens at an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoLldp {
    /// It is a virtual function.
    #[error(
        "it is a virtual function, and what a switch says is for the adapter that it is one of"
    )]
    VirtualFunction,
    /// The host has more than an agent listens at.
    #[error(
        "this host has more than the {LLDP_PORTS} adapters at which it listens, by their names"
    )]
    Beyond,
}

/// Where switches can be heard: interfaces with hardware of their own for Ethernet, with their index, or why that one is left out.
///
/// # Errors
/// As [`crate::interfaces`].
pub async fn lldp_ports(root: &Path) -> Result<BTreeMap<String, Result<u32, NoLldp>>, HostError> {
    Ok(chosen(hardware(root).await?))
}

fn chosen(all: BTreeMap<String, Hardware>) -> BTreeMap<String, Result<u32, NoLldp>> {
    let mut room = LLDP_PORTS;
    let of = |(name, hardware): (String, Hardware)| {
        let port = match (hardware.is_virtual_function, room) {
            (true, _) => Err(NoLldp::VirtualFunction),
            (false, 0) => Err(NoLldp::Beyond),
            (false, _) => {
                room -= 1;
                Ok(hardware.index)
            }
        };
        (name, port)
    };
    all.into_iter().map(of).collect()
}
