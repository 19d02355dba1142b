//! TLS 1.3 with both ends verified: the only way in which agents are talked to over a network.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use drover_types::HostName;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};

use crate::certificate::{Serial, chain};
use crate::problem::OtherAuthority;
use crate::{Facts, Fingerprint, Identity, Membership, TrustError, membership};

/// HTTP/1.1 is what agents speak.
const ALPN: &[u8] = b"http/1.1";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// This machine's clock.
#[must_use]
pub fn system_clock() -> Arc<dyn TimeProvider> {
    Arc::new(DefaultTimeProvider)
}

/// The name with which a host is asked for.
///
/// # Errors
/// It is no DNS name.
pub fn server_name(host: &HostName) -> Result<ServerName<'static>, TrustError> {
    Identity::Host(host.clone())
        .dns_name()
        .map(ServerName::DnsName)
}

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Only who has a certificate of this cluster.
    Certified,
    /// Others as well, so that they can join: whoever answers them must look at who they are.
    OrJoining,
}

/// A key with its certificate, and whom its owner believes.
pub struct Credentials {
    /// The certificate.
    pub facts: Facts,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: CertificateDer<'static>,
    removals: Option<CertificateRevocationListDer<'static>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// From PEM texts; a member also knows what was removed.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn new(
        key: &str,
        certificate: &str,
        authority: &str,
        membership: Option<&Membership>,
    ) -> Result<Self, TrustError> {
        let mut own = chain(certificate, "the certificate")?;
        own.truncate(1);
        let facts = Facts::of(&own[0])?;
        let authority = chain(authority, "the authority's certificate")?.swap_remove(0);
        // Who joins knows the authority by its fingerprint only, and has to see all of it.
        own.push(authority.clone());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| TrustError::unusable("the private key", error))?;
        Ok(Self {
            facts,
            chain: own,
            key,
            authority,
            removals: membership.map(Membership::list).transpose()?,
        })
    }

    /// What the authority is recognised by.
    #[must_use]
    pub fn authority(&self) -> Fingerprint {
        Fingerprint::of(&self.authority)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TrustError> {
        roots(&self.authority)
    }

    fn removals(&self) -> Vec<CertificateRevocationListDer<'static>> {
        self.removals.iter().cloned().collect()
    }

    /// To connect with.
    ///
    /// # Errors
    /// Key and certificate do not fit.
    pub fn client(&self, clock: Arc<dyn TimeProvider>) -> Result<ClientConfig, TrustError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider())
            .with_crls(self.removals())
            .build()
            .map_err(|error| unfit(&error))?;
        let builder = ClientConfig::builder_with_details(provider(), clock)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_webpki_verifier(verifier);
        let config = builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key());
        config.map(finish_client).map_err(|error| unfit(&error))
    }

    /// To be connected to with.
    ///
    /// # Errors
    /// Key and certificate do not fit.
    pub fn server(
        &self,
        clients: Clients,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<ServerConfig, TrustError> {
        let mut verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider())
            .with_crls(self.removals());
        if clients == Clients::OrJoining {
            verifier = verifier.allow_unauthenticated();
        }
        let verifier = verifier.build().map_err(|error| unfit(&error))?;
        let config = ServerConfig::builder_with_details(provider(), clock)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unfit(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(|error| unfit(&error))?;
        // A resumed connection would not look at the certificate, nor at the removals, again.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn removed(&self) -> Result<BTreeSet<Serial>, TrustError> {
        match &self.removals {
            Some(list) => Ok(membership::serials(list)?.into_iter().collect()),
            None => Ok(BTreeSet::new()),
        }
    }
}

fn finish_client(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, TrustError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(authority.clone())
        .map_err(|error| TrustError::unusable("the authority's certificate", error))?;
    Ok(Arc::new(roots))
}

fn unfit(problem: &dyn fmt::Display) -> TrustError {
    TrustError::unusable("key, certificate and authority together", problem)
}

