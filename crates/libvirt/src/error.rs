use std::ffi::c_int;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

/// libvirt's own words on why it did not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words} (libvirt error {code} of domain {domain})")]
pub struct Refusal {
    /// What it said.
    pub words: String,
    /// Which part of libvirt: `virErrorDomain` of its `virterror.h`.
    pub domain: c_int,
    /// What kind of error: `virErrorNumber` there.
    pub code: c_int,
}

/// `VIR_ERR_NO_DOMAIN`.
const NO_DOMAIN: c_int = 42;

/// `VIR_ERR_OPERATION_INVALID`.
const OPERATION_INVALID: c_int = 55;

/// `VIR_ERR_NO_DOMAIN_BACKUP`.
const NO_DOMAIN_BACKUP: c_int = 104;

impl Refusal {
    /// There is no such domain, or no longer.
    #[must_use]
    pub fn is_no_domain(&self) -> bool {
        self.code == NO_DOMAIN
    }

    /// What was asked for is not possible in the domain's state, mostly because it has no hypervisor.
    #[must_use]
    pub fn is_of_its_state(&self) -> bool {
        self.code == OPERATION_INVALID
    }

    /// No backup is made of the domain.
    #[must_use]
    pub fn is_no_backup(&self) -> bool {
        self.code == NO_DOMAIN_BACKUP
    }
}

/// Why a call failed, as the thread that made it knows.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Over a connection that lives. libvirtd may have lost one of its own, to another host.
    Refused(Refusal),
    /// With the connection.
    Lost(Refusal),
}

/// Why libvirt's library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not installed, or what it is linked to is not.
    #[error(
        "libvirt's library cannot be loaded: {words}; is libvirt installed (Debian: libvirt0)?"
    )]
    NotThere {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        words: String,
    },
    /// It is older than what is used of it, or no libvirt.
    #[error("{path} has no {function}: it is no libvirt, or one before 6.0")]
    Incomplete {
        /// The library.
        path: PathBuf,
        /// What it lacks.
        function: &'static str,
    },
    /// One process uses one library.
    #[error("{path} cannot be loaded: this process uses {loaded} already")]
    Another {
        /// The library.
        path: PathBuf,
        /// What is loaded.
        loaded: PathBuf,
    },
    /// It cannot be started.
    #[error("libvirt's library failed at {function}")]
    Failed {
        /// Where.
        function: &'static str,
        /// Its words.
        source: Refusal,
    },
    /// No thread for its events.
    #[error("cannot start a thread for libvirt's events")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why there is no connection to libvirtd.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URI has a zero byte.
    #[error("{uri:?} is no URI of libvirt")]
    Uri {
        /// The URI.
        uri: String,
    },
    /// libvirt refused, in its words.
    #[error("cannot connect to libvirt at {uri}")]
    Refused {
        /// The URI.
        uri: String,
        /// Its words.
        source: Refusal,
    },
    /// libvirtd took no connection, or none of the first calls over it.
    #[error(
        "libvirt at {uri} did not answer within {within:?}: is libvirtd stopped, or overloaded?"
    )]
    NoAnswer {
        /// The URI.
        uri: String,
        /// How long was waited.
        within: Duration,
    },
    /// Attempts before this one hang still.
    #[error(
        "libvirt at {uri} was not asked: {limit} attempts to connect hang, for {within:?} by now; is libvirtd stopped?",
        limit = limits::CONNECTING,
        within = limits::CONNECT
    )]
    Hanging {
        /// The URI.
        uri: String,
    },
    /// What answers there cannot be watched.
    #[error(
        "libvirt at {uri} answers no keepalive, so that nobody would notice when it hangs: is it a libvirtd of this host, 0.9.8 or newer?"
    )]
    NoKeepalive {
        /// The URI.
        uri: String,
    },
    /// No thread for its calls.
    #[error("cannot start a thread for libvirt's calls")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// libvirt understood and refused.
    #[error("libvirt refused to {what}")]
    Refused {
        /// What it was asked to do.
        what: &'static str,
        /// Its words.
        source: Refusal,
    },
    /// No answer in time. libvirt may still do it.
    #[error("libvirt did not {what} within {within:?}")]
    TimedOut {
        /// What it was asked to do.
        what: &'static str,
        /// How long was waited.
        within: Duration,
    },
    /// The connection ended before the answer. libvirt may have done it, or go on doing it.
    #[error("the connection to libvirt was lost before it was known to {what}")]
    Lost {
        /// What it was asked to do.
        what: &'static str,
        /// How it ended.
        source: Closed,
    },
    /// Too many calls wait already; this one was not made.
    #[error("libvirt was not asked to {what}: {waiting} others wait already")]
    TooMany {
        /// What it was to be asked.
        what: &'static str,
        /// So many.
        waiting: usize,
    },
    /// A text with a zero byte; the call was not made.
    #[error("libvirt was not asked to {what}: {text:?} has a zero byte")]
    Text {
        /// What it was to be asked.
        what: &'static str,
        /// The text.
        text: String,
    },
}

