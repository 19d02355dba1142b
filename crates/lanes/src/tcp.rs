//! One TCP connection.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::RecvFlags;
use socket2::{SockRef, TcpKeepalive};

use crate::limits::{PROBE_INTERVAL, SILENCE_LIMIT, UNSENT_BYTES};

/// One TCP connection on a path.
#[derive(Debug)]
pub struct Lane {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Lane {
    /// Takes a connected socket over and sets its options.
    ///
    /// # Errors
    /// It is no TCP connection, or not connected any more.
    pub fn adopt(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_user_timeout(Some(SILENCE_LIMIT))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        let keepalive = TcpKeepalive::new()
            .with_time(PROBE_INTERVAL)
            .with_interval(PROBE_INTERVAL);
        socket.set_tcp_keepalive(&keepalive)?;
        Ok(Self {
            local: stream.local_addr()?,
            peer: stream.peer_addr()?,
            stream,
        })
    }

    /// Our end of the connection.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's end of the connection.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether its bytes cross the socket as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        true
    }

    /// The socket, where what is written to it is what the peer receives.
    #[must_use]
    pub fn plain_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    /// Sends `header` and then `payload`, whole.
    ///
    /// # Errors
    /// The socket's error; how much was sent is then unknown.
    pub fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut slices = [IoSlice::new(header), IoSlice::new(payload)];
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0); // drops an empty payload
        while !left.is_empty() {
            match (&self.stream).write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills `buffer` whole.
    ///
    /// # Errors
    /// The socket's error, or `UnexpectedEof` when the peer closed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            // WAITALL: one system call for a chunk, not one for each packet.
            let space = &mut buffer[filled..];
            match rustix::net::recv(self.stream.as_fd(), space, RecvFlags::WAITALL) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((_, count)) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Bounds every later receive in time; `None` takes the bound away.
    ///
    /// # Errors
    /// The socket's error.
    pub fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// Ends the sending direction: the peer receives what was sent before, and then the end.
    /// Receiving goes on, since a socket that is shut for both answers late data with a reset, and
    /// that may overtake what was sent.
    pub fn finish_sending(&self) {
        // An error means that it was disconnected already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends both directions: sends and receives under way return at once, what was sent before is
    /// still delivered.
    pub fn shut_down(&self) {
        // An error means that it was disconnected already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
