//! The state of TLS without its socket: bytes in, bytes out.
//!
//! # Invariant
//! rustls is called without the bytes that arrived, to encrypt, only while it refers to none of
//! them. It refers to those of a handshake message that is not whole or was refused, and would
//! panic; so a peer that splits such a message once the handshake is over is refused, and after an
//! error nothing is encrypted any more.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CipherSuite, CommonState, Error};

use super::{Role, Tls, TlsError};
use crate::Encryption;
use crate::limits::TLS_WORDS_BYTES;

enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The two ends have types of their own that share no trait.
macro_rules! either {
    ($end:expr, $connection:ident => $result:expr) => {
        match $end {
            End::Client($connection) => $result,
            End::Server($connection) => $result,
        }
    };
}

/// One end's state.
pub(super) struct Crypto {
    end: End,
    /// What TLS wanted to say while bytes were decrypted; it goes out first.
    pending: Vec<u8>,
    failed: bool,
}

/// What a handshake needs next.
pub(super) enum Need {
    /// Another step.
    Step,
    /// The output is to be sent.
    Send,
    /// More is to be received.
    Receive,
    /// Nothing: it is done.
    Nothing,
}

/// What came of decrypting.
#[derive(Default)]
pub(super) struct Opened {
    /// Bytes of the input that are done with.
    pub(super) consumed: usize,
    /// Bytes of the output that are filled.
    pub(super) filled: usize,
    /// The peer said that nothing follows.
    pub(super) ended: bool,
}

impl Crypto {
    pub(super) fn new(role: Role, tls: &Tls) -> Result<Self, Error> {
        let end = match role {
            Role::Client => {
                // Not sent, and the certificate is known by its fingerprint.
                let name = ServerName::try_from("lane.drover.invalid");
                let name = name.map_err(|error| Error::General(error.to_string()))?;
                End::Client(UnbufferedClientConnection::new(tls.client.clone(), name)?)
            }
            Role::Server => End::Server(UnbufferedServerConnection::new(tls.server.clone())?),
        };
        Ok(Self {
            end,
            pending: Vec::new(),
            failed: false,
        })
    }

    fn common(&self) -> &CommonState {
        either!(&self.end, connection => connection)
    }

    /// What was agreed on.
    pub(super) fn encryption(&self) -> Result<Encryption, TlsError> {
        let suite = self.common().negotiated_cipher_suite();
        match suite.map(|suite| suite.suite()) {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => Ok(Encryption::Tls13Aes128Gcm),
            Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => {
                Ok(Encryption::Tls13Chacha20Poly1305)
            }
            _ => Err(TlsError::Unexpected),
        }
    }

