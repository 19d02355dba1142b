//! What happens to the host's links and addresses, as the kernel tells it (rtnetlink(7), multicast
//! groups `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR` and `RTMGRP_IPV6_IFADDR`).
//!
//! Works in the network namespace of the thread that opens it. The kernel tells many things more
//! than once; a change is given out once.

use std::collections::{BTreeMap, BTreeSet};

use drover_types::IpNetwork;
use futures_util::StreamExt;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::task::AbortHandle;

use crate::error::HostError;
use crate::interfaces::{list, network};
use crate::limits::{ADDRESSES, LINKS, NETLINK};

/// What happened to one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkChange {
    /// It was made, or moved into this network namespace.
    Appeared,
    /// It carries packets.
    Up,
    /// It was taken down, or lost its carrier.
    Down,
    /// It was removed, or moved away.
    Gone,
    /// It had this name until now.
    Renamed {
        /// The old name.
        from: String,
    },
    /// It has an address more that can be used.
    Address,
    /// It has an address less.
    AddressGone,
}

/// One change, or that some were missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A change of one interface.
    Changed {
        /// Its name, after a change of it the new one.
        interface: String,
        /// What changed.
        change: LinkChange,
    },
    /// There was more than could be taken in: anything may have changed.
    Missed,
}

type Messages = futures_util::stream::BoxStream<'static, NetlinkMessage<RouteNetlinkMessage>>;

/// A watch of this network namespace; ends with this value.
pub struct LinkWatch {
    messages: Messages,
    connection: AbortHandle,
    known: Known,
}

impl std::fmt::Debug for LinkWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkWatch").finish_non_exhaustive()
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl LinkWatch {
    /// Begins to watch: whatever changes from now on is given out.
    ///
    /// # Errors
    /// As [`crate::interfaces`].
    pub async fn open() -> Result<Self, HostError> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
        ];
        let (connection, handle, messages) =
            new_multicast_connection(&groups).map_err(|source| HostError::Socket { source })?;
        let connection = tokio::spawn(connection).abort_handle();
        let mut watch = Self {
            messages: messages.map(|(message, _)| message).boxed(),
            connection,
            known: Known::default(),
        };
        let listed = tokio::time::timeout(NETLINK, list(&handle)).await;
        let late = |_| HostError::Late {
            seconds: NETLINK.as_secs(),
        };
        let (links, addresses) = listed.map_err(late)??;
        for link in links {
            watch.known.take(RouteNetlinkMessage::NewLink(link));
        }
        for address in addresses {
            watch.known.take(RouteNetlinkMessage::NewAddress(address));
        }
        Ok(watch)
    }

    /// The next change; `None` when the kernel's socket broke and a new watch is needed.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        loop {
            match self.messages.next().await?.payload {
                NetlinkPayload::Overrun(_) => return Some(LinkEvent::Missed),
                NetlinkPayload::InnerMessage(message) => {
                    if let Some(event) = self.known.take(message) {
                        return Some(event);
                    }
                }
                _ => {}
            }
        }
    }
}

#[derive(Debug, Default)]
struct Link {
    name: String,
    up: bool,
    addresses: BTreeSet<IpNetwork>,
}

/// The state of every link, to tell a change from a repetition.
#[derive(Debug, Default)]
struct Known(BTreeMap<u32, Link>);

impl Known {
    /// Takes a message in; what it changed.
    fn take(&mut self, message: RouteNetlinkMessage) -> Option<LinkEvent> {
        let (interface, change) = match message {
            RouteNetlinkMessage::NewLink(link) => self.link(&link)?,
            RouteNetlinkMessage::DelLink(link) => {
                let gone = self.0.remove(&link.header.index)?;
                (gone.name, LinkChange::Gone)
            }
            RouteNetlinkMessage::NewAddress(message) => {
                let link = self.0.get_mut(&message.header.index)?;
                let usable = network(&message)?;
                let room = link.addresses.len() < ADDRESSES;
                let is_new = room && link.addresses.insert(usable);
                is_new.then(|| (link.name.clone(), LinkChange::Address))?
            }
            RouteNetlinkMessage::DelAddress(message) => {
                let link = self.0.get_mut(&message.header.index)?;
                let gone = link.addresses.remove(&network(&message)?);
                gone.then(|| (link.name.clone(), LinkChange::AddressGone))?
            }
            _ => return None,
        };
        Some(LinkEvent::Changed { interface, change })
    }

