//! etcd that believes only clients with a certificate of its authority, and is only believed with one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod members;
mod suite;

use std::path::Path;
use std::sync::Arc;

use drover_store::{Kind, Scope, StoreError, TlsFiles};
use members::{Cluster, Tls, loopback, store_at};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use suite::{host, number, put, until, value, win};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// Its gateway is a client of etcd too, with the server's certificate.
fn issue(by: &Authority) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![loopback().to_string()]).unwrap();
    parameters.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    (parameters.signed_by(&key, by).unwrap(), key)
}

fn files(folder: &Path, by: &Authority) -> Tls {
    let (certificate, key) = issue(by);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    Tls {
        authority: write("ca.pem", by.pem()),
        certificate: write("server.pem", certificate.pem()),
        key: write("server.key", key.serialize_pem()),
    }
}

/// What a client is configured with: the same as above, from files.
fn client_by_files(folder: &Path, believes: &Authority, by: &Authority) -> Arc<ClientConfig> {
    let (certificate, key) = issue(by);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = TlsFiles {
        authority: write("client-ca.pem", believes.pem()),
        own: Some((
            write("client.pem", certificate.pem()),
            write("client.key", key.serialize_pem()),
        )),
    };
    files.load().unwrap()
}

fn client(believes: &Authority, by: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(believes.der().to_vec()))
        .unwrap();
    let (certificate, key) = issue(by);
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key)
        .unwrap();
    Arc::new(config)
}

#[tokio::test]
async fn over_tls_both_ends_show_a_certificate_and_others_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(), authority());
    let Some(cluster) = Cluster::start_with(1, Some(&files(folder.path(), &ours)), &[]) else {
        return;
    };
    let own = client_by_files(folder.path(), &ours, &ours);
    let store = store_at(&cluster.addresses(), "c", Some(own));
    until("etcd answers", async || store.get(&host("a")).await.is_ok()).await;

    let mut watch = store.watch(&Scope::kind(Kind::Host), suite::now(&store).await);
    put(&store, &host("a"), 7).await;
    assert_eq!(number(&store.get(&host("a")).await.unwrap().unwrap()), 7);
    assert_eq!(watch.next().await.unwrap().changes[0].value, Some(value(7)));
    let mut leader = win(&store, "drain", "a").await;
    store.renew(&mut leader).await.unwrap();

    let read = async |stranger| {
        let store = store_at(&cluster.addresses(), "c", stranger);
        store.get(&host("a")).await
    };
    for (read, why) in <[_; 3]>::from(tokio::join!(
        async {
            (
                read(Some(client(&ours, &theirs))).await,
                "a client that etcd does not know",
            )
        },
        async {
            (
                read(Some(client(&theirs, &ours))).await,
                "an etcd that the client does not know",
            )
        },
        async { (read(None).await, "no TLS") },
    )) {
        assert!(
            matches!(read, Err(StoreError::NoQuorum { .. })),
            "{why}: {read:?}"
        );
    }
}
