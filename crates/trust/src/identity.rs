//! Who a certificate is for.

use std::fmt;

use drover_types::{HostName, OperatorName};
use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};

use crate::TrustError;

/// What follows a host's name in its certificate.
const HOST: &str = ".host.drover";
/// What follows an operator's.
const OPERATOR: &str = ".operator.drover";

/// A role and a name. In a certificate they are one DNS name, `a.host.drover`, so that the
/// verification of the name is that of the role as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// The agent of a host: it may use the routes of peers.
    Host(HostName),
    /// Somebody who gives orders from afar: may use every route.
    Operator(OperatorName),
}

impl Identity {
    /// The name that stands in its certificate.
    ///
    /// # Errors
    /// The name is no DNS name.
    pub fn dns_name(&self) -> Result<DnsName<'static>, TrustError> {
        let (name, role) = match self {
            Self::Host(name) => (name.as_str(), HOST),
            Self::Operator(name) => (name.as_str(), OPERATOR),
        };
        DnsName::try_from(format!("{name}{role}")).map_err(|_| TrustError::Name {
            name: name.to_owned(),
        })
    }

    /// Whose name in a certificate this is.
    #[must_use]
    pub fn from_dns_name(name: &str) -> Option<Self> {
        if let Some(host) = name.strip_suffix(HOST) {
            return host.parse().ok().map(Self::Host);
        }
        let operator = name.strip_suffix(OPERATOR)?;
        operator.parse().ok().map(Self::Operator)
    }

    /// Whether both would be one name in a certificate, where capitals do not count.
    #[must_use]
    pub fn same_name(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(two)) => one.as_str().eq_ignore_ascii_case(two.as_str()),
            (Self::Operator(one), Self::Operator(two)) => {
                one.as_str().eq_ignore_ascii_case(two.as_str())
            }
            _ => false,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(f, "host {name}"),
            Self::Operator(name) => write!(f, "operator {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Identity {
        Identity::Host(name.parse().unwrap())
    }

    #[test]
    fn a_name_and_its_role_come_back_from_the_certificate() {
        let operator = Identity::Operator("eve.host".parse().unwrap());
        for identity in [host("a"), host("7"), host("web_1.example.com"), operator] {
            let name = identity.dns_name().unwrap();
            assert_eq!(Identity::from_dns_name(name.as_ref()), Some(identity));
        }
    }

    #[test]
    fn an_operator_cannot_be_named_into_a_host() {
        let operator = Identity::Operator("a.host.drover".parse().unwrap());
        let name = operator.dns_name().unwrap();
        assert_eq!(Identity::from_dns_name(name.as_ref()), Some(operator));
    }

    #[test]
    fn names_that_are_no_dns_names_are_refused_and_named() {
        for bad in ["a-", "a..b", "a.-b"] {
            let error = host(bad).dns_name().unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn names_of_nobody_are_nobodys() {
        for name in [
            "a",
            "a.drover",
            ".host.drover",
            "*.host.drover",
            "a.host.drover.org",
        ] {
            assert_eq!(Identity::from_dns_name(name), None, "{name}");
        }
    }
}
