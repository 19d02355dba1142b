//! A socket that hears what switches say by LLDP at one interface (packet(7)), and never sends.
//!
//! It is bound to the one type of frames and the one interface, so that nothing else that arrives costs more for it; that it is a
//! receiver of the groups that LLDP is sent to ends with it, also by `SIGKILL`.
//!
//! # Safety
//! Two calls that are not safe, [`bind`] and [`join`]. The kernel reads as many bytes as `struct sockaddr_ll` and `struct packet_mreq` have
//! (`include/uapi/linux/if_packet.h`, of its stable ABI), of values that are these functions' own and outlive the calls, and writes none.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use tokio::net::UdpSocket;

use crate::limits::LLDP_FRAME;

/// `ETH_P_LLDP`.
const TYPE: u16 = 0x88cc;

/// The groups that LLDP is sent to (802.1AB, table 7-1): of those at the other end of the cable, of all but relays of two ports, and of the nearest
/// bridge of a customer.
const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0, 0, 0x0e],
    [0x01, 0x80, 0xc2, 0, 0, 0x03],
    [0x01, 0x80, 0xc2, 0, 0, 0x00],
];

/// It.
#[derive(Debug)]
pub struct LldpSocket {
    /// Of no datagrams of UDP: it is what tokio waits for without `unsafe`, and asks the kernel for the next one by recv(2), whatever the family.
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl LldpSocket {
    /// Listens at the interface with this index, in this thread's network namespace; within tokio.
    ///
    /// # Errors
    /// Of the kernel: `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface.
    pub fn open(index: u32) -> io::Result<Self> {
        let index = i32::try_from(index).map_err(io::Error::other)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a type nothing arrives before it is bound to one.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        for group in GROUPS {
            join(socket.as_fd(), index, group)?;
        }
        bind(socket.as_fd(), index)?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            buffer: vec![0; LLDP_FRAME],
        })
    }

    /// The next frame that arrives; cut, if it is longer than any adapter takes. May be dropped at any time.
    ///
    /// # Errors
    /// Of the kernel: `ENETDOWN` once when the interface is taken down; it goes on when that is up again.
    pub async fn next(&mut self) -> io::Result<&[u8]> {
        let length = self.socket.recv(&mut self.buffer).await?;
        Ok(&self.buffer[..length])
    }
}

fn called(call: libc::c_int) -> io::Result<()> {
    if call == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has it receive frames of this type, of that interface alone.
#[expect(
    unsafe_code,
    reason = "no safe wrapper can be given an address of this family"
)]
fn bind(socket: BorrowedFd<'_>, index: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: TYPE.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: see the module.
    called(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
}

/// Has the interface take frames to that group, for as long as the socket is there.
#[expect(unsafe_code, reason = "no safe wrapper has this option")]
fn join(socket: BorrowedFd<'_>, index: i32, group: [u8; 6]) -> io::Result<()> {
    let mut address = [0; 8];
    address[..group.len()].copy_from_slice(&group);
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_MULTICAST as u16,
        mr_alen: group.len() as u16,
        mr_address: address,
    };
    let length = mem::size_of_val(&membership) as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    let value = (&raw const membership).cast();
    // SAFETY: see the module.
    called(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) })
}
