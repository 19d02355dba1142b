//! Where an agent is asked, and what can come of it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_trust::{Fingerprint, Problem, Trust};
use drover_types::HostName;

use crate::error::{ErrorCode, Refusal};
use crate::limits;

/// Where an agent listens, and who it has to be.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// The local socket: all routes.
    Unix(PathBuf),
    /// That host and no other: the routes that our own certificate is good for.
    Host {
        /// Who has to answer.
        host: HostName,
        /// Where it is at each call; the first address that works is used.
        addresses: Addresses,
        /// Our certificate, as it is at each call.
        trust: Trust,
    },
    /// A host of the cluster whose authority has that fingerprint; only to join it.
    Authority {
        /// By which it is believed.
        fingerprint: Fingerprint,
        /// Where it is.
        addresses: Vec<SocketAddr>,
    },
}

/// Addresses of a host, which may change while it is known.
#[derive(Clone)]
pub struct Addresses(Arc<dyn Fn() -> Vec<SocketAddr> + Send + Sync>);

impl Addresses {
    /// As this tells them whenever they are needed.
    pub(super) fn told_by(find: impl Fn() -> Vec<SocketAddr> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// Those of now, as many as are tried.
    #[must_use]
    pub fn now(&self) -> Vec<SocketAddr> {
        let mut addresses = (self.0)();
        addresses.truncate(limits::PEER_ADDRESSES);
        addresses
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.now().fmt(f)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[SocketAddr]| {
            let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            shown.join(", ")
        };
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Host { addresses, .. } => f.write_str(&list(&addresses.now())),
            Self::Authority { addresses, .. } => f.write_str(&list(addresses)),
        }
    }
}

/// A call that brought no answer, or the answer that it was refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No agent takes connections there.
    #[error("no agent answers at {endpoint}")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// Why the last address failed.
        source: io::Error,
    },
    /// Nothing was tried: a host that is no member has no address.
    #[error("no address of host {host} is known: the cluster has no such member by now")]
    NowhereKnown {
        /// Who.
        host: HostName,
    },
    /// Somebody answers whom we do not believe, or who does not believe us. Nothing was asked of
    /// him.
    #[error("the agent at {endpoint} is not to be talked to: {problem}")]
    Untrusted {
        /// Where.
        endpoint: String,
        /// Why.
        problem: Problem,
    },
    /// The connection was lost before the answer was complete.
    #[error("the agent at {endpoint} closed the connection before it answered {call}")]
    Lost {
        /// Where.
        endpoint: String,
        /// Method and path.
        call: String,
        /// How.
        source: hyper::Error,
    },
    /// No answer in time. The agent may still do what it was asked.
    #[error("the agent at {endpoint} did not answer {call} within {} s", .after.as_secs())]
    Timeout {
        /// Where.
        endpoint: String,
        /// Method and path.
        call: String,
        /// How long was waited.
        after: Duration,
    },
    /// What answered does not speak this API.
    #[error("the answer of {endpoint} to {call} is none of an agent: {problem}")]
    NotAnAgent {
        /// Where.
        endpoint: String,
        /// Method and path.
        call: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The agent refused, or failed, and says why.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl ClientError {
    /// The agent's refusal, when it is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether nobody was heard: no connection, or no word on it in time. Everything else was said
    /// by somebody, who is there, or nobody was asked.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Unreachable { source, .. } => !was_answered(source.kind()),
            Self::NowhereKnown { .. }
            | Self::Untrusted { .. }
            | Self::Lost { .. }
            | Self::NotAnAgent { .. }
            | Self::Refused(_) => false,
        }
    }

    /// Whether the agent may have done what it was asked all the same: it was asked, and no answer of it came, or it says that it does not
    /// know itself.
    #[must_use]
    pub fn leaves_it_open(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Lost { .. } | Self::NotAnAgent { .. } => true,
            Self::Refused(refusal) => {
                matches!(refusal.code, ErrorCode::OutcomeUnknown | ErrorCode::Timeout)
            }
            Self::Unreachable { .. } | Self::NowhereKnown { .. } | Self::Untrusted { .. } => false,
        }
    }

    /// Whether the agent said no: asking again will not help, and nothing is in doubt.
    #[must_use]
    pub fn is_refused_with(&self, code: ErrorCode) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == code)
    }
}

/// A connection came about, and its handshake was not refused by silence.
fn was_answered(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof,
    };
    matches!(
        kind,
        BrokenPipe | ConnectionAborted | ConnectionReset | InvalidData | UnexpectedEof
    )
}
