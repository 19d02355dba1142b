//! The host's network interfaces.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use drover_types::{Interface, IpNetwork};
use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};

use crate::error::HostError;
use crate::ethtool::Ethtool;
use crate::limits::{LINKS, NETLINK};
use crate::sysfs::{self, Identity};

/// Reads the interfaces of this process's network namespace, in the kernel's order; `root` is
/// where `/sys` is below.
///
/// # Errors
///
/// [`HostError::Socket`], [`HostError::Netlink`] and [`HostError::Late`] when the kernel does not
/// answer. Facts that a driver does not give are `None`.
pub async fn interfaces(root: &Path) -> Result<Vec<Interface>, HostError> {
    let listed = listed(root).await?.into_iter();
    Ok(listed.map(|listed| listed.interface).collect())
}

/// An interface, and what else is to be known of it to ask about it.
pub(crate) struct Listed {
    pub(crate) interface: Interface,
    pub(crate) index: u32,
    /// Administratively up.
    pub(crate) enabled: bool,
    /// It has a folder in `/sys`, which is its own.
    pub(crate) has_folder: bool,
    /// It has hardware.
    pub(crate) has_device: bool,
    /// Several adapters as one, by `teamd`: no file tells that.
    pub(crate) team: bool,
    /// Its queueing discipline.
    pub(crate) qdisc: Option<String>,
}

/// The interfaces of this process's network namespace, in the kernel's order.
pub(crate) async fn listed(root: &Path) -> Result<Vec<Listed>, HostError> {
    let (links, addresses) = ask().await?;
    let mut ethtool = Ethtool::open();
    let mut by_index = by_index(&addresses);
    let found = links.iter().filter_map(|link| {
        let addresses = by_index.remove(&link.header.index).unwrap_or_default();
        interface(root, link, addresses, ethtool.as_mut())
    });
    Ok(found.collect())
}

/// The folder in `/sys` of each of these interfaces that has one in this network namespace.
pub(crate) async fn folders(
    root: &Path,
    names: &[&str],
) -> Result<BTreeMap<String, PathBuf>, HostError> {
    let (links, _) = ask().await?;
    let folder = |link: &LinkMessage| {
        let identity = identity(link).filter(|link| names.contains(&link.name.as_str()))?;
        let folder = sysfs::folder(root, &identity)?;
        Some((identity.name, folder))
    };
    Ok(links.iter().filter_map(folder).collect())
}

/// An interface that is hardware for Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hardware {
    pub(crate) index: u32,
    /// It is one of several that an adapter makes of itself (SR-IOV), and that is on this host, too.
    pub(crate) is_virtual_function: bool,
}

/// That of this network namespace.
pub(crate) async fn hardware(root: &Path) -> Result<BTreeMap<String, Hardware>, HostError> {
    let (links, _) = ask().await?;
    let of = |link: &LinkMessage| {
        let is_ethernet = link.header.link_layer_type == LinkLayerType::Ether;
        // Most are of guests, and one look at each of these is enough.
        let is_adapter = |own: &Identity| is_ethernet && sysfs::has_hardware(root, &own.name);
        let identity = identity(link).filter(is_adapter)?;
        let folder = sysfs::folder(root, &identity)?;
        let hardware = Hardware {
            index: identity.index,
            is_virtual_function: folder.join("device/physfn").exists(),
        };
        Some((identity.name, hardware))
    };
    Ok(links.iter().filter_map(of).collect())
}

pub(crate) async fn ask() -> Result<(Vec<LinkMessage>, Vec<AddressMessage>), HostError> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|source| HostError::Socket { source })?;
    let connection = tokio::spawn(connection);
    let listed = tokio::time::timeout(NETLINK, list(&handle)).await;
    connection.abort();
    let late = |_| HostError::Late {
        seconds: NETLINK.as_secs(),
    };
    listed.map_err(late)?
}

