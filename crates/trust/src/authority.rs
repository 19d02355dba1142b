//! The cluster's authority: signs certificates, and the list of those that are no longer good.

use std::fmt;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::token::{Fingerprint, random};
use crate::{Facts, Identity, Removal, TrustError, limits};

/// From when until when a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From.
    pub not_before: SystemTime,
    /// Until.
    pub not_after: SystemTime,
}

impl Validity {
    /// From a moment before now until `lifetime` from now.
    #[must_use]
    pub fn from(now: SystemTime, lifetime: Duration) -> Self {
        Self {
            not_before: now - limits::BACKDATED,
            not_after: now + lifetime,
        }
    }
}

/// The key that makes members, and its certificate.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.fingerprint())
    }
}

fn failed(error: rcgen::Error) -> TrustError {
    TrustError::making("a certificate", &error)
}

impl Authority {
    /// A new one, of a name that no other cluster's has.
    ///
    /// # Errors
    /// The library cannot make it.
    pub fn create(validity: Validity) -> Result<Self, TrustError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        let name = HEXLOWER.encode(&random::<4>()?);
        params.distinguished_name = common_name(&format!("Drover cluster {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        params.serial_number = Some(serial()?);
        let certificate = params.self_signed(&key).map_err(failed)?;
        Self::from_pem(&key.serialize_pem(), &certificate.pem())
    }

    /// The one that was kept.
    ///
    /// # Errors
    /// The texts are no key and certificate.
    pub fn from_pem(key: &str, certificate: &str) -> Result<Self, TrustError> {
        let unusable = |problem: &dyn fmt::Display| {
            TrustError::unusable("the authority's key or certificate", problem)
        };
        let key = KeyPair::from_pem(key).map_err(|error| unusable(&error))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| unusable(&error))?;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| unusable(&error))?;
        Ok(Self {
            issuer,
            certificate: der,
            pem: certificate.to_owned(),
        })
    }

    /// Its private key, PEM: for its file.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// What it is recognised by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Signs a certificate. Only the key is taken from the request: who it is for and what it
    /// may be used for is the authority's decision.
    ///
    /// # Errors
    /// The request is none, or not signed with its own key, or the name cannot be used.
    pub fn issue(
        &self,
        request: &str,
        identity: &Identity,
        validity: Validity,
    ) -> Result<(String, Facts), TrustError> {
        let unusable = |problem: &dyn fmt::Display| {
            TrustError::unusable("the request for a certificate", problem)
        };
        if request.len() > limits::CERTIFICATE_TEXT {
            return Err(unusable(&"it is too long"));
        }
        let mut asked =
            CertificateSigningRequestParams::from_pem(request).map_err(|error| unusable(&error))?;
        let mut params = CertificateParams::default();
        let name = identity.dns_name()?;
        let name = name.as_ref().to_owned().try_into().map_err(failed)?;
        params.subject_alt_names = vec![SanType::DnsName(name)];
        params.distinguished_name = common_name(&identity.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match identity {
            Identity::Host(_) => vec![
                ExtendedKeyUsagePurpose::ClientAuth,
                ExtendedKeyUsagePurpose::ServerAuth,
            ],
            Identity::Operator(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial()?);
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        asked.params = params;
        let certificate = asked.signed_by(&self.issuer).map_err(failed)?;
        let facts = Facts::of(certificate.der())?;
        Ok((certificate.pem(), facts))
    }

    /// The signed list of certificates that are no longer good, PEM. `number` must grow.
    ///
    /// # Errors
    /// The library cannot make it.
    pub fn sign_removals(
        &self,
        number: u64,
        removed: &[Removal],
        now: SystemTime,
    ) -> Result<String, TrustError> {
        let entry = |removal: &Removal| {
            Some(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&removal.serial.to_bytes()?),
                revocation_time: SystemTime::from(removal.at).into(),
                reason_code: None,
                invalidity_date: None,
            })
        };
        let list = CertificateRevocationListParams {
            this_update: (now - limits::BACKDATED).into(),
            // It is replaced when something changes, not when it is old.
            next_update: (now + limits::AUTHORITY_LIFETIME).into(),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: removed.iter().filter_map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer)
            .and_then(|list| list.pem())
            .map_err(failed)
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// 16 bytes, the first between 0x40 and 0x7f: its encoding has neither a leading zero nor a sign,
/// so the bytes that a certificate shows are these.
fn serial() -> Result<SerialNumber, TrustError> {
    let mut bytes = random::<16>()?;
    bytes[0] = 0x40 | (bytes[0] & 0x3f);
    Ok(SerialNumber::from_slice(&bytes))
}
