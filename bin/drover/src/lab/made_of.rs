//! What a lab is made of, as several of its commands are told.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use drover_lab::fleet::variety;
use drover_lab::settings::{
    Addressing, AgentSettings, Contents, Dirty, GuestSettings, LabName, LabSettings, LocalDisk,
    nic_rates,
};
use drover_types::Bytes;

use super::fleet;

/// What a lab is made of.
#[derive(Debug, Clone, Args)]
pub(super) struct MadeOf {
    /// NICs of each host [default: as many as rates are given, or 2]
    #[arg(long)]
    nics: Option<usize>,
    /// Rate of each NIC: one for all, a list such as 1gbit,500mbit, or none
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// How each NIC is addressed: v4, v6, link-local, duplicate or asymmetric [default: v4]
    #[arg(long, value_delimiter = ',', value_name = "WAYS")]
    addressing: Vec<Addressing>,
    /// Largest packet on the NICs, in bytes
    #[arg(long, default_value_t = 9000, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    #[command(flatten)]
    pub(super) guest: GuestArgs,
}

/// What its guest is.
#[derive(Debug, Clone, Args)]
pub(super) struct GuestArgs {
    /// Memory of the guest [default: 1GiB]
    #[arg(long)]
    memory: Option<Bytes>,
    /// Part of it that is filled with content and verified [default: 640MiB]
    #[arg(long)]
    content: Option<Bytes>,
    /// What it is filled with: mix, userland, store, python, compressed or idle
    ///
    /// mix: pages as --mix says. userland: files of this machine's /usr in the guest's page cache.
    /// store: JSON documents in a Redis. python: the same, parsed by a Python process. compressed:
    /// files that are compressed already. idle: userland, with 70 % of the memory free; it
    /// rewrites nothing unless --dirty is given. The guest verifies all of it; what --dirty
    /// rewrites comes on top.
    #[arg(long, value_name = "NAME", default_value_t)]
    contents: Contents,
    /// Shares of the kinds of content, of the pages that are filled by the mix or rewritten
    #[arg(
        long,
        default_value = "files=50,text=15,structures=15,zero=10,random=10"
    )]
    mix: String,
    /// What the guest rewrites all the time: size@rate (bytes a second), size@max, or none
    /// [default: 16MiB@64MiB]
    #[arg(long)]
    dirty: Option<Dirty>,
    /// Bytes changed each time a page is rewritten
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(8..=4096))]
    touch: u32,
    /// Bytes a second that the guest verifies while nobody asks for more [default: 32MiB]
    #[arg(long)]
    verify: Option<Bytes>,
    /// Virtual CPUs of the guest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// Everything random follows from it, in the guest and of faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The QEMU that runs the guest
    #[arg(long, default_value = "/usr/bin/qemu-system-x86_64")]
    pub(super) qemu: PathBuf,
}

/// A disk that is the guest's own.
#[derive(Debug, Clone, Args)]
pub(super) struct DiskArgs {
    /// Give the domain a qcow2 of this size that its host alone has, and move it along
    #[arg(
        long,
        value_name = "SIZE",
        requires = "libvirt",
        conflicts_with = "faults"
    )]
    disk: Option<Bytes>,
    /// Part of it that the guest fills, verifies and has compared [default: all of it]
    #[arg(long, value_name = "SIZE", requires = "disk")]
    disk_content: Option<Bytes>,
    /// What of that the guest reads, verifies and rewrites all the time, as --dirty is written
    #[arg(
        long,
        value_name = "DIRTY",
        requires = "disk",
        default_value = "16MiB@4MiB"
    )]
    disk_dirty: Dirty,
}

impl DiskArgs {
    pub(super) fn settings(&self) -> Option<LocalDisk> {
        self.disk.map(|size| LocalDisk {
            size,
            content: self.disk_content.unwrap_or(size),
            dirty: self.disk_dirty,
        })
    }
}

/// What one guest is where nothing else is said.
const MEMORY: &str = "1GiB";
const CONTENT: &str = "640MiB";
const DIRTY: &str = "16MiB@64MiB";
const NOTHING: &str = "none";
const VERIFY: &str = "32MiB";

impl MadeOf {
    pub(super) fn lab(&self, name: &LabName, hosts: usize) -> Result<LabSettings> {
        let lab = LabSettings {
            name: name.clone(),
            hosts,
            nics: nic_rates(&self.rate, self.nics)?,
            addressing: self.addressing.clone(),
            mtu: self.mtu,
            agents: AgentSettings::default(),
        };
        lab.check()?;
        Ok(lab)
    }
}

impl GuestArgs {
    /// So many guests: one, or several of different sizes.
    pub(super) fn many(&self, count: usize) -> Result<Vec<GuestSettings>> {
        match count {
            0 => Ok(Vec::new()),
            1 => Ok(vec![self.settings()?]),
            _ => self.several(count),
        }
    }

    pub(super) fn settings(&self) -> Result<GuestSettings> {
        self.settings_with(DIRTY)
    }

    /// One guest, that rewrites its memory like this unless it was said how, or it is idle.
    pub(super) fn settings_with(&self, dirty: &str) -> Result<GuestSettings> {
        let memory = given(self.memory, MEMORY)?;
        let idle = self.contents == Contents::Idle;
        let content = match self.content {
            Some(content) if idle => bail!(
                "--content {content} is not for an idle guest: it follows from its memory (--memory)"
            ),
            None if idle => GuestSettings::content_when_idle(memory)?,
            content => given(content, CONTENT)?,
        };
        let guest = GuestSettings {
            memory,
            dirty: given(self.dirty, if idle { NOTHING } else { dirty })?,
            verify: given(self.verify, VERIFY)?,
            ..self.with_content(content)?
        };
        guest.probe()?;
        Ok(guest)
    }

    fn several(&self, count: usize) -> Result<Vec<GuestSettings>> {
        if let Some(memory) = self.memory {
            bail!(
                "--memory {memory} is for one guest: each of {count} has what its content takes, so \
                 give --content, which is the first one's"
            );
        }
        if self.contents == Contents::Idle {
            bail!("several guests have memory as their contents take it, so that none is idle");
        }
        let first = self.with_content(given(self.content, fleet::CONTENT)?)?;
        let guests = variety(&first, count);
        for guest in &guests {
            guest.probe()?;
        }
        Ok(guests)
    }

    /// One of several, with the memory that its content takes.
    fn with_content(&self, content: Bytes) -> Result<GuestSettings> {
        let guest = GuestSettings {
            qemu: self.qemu.clone(),
            machine: "q35".to_owned(),
            memory: Bytes(0),
            vcpus: self.vcpus,
            content,
            contents: self.contents,
            mix: self.mix.clone(),
            common: 0,
            dirty: given(self.dirty, fleet::DIRTY)?,
            touch: self.touch,
            verify: given(self.verify, fleet::VERIFY)?,
            seed: self.seed,
            disk: None,
        };
        Ok(GuestSettings {
            memory: GuestSettings::memory_for(guest.filled()),
            ..guest
        })
    }
}

/// What was given, or else what this text says.
fn given<T>(given: Option<T>, otherwise: &str) -> Result<T>
where
    T: FromStr<Err: Into<anyhow::Error>>,
{
    match given {
        Some(given) => Ok(given),
        None => otherwise.parse().map_err(Into::into),
    }
}
