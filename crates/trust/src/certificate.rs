//! What stands in a certificate.

use std::fmt;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Identity, TrustError, limits};

/// The number of one certificate, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Serial(String);

impl Serial {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(HEXLOWER.encode(bytes))
    }

    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        HEXLOWER.decode(self.0.as_bytes()).ok()
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is to be known of a certificate once it was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Whose it is.
    pub identity: Identity,
    /// Its number.
    pub serial: Serial,
    /// Valid from.
    pub not_before: SystemTime,
    /// Valid until.
    pub not_after: SystemTime,
}

impl Facts {
    /// Reads a certificate; verifies nothing.
    ///
    /// # Errors
    /// It is no certificate of a cluster.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, TrustError> {
        let unusable = |problem: &dyn fmt::Display| TrustError::unusable("a certificate", problem);
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|error| unusable(&error))?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| unusable(&error))?;
        let names = names.map_or(&[][..], |extension| &extension.value.general_names);
        let [GeneralName::DNSName(name)] = names else {
            return Err(unusable(&"it is not for exactly one name"));
        };
        let identity = Identity::from_dns_name(name)
            .ok_or_else(|| unusable(&format!("{name:?} is no host and no operator")))?;
        let validity = parsed.validity();
        Ok(Self {
            identity,
            serial: Serial::of(parsed.raw_serial()),
            not_before: moment(validity.not_before.timestamp()),
            not_after: moment(validity.not_after.timestamp()),
        })
    }

    /// When it is to be renewed: at two thirds of its life.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before);
        let life = life.unwrap_or_default();
        self.not_before + life / 3 * 2
    }
}

fn moment(seconds: i64) -> SystemTime {
    match u64::try_from(seconds) {
        Ok(after) => SystemTime::UNIX_EPOCH + Duration::from_secs(after),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}

/// The certificates in a PEM text, of sensible size.
pub(crate) fn chain(text: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    if text.len() > 4 * limits::CERTIFICATE_TEXT {
        return Err(TrustError::unusable(what, "it is too long"));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| TrustError::unusable(what, error))?;
    if found.is_empty() {
        return Err(TrustError::unusable(what, "no certificate is in it"));
    }
    Ok(found)
}
