//! Who belongs to the cluster: its authority, certificates of hosts and operators, join tokens.
//!
//! ```text
//!   authority ── signs ──▶ certificate of host a ─┐
//!      │                   certificate of host b ─┼─ TLS 1.3, both ends verified
//!      │                   certificate of eve    ─┘
//!      ├── ledger       who is in, what was issued, which tokens are open
//!      └── removals     a signed list of the certificates that are no longer good
//! ```
//! A name and a role ([`Identity`]) stand in each certificate; nothing else says who somebody is,
//! no address in particular. This crate owns keys, certificates, tokens and the files they are kept
//! in. It opens no connection: it makes the configurations with which others do.
//!
//! # Invariant
//! A private key leaves this crate only into a file with mode 0600, or into an operator's own file.
//! What cannot be verified is not believed: there is no mode without verification.

mod authority;
mod certificate;
mod identity;
mod ledger;
pub mod limits;
mod membership;
mod operator_file;
mod problem;
mod request;
mod store;
mod tls;
mod token;

pub use authority::{Authority, Validity};
pub use certificate::{Facts, Serial};
pub use identity::Identity;
pub use ledger::{CoordinatorRefused, JoinRefused, Ledger, Removal};
pub use membership::{Member, Membership};
pub use operator_file::OperatorFile;
pub use problem::Problem;
pub use request::KeyAndRequest;
pub use store::{Store, Stored};
pub use tls::{
    Armed, Clients, Credentials, Trust, joining_client, peer, server_name, system_clock,
};
pub use token::{Fingerprint, JoinToken, Secret};

use drover_types::in_short;

/// What can go wrong with keys, certificates and the files that hold them.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read or written.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        /// Which file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A file or an answer does not hold what it should.
    #[error("{what} cannot be used: {problem}")]
    Unusable {
        /// What it should be.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A name cannot stand in a certificate.
    #[error(
        "name {name:?} cannot stand in a certificate: it must be a DNS name, with no label that is \
         empty or begins or ends with '-'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A key or certificate could not be made.
    #[error("cannot make {what}: {problem}")]
    Making {
        /// What was to be made.
        what: &'static str,
        /// Why not.
        problem: String,
    },
}

impl TrustError {
    pub(crate) fn unusable(what: impl Into<String>, problem: impl ToString) -> Self {
        Self::Unusable {
            what: what.into(),
            problem: in_short(problem.to_string()),
        }
    }

    pub(crate) fn making(what: &'static str, problem: &impl ToString) -> Self {
        Self::Making {
            what,
            problem: problem.to_string(),
        }
    }
}
