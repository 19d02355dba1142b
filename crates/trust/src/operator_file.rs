//! All that an operator needs to give orders from another machine, in one file.
//!
//! ```text
//! # Drover operator eve. Keep this file secret: ...
//! # host a 10.0.0.1:7470 10.0.1.1:7470
//! -----BEGIN PRIVATE KEY----- ...     the operator's
//! -----BEGIN CERTIFICATE----- ...     the operator's, then the authority's
//! ```

use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use drover_types::HostName;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::certificate::chain;
use crate::{Credentials, Facts, Identity, Member, TrustError, limits};

const HOST: &str = "# host ";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// An operator's key and certificate, the authority's certificate, and where the hosts are.
pub struct OperatorFile {
    /// The private key, PEM.
    pub key: String,
    /// The certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// The hosts at the time at which it was made.
    pub hosts: Vec<Member>,
}

impl fmt::Debug for OperatorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorFile")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl OperatorFile {
    /// The file's text.
    ///
    /// # Errors
    /// The certificate is none.
    pub fn to_text(&self) -> Result<String, TrustError> {
        let certificate = chain(&self.certificate, "the certificate")?;
        let facts = Facts::of(&certificate[0])?;
        let mut text = format!(
            "# Drover {}. Whoever has this file can give orders to every host below.\n",
            facts.identity
        );
        for host in &self.hosts {
            let addresses: Vec<_> = host.addresses.iter().map(ToString::to_string).collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{HOST}{} {}", host.host, addresses.join(" "));
        }
        for part in [&self.key, &self.certificate, &self.authority] {
            text.push_str(part.trim_end());
            text.push('\n');
        }
        Ok(text)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// It is no identity file of an operator.
    pub fn from_text(text: &str) -> Result<Self, TrustError> {
        let unusable =
            |problem: &dyn fmt::Display| TrustError::unusable("the identity file", problem);
        let at = text
            .find(BEGIN)
            .ok_or_else(|| unusable(&"no certificate is in it"))?;
        let (key, certificates) = text.split_at(at);
        let second = certificates[BEGIN.len()..].find(BEGIN);
        let second = second.ok_or_else(|| unusable(&"the authority's certificate is missing"))?;
        let (certificate, authority) = certificates.split_at(BEGIN.len() + second);
        PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| unusable(&error))?;
        let facts = Facts::of(&chain(certificate, "the identity file")?[0])?;
        if !matches!(facts.identity, Identity::Operator(_)) {
            return Err(unusable(&format!(
                "it is for {}, no operator",
                facts.identity
            )));
        }
        let mut hosts = Vec::new();
        for line in key.lines().filter_map(|line| line.strip_prefix(HOST)) {
            hosts.push(host(line).ok_or_else(|| unusable(&format!("bad line: {line}")))?);
        }
        Ok(Self {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
            authority: authority.to_owned(),
            hosts,
        })
    }

    /// To connect with.
    ///
    /// # Errors
    /// Its parts do not fit each other.
    pub fn credentials(&self) -> Result<Credentials, TrustError> {
        Credentials::new(&self.key, &self.certificate, &self.authority, None)
    }
}

fn host(line: &str) -> Option<Member> {
    let mut words = line.split_whitespace();
    let host: HostName = words.next()?.parse().ok()?;
    let addresses: Result<Vec<SocketAddr>, _> =
        words.take(limits::ADDRESSES).map(str::parse).collect();
    Some(Member {
        host,
        addresses: addresses.ok()?,
    })
}
