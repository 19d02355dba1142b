//! Opening a connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::Connection;

/// Where a lane goes, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Our interface: what is sent leaves by it whatever the routing table prefers.
    pub interface: String,
    /// Our address on that interface.
    pub local: IpAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Largest TCP segment in bytes, both ways, on a path that loses larger ones; `None` where the
    /// interface's MTU decides.
    pub segment: Option<u16>,
    /// How long to wait for the peer to accept.
    pub patience: Duration,
}

/// A lane that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{local} on {interface} does not reach {remote}", local = target.local,
        interface = target.interface, remote = target.remote)]
pub struct ConnectError {
    /// What was tried.
    pub target: Target,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

impl Connection {
    /// Connects, waiting at most as long as the target says.
    ///
    /// # Errors
    /// [`ConnectError`] with the kernel's reason.
    pub fn connect(target: &Target) -> Result<Self, ConnectError> {
        try_connect(target).map_err(|source| ConnectError {
            target: target.clone(),
            source,
        })
    }
}

fn try_connect(target: &Target) -> io::Result<Connection> {
    let socket = Socket::new(
        Domain::for_address(target.remote),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.bind_device(Some(target.interface.as_bytes()))?;
    socket.bind(&SocketAddr::new(target.local, 0).into())?;
    if let Some(segment) = target.segment {
        // Before connecting, as the peer is told in the SYN.
        socket.set_tcp_mss(segment.into())?;
    }
    socket.connect_timeout(&target.remote.into(), target.patience)?;
    Connection::adopt(socket.into())
}
