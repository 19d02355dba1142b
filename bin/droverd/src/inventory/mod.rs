//! This host and its guests, as a plan of the cluster must know them.
//!
//! ```text
//!   kernel, `[networks]`, limits ─▶ line       ┐
//!   QEMU binaries ─▶ offers ─▶ processor       ├─▶ host ┐
//!   cordon, labels, memory                     ┘        ├─▶ InventoryView, with notes
//!   registry, QMP ─▶ guests ◀─ rates (sampled)  ────────┤
//!   libvirt's domains ─▶ libvirt ───────────────────────┘
//! ```
//!
//! Owns what QEMU binaries were heard to offer and the dirty rates that were sampled. It decides nothing,
//! and what it assumes where a fact is missing stands in a note.

mod guests;
mod host;
mod libvirt;
mod line;
mod offers;
mod processor;
mod rates;

pub use self::libvirt::name_on;

use std::sync::Arc;
use std::time::Duration;

use drover_api::{ErrorCode, InventoryView, Refusal};
use drover_hypervisor::{Hypervisor, Processors};
use drover_plan::Digest;
use drover_plan::inventory::HostCpu;
use drover_types::{Bytes, VmName, with_sources};
use serde::Deserialize;

use self::offers::Offers;
use self::rates::Rates;
pub use self::rates::run;
use crate::agent::Context;
use crate::facts;

/// What is kept between two looks.
#[derive(Debug)]
pub struct Inventory {
    offers: Offers,
    rates: Rates,
}

impl Inventory {
    /// With nothing known yet.
    pub fn new(hypervisor: Arc<dyn Hypervisor>) -> Self {
        Self {
            offers: Offers::new(hypervisor),
            rates: Rates::default(),
        }
    }

    /// What was sampled of a guest that runs here: in which time it dirtied how much.
    pub fn dirtied(&self, vm: &VmName) -> Vec<(Duration, Bytes)> {
        self.rates.dirtied(vm)
    }
}

/// What the QEMUs of this host can give guests as their processor.
///
/// # Errors
/// Why none of them tells.
pub async fn processors(context: &Context) -> Result<drover_tune::facts::Offers, String> {
    let (model, offers) = offered(context).await?;
    Ok(processor::offers(&model, &offers))
}

/// This host's processor, as a plan compares it.
///
/// # Errors
/// Why none of its QEMUs tells.
pub async fn own_processor(context: &Context) -> Result<HostCpu, String> {
    let (model, offers) = offered(context).await?;
    Ok(processor::host_cpu(&model, &offers))
}

/// The processor's name, and what each QEMU offers.
async fn offered(context: &Context) -> Result<(String, Vec<Processors>), String> {
    let model = facts::processor()
        .map_err(|error| with_sources(&error))?
        .model;
    let binaries = &context.config.qemu_binaries;
    let (offers, silent) = context.inventory.offers.of(binaries).await;
    match silent.into_iter().next() {
        Some(why) if offers.is_empty() => Err(why),
        _ => Ok((model, offers)),
    }
}

/// How domains of libvirt's are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainsAs {
    /// As other guests, named by their ids, and with what they need.
    ById,
    /// As guests that stay, by names that nobody orders them by: for an agent that plans and does not ask for more.
    #[default]
    #[serde(other)]
    Staying,
}

/// What becomes of disks that no other host has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisksAs {
    /// They are copied with their domains, which need room for them.
    Copied,
    /// They keep their domains where they are.
    #[default]
    #[serde(other)]
    Staying,
}

/// What is wanted of an inventory.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Wanted {
    #[serde(default)]
    pub domains: DomainsAs,
    #[serde(default)]
    pub disks: DisksAs,
}

/// This host and its guests now.
///
/// # Errors
/// The kernel does not tell its facts, or the directory of definitions cannot be read.
pub async fn view(context: &Context, wanted: Wanted) -> Result<InventoryView, Refusal> {
    let (known, mut notes) = context.registry.known().await?;
    let seen = context.libvirt.seen();
    let pids = context.libvirt.pids(&seen).await;
    let names = known.iter().map(|guest| guest.name.clone()).collect();
    let of_libvirt = libvirt::domains(context, &seen, &pids, &names, wanted.disks).await;
    let of_libvirt = match wanted.domains {
        DomainsAs::ById => of_libvirt,
        DomainsAs::Staying => of_libvirt.staying(&context.config.host),
    };
    let of_guests: Bytes = known.iter().filter_map(|guest| guest.resident).sum();
    let of_guests = of_guests + of_libvirt.resident;
    let (host, of_host) = host::host(context, of_guests).await.map_err(|error| {
        let message = format!(
            "cannot read the facts of this host: {}",
            with_sources(&error)
        );
        Refusal::new(ErrorCode::Internal, message)
    })?;
    let mut vms = guests::vms(context, &host.cpu, known).await;
    vms.extend(of_libvirt.vms);
    notes.extend(of_host.into_iter().chain(of_libvirt.notes));
    let notes = notes.into_iter().map(Into::into).collect();
    Ok(InventoryView {
        host,
        vms,
        domains: of_libvirt.domains,
        notes,
        policy: Some(Digest::of_policy(&context.config.policy)),
    })
}
