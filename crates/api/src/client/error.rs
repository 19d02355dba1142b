//! Where an agent is asked, and what can come of it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{ErrorCode, Refusal};

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The local socket: all routes.
    Unix(PathBuf),
    /// Addresses of one peer, tried in this order: peer routes only.
    Tcp(Vec<SocketAddr>),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(addresses) => {
                let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&shown.join(", "))
            }
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

    /// Whether the agent said no: asking again will not help, and nothing is in doubt.
    #[must_use]
    pub fn is_refused_with(&self, code: ErrorCode) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == code)
    }
}
