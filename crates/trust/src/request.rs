//! A key of one's own, and the request for a certificate for it.

use std::fmt;

use rcgen::{CertificateParams, KeyPair};

use crate::TrustError;

/// A new key and the request that goes to the authority. The key stays where it was made.
pub struct KeyAndRequest {
    /// The private key, PEM.
    pub key: String,
    /// The request, PEM. Who asks stands beside it, not in it.
    pub request: String,
}

impl KeyAndRequest {
    /// A P-256 key and a request for it.
    ///
    /// # Errors
    /// The library cannot make one.
    pub fn generate() -> Result<Self, TrustError> {
        let failed = |error: rcgen::Error| TrustError::making("a key", &error);
        let key = KeyPair::generate().map_err(failed)?;
        let request = CertificateParams::default()
            .serialize_request(&key)
            .map_err(failed)?;
        Ok(Self {
            key: key.serialize_pem(),
            request: request.pem().map_err(failed)?,
        })
    }
}

impl fmt::Debug for KeyAndRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyAndRequest").finish_non_exhaustive()
    }
}
