//! What domains of libvirt's need of the host that they go to, and what hosts answer who asks whether they have it.

use std::fmt;
use std::path::PathBuf;

use drover_types::{Bytes, VmName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that a host has to have so that it can take a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DomainNeed {
    /// A file that the domain writes to: that very one, and none that is only called so.
    SameFile {
        /// Where.
        #[schema(value_type = String)]
        path: PathBuf,
        /// What the domain's own host sees there.
        seen: FileSeen,
    },
    /// Room for disks that come with the domain, in files that are not there yet.
    NewDisks {
        /// The domain's id.
        uuid: String,
        /// Each of them, at most 16.
        disks: Vec<NewDisk>,
    },
    /// A file or device.
    Path {
        /// Where.
        #[schema(value_type = String)]
        path: PathBuf,
    },
    /// A bridge or another interface.
    Interface {
        /// Its name.
        name: String,
    },
    /// A network of libvirt's, active.
    Network {
        /// Its name.
        name: String,
    },
    /// A volume of a storage pool of libvirt's, which is active.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// A secret of libvirt's, by its id.
    Secret {
        /// The id.
        id: String,
    },
    /// A secret of libvirt's, by what it is for.
    SecretFor {
        /// The kind of that, such as `ceph`.
        usage_type: String,
        /// The name of it.
        usage: String,
    },
    /// A hypervisor that knows a machine type.
    Machine {
        /// How it is started.
        machine: DomainMachine,
    },
    /// A hypervisor that can give a domain its processor.
    Processor {
        /// How it is started.
        machine: DomainMachine,
        /// The processor's model, where it is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What libvirt tells of it where the domain runs: the element `cpu`.
        xml: String,
    },
    /// A hypervisor that can give a domain an emulated TPM (swtpm).
    Tpm {
        /// How it is started.
        machine: DomainMachine,
        /// What the guest sees of it, such as `tpm-crb`.
        model: String,
        /// The version of the standard, such as `2.0`, where it is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// Sockets that a hypervisor of this name may use, where hypervisors are confined.
    Sockets {
        /// The domain's name.
        domain: String,
    },
    /// No domain of this name or id.
    Vacancy {
        /// The name.
        name: String,
        /// The id.
        uuid: String,
    },
    /// Of a newer agent.
    #[serde(other)]
    Unknown,
}

/// Most disks that come with a domain: each has a channel of its own.
pub const NEW_DISKS: usize = 16;

/// A disk in a file that is its host's alone, which is copied with its domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct NewDisk {
    /// Its name for the guest, such as `vda`.
    pub target: String,
    /// Where its file is, and where one is made.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// How it is laid out.
    pub layout: DiskLayout,
    /// Bytes that the guest sees.
    #[schema(value_type = u64)]
    pub size: Bytes,
    /// Bytes of the file system that it has on its own host, where it will be left.
    #[schema(value_type = u64)]
    pub allocated: Bytes,
    /// The file's number on its own host.
    pub inode: u64,
    /// The user that it belongs to there.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// Its permissions there.
    pub mode: u32,
}

/// How a disk is laid out in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "format", rename_all = "kebab-case")]
pub enum DiskLayout {
    /// Byte by byte.
    Raw,
    /// By QEMU's qcow2, without another file below.
    Qcow2 {
        /// Bytes of a cluster.
        cluster: u32,
    },
}

/// What a host sees of a file, by which another one tells whether it has the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct FileSeen {
    /// The kind of file system that it is on, such as `nfs4` or `ext4`.
    pub file_system: String,
    /// The number that the kernel gives that file system (`f_fsid` of statfs(2), in hexadecimal), where it gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsid: Option<String>,
    /// Who has that file system, where it is another machine that the mount names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<FileServer>,
    /// The file's number on it; missing where root may not look at the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

/// Whose a file is that a host has by network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct FileServer {
    /// What the mount calls the machine.
    pub name: String,
    /// By which address it is reached, where the mount tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The host that tells this has that address itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    /// Which of its file systems that is, where it may have several and the mount names one (CephFS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Where the file is there.
    pub path: String,
}

/// How a domain's hypervisor is started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct DomainMachine {
    /// Its type, such as `pc-q35-10.0`.
    pub machine: String,
    /// The kind of domain: `kvm`, or `qemu` where its processor is emulated.
    pub domain_type: String,
    /// The hypervisor's program, where it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub emulator: Option<PathBuf>,
    /// The architecture, where it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
}

