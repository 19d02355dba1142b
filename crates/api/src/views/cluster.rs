//! The cluster: who belongs to it, and how somebody comes to.

use std::net::SocketAddr;

use drover_trust::{Fingerprint, Member, Membership};
use drover_types::{HostName, OperatorName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Refusal;
use crate::schema::{MemberSchema, MembershipSchema};

/// The cluster as one of its hosts sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// The host that was asked.
    #[schema(value_type = String)]
    pub host: HostName,
    /// The host that has the authority's key.
    #[schema(value_type = String)]
    pub authority: HostName,
    /// Hosts that may coordinate beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub coordinators: Vec<HostName>,
    /// SHA-256 of the authority's certificate: the same on every host of one cluster.
    #[schema(value_type = String)]
    pub fingerprint: Fingerprint,
    /// The certificate of the host that was asked.
    pub certificate: CertificateView,
    /// Grows with every change of members or removals; the same on hosts that have heard the same.
    pub revision: u64,
    /// The hosts.
    pub members: Vec<MemberView>,
    /// On the authority's host: operators with a certificate that is good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorView>,
    /// On the authority's host: who was removed, while it would matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedView>,
    /// On the authority's host: join tokens that were made and neither used nor expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_tokens: Option<u32>,
    /// Why the authority could not be asked the last time, or the certificate not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Refusal>,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// Its number.
    pub serial: String,
    /// Good until.
    #[schema(value_type = String, format = DateTime)]
    pub not_after: Timestamp,
    /// When it is renewed.
    #[schema(value_type = String, format = DateTime)]
    pub renew_at: Timestamp,
}

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// Its name.
    #[schema(value_type = String)]
    pub host: HostName,
    /// Where its agent listens, as it said itself.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// Until when its certificate is good, where that is known: of itself, and by the authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub not_after: Option<Timestamp>,
    /// On the authority's host: whether it has heard of the newest members and removals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date: Option<bool>,
}

/// Somebody who may give orders from afar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorView {
    /// The name.
    #[schema(value_type = String)]
    pub name: OperatorName,
    /// Until when the certificate is good.
    #[schema(value_type = String, format = DateTime)]
    pub not_after: Timestamp,
}

/// Somebody whose certificates were removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedView {
    /// `host b`, or `operator eve`.
    pub who: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Asks for a join token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Seconds for which it can be used; an hour when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

/// A join token. It is shown once: only its hash is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// For `drover cluster join`.
    pub token: String,
    /// Until when it can be used.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// Has this host join a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// As `drover cluster token` printed it on the authority's host.
    pub token: String,
}

/// Lets a host coordinate, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CoordinatorRequest {
    /// Whether it may.
    pub coordinates: bool,
}

/// Asks for an operator's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatorRequest {
    /// A certificate request, PEM. The key stays where it was made.
    pub request: String,
}

/// An operator's certificate, and all that is needed to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorCertificate {
    /// PEM.
    pub certificate: String,
    /// The authority's, PEM.
    pub authority: String,
    /// Until when it is good.
    #[schema(value_type = String, format = DateTime)]
    pub not_after: Timestamp,
    /// The hosts.
    #[schema(value_type = Vec<MemberSchema>)]
    pub hosts: Vec<Member>,
}

/// A host asks to be let in: the only question that is answered without a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdmissionRequest {
    /// The secret of its token, in hexadecimal digits.
    pub secret: String,
    /// Its name.
    #[schema(value_type = String)]
    pub host: HostName,
    /// A certificate request, PEM.
    pub request: String,
    /// Where its agent listens.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// Its clock.
    #[schema(value_type = String, format = DateTime)]
    pub clock: Timestamp,
}

/// A member asks for a new certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewalRequest {
    /// A certificate request, PEM.
    pub request: String,
}

/// A host's certificate, and what it needs beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostCertificate {
    /// PEM.
    pub certificate: String,
    /// The authority's, PEM.
    pub authority: String,
    /// Members and removals.
    #[schema(value_type = MembershipSchema)]
    pub membership: Membership,
}

/// A member tells where it is, and asks what is new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SyncRequest {
    /// Where its agent listens.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// What it has heard last.
    pub revision: u64,
}