    fn link(&mut self, message: &LinkMessage) -> Option<(String, LinkChange)> {
        let name = message.attributes.iter().find_map(|attribute| {
            let LinkAttribute::IfName(name) = attribute else {
                return None;
            };
            Some(name.clone())
        })?;
        let both = LinkFlags::Up | LinkFlags::LowerUp;
        let up = message.header.flags.contains(both);
        let index = message.header.index;
        let Some(link) = self.0.get_mut(&index) else {
            if self.0.len() < LINKS {
                let link = Link {
                    name: name.clone(),
                    up,
                    addresses: BTreeSet::new(),
                };
                self.0.insert(index, link);
            }
            return Some((name, LinkChange::Appeared));
        };
        let was_up = std::mem::replace(&mut link.up, up);
        let from = std::mem::replace(&mut link.name, name.clone());
        let change = match (from != name, was_up, up) {
            (true, _, _) => LinkChange::Renamed { from },
            (false, false, true) => LinkChange::Up,
            (false, true, false) => LinkChange::Down,
            _ => return None,
        };
        Some((name, change))
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};

    use super::*;

    fn link(index: u32, name: &str, up: bool) -> RouteNetlinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        if up {
            message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        }
        message.attributes.push(LinkAttribute::IfName(name.into()));
        RouteNetlinkMessage::NewLink(message)
    }

    fn address(index: u32) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = 24;
        let local = AddressAttribute::Local([10, 0, 0, 1].into());
        message.attributes.push(local);
        message
    }

    fn changed(interface: &str, change: LinkChange) -> Option<LinkEvent> {
        let interface = interface.to_owned();
        Some(LinkEvent::Changed { interface, change })
    }

    #[test]
    fn each_change_is_told_once_and_repetitions_are_not() {
        let mut known = Known::default();
        let mut take = |message| known.take(message);
        assert_eq!(
            take(link(2, "nic0", false)),
            changed("nic0", LinkChange::Appeared)
        );
        assert_eq!(take(link(2, "nic0", true)), changed("nic0", LinkChange::Up));
        assert_eq!(take(link(2, "nic0", true)), None);
        let new = || RouteNetlinkMessage::NewAddress(address(2));
        assert_eq!(take(new()), changed("nic0", LinkChange::Address));
        assert_eq!(take(new()), None);
        assert_eq!(
            take(link(2, "nic0", false)),
            changed("nic0", LinkChange::Down)
        );
        let from = "nic0".to_owned();
        assert_eq!(
            take(link(2, "lan", false)),
            changed("lan", LinkChange::Renamed { from })
        );
        let gone = || RouteNetlinkMessage::DelAddress(address(2));
        assert_eq!(take(gone()), changed("lan", LinkChange::AddressGone));
        assert_eq!(take(gone()), None);
        let RouteNetlinkMessage::NewLink(message) = link(2, "lan", false) else {
            unreachable!()
        };
        let removed = || RouteNetlinkMessage::DelLink(message.clone());
        assert_eq!(take(removed()), changed("lan", LinkChange::Gone));
        assert_eq!(take(removed()), None);
    }

    #[test]
    fn a_message_that_lacks_what_it_always_has_changes_nothing() {
        let mut known = Known::default();
        let nameless = RouteNetlinkMessage::NewLink(LinkMessage::default());
        assert_eq!(known.take(nameless), None);
        let of_nobody = RouteNetlinkMessage::NewAddress(address(9));
        assert_eq!(known.take(of_nobody), None);
    }
}
