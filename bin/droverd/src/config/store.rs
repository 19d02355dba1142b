//! Where the cluster's state is kept, as the file says it.

use std::path::PathBuf;

use drover_store::{Members, TlsFiles};
use serde::Deserialize;

use super::values::AbsolutePath;

/// The etcd in which several hosts that may coordinate keep the state together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Its members, `HOST:PORT` each.
    pub members: Vec<String>,
    /// Who it is, and who this host is to it; none where it is spoken to in the clear.
    pub tls: Option<TlsFiles>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSection {
    etcd: Vec<MemberUrl>,
    ca: Option<AbsolutePath>,
    certificate: Option<AbsolutePath>,
    key: Option<AbsolutePath>,
}

/// `https://10.0.0.1:2379`
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct MemberUrl {
    secure: bool,
    address: String,
}

impl TryFrom<String> for MemberUrl {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no member of etcd: write https://10.0.0.1:2379");
        let (secure, address) = match text.split_once("://") {
            Some(("https", address)) => (true, address),
            Some(("http", address)) => (false, address),
            _ => return Err(wrong()),
        };
        let address = address.strip_suffix('/').unwrap_or(address).to_owned();
        let usable = Members::new(std::slice::from_ref(&address), None);
        usable.map_err(|_| wrong())?;
        Ok(Self { secure, address })
    }
}

impl StoreSection {
    /// What it says together; none for the file that an agent keeps by itself.
    ///
    /// # Errors
    /// The key at fault, and what is wrong with it.
    pub fn checked(self) -> Result<Option<EtcdConfig>, (&'static str, String)> {
        let path = |path: Option<AbsolutePath>| path.map(|path| path.0);
        let (ca, certificate, key) = (path(self.ca), path(self.certificate), path(self.key));
        let Some(first) = self.etcd.first() else {
            return match ca.or(certificate).or(key) {
                Some(_) => Err((
                    "store.etcd",
                    "certificates are for etcd, and no member of one is named".to_owned(),
                )),
                None => Ok(None),
            };
        };
        let secure = first.secure;
        if self.etcd.iter().any(|member| member.secure != secure) {
            let problem =
                "some members are spoken to over https and some over http: write all alike";
            return Err(("store.etcd", problem.to_owned()));
        }
        let members: Vec<String> = self.etcd.into_iter().map(|member| member.address).collect();
        Members::new(&members, None).map_err(|error| ("store.etcd", error.to_string()))?;
        let tls = tls(secure, ca, certificate, key)?;
        Ok(Some(EtcdConfig { members, tls }))
    }
}

fn tls(
    secure: bool,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsFiles>, (&'static str, String)> {
    if !secure {
        return match ca.or(certificate).or(key) {
            Some(_) => Err((
                "store.etcd",
                "certificates are for https, and the members are named with http".to_owned(),
            )),
            None => Ok(None),
        };
    }
    let Some(authority) = ca else {
        let problem = "it names the certificates that etcd's is believed of, and https needs it";
        return Err(("store.ca", problem.to_owned()));
    };
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err((
                "store.key",
                "the key of `store.certificate` is missing".to_owned(),
            ));
        }
        (None, Some(_)) => {
            return Err((
                "store.certificate",
                "the certificate of `store.key` is missing".to_owned(),
            ));
        }
    };
    Ok(Some(TlsFiles { authority, own }))
}
