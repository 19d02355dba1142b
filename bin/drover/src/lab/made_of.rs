//! What a lab is made of, as several of its commands are told.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use drover_lab::State;
use drover_lab::settings::{Addressing, Dirty, GuestSettings, LabName, LabSettings, nic_rates};
use drover_types::Bytes;

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
    /// Memory of the guest
    #[arg(long, default_value = "1GiB")]
    memory: Bytes,
    /// Part of it that is filled with content and verified
    #[arg(long, default_value = "640MiB")]
    content: Bytes,
    /// Shares of the kinds of content
    #[arg(
        long,
        default_value = "files=50,text=15,structures=15,zero=10,random=10"
    )]
    mix: String,
    /// What the guest rewrites all the time: size@rate (bytes a second), size@max, or none
    #[arg(long, default_value = "16MiB@64MiB")]
    dirty: Dirty,
    /// Bytes changed each time a page is rewritten
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(8..=4096))]
    touch: u32,
    /// Bytes a second that the guest verifies while nobody asks for more
    #[arg(long, default_value = "32MiB")]
    verify: Bytes,
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

impl MadeOf {
    pub(super) fn lab(&self, name: &LabName) -> Result<LabSettings> {
        let nics = nic_rates(&self.rate, self.nics)?;
        Ok(LabSettings {
            name: name.clone(),
            hosts: 2,
            nics,
            addressing: self.addressing.clone(),
            mtu: self.mtu,
        })
    }

    pub(super) fn state(&self, name: &LabName, with_guest: bool) -> Result<State> {
        let mut guests = Vec::new();
        if with_guest {
            guests.push(self.guest.settings()?);
        }
        Ok(State {
            lab: self.lab(name)?,
            guests,
        })
    }
}

impl GuestArgs {
    pub(super) fn settings(&self) -> Result<GuestSettings> {
        let guest = GuestSettings {
            qemu: self.qemu.clone(),
            machine: "q35".to_owned(),
            memory: self.memory,
            vcpus: self.vcpus,
            content: self.content,
            mix: self.mix.clone(),
            dirty: self.dirty,
            touch: self.touch,
            verify: self.verify,
            seed: self.seed,
        };
        guest.probe()?;
        Ok(guest)
    }
}