/// Why a migration cannot begin. libvirt was not asked for it.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It has no connection of its own.
    #[error("cannot migrate a domain")]
    Connect(#[from] ConnectError),
    /// Its texts cannot be said, too many are under way, or libvirt does not tell of the domain.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a job was not ended, as far as is known.
#[derive(Debug, thiserror::Error)]
pub enum NotEnded {
    /// There was no connection for it: libvirt was not asked.
    #[error("cannot end a domain's job")]
    Connect(#[from] ConnectError),
    /// libvirt refused, such as where the domain has no job; or it did not answer in time, and may have ended it; or too many are
    /// being ended.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// libvirtd ended, or was told to end it.
    #[error("libvirtd closed the connection")]
    ByLibvirtd,
    /// libvirtd was silent for [`limits::KEEPALIVE_SECONDS`] times one more than [`limits::KEEPALIVE_UNANSWERED`].
    #[error("libvirtd answered no keepalive")]
    Silent,
    /// All handles on it were dropped here.
    #[error("the connection was closed from here")]
    ByUs,
    /// An error of the connection, in libvirt's words where it has some.
    #[error("the connection failed: {0}")]
    Failed(String),
}

impl Closed {
    /// From a `virConnectCloseReason`.
    pub(crate) fn from_reason(reason: c_int) -> Self {
        match reason {
            1 => Self::ByLibvirtd,
            2 => Self::Silent,
            3 => Self::ByUs,
            other => Self::Failed(format!("for reason {other} of libvirt's")),
        }
    }
}

/// The beginning of somebody else's text, in one line.
pub(crate) fn excerpt(text: &str) -> String {
    let words = text.trim().chars().take(limits::EXCERPT_CHARS);
    words
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libvirts_words_are_kept_with_their_number_and_cut_where_they_have_no_end() {
        let refusal = Refusal {
            words: excerpt("Domain not found:\nno such \u{1b}[31mdomain\n"),
            domain: 10,
            code: 42,
        };
        assert!(refusal.is_no_domain());
        assert_eq!(
            refusal.to_string(),
            "Domain not found: no such  [31mdomain (libvirt error 42 of domain 10)"
        );
        let long = excerpt(&"ü".repeat(limits::EXCERPT_CHARS + 1));
        assert_eq!(long.chars().count(), limits::EXCERPT_CHARS);
    }

    #[test]
    fn each_way_that_a_connection_ends_has_its_words() {
        assert_eq!(Closed::from_reason(1), Closed::ByLibvirtd);
        assert_eq!(Closed::from_reason(2), Closed::Silent);
        assert_eq!(Closed::from_reason(3), Closed::ByUs);
        assert!(Closed::from_reason(99).to_string().contains("99"));
    }
}
