//! A UDP socket at one address whose packets are never broken up, and that says by which interface each arrived.
//!
//! The kernel learns from routers that say what they take, as it does for TCP (`IP_PMTUDISC_DO`), and then refuses what is larger: what goes on
//! vanishing is what TCP would lose, too. What it learned stays in its routes for ten minutes.
//!
//! It is not bound to its interface (`SO_BINDTODEVICE`): such a socket hears nothing that arrives by another one, and that is what is to be
//! seen. Where a packet is to leave by an interface, as a lane's do, that is said with the packet (`IP_PKTINFO`).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo, SetStruct};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

#[derive(Debug, Clone, Copy)]
struct Discovery4;
#[derive(Debug, Clone, Copy)]
struct Discovery6;

nix::setsockopt_impl!(
    Discovery4,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    i32,
    SetStruct<'_, i32>
);
nix::setsockopt_impl!(
    Discovery6,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    i32,
    SetStruct<'_, i32>
);

/// The socket.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    local: SocketAddr,
}

/// A datagram that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Bytes of it, at the beginning of the buffer.
    pub size: usize,
    /// From where.
    pub from: SocketAddr,
    /// Index of the interface.
    pub interface: Option<u32>,
}

/// What became of a datagram that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It has left.
    Left,
    /// The kernel does not send that size.
    TooLarge,
}

/// Bytes that IP and UDP put before a datagram's own (RFC 791, 8200, 768).
pub(crate) fn headers(address: IpAddr) -> u32 {
    let ip = if address.is_ipv4() { 20 } else { 40 };
    ip + 8
}

impl Datagrams {
    /// At that address, at any port for 0.
    pub(crate) fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if at.is_ipv4() {
            setsockopt(&socket, Discovery4, &libc::IP_PMTUDISC_DO)?;
            setsockopt(&socket, Ipv4PacketInfo, &true)?;
        } else {
            socket.set_only_v6(true)?;
            setsockopt(&socket, Discovery6, &libc::IPV6_PMTUDISC_DO)?;
            setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
        }
        socket.bind(&at.into())?;
        let local = socket.local_addr()?.as_socket().unwrap_or(at);
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Self { socket, local })
    }

    /// Its address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The interface's index.
    pub(crate) fn index(&self, interface: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(
            &self.socket,
            interface,
        )?)
    }

    /// The interface's name; its index where it is gone.
    pub(crate) fn name(&self, index: u32) -> String {
        let name = rustix::net::netdevice::index_to_name(&self.socket, index);
        name.unwrap_or_else(|_| format!("interface {index}"))
    }

    /// Sends by that interface, from this socket's address, once there is room.
    pub(crate) async fn send_by(
        &self,
        interface: u32,
        bytes: &[u8],
        to: SocketAddr,
    ) -> io::Result<Sent> {
        let send = || send(&self.socket, bytes, to, Some((interface, self.local.ip())));
        sent(self.socket.async_io(Interest::WRITABLE, send).await)
    }

    /// Sends by the interface that the kernel's routes say, if there is room at once.
    pub(crate) fn send_now(&self, bytes: &[u8], to: SocketAddr) -> io::Result<Sent> {
        sent(send(&self.socket, bytes, to, None))
    }

    /// The next one; what does not fit the buffer is cut off.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Arrived> {
        let receive = || receive(&self.socket, buffer);
        self.socket.async_io(Interest::READABLE, receive).await
    }

    /// One that is here already, whether or not the runtime has heard of it.
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> Option<Arrived> {
        receive(&self.socket, buffer).ok()
    }
}

fn sent(done: io::Result<()>) -> io::Result<Sent> {
    match done {
        Ok(()) => Ok(Sent::Left),
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Sent::TooLarge),
        Err(error) => Err(error),
    }
}

fn send(
    socket: &UdpSocket,
    bytes: &[u8],
    to: SocketAddr,
    by: Option<(u32, IpAddr)>,
) -> io::Result<()> {
    let to_address = SockaddrStorage::from(to);
    let bytes = [IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let send = |about: &[ControlMessage<'_>]| {
        sendmsg(socket.as_raw_fd(), &bytes, about, flags, Some(&to_address))
    };
    let sent = match by {
        None => send(&[]),
        // Without the address the kernel takes its route's, though the socket is bound to another.
        Some((index, IpAddr::V4(from))) => {
            send(&[ControlMessage::Ipv4PacketInfo(&libc::in_pktinfo {
                ipi_ifindex: index as i32,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(from.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            })])
        }
        Some((index, IpAddr::V6(from))) => {
            send(&[ControlMessage::Ipv6PacketInfo(&libc::in6_pktinfo {
                ipi6_ifindex: index,
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
            })])
        }
    };
    match sent {
        Ok(_) => Ok(()),
        // The interface's queue was full: lost as on the way.
        Err(Errno::ENOBUFS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrived> {
    let mut about = nix::cmsg_space!(libc::in6_pktinfo);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut about), flags)?;
    let interface = message.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => u32::try_from(info.ipi_ifindex).ok(),
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_ifindex),
        _ => None,
    });
    let from = message.address.as_ref().and_then(address);
    Ok(Arrived {
        size: message.bytes,
        from: from.ok_or_else(|| io::Error::other("a datagram came from no address"))?,
        interface,
    })
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from
        .as_sockaddr_in()
        .map(|from| SocketAddrV4::new(from.ip(), from.port()).into());
    let v6 = || {
        let from = from.as_sockaddr_in6()?;
        Some(SocketAddrV6::new(from.ip(), from.port(), 0, 0).into())
    };
    v4.or_else(v6)
}
