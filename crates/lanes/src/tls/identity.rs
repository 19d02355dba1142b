//! Who an end of a session is: a certificate of its own, known to the other by its fingerprint.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// SHA-256 of a certificate. It is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// A text that is no fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a certificate's fingerprint is 64 hexadecimal digits, not {0:?}")]
pub struct NoFingerprint(String);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;
    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let wrong = || NoFingerprint(text.chars().take(80).collect());
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

/// A key and its certificate, made for one end of one session and never written down.
pub struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    fingerprint: Fingerprint,
}

/// No key or certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a key and a certificate for the lanes")]
pub struct NoIdentity(#[from] rcgen::Error);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

impl Identity {
    /// A new one: a key on P-256, and a certificate that it signs itself. The names and dates in
    /// it mean nothing, since the peer knows the whole certificate beforehand.
    ///
    /// # Errors
    /// [`NoIdentity`].
    pub fn generate() -> Result<Self, NoIdentity> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = CertificateParams::default().self_signed(&key)?;
        let certificate = certificate.der().clone();
        Ok(Self {
            fingerprint: Fingerprint::of(&certificate),
            certificate,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
        })
    }

    /// One whose certificate and key, in DER, another process made.
    #[must_use]
    pub fn of(certificate: Vec<u8>, key: Vec<u8>) -> Self {
        let certificate = CertificateDer::from(certificate);
        Self {
            fingerprint: Fingerprint::of(&certificate),
            certificate,
            key: PrivatePkcs8KeyDer::from(key),
        }
    }

    /// Its certificate and its key, for [`Identity::of`] in the process that has the lanes.
    #[must_use]
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key.secret_pkcs8_der().to_vec();
        (self.certificate.to_vec(), key)
    }

    /// What the peer is to be told.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_survives_being_written_down() {
        let fingerprint = Identity::generate().unwrap().fingerprint();
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        for text in [
            "",
            "12",
            &"g".repeat(64),
            &"0".repeat(65),
            &"é".repeat(32),
            "+1",
        ] {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_identity_is_another_and_shows_no_key() {
        let (one, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert_eq!(
            format!("{one:?}"),
            format!("Identity({})", one.fingerprint())
        );
    }
}
