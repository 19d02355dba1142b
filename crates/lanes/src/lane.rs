//! One connection on a path, plain or within TLS.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::tcp::Socket;
use crate::tls::Session;
use crate::{Progress, TcpFacts};

/// What protects the bytes on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Encryption {
    /// Nothing: they can be read and changed on their way.
    Off,
    /// TLS 1.3 with AES-128-GCM.
    Tls13Aes128Gcm,
    /// TLS 1.3 with ChaCha20-Poly1305.
    Tls13Chacha20Poly1305,
}

/// One TCP connection on a path.
#[derive(Debug)]
pub struct Lane {
    socket: Arc<Socket>,
    session: Option<Box<Session>>,
}

pub(crate) fn plain(socket: Arc<Socket>) -> Lane {
    let session = None;
    Lane { socket, session }
}

pub(crate) fn encrypted(socket: Arc<Socket>, session: Session) -> Lane {
    let session = Some(Box::new(session));
    Lane { socket, session }
}

impl Lane {
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

    /// What protects its bytes.
    #[must_use]
    pub fn encryption(&self) -> Encryption {
        match &self.session {
            Some(session) => session.encryption(),
            None => Encryption::Off,
        }
    }

    /// Whether its bytes cross the socket as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.session.is_none()
    }

    /// The socket, where what is written to it is what the peer receives; `None` within TLS.
    #[must_use]
    pub fn plain_fd(&self) -> Option<BorrowedFd<'_>> {
        self.is_plain().then(|| self.socket.fd())
    }

    /// Whoever waits for it is woken by the first byte.
    pub(crate) fn wake_at_once(&self) -> io::Result<()> {
        self.socket.wake_at_once()
    }

    /// Waits until so many bytes are there, or as many as is worth waiting for.
    pub(crate) fn wait_for(&self, bytes: usize) -> io::Result<()> {
        self.socket.wait_for(bytes)
    }

    /// What the kernel knows of the connection now.
    ///
    /// # Errors
    /// The socket's error.
    pub fn facts(&self) -> io::Result<TcpFacts> {
        TcpFacts::of(self.socket.fd())
    }

    /// How far its bytes have come.
    ///
    /// # Errors
    /// The socket's error.
    pub fn progress(&self) -> io::Result<Progress> {
        Progress::of(self.socket.fd())
    }

    /// The handshake is over: from here a lane may be silent for as long as it likes.
    ///
    /// # Errors
    /// The socket's error.
    pub fn established(&self) -> io::Result<()> {
        self.socket.set_deadline(None)
    }

    /// Sends `header` and then `payload`, whole.
    ///
    /// # Errors
    /// The socket's error; how much was sent is then unknown.
    pub fn send(&self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        match &self.session {
            Some(session) => session.send(&self.socket, header, payload),
            None => self.socket.send(header, payload),
        }
    }

    /// Fills `buffer` whole.
    ///
    /// # Errors
    /// The socket's error, `UnexpectedEof` when the peer closed, `InvalidData` when what came is
    /// not what the peer sent.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        match &self.session {
            Some(session) => session.receive(&self.socket, buffer),
            None => self.socket.receive(buffer),
        }
    }

    /// Ends the sending direction: the peer receives what was sent before, and then the end.
    /// Receiving goes on, since a socket that is shut for both answers late data with a reset, and
    /// that may overtake what was sent.
    pub fn finish_sending(&self) {
        if let Some(session) = &self.session {
            session.say_goodbye(&self.socket);
        }
        self.socket.finish_sending();
    }

    /// Ends both directions: sends and receives under way return at once, what was sent before is
    /// still delivered.
    pub fn shut_down(&self) {
        self.socket.shut_down();
    }
}
