//! A connection that is no lane yet.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use drover_types::ByteRate;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetStruct;

use crate::tcp::Socket;
use crate::tls::{Role, Session, Tls, TlsError};
use crate::{Lane, lane};

#[derive(Debug, Clone, Copy)]
struct MaxPacingRate;

nix::setsockopt_impl!(
    MaxPacingRate,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64,
    SetStruct<'_, u64>
);

/// A connection whose other end has not said yet who it is, or not proved it.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<Socket>,
}

/// Closes a connection from elsewhere; keeps nothing open.
#[derive(Debug, Clone)]
pub struct Closer(Weak<Socket>);

impl Closer {
    /// Whether anybody still has it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Ends both directions, whatever is under way on it; a lane that it became, too.
    pub fn close(&self) {
        if let Some(socket) = self.0.upgrade() {
            socket.shut_down();
        }
    }
}

impl Connection {
    /// Takes a connected socket over and sets its options.
    ///
    /// # Errors
    /// It is no TCP connection, or not connected any more.
    pub fn adopt(stream: TcpStream) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::new(Socket::new(stream)?),
        })
    }

    /// Our end of the connection.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// The peer's end of the connection.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.socket.peer()
    }

    /// Its socket, for a process that it is handed to.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// How to close it from elsewhere.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.socket))
    }

    /// Everything on this connection has to be done by then, until it is a lane that was
    /// [established](Lane::established).
    ///
    /// # Errors
    /// The socket's error.
    pub fn set_deadline(&self, deadline: Instant) -> io::Result<()> {
        self.socket.set_deadline(Some(deadline))
    }

    /// Sends `bytes` as they are, whole.
    ///
    /// # Errors
    /// The socket's error.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.socket.send(bytes, b"")
    }

    /// Sends no more than that in a second from here on: the kernel spaces its packets (socket(7), `SO_MAX_PACING_RATE`, of 64 bits since
    /// Linux 4.20).
    ///
    /// # Errors
    /// The socket's error.
    pub fn pace(&self, most: ByteRate) -> io::Result<()> {
        // All ones is no limit at all.
        let most = most.0.clamp(1, u64::MAX - 1);
        Ok(setsockopt(&self.fd(), MaxPacingRate, &most)?)
    }

    /// Takes bytes away that came, at most so many as the buffer has room for, without looking at them: how many; zero at the
    /// connection's end. What is in the buffer means nothing.
    ///
    /// # Errors
    /// The socket's error, `TimedOut` past the deadline.
    pub fn discard(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.discard(buffer)
    }

    /// Fills `buffer` whole with the bytes as they come.
    ///
    /// # Errors
    /// The socket's error, or `UnexpectedEof` when the peer closed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        self.socket.receive(buffer)
    }

    /// A lane without encryption.
    #[must_use]
    pub fn into_plain(self) -> Lane {
        lane::plain(self.socket)
    }

    /// A lane within TLS, once both ends have proved that they have the keys of the certificates
    /// which were agreed on.
    ///
    /// # Errors
    /// [`TlsError`]: the peer is another one, is none, or is too slow.
    pub fn into_tls(self, role: Role, tls: &Tls) -> Result<Lane, TlsError> {
        let session = Session::handshake(&self.socket, role, tls)?;
        Ok(lane::encrypted(self.socket, session))
    }
}
