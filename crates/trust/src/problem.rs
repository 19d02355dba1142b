//! Why two ends do not believe each other, in words for the operator who has to mend it.

use std::error::Error as StdError;
use std::fmt;

use jiff::Timestamp;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::ledger::timestamp;
use crate::tls::system_time;
use crate::{Fingerprint, Identity};

/// The agent that answered has another authority than the token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the authority has another fingerprint than {expected}")]
pub(crate) struct OtherAuthority {
    pub expected: Fingerprint,
    pub found: Option<Fingerprint>,
}

/// What stands between two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The other's certificate has ended.
    Expired {
        /// When.
        not_after: Timestamp,
        /// By this host's clock.
        now: Timestamp,
    },
    /// The other's certificate has not begun: a clock is wrong.
    NotYetValid {
        /// When it will.
        not_before: Timestamp,
        /// By this host's clock.
        now: Timestamp,
    },
    /// Another cluster's, or nobody's.
    Foreign,
    /// A member, but another one.
    WrongName {
        /// Who was wanted.
        expected: String,
        /// Who answered.
        presented: String,
    },
    /// The other showed no certificate.
    NoCertificate,
    /// The other was removed from the cluster.
    Removed,
    /// A certificate of a role that may not be on that end.
    WrongRole,
    /// The token is for another cluster than the one that answered.
    OtherAuthority {
        /// What the token says.
        expected: Fingerprint,
        /// What answered.
        found: Option<Fingerprint>,
    },
    /// No TLS is spoken there.
    NoTls,
    /// This side was removed from the cluster.
    RemovedUs,
    /// The other does not believe this side.
    RefusedUs(&'static str, &'static str),
    /// The rest, in the library's words.
    Other(String),
}