    /// Does one step of the handshake with what was received. Returns how much of that is done
    /// with; then how much of `out` is filled, and what is needed next. What came behind the
    /// peer's last message goes to `surplus`.
    pub(super) fn shake(
        &mut self,
        incoming: &mut [u8],
        out: &mut [u8],
        surplus: &mut Vec<u8>,
    ) -> (usize, Result<(usize, Need), TlsError>) {
        let (discard, step) = either!(&mut self.end, connection => {
            let UnbufferedStatus { mut discard, state } = connection.process_tls_records(incoming);
            let step = state.map_err(TlsError::from).and_then(|state| match state {
                ConnectionState::EncodeTlsData(mut data) => {
                    let count = data.encode(out).map_err(|_| TlsError::Unexpected)?;
                    Ok((count, Need::Step))
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    Ok((0, Need::Send))
                }
                ConnectionState::BlockedHandshake => Ok((0, Need::Receive)),
                ConnectionState::WriteTraffic(_) => Ok((0, Need::Nothing)),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        surplus.extend_from_slice(record.payload);
                    }
                    Ok((0, Need::Step))
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => Err(TlsError::Cut),
                _ => Err(TlsError::Unexpected),
            });
            (discard, step)
        });
        let step = step.and_then(|(filled, need)| match need {
            // We may send, but the peer has not proved yet who it is.
            Need::Nothing if self.common().is_handshaking() => Ok((filled, Need::Receive)),
            Need::Nothing => whole_records(&incoming[discard..]).map(|()| (filled, need)),
            need => Ok((filled, need)),
        });
        (discard, step)
    }

    /// Encrypts `parts` one after the other into `out`, behind what TLS itself has to say, and
    /// returns how much of it is filled.
    pub(super) fn seal(&mut self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, TlsError> {
        let result = self.try_seal(parts, out);
        self.failed |= result.is_err();
        result
    }

    fn try_seal(&mut self, parts: &[&[u8]], out: &mut [u8]) -> Result<usize, TlsError> {
        if self.failed {
            return Err(TlsError::Unexpected);
        }
        let mut filled = self.pending.len();
        out[..filled].copy_from_slice(&self.pending);
        self.pending.clear();
        loop {
            either!(&mut self.end, connection => match connection.process_tls_records(&mut []).state? {
                ConnectionState::EncodeTlsData(mut data) => {
                    let count = data.encode(&mut out[filled..]);
                    filled += count.map_err(|_| TlsError::Unexpected)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    for part in parts {
                        let count = traffic.encrypt(part, &mut out[filled..]);
                        filled += count.map_err(|_| TlsError::Unexpected)?;
                    }
                    return Ok(filled);
                }
                _ => return Err(TlsError::Unexpected),
            });
        }
    }

    /// The farewell, at the end of the sending direction.
    pub(super) fn seal_end(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.failed {
            return None;
        }
        either!(&mut self.end, connection => match connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(out).ok(),
            _ => None,
        })
    }

    /// Decrypts as many records as it takes to fill `out`, or as there are. What the last one has
    /// beyond that goes to `surplus`.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        out: &mut [u8],
        surplus: &mut Vec<u8>,
    ) -> Result<Opened, TlsError> {
        let result = self.try_open(incoming, out, surplus);
        self.failed |= result.is_err();
        result
    }

    fn try_open(
        &mut self,
        incoming: &mut [u8],
        out: &mut [u8],
        surplus: &mut Vec<u8>,
    ) -> Result<Opened, TlsError> {
        let mut opened = Opened::default();
        while opened.filled < out.len() {
            let rest = &mut incoming[opened.consumed..];
            either!(&mut self.end, connection => {
                let UnbufferedStatus { mut discard, state } = connection.process_tls_records(rest);
                let more = match state? {
                    ConnectionState::ReadTraffic(mut traffic) => {
                        while let Some(record) = traffic.next_record() {
                            let record = record?;
                            discard += record.discard;
                            opened.take(record.payload, out, surplus);
                        }
                        true
                    }
                    ConnectionState::EncodeTlsData(data) => {
                        postpone(data, &mut self.pending)?;
                        true
                    }
                    ConnectionState::TransmitTlsData(data) => {
                        data.done();
                        true
                    }
                    ConnectionState::WriteTraffic(_) => false, // no whole record is left
                    ConnectionState::PeerClosed | ConnectionState::Closed => {
                        opened.ended = true;
                        false
                    }
                    _ => return Err(TlsError::Unexpected),
                };
                opened.consumed += discard;
                if !more {
                    break;
                }
            });
        }
        if opened.filled < out.len() && !opened.ended {
            whole_records(&incoming[opened.consumed..])?;
        }
        Ok(opened)
    }

    /// What a peer has that knows the keys and keeps to no rule.
    #[cfg(test)]
    #[expect(deprecated, reason = "no change of keys follows")]
    pub(super) fn into_secrets(self) -> rustls::ExtractedSecrets {
        either!(self.end, connection => connection.dangerous_extract_secrets().unwrap())
    }

    #[cfg(test)]
    pub(super) fn change_keys(&mut self) {
        either!(&mut self.end, connection => match connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::WriteTraffic(traffic)) => traffic.refresh_traffic_keys().unwrap(),
            other => panic!("{other:?}"),
        });
    }
}

impl Opened {
    fn take(&mut self, payload: &[u8], out: &mut [u8], surplus: &mut Vec<u8>) {
        let space = &mut out[self.filled..];
        let (now, later) = payload.split_at(payload.len().min(space.len()));
        space[..now.len()].copy_from_slice(now);
        self.filled += now.len();
        surplus.extend_from_slice(later);
    }
}

/// A whole record that is still there after all records were taken is part of a message that goes
/// on in the next, and that rustls waits for.
fn whole_records(rest: &[u8]) -> Result<(), TlsError> {
    match rest {
        [_, _, _, high, low, body @ ..]
            if body.len() >= usize::from(u16::from_be_bytes([*high, *low])) =>
        {
            Err(TlsError::Split)
        }
        _ => Ok(()),
    }
}

fn postpone<Data>(
    mut data: EncodeTlsData<'_, Data>,
    pending: &mut Vec<u8>,
) -> Result<(), TlsError> {
    let already = pending.len();
    if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
        pending.resize(already + needed.required_size, 0);
        data.encode(&mut pending[already..])
            .map_err(|_| TlsError::Unexpected)?;
    }
    if pending.len() > TLS_WORDS_BYTES / 2 {
        return Err(TlsError::Unexpected);
    }
    Ok(())
}
