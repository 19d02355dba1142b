//! By which interface the kernel would send.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};

use crate::error::HostError;
use crate::limits::NETLINK;

/// The name of the interface by which packets from that address of this host to the other one would leave, were no
/// interface named: `ip route get TO from FROM`. Both are of one family.
///
/// # Errors
/// The kernel has no route, no such address, or does not answer.
pub async fn route(from: IpAddr, to: IpAddr) -> Result<String, HostError> {
    let (connection, handle, _) =
        rtnetlink::new_connection().map_err(|source| HostError::Socket { source })?;
    let connection = tokio::spawn(connection);
    let found = tokio::time::timeout(NETLINK, ask(&handle, from, to)).await;
    connection.abort();
    let seconds = NETLINK.as_secs();
    found.map_err(|_| HostError::Late { seconds })?
}

async fn ask(handle: &Handle, from: IpAddr, to: IpAddr) -> Result<String, HostError> {
    let failed = |source| HostError::NoRoute { from, to, source };
    let index = out_of(handle, from, to).await.map_err(failed)?;
    let what = "links";
    let failed = |source| HostError::Netlink { what, source };
    let index = index.ok_or(HostError::NoInterface { from, to })?;
    let mut links = handle.link().get().match_index(index).execute();
    let link = links.try_next().await.map_err(failed)?;
    let name = link.and_then(|link| {
        let names = link.attributes.into_iter();
        names.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
    });
    name.ok_or(HostError::NoInterface { from, to })
}

async fn out_of(
    handle: &Handle,
    from: IpAddr,
    to: IpAddr,
) -> Result<Option<u32>, rtnetlink::Error> {
    let mut message = RouteMessage::default();
    let bits = if to.is_ipv4() { 32 } else { 128 };
    message.header.address_family = match to {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.source_prefix_length = bits;
    message.header.destination_prefix_length = bits;
    message.attributes = vec![
        RouteAttribute::Source(address(from)),
        RouteAttribute::Destination(address(to)),
    ];
    let mut routes = handle.route().get(message).execute();
    let route = routes.try_next().await?;
    let attributes = route.map(|route| route.attributes).unwrap_or_default();
    Ok(attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(index),
            _ => None,
        }))
}

fn address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}
