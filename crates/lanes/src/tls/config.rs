//! What TLS is used, and whose certificate is taken.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group::X25519MLKEM768};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    SignatureScheme,
};

use super::{Fingerprint, Identity};

/// Nothing else than a lane of this protocol answers to this name.
const PROTOCOL: &[u8] = b"drover-lane/2";

/// Whether the cipher with AES runs on instructions made for it; without, the other one is faster
/// and does not leak the key by the time that it takes.
fn aes_in_hardware() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// One key exchange, X25519 with ML-KEM: who records a migration today should not read it with
/// the computers of tomorrow, and where there is one choice nothing can be chosen down.
pub(super) fn provider(aes: bool) -> CryptoProvider {
    let mut cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256];
    if !aes {
        cipher_suites.reverse();
    }
    CryptoProvider {
        cipher_suites,
        kx_groups: vec![X25519MLKEM768],
        ..default_provider()
    }
}

/// Takes the one certificate that was agreed on, from who has its key.
#[derive(Debug)]
pub(super) struct Pinned {
    peer: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    pub(super) fn new(peer: Fingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { peer, provider }
    }

    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        if more.is_empty() && Fingerprint::of(certificate) == self.peer {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }
}

fn no_tls12<T>() -> Result<T, Error> {
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// TLS for the lanes of one session: with our certificate, and the peer's only.
#[derive(Debug, Clone)]
pub struct Tls {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    own: Fingerprint,
    peer: Fingerprint,
}

impl Tls {
    /// Of our identity, and of the one that the peer said is its.
    ///
    /// # Errors
    /// The identity's key cannot be used.
    pub fn new(identity: &Identity, peer: Fingerprint) -> Result<Self, Error> {
        Self::with_aes(identity, peer, aes_in_hardware())
    }

    pub(super) fn with_aes(
        identity: &Identity,
        peer: Fingerprint,
        aes: bool,
    ) -> Result<Self, Error> {
        let provider = Arc::new(provider(aes));
        let pinned = Arc::new(Pinned::new(peer, provider.clone()));
        let chain = || vec![identity.certificate.clone()];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous() // so is called whatever verifies by another rule than the web's
            .with_custom_certificate_verifier(pinned.clone())
            .with_client_auth_cert(chain(), identity.key())?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(chain(), identity.key())?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        // AES only where both have it: the client's order says what it has.
        server.ignore_client_order = !aes;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            own: identity.fingerprint(),
            peer,
        })
    }

    /// Of our certificate.
    #[must_use]
    pub fn own(&self) -> Fingerprint {
        self.own
    }

    /// Of the only certificate that is taken.
    #[must_use]
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }
}
