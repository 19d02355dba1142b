//! What arrived of a TLS connection and is not decrypted yet.

use std::io;

use super::TlsError;
use super::crypto::{Crypto, Need, Opened};
use crate::limits::{HANDSHAKE_BYTES_MAX, READ_BYTES, RECORD_BYTES_MAX, RECORD_OVERHEAD};
use crate::tcp::Socket;

/// Bytes of records as they came, and the decrypted rest of the last record.
pub(super) struct Incoming {
    cipher: Box<[u8]>,
    from: usize,
    to: usize,
    surplus: Vec<u8>,
    taken: usize,
    /// Taken from a peer that has not proved who it is.
    unproved: usize,
}

impl Incoming {
    /// As large as a handshake may be, until [`Incoming::grow`].
    pub(super) fn new() -> Self {
        Self {
            cipher: vec![0; HANDSHAKE_BYTES_MAX].into_boxed_slice(),
            from: 0,
            to: 0,
            surplus: Vec::new(),
            taken: 0,
            unproved: 0,
        }
    }

    /// To the size for chunks, with what came behind the handshake.
    pub(super) fn grow(&mut self) {
        let there = &self.cipher[self.from..self.to];
        let mut cipher = vec![0; READ_BYTES].into_boxed_slice();
        cipher[..there.len()].copy_from_slice(there);
        (self.from, self.to) = (0, there.len());
        self.cipher = cipher;
    }

    /// Moves what is decrypted already; how much that was.
    pub(super) fn take_surplus(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.surplus[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        if self.taken == self.surplus.len() {
            self.surplus.clear();
            self.taken = 0;
        }
        count
    }

    /// Decrypts until `buffer` is full or no whole record is left.
    pub(super) fn open(&mut self, crypto: &mut Crypto, buffer: &mut [u8]) -> io::Result<Opened> {
        let there = &mut self.cipher[self.from..self.to];
        let opened = crypto.open(there, buffer, &mut self.surplus)?;
        self.from += opened.consumed;
        Ok(opened)
    }

    /// One step of the handshake.
    pub(super) fn shake(
        &mut self,
        crypto: &mut Crypto,
        out: &mut [u8],
    ) -> Result<(usize, Need), TlsError> {
        let there = &mut self.cipher[self.from..self.to];
        let (discard, step) = crypto.shake(there, out, &mut self.surplus);
        self.from += discard;
        step
    }

    /// Waits for more of the handshake, up to its limit.
    pub(super) fn read_handshake(&mut self, socket: &Socket) -> Result<(), TlsError> {
        self.make_room();
        let most = HANDSHAKE_BYTES_MAX - self.unproved;
        let space = &mut self.cipher[self.to..];
        let space_left = space.len().min(most);
        if space_left == 0 {
            return Err(TlsError::TooLong);
        }
        let count = read(socket, &mut space[..space_left], 1)?;
        self.to += count;
        self.unproved += count;
        match count {
            0 => Err(TlsError::Cut),
            _ => Ok(()),
        }
    }

    /// Reads all that is there; if nothing is, waits for what `missing` bytes take at least. 0 at
    /// the connection's end.
    pub(super) fn read_more(&mut self, socket: &Socket, missing: usize) -> io::Result<usize> {
        self.make_room();
        let at_least = (missing + missing.div_ceil(1 << 14) * RECORD_OVERHEAD)
            .saturating_sub(self.to - self.from)
            .max(1);
        let count = read(socket, &mut self.cipher[self.to..], at_least)?;
        self.to += count;
        Ok(count)
    }

    /// Moves a cut record to the front when the space behind it is too small for its rest.
    fn make_room(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.cipher.len() - self.to < RECORD_BYTES_MAX {
            self.cipher.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
    }
}

/// What is there, as far as there is space; if nothing is, `at_least` bytes once they have come.
fn read(socket: &Socket, space: &mut [u8], at_least: usize) -> io::Result<usize> {
    if let Some(count) = socket.receive_ready(space)? {
        return Ok(count);
    }
    let enough = at_least.min(space.len());
    socket.receive_later(&mut space[..enough])
}
