use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

/// Why a monitor could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there: QEMU is not up yet, or gone.
    #[error("cannot connect to the monitor {path}: is QEMU running?")]
    NotThere {
        /// The monitor's socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It accepted and stayed silent. A monitor serves one client at a time.
    #[error(
        "the monitor {path} sent no greeting within {within:?}: QEMU hangs, or another client \
         holds this monitor"
    )]
    NoGreeting {
        /// The monitor's socket.
        path: PathBuf,
        /// How long was waited.
        within: Duration,
    },
    /// What answered does not speak QMP.
    #[error("{path} is no QMP monitor: it began with {excerpt:?}")]
    NotQmp {
        /// The socket.
        path: PathBuf,
        /// The beginning of what it sent.
        excerpt: String,
    },
    /// This QEMU has no out-of-band commands (they came with 2.12).
    #[error("the monitor {path} of QEMU {version} has no out-of-band commands")]
    NoOob {
        /// The monitor's socket.
        path: PathBuf,
        /// QEMU's version.
        version: super::Version,
    },
    /// The connection was lost before its first message.
    #[error("the monitor {path} was lost before its greeting")]
    Lost {
        /// The monitor's socket.
        path: PathBuf,
        /// How it ended.
        source: Closed,
    },
    /// The capabilities negotiation failed.
    #[error("cannot negotiate with the monitor {path}")]
    Negotiation {
        /// The monitor's socket.
        path: PathBuf,
        /// The answer to `qmp_capabilities`.
        source: Box<QmpError>,
    },
}

/// Why a command has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QmpError {
    /// QEMU understood and refused.
    #[error("qemu refused {command}: {description}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's error class, such as `GenericError` or `CommandNotFound`.
        class: String,
        /// QEMU's own words.
        description: String,
    },
    /// No answer in time. QEMU may still carry the command out.
    #[error("qemu did not answer {command} within {within:?}")]
    TimedOut {
        /// The command.
        command: String,
        /// How long was waited.
        within: Duration,
    },
    /// The connection ended before the answer. QEMU may have carried the command out.
    #[error("the monitor was lost before {command} was answered")]
    Lost {
        /// The command.
        command: String,
        /// How it ended.
        source: Closed,
    },
    /// Too many commands wait already; this one was not sent.
    #[error(
        "{command} was not sent: {limit} commands wait for an answer already",
        limit = limits::COMMANDS_WAITING
    )]
    TooManyWaiting {
        /// The command.
        command: String,
    },
    /// The connection was made without the `oob` capability; the command was not sent.
    #[error("{command} was not sent: this monitor was opened without out-of-band commands")]
    NotOob {
        /// The command.
        command: String,
    },
}

/// How a connection to a monitor ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// QEMU closed it: it ended, or was told to.
    #[error("qemu closed the connection")]
    ByQemu,
    /// All handles on it were dropped here.
    #[error("the connection was closed from here")]
    ByUs,
    /// The system reported an error.
    #[error("the connection failed: {0}")]
    Failed(String),
    /// A line longer than [`limits::LINE_BYTES`] was coming.
    #[error("qemu sent a line of more than {limit} bytes", limit = limits::LINE_BYTES)]
    LineTooLong,
    /// A line was no QMP message.
    #[error("qemu sent what is no message of its protocol: {excerpt:?}")]
    Garbage {
        /// The beginning of the line.
        excerpt: String,
    },
}

impl Closed {
    pub(super) fn failed(error: &std::io::Error) -> Self {
        match error.kind() {
            // How QEMU's end of a UNIX socket looks when it died with our bytes unread.
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => Self::ByQemu,
            _ => Self::Failed(error.to_string()),
        }
    }
}
