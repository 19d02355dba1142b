//! TLS 1.3 on a lane, by rustls' unbuffered API.
//!
//! Both ends have a certificate of their own that lives as long as their session, and know the
//! other's by its [`Fingerprint`]. There is no authority, no name and no date to check, no ticket
//! and no resumption: who has the key of the certificate that was agreed on is the peer.

mod config;
mod crypto;
mod identity;
mod incoming;
mod session;

use std::io;

pub use config::Tls;
pub use identity::{Fingerprint, Identity, NoFingerprint, NoIdentity};
pub(crate) use session::Session;

/// Which end of a connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We connected.
    Client,
    /// We accepted.
    Server,
}

/// Why there is no encrypted lane, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer is another one, or what came is not what it sent.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The connection failed, or took too long.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection ended without a farewell: what came may not be all.
    #[error("the connection was cut off without TLS's farewell")]
    Cut,
    /// The peer sends and sends and does not prove who it is.
    #[error(
        "a handshake of more than {} bytes",
        crate::limits::HANDSHAKE_BYTES_MAX
    )]
    TooLong,
    /// A message of TLS itself that is cut in two, which no peer of ours does.
    #[error("a message of TLS came in pieces after the handshake")]
    Split,
    /// TLS is in a state in which this cannot be done.
    #[error("TLS is not in a state to go on")]
    Unexpected,
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Io(error) => error,
            TlsError::Cut => Self::new(io::ErrorKind::ConnectionAborted, error),
            error => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

#[cfg(test)]
mod tests;
