//! Who etcd is, and who this side is to it: certificates from files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::StoreError;
use crate::limits;

/// Files in PEM with which etcd is believed, and this side by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that etcd's own is believed of.
    pub authority: PathBuf,
    /// This side's certificate and its key, where etcd asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// What connections are made with.
    ///
    /// # Errors
    /// [`StoreError::Unusable`]: a file cannot be read, holds something else, or the key does not fit.
    pub fn load(&self) -> Result<Arc<ClientConfig>, StoreError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority)? {
            let added = roots.add(certificate);
            added.map_err(|error| unusable(&self.authority, error))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.authority, error))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.own else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let read = PrivateKeyDer::from_pem_slice(&bytes(key)?);
        let read = read.map_err(|error| unusable(key, error))?;
        let config = builder.with_client_auth_cert(certificates(certificate)?, read);
        Ok(Arc::new(
            config.map_err(|error| unusable(certificate, error))?,
        ))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let bytes = bytes(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(unusable(path, "it holds no certificate in PEM"));
    }
    Ok(found)
}

fn bytes(path: &Path) -> Result<Vec<u8>, StoreError> {
    let most = limits::TLS_FILE_BYTES;
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > most {
        return Err(unusable(path, format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

fn unusable(path: &Path, problem: impl ToString) -> StoreError {
    StoreError::Unusable {
        path: path.display().to_string(),
        problem: problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_missing_empty_or_endless_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: PathBuf| {
            let (authority, own) = (path, None);
            let refused = TlsFiles { authority, own }.load().unwrap_err();
            refused.to_string()
        };
        let missing = refused(folder.path().join("ca.pem"));
        assert!(
            missing.contains("ca.pem cannot be used: No such file"),
            "{missing}"
        );
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "hello").unwrap();
        assert!(refused(empty).contains("no certificate in PEM"));
        assert!(refused("/dev/zero".into()).contains("more than"));
    }
}
