//! One lane's TLS on its socket.
//!
//! The state of both directions is one and has one lock, held while bytes are encrypted or
//! decrypted, never while a socket is waited for. Each direction has its buffer, made once the peer
//! has proved who it is.

use std::fmt;
use std::io;
use std::sync::{Mutex, TryLockError};

use super::crypto::{Crypto, Need};
use super::incoming::Incoming;
use super::{Role, Tls, TlsError};
use crate::limits::{HANDSHAKE_BYTES_MAX, RECORD_OVERHEAD, SEAL_BYTES, TLS_WORDS_BYTES};
use crate::tcp::Socket;
use crate::{Encryption, lock};

/// A header, and bytes in records of 2^14, each with its overhead.
const OUT_BYTES: usize = TLS_WORDS_BYTES + SEAL_BYTES + (SEAL_BYTES >> 14) * RECORD_OVERHEAD;

/// An encrypted connection.
pub(crate) struct Session {
    pub(super) crypto: Mutex<Crypto>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Box<[u8]>>,
    encryption: Encryption,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.encryption)
    }
}

impl Session {
    /// Agrees on keys with the peer that `tls` names, and with no other.
    pub(crate) fn handshake(socket: &Socket, role: Role, tls: &Tls) -> Result<Self, TlsError> {
        let mut crypto = Crypto::new(role, tls)?;
        let mut incoming = Incoming::new();
        let mut out = vec![0; HANDSHAKE_BYTES_MAX].into_boxed_slice();
        if let Err(error) = shake_hands(socket, &mut crypto, &mut incoming, &mut out) {
            if let TlsError::Tls(_) = error {
                send_last_words(socket, &mut crypto, &mut incoming, &mut out);
            }
            return Err(error);
        }
        incoming.grow();
        Ok(Self {
            encryption: crypto.encryption()?,
            crypto: Mutex::new(crypto),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::new(vec![0; OUT_BYTES].into_boxed_slice()),
        })
    }

    pub(crate) fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// Encrypts and sends `header` and then `payload`, whole; a chunk with one system call.
    pub(crate) fn send(&self, socket: &Socket, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let mut out = lock(&self.outgoing);
        let mut send = |parts: &[&[u8]]| {
            let filled = lock(&self.crypto).seal(parts, &mut out)?;
            socket.send(&out[..filled], b"")
        };
        // A header is a few bytes; the room beside the payload is made for it.
        let (first, rest) = payload.split_at(payload.len().min(SEAL_BYTES));
        send(&[header, first])?;
        rest.chunks(SEAL_BYTES).try_for_each(|part| send(&[part]))
    }

    /// Receives and decrypts until `buffer` is full.
    pub(crate) fn receive(&self, socket: &Socket, buffer: &mut [u8]) -> io::Result<()> {
        let mut incoming = lock(&self.incoming);
        let mut filled = incoming.take_surplus(buffer);
        while filled < buffer.len() {
            let opened = incoming.open(&mut lock(&self.crypto), &mut buffer[filled..])?;
            filled += opened.filled;
            if filled == buffer.len() {
                break;
            }
            if opened.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if incoming.read_more(socket, buffer.len() - filled)? == 0 {
                return Err(TlsError::Cut.into());
            }
        }
        Ok(())
    }

    /// Tells the peer that nothing follows. It may be called while another thread sends, and must
    /// not wait for it: then the peer sees a connection that ends in the middle, as it does.
    pub(crate) fn say_goodbye(&self, socket: &Socket) {
        let mut out = match self.outgoing.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let sealed = lock(&self.crypto).seal_end(&mut out);
        if let Some(filled) = sealed {
            socket.send_at_once(&out[..filled]);
        }
    }
}

fn shake_hands(
    socket: &Socket,
    crypto: &mut Crypto,
    incoming: &mut Incoming,
    out: &mut [u8],
) -> Result<(), TlsError> {
    let mut filled = 0;
    loop {
        let (count, need) = incoming.shake(crypto, &mut out[filled..])?;
        filled += count;
        match need {
            Need::Step => {}
            Need::Send => {
                socket.send(&out[..filled], b"")?;
                filled = 0;
            }
            Need::Receive => incoming.read_handshake(socket)?,
            Need::Nothing => return Ok(()),
        }
    }
}

/// The alert that says why, if there is one; the peer may be gone. What was queued before the error
/// was sent before it, so the alert comes first, and rustls must not see the bad bytes again.
fn send_last_words(socket: &Socket, crypto: &mut Crypto, incoming: &mut Incoming, out: &mut [u8]) {
    if let Ok((count, Need::Step)) = incoming.shake(crypto, out) {
        socket.send_at_once(&out[..count]);
    }
}
