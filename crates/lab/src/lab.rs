//! A lab on this machine: its files, its lock, its hosts.
//!
//! ```text
//! /run/drover-lab/NAME.lock      held by whoever builds, changes or removes the lab
//! /run/drover-lab/NAME/
//!     lab.json                   what it is made of
//!     initramfs
//!     here/                      every host sees its own folder `here` under this path
//!     a/  droverd.toml  droverd.log  vms/  run/  state/  here/  libvirt/
//!     b/ ...  the same
//! ```
//!
//! # Invariant
//! [`Lab::remove`] leaves nothing of a lab behind, whatever ended before it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::libvirt::{self, Libvirt};
use crate::network;
use crate::settings::{GuestSettings, LabName, LabSettings};

/// Where labs are kept, unless `DROVER_LAB_RUN` says otherwise.
const FOLDER: &str = "/run/drover-lab";

/// What a lab is made of, as it is kept for the next command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Hosts and NICs.
    pub lab: LabSettings,
    /// The guests that agents keep. What a comparison keeps itself is the same again.
    #[serde(default)]
    pub guests: Vec<GuestSettings>,
}

/// A lab that this process holds.
#[derive(Debug)]
pub struct Lab {
    state: State,
    folder: PathBuf,
    lock: Lock,
}

fn base() -> PathBuf {
    std::env::var_os("DROVER_LAB_RUN").map_or_else(|| FOLDER.into(), PathBuf::from)
}

/// Where the lab of this name has its files, whether it is up or not.
pub(crate) fn folder_of(name: &LabName) -> PathBuf {
    base().join(name.to_string())
}

/// The right to change a lab. Gone with the process that holds it, however that ends.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn take(name: &LabName) -> Result<Self> {
        let base = base();
        fs::create_dir_all(&base).with_context(|| format!("cannot create {}", base.display()))?;
        let path = base.join(format!("{name}.lock"));
        loop {
            let file =
                File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                bail!(
                    "lab {name} is in use by another command (it holds {})",
                    path.display()
                );
            }
            let lock = Self {
                file,
                path: path.clone(),
            };
            // Whoever held it may have removed the file between our two steps.
            if lock.is_current() {
                return Ok(lock);
            }
        }
    }

    fn is_current(&self) -> bool {
        let own = self.file.metadata().map(|file| (file.dev(), file.ino()));
        let named = fs::metadata(&self.path).map(|file| (file.dev(), file.ino()));
        matches!((own, named), (Ok(own), Ok(named)) if own == named)
    }

    /// Lets go of a lab that is no more.
    fn remove(self) {
        // A file that stays is no harm: it is free.
        let _ = fs::remove_file(&self.path);
    }
}

fn state_file(name: &LabName) -> PathBuf {
    folder_of(name).join("lab.json")
}

impl Lab {
    /// Makes hosts and NICs. What an earlier lab of this name left behind is removed first.
    ///
    /// # Errors
    /// The lab is in use, or what the system says; nothing is left behind then.
    pub async fn create(state: State) -> Result<Self> {
        state.lab.check()?;
        let name = state.lab.name.clone();
        let lock = Lock::take(&name)?;
        clear(&name).await?;
        let lab = Self {
            folder: folder_of(&name),
            state,
            lock,
        };
        if let Err(error) = lab.build().await {
            lab.remove().await?;
            return Err(error);
        }
        Ok(lab)
    }

    async fn build(&self) -> Result<()> {
        network::create(&self.state.lab).await?;
        fs::create_dir_all(self.here())
            .with_context(|| format!("cannot create {}", self.here().display()))?;
        for host in self.hosts() {
            host.create_folders()?;
        }
        let json = serde_json::to_vec_pretty(&self.state)?;
        let path = self.folder.join("lab.json");
        fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The lab of this name that an earlier command left up; `None` when there is none.
    ///
    /// # Errors
    /// It is in use, or its state cannot be read.
    pub fn open(name: &LabName) -> Result<Option<Self>> {
        let Some(state) = Self::peek(name)? else {
            return Ok(None);
        };
        let lock = Lock::take(name)?;
        Ok(Some(Self {
            folder: folder_of(name),
            state,
            lock,
        }))
    }

    /// What the lab of this name is made of, without holding it.
    ///
    /// # Errors
    /// Its state cannot be read.
    pub fn peek(name: &LabName) -> Result<Option<State>> {
        let path = state_file(name);
        match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json).map(Some).with_context(|| {
                format!(
                    "{} is damaged; `drover lab down{}` removes that lab",
                    path.display(),
                    name.option()
                )
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Removes the lab of this name and everything in it, if there is anything.
    ///
    /// # Errors
    /// It is in use, or a process of it cannot be ended.
    pub async fn remove_named(name: &LabName) -> Result<()> {
        let lock = Lock::take(name)?;
        clear(name).await?;
        lock.remove();
        Ok(())
    }

    /// Removes this lab and everything in it.
    ///
    /// # Errors
    /// A process of it cannot be ended.
    pub async fn remove(self) -> Result<()> {
        clear(&self.state.lab.name).await?;
        self.lock.remove();
        Ok(())
    }

    /// Ends everything that runs on its hosts and forgets what it left there but for logs; NICs
    /// stay.
    ///
    /// # Errors
    /// A process that does not end, or a folder that cannot be made anew.
    pub async fn empty(&self) -> Result<()> {
        for host in self.hosts() {
            network::end_processes(host.namespace()).await?;
            host.empty()?;
        }
        Ok(())
    }

    /// Gives each host a libvirt, whose libvirtd and files are its own; what is started on it from then on sees them.
    /// It has it until [`empty`](Self::empty).
    ///
    /// # Errors
    /// One does not start; with the end of its log.
    pub async fn start_libvirt(&self, libvirt: &Libvirt) -> Result<()> {
        for host in self.hosts() {
            libvirt::start(&host, libvirt, &self.folder).await?;
        }
        Ok(())
    }

    /// What it is made of.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Hosts and NICs.
    #[must_use]
    pub fn settings(&self) -> &LabSettings {
        &self.state.lab
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path under which each host sees its own sockets.
    #[must_use]
    pub fn here(&self) -> PathBuf {
        self.folder.join("here")
    }

    /// A host, by its number in [`network::HOSTS`].
    #[must_use]
    pub fn host(&self, number: usize) -> Host {
        host_of(&self.state.lab.name, number)
    }

    /// All hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<Host> {
        (0..self.settings().hosts)
            .map(|number| self.host(number))
            .collect()
    }
}

/// A host of the lab of this name, whether it is up or not.
#[must_use]
pub fn host_of(name: &LabName, number: usize) -> Host {
    Host::new(name, number, &folder_of(name))
}

async fn clear(name: &LabName) -> Result<()> {
    network::remove(name).await?;
    let folder = folder_of(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
