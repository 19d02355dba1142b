//! Opening a lane.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Lane;
use crate::limits::CONNECT_TIMEOUT;

/// Where a lane goes, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Our interface: what is sent leaves by it whatever the routing table prefers.
    pub interface: String,
    /// Our address on that interface.
    pub local: IpAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
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

impl Lane {
    /// Opens a lane, waiting at most [`CONNECT_TIMEOUT`].
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

fn try_connect(target: &Target) -> io::Result<Lane> {
    let socket = Socket::new(
        Domain::for_address(target.remote),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.bind_device(Some(target.interface.as_bytes()))?;
    socket.bind(&SocketAddr::new(target.local, 0).into())?;
    socket.connect_timeout(&target.remote.into(), CONNECT_TIMEOUT)?;
    Lane::new(socket.into())
}