pub(crate) async fn list(
    handle: &Handle,
) -> Result<(Vec<LinkMessage>, Vec<AddressMessage>), HostError> {
    let failed = |what| move |source| HostError::Netlink { what, source };
    let mut links = Vec::new();
    let mut listed = handle.link().get().execute();
    while let Some(link) = listed.try_next().await.map_err(failed("links"))? {
        if links.len() < LINKS {
            links.push(link);
        }
    }
    let mut addresses = Vec::new();
    let mut listed = handle.address().get().execute();
    while let Some(address) = listed.try_next().await.map_err(failed("addresses"))? {
        if addresses.len() < LINKS {
            addresses.push(address);
        }
    }
    Ok((links, addresses))
}

fn by_index(messages: &[AddressMessage]) -> BTreeMap<u32, Vec<IpNetwork>> {
    let mut by_index: BTreeMap<u32, Vec<IpNetwork>> = BTreeMap::new();
    for message in messages {
        if let Some(network) = network(message) {
            by_index
                .entry(message.header.index)
                .or_default()
                .push(network);
        }
    }
    by_index
}

/// The host's own address in `message`; `None` for one that cannot be bound to yet or any more.
pub(crate) fn network(message: &AddressMessage) -> Option<IpNetwork> {
    let (mut local, mut address): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    let mut flags = AddressFlags::empty();
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(set) => flags = *set,
            _ => {}
        }
    }
    if flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed) {
        return None;
    }
    // On a point-to-point link "address" is the peer's (rtnetlink(7)).
    IpNetwork::new(local.or(address)?, message.header.prefix_len)
}

fn interface(
    root: &Path,
    link: &LinkMessage,
    addresses: Vec<IpNetwork>,
    ethtool: Option<&mut Ethtool>,
) -> Option<Listed> {
    let Some(identity) = identity(link) else {
        tracing::warn!(
            index = link.header.index,
            "the kernel listed an interface without a name"
        );
        return None;
    };
    let flags = link.header.flags;
    let mut interface = Interface {
        name: identity.name.clone(),
        addresses,
        speed: None,
        mtu: 0,
        up: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        tx_queues: 1,
        rx_queues: 1,
        rdma: None,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::NumTxQueues(queues) => interface.tx_queues = *queues,
            LinkAttribute::NumRxQueues(queues) => interface.rx_queues = *queues,
            _ => {}
        }
    }
    let folder = sysfs::folder(root, &identity);
    interface.speed = ethtool
        .and_then(|ethtool| ethtool.speed(identity.index))
        .or_else(|| folder.as_deref().and_then(sysfs::speed));
    let rdma = folder
        .as_deref()
        .map(|folder| sysfs::rdma(root, folder, &identity.name));
    interface.rdma = rdma.flatten();
    Some(Listed {
        interface,
        index: identity.index,
        enabled: flags.contains(LinkFlags::Up),
        has_device: folder
            .as_deref()
            .is_some_and(|folder| folder.join("device").exists()),
        has_folder: folder.is_some(),
        team: is_team(link),
        qdisc: qdisc(link),
    })
}

fn qdisc(link: &LinkMessage) -> Option<String> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Qdisc(kind) => Some(kind.clone()),
            _ => None,
        })
}

fn is_team(link: &LinkMessage) -> bool {
    let is_team = LinkInfo::Kind(InfoKind::Team);
    link.attributes.iter().any(
        |attribute| matches!(attribute, LinkAttribute::LinkInfo(told) if told.contains(&is_team)),
    )
}

/// Which interface a link is; `None` where the kernel gives it no name.
fn identity(link: &LinkMessage) -> Option<Identity> {
    let (mut name, mut hardware_address) = (None, Vec::new());
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(own) => name = Some(own.clone()),
            LinkAttribute::Address(address) => hardware_address.clone_from(address),
            _ => {}
        }
    }
    Some(Identity {
        name: name.filter(|name| !name.is_empty())?,
        index: link.header.index,
        hardware_address,
    })
}
