//! What every member knows of the cluster.

use std::net::SocketAddr;

use drover_types::HostName;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use crate::certificate::Serial;
use crate::{TrustError, limits};

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, as in its certificate.
    pub host: HostName,
    /// Where its agent listens.
    pub addresses: Vec<SocketAddr>,
}

/// Who is in, and which certificates are no longer good. Made by the authority, kept by all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Grows with every change: a member takes only newer ones.
    pub revision: u64,
    /// The host that has the authority's key.
    pub authority: HostName,
    /// Every host, the authority among them.
    pub members: Vec<Member>,
    /// Hosts that may coordinate beside the authority's. Older versions know none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coordinators: Vec<HostName>,
    /// The authority's signed list of removed certificates (an X.509 CRL, PEM).
    pub removals: String,
}

impl Membership {
    /// The member of that name.
    #[must_use]
    pub fn member(&self, host: &HostName) -> Option<&Member> {
        self.members.iter().find(|member| member.host == *host)
    }

    /// Whether that host may carry out what concerns several hosts, and give orders for it.
    #[must_use]
    pub fn may_coordinate(&self, host: &HostName) -> bool {
        self.authority == *host || self.coordinators.contains(host)
    }

    /// The removals as TLS takes them.
    pub(crate) fn list(&self) -> Result<CertificateRevocationListDer<'static>, TrustError> {
        CertificateRevocationListDer::from_pem_slice(self.removals.as_bytes())
            .map_err(|error| TrustError::unusable("the list of removed certificates", error))
    }

    /// Its bounds: what comes from another host is checked before it is kept.
    ///
    /// # Errors
    /// Too many members or addresses, or no list of removals.
    pub fn check(&self) -> Result<(), TrustError> {
        let unusable = |problem: &str| Err(TrustError::unusable("the member list", problem));
        if self.members.len() > limits::MEMBERS {
            return unusable("it has too many members");
        }
        let fits = |member: &Member| member.addresses.len() <= limits::ADDRESSES;
        if !self.members.iter().all(fits) {
            return unusable("a member has too many addresses");
        }
        if self.member(&self.authority).is_none() {
            return unusable("the authority's host is not in it");
        }
        if self.coordinators.len() > limits::COORDINATORS {
            return unusable("it has too many coordinators");
        }
        if self
            .coordinators
            .iter()
            .any(|host| self.member(host).is_none())
        {
            return unusable("a coordinator is not in it");
        }
        self.list().map(drop)
    }
}

/// The numbers in a list of removals.
pub(crate) fn serials(list: &CertificateRevocationListDer<'_>) -> Result<Vec<Serial>, TrustError> {
    let (_, parsed) = CertificateRevocationList::from_der(list)
        .map_err(|error| TrustError::unusable("the list of removed certificates", error))?;
    let serials = parsed.iter_revoked_certificates();
    Ok(serials
        .map(|removed| Serial::of(removed.raw_serial()))
        .collect())
}