/// As an operator reads it: `nfs4, nas:/images/web.img, inode 12`.
impl fmt::Display for FileSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_system)?;
        if let Some(server) = &self.server {
            write!(f, ", {}:{}", server.name, server.path)?;
            if let Some(volume) = &server.volume {
                write!(f, " of {volume}")?;
            }
        }
        match self.inode {
            Some(inode) => write!(f, ", inode {inode}"),
            None => f.write_str(", at which root may not look"),
        }
    }
}

impl fmt::Display for DomainNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameFile { path, .. } => write!(f, "the same {}", path.display()),
            Self::NewDisks { disks, .. } => {
                f.write_str("room for disks in")?;
                let mut disks = disks.iter();
                disks.try_for_each(|disk| write!(f, " {}", disk.path.display()))
            }
            Self::Path { path } => write!(f, "{}", path.display()),
            Self::Interface { name } => write!(f, "interface {name}"),
            Self::Network { name } => write!(f, "libvirt's network {name:?}"),
            Self::Volume { pool, volume } => {
                write!(f, "volume {volume:?} of libvirt's pool {pool:?}")
            }
            Self::Secret { id } => write!(f, "libvirt's secret {id}"),
            Self::SecretFor { usage_type, usage } => {
                write!(f, "libvirt's secret for {usage_type} {usage:?}")
            }
            Self::Machine { machine } => {
                let hypervisor = Self::hypervisor(machine);
                write!(f, "machine type {} of {hypervisor}", machine.machine)
            }
            Self::Processor { machine, model, .. } => {
                let model = model.as_deref().unwrap_or("of its own");
                write!(f, "processor {model} of {}", Self::hypervisor(machine))
            }
            Self::Tpm {
                machine,
                model,
                version,
            } => {
                write!(f, "an emulated TPM ({model}")?;
                let mut version = version.iter();
                version.try_for_each(|version| write!(f, ", {version}"))?;
                write!(f, ") of {}", Self::hypervisor(machine))
            }
            Self::Sockets { domain } => write!(f, "sockets of the agent's for {domain:?}"),
            Self::Vacancy { name, uuid } => write!(f, "no domain {name:?} ({uuid})"),
            Self::Unknown => f.write_str("something that this version does not know"),
        }
    }
}

impl DomainNeed {
    /// Whether a host that does not know whether it has this takes no domain that needs it: a domain that ran without it would spoil
    /// its disks. Of all else libvirt tells by itself.
    pub fn must_be_known(&self) -> bool {
        matches!(self, Self::SameFile { .. } | Self::NewDisks { .. })
    }

    fn hypervisor(of: &DomainMachine) -> String {
        let emulator = of.emulator.as_ref();
        let emulator = emulator.map_or_else(
            || "its hypervisor".to_owned(),
            |path| path.display().to_string(),
        );
        format!("{emulator} ({})", of.domain_type)
    }
}

/// A domain that is in memory, as plans must know it beside what they know of any guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainView {
    /// Its name in plans.
    #[schema(value_type = String)]
    pub vm: VmName,
    /// Its id.
    pub uuid: String,
    /// What libvirt calls it.
    pub name: String,
    /// What a host has to have that takes it; nothing of one that cannot leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<DomainNeed>,
}

/// Asks a host whether it has all of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainNeedsRequest {
    /// Each once.
    pub needs: Vec<DomainNeed>,
}

/// What a host has of what it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainNeedsView {
    /// Why it takes no domains, whatever it has; missing where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_none: Option<String>,
    /// What it has not.
    #[serde(default)]
    pub lacks: Vec<DomainLack>,
    /// What it does not know of, and libvirt says when a domain comes.
    #[serde(default)]
    pub unknown: Vec<DomainLack>,
    /// Its room for new disks, of each of which it has enough for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub room: Vec<NewDisksRoom>,
}

/// What a host has for new disks on one of its file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewDisksRoom {
    /// Which of the needs, counted from 0 in the order of the request.
    pub need: u32,
    /// The file system, by its device's number on that host.
    pub device: u64,
    /// Where the file of one of the disks would be.
    #[schema(value_type = String)]
    pub folder: PathBuf,
    /// Bytes that the disks' files may come to there, less those of files that they replace.
    #[schema(value_type = u64)]
    pub wanted: Bytes,
    /// Bytes that are free there.
    #[schema(value_type = u64)]
    pub free: Bytes,
}

/// One of the things that were asked for, and what is the matter with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainLack {
    /// Which, counted from 0 in the order of the request.
    pub need: u32,
    /// How that shows.
    pub why: String,
}