/// Credentials in the form in which connections are made.
#[derive(Debug)]
pub struct Armed {
    /// To connect with.
    pub client: Arc<ClientConfig>,
    /// To be connected to with; operators have none.
    pub server: Option<Arc<ServerConfig>>,
    /// Our own certificate.
    pub facts: Facts,
    /// What the authority is recognised by.
    pub authority: Fingerprint,
    removed: BTreeSet<Serial>,
}

impl Armed {
    /// Of a host.
    ///
    /// # Errors
    /// Key and certificate do not fit.
    pub fn host(
        credentials: &Credentials,
        clients: Clients,
        clock: &Arc<dyn TimeProvider>,
    ) -> Result<Self, TrustError> {
        let mut armed = Self::operator(credentials, clock)?;
        let server = credentials.server(clients, Arc::clone(clock))?;
        armed.server = Some(Arc::new(server));
        Ok(armed)
    }

    /// Of an operator, who is never connected to.
    ///
    /// # Errors
    /// Key and certificate do not fit.
    pub fn operator(
        credentials: &Credentials,
        clock: &Arc<dyn TimeProvider>,
    ) -> Result<Self, TrustError> {
        Ok(Self {
            client: Arc::new(credentials.client(Arc::clone(clock))?),
            server: None,
            facts: credentials.facts.clone(),
            authority: credentials.authority(),
            removed: credentials.removed()?,
        })
    }

    /// Whether a certificate was removed, for connections that are open already.
    #[must_use]
    pub fn is_removed(&self, facts: &Facts) -> bool {
        self.removed.contains(&facts.serial)
    }
}

/// What everybody who makes or takes connections reads, each time anew: a certificate that is
/// replaced is used from the next connection on, and those that are open stay.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<RwLock<Option<Arc<Armed>>>>);

impl Trust {
    /// With these.
    #[must_use]
    pub fn of(armed: Armed) -> Self {
        let trust = Self::default();
        trust.replace(armed);
        trust
    }

    /// What is in force; `None` outside of a cluster.
    #[must_use]
    pub fn armed(&self) -> Option<Arc<Armed>> {
        let armed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        armed.clone()
    }

    /// From now on these.
    pub fn replace(&self, armed: Armed) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(armed));
    }
}

impl Trust {
    /// From now on none: this side belongs to no cluster any more.
    pub fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// To connect with before one has a certificate: believes only an agent whose authority has this
/// fingerprint.
///
/// # Errors
/// Never in practice: the library refuses its own settings.
pub fn joining_client(
    authority: Fingerprint,
    clock: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TrustError> {
    let verifier = Pinned {
        authority,
        provider: provider(),
    };
    let config = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| unfit(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(finish_client(config))
}

/// The identity in a chain that TLS has verified.
///
/// # Errors
/// The certificate is none of ours, although our authority signed it.
pub fn peer(chain: Option<&[CertificateDer<'_>]>) -> Result<Option<Facts>, TrustError> {
    let leaf = chain.and_then(<[_]>::first);
    leaf.map(Facts::of).transpose()
}

#[derive(Debug)]
struct Pinned {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>, // whoever has the token knows addresses, not names
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates
            .iter()
            .find(|certificate| Fingerprint::of(certificate) == self.authority);
        let Some(pinned) = pinned else {
            let found = intermediates.last().map(|last| Fingerprint::of(last));
            return Err(other(OtherAuthority {
                expected: self.authority,
                found,
            }));
        };
        let general = |error: TrustError| rustls::Error::General(error.to_string());
        let facts = Facts::of(end_entity).map_err(general)?;
        let Identity::Host(host) = &facts.identity else {
            return Err(CertificateError::InvalidPurpose.into());
        };
        let name = server_name(host).map_err(general)?;
        let roots = roots(&pinned.clone().into_owned()).map_err(general)?;
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, &name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn other(problem: OtherAuthority) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(problem))).into()
}

/// The clock's time as the rest of the world writes it.
pub(crate) fn system_time(time: UnixTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(time.as_secs())
}