impl Problem {
    /// One word for it, of a closed list.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "expired",
            Self::NotYetValid { .. } => "not-yet-valid",
            Self::Foreign => "foreign",
            Self::WrongName { .. } => "wrong-name",
            Self::NoCertificate => "no-certificate",
            Self::Removed => "removed",
            Self::WrongRole => "wrong-role",
            Self::OtherAuthority { .. } => "other-authority",
            Self::NoTls => "no-tls",
            Self::RemovedUs | Self::RefusedUs(..) => "refused-us",
            Self::Other(_) => "other",
        }
    }

    /// What an error of the TLS library means.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(problem) => Self::of_certificate(problem),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidMessage(_) => Self::NoTls,
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::PeerIncompatible(
                PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            ) => Self::Other("the other side speaks no TLS 1.3".to_owned()),
            other => Self::Other(other.to_string()),
        }
    }

    /// The same of an error that the TLS library's is hidden in.
    #[must_use]
    pub fn within(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Error>() {
                return Some(Self::of(found));
            }
            let inner = error.downcast_ref::<std::io::Error>();
            if let Some(inner) = inner.and_then(std::io::Error::get_ref) {
                return Self::within(inner);
            }
            next = error.source();
        }
        None
    }

    fn of_certificate(problem: &CertificateError) -> Self {
        let stamp = |time: &UnixTime| timestamp(system_time(*time));
        match problem {
            CertificateError::ExpiredContext { time, not_after } => Self::Expired {
                not_after: stamp(not_after),
                now: stamp(time),
            },
            CertificateError::NotValidYetContext { time, not_before } => Self::NotYetValid {
                not_before: stamp(not_before),
                now: stamp(time),
            },
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => Self::WrongName {
                expected: wanted(expected),
                presented: presented.iter().map(|name| shown(name)).collect(),
            },
            CertificateError::Revoked => Self::Removed,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::WrongRole
            }
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnknownRevocationStatus => Self::Foreign,
            CertificateError::Other(other) => match other.0.downcast_ref::<OtherAuthority>() {
                Some(OtherAuthority { expected, found }) => Self::OtherAuthority {
                    expected: *expected,
                    found: *found,
                },
                None => Self::Other(other.to_string()),
            },
            other => Self::Other(other.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateExpired => Self::RefusedUs(
                "by the other side's clock this side's certificate has expired or is not valid yet",
                "compare the clocks of both hosts (`date -u`), and look at `drover cluster status`",
            ),
            AlertDescription::CertificateRevoked => Self::RemovedUs,
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Self::RefusedUs(
                "the other side belongs to another cluster",
                "compare the fingerprints in `drover cluster status` on both hosts",
            ),
            AlertDescription::CertificateRequired => Self::RefusedUs(
                "the other side wants a certificate and was shown none",
                "join the cluster with `drover cluster join`, or name an identity file with \
                 --identity",
            ),
            other => Self::Other(format!("the other side refused: {other:?}")),
        }
    }

    /// What to do next.
    #[must_use]
    pub fn next(&self) -> &'static str {
        match self {
            Self::Expired { .. } => {
                "run `drover cluster rotate` on that host; if its clock or this one's is wrong, \
                 set it first (`date -u` on both)"
            }
            Self::NotYetValid { .. } => {
                "compare the clocks of both hosts (`date -u`) and set the one that is wrong"
            }
            Self::Foreign => {
                "compare the fingerprints in `drover cluster status` on both hosts; join the one \
                 that is in another cluster again"
            }
            Self::WrongName { .. } => {
                "correct the address: `drover cluster status` shows who is where; an address in \
                 [[peers]] of droverd.toml overrides it"
            }
            Self::NoCertificate => {
                "join the cluster with `drover cluster join`, or name an identity file with \
                 --identity"
            }
            Self::Removed => "to take it in again, make a token with `drover cluster token`",
            Self::WrongRole => "a host is asked with its own certificate, an operator never is",
            Self::OtherAuthority { .. } => {
                "make a token on a host of the cluster that is meant; somebody may also be \
                 intercepting the connection"
            }
            Self::NoTls => {
                "bring the agent there to a version that speaks TLS, or correct the port"
            }
            Self::RemovedUs => {
                "a host comes back with `drover cluster join` and a new token; an operator needs \
                 a new identity file"
            }
            Self::RefusedUs(_, next) => next,
            Self::Other(_) => "look at the log of both agents (`journalctl -u droverd`)",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { not_after, now } => write!(
                f,
                "its certificate expired at {not_after:.0}; this host's clock says {now:.0}"
            ),
            Self::NotYetValid { not_before, now } => write!(
                f,
                "its certificate is valid from {not_before:.0}, which the authority's clock set an \
                 hour back; this host's clock says {now:.0}"
            ),
            Self::Foreign => f.write_str("its certificate is not of this cluster's authority"),
            Self::WrongName {
                expected,
                presented,
            } => write!(f, "{presented} answers, {expected} was wanted"),
            Self::NoCertificate => f.write_str("it showed no certificate"),
            Self::Removed => f.write_str("it was removed from the cluster"),
            Self::WrongRole => f.write_str("its certificate is for another role"),
            Self::OtherAuthority { expected, found } => {
                write!(
                    f,
                    "the token is for the cluster with the fingerprint {expected}, "
                )?;
                match found {
                    Some(found) => write!(f, "the agent that answered has {found}"),
                    None => f.write_str("the agent that answered shows no authority"),
                }
            }
            Self::NoTls => f.write_str("no TLS is spoken there"),
            Self::RemovedUs => f.write_str("this side was removed from the cluster"),
            Self::RefusedUs(why, _) => f.write_str(why),
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn wanted(name: &ServerName<'_>) -> String {
    shown(&name.to_str())
}

/// A name of a certificate as people know it; the library shows it with its kind and quotes.
fn shown(name: &str) -> String {
    let bare = name.trim_start_matches("DnsName(").trim_end_matches(')');
    let bare = bare.trim_matches('"');
    Identity::from_dns_name(bare).map_or_else(|| bare.to_owned(), |who| who.to_string())
}
