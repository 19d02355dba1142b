//! The files of trust: whole or not there, and for root alone.
//!
//! ```text
//! <state>/trust/      0700
//!     authority.pem   the authority's certificate
//!     authority.key   its key: only on the authority's host
//!     ledger.json     what the authority remembers: only there
//!     host.pem        this host's key and certificate, replaced together
//!     cluster.json    members and removals, as last heard
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Authority, Credentials, Ledger, Membership, TrustError, limits};

const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority.key";
const LEDGER: &str = "ledger.json";
const HOST: &str = "host.pem";
const CLUSTER: &str = "cluster.json";

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Where they are kept.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// All that a member has.
#[derive(Debug)]
pub struct Stored {
    /// This host's private key, PEM.
    pub key: String,
    /// Its certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// Members and removals.
    pub membership: Membership,
    /// On the authority's host.
    pub office: Option<(Authority, Ledger)>,
}

impl Stored {
    /// Key, certificate and what was removed, for TLS.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn credentials(&self) -> Result<Credentials, TrustError> {
        let membership = Some(&self.membership);
        Credentials::new(&self.key, &self.certificate, &self.authority, membership)
    }
}

impl Store {
    /// Below the directory of what outlives a reboot. Nothing is made yet.
    #[must_use]
    pub fn below(state: &Path) -> Self {
        Self {
            directory: state.join("trust"),
        }
    }

    /// What is there; `None` on a host that belongs to no cluster.
    ///
    /// # Errors
    /// A file is missing, damaged, or readable by others.
    pub fn load(&self) -> Result<Option<Stored>, TrustError> {
        let Some(cluster) = self.read(CLUSTER)? else {
            return Ok(None);
        };
        let membership: Membership = self.decode(CLUSTER, &cluster)?;
        membership.check()?;
        let authority = self.needed(AUTHORITY)?;
        let host = self.needed(HOST)?;
        let at = host
            .find(CERTIFICATE)
            .ok_or_else(|| self.bad(HOST, &"no certificate is in it"))?;
        let (key, certificate) = host.split_at(at);
        let office = match self.read(AUTHORITY_KEY)? {
            Some(key) => {
                let ledger = self.needed(LEDGER)?;
                let ledger = self.decode(LEDGER, &ledger)?;
                Some((Authority::from_pem(&key, &authority)?, ledger))
            }
            None => None,
        };
        Ok(Some(Stored {
            key: key.to_owned(),
            certificate: certificate.to_owned(),
            authority,
            membership,
            office,
        }))
    }

    /// Writes all of it. `cluster.json` comes last: without it nothing of the rest counts.
    ///
    /// # Errors
    /// The disk's.
    pub fn save(&self, all: &Stored) -> Result<(), TrustError> {
        self.write(AUTHORITY, all.authority.as_bytes())?;
        match &all.office {
            Some((authority, ledger)) => {
                self.write(AUTHORITY_KEY, authority.key_pem().as_bytes())?;
                self.save_ledger(ledger)?;
            }
            // A host that was the authority of another cluster is not one of this.
            None => self.remove(AUTHORITY_KEY)?,
        }
        self.save_host(&all.key, &all.certificate)?;
        self.save_membership(&all.membership)
    }

    /// Replaces this host's key and certificate.
    ///
    /// # Errors
    /// The disk's.
    pub fn save_host(&self, key: &str, certificate: &str) -> Result<(), TrustError> {
        let both = format!("{}\n{}\n", key.trim_end(), certificate.trim_end());
        self.write(HOST, both.as_bytes())
    }

    /// Replaces members and removals.
    ///
    /// # Errors
    /// The disk's.
    pub fn save_membership(&self, membership: &Membership) -> Result<(), TrustError> {
        self.write(CLUSTER, &self.encode(CLUSTER, membership)?)
    }

    /// Replaces what the authority remembers.
    ///
    /// # Errors
    /// The disk's.
    pub fn save_ledger(&self, ledger: &Ledger) -> Result<(), TrustError> {
        self.write(LEDGER, &self.encode(LEDGER, ledger)?)
    }

    /// Removes all of it: this host belongs to no cluster then. `cluster.json` goes first: without it nothing of
    /// the rest counts.
    ///
    /// # Errors
    /// The disk's.
    pub fn forget(&self) -> Result<(), TrustError> {
        for name in [CLUSTER, HOST, LEDGER, AUTHORITY_KEY, AUTHORITY] {
            self.remove(name)?;
        }
        Ok(())
    }

    fn needed(&self, name: &str) -> Result<String, TrustError> {
        let text = self.read(name)?;
        text.ok_or_else(|| self.bad(name, &"it is missing; restore it from a backup"))
    }

    fn read(&self, name: &str) -> Result<Option<String>, TrustError> {
        let path = self.directory.join(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.file("read", name, error))?,
        };
        let metadata = file.metadata().map_err(|e| self.file("read", name, e))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let problem = format!("others may read it; `chmod 600 {}`", path.display());
            return Err(self.bad(name, &problem));
        }
        let mut text = String::new();
        file.take(limits::FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| self.file("read", name, error))?;
        Ok(Some(text))
    }

    /// Beside its place, flushed, then renamed: a power cut leaves the old one or the new one.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), TrustError> {
        self.try_write(name, bytes)
            .map_err(|error| self.file("write", name, error))
    }

    fn try_write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let beside = self.directory.join(format!("{name}.new"));
        // One that a power cut left may have any mode.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, self.directory.join(name))?;
        File::open(&self.directory)?.sync_all()
    }

    fn remove(&self, name: &str) -> Result<(), TrustError> {
        match fs::remove_file(self.directory.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.file("remove", name, error))
            }
            _ => Ok(()),
        }
    }

    fn encode(&self, name: &str, value: &impl Serialize) -> Result<Vec<u8>, TrustError> {
        serde_json::to_vec_pretty(value).map_err(|error| self.bad(name, &error))
    }

    fn decode<T: DeserializeOwned>(&self, name: &str, text: &str) -> Result<T, TrustError> {
        serde_json::from_str(text).map_err(|error| self.bad(name, &error))
    }

    fn bad(&self, name: &str, problem: &dyn std::fmt::Display) -> TrustError {
        TrustError::unusable(self.directory.join(name).display().to_string(), problem)
    }

    fn file(&self, what: &'static str, name: &str, source: io::Error) -> TrustError {
        TrustError::File {
            what,
            path: self.directory.join(name).display().to_string(),
            source,
        }
    }
}
