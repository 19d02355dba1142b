//! The interrupts of an interface's adapters, the processors near these, and where the kernel has them taken.
//!
//! ```text
//!  interface ─▶ devices that it stands on ─▶ NUMA node ─▶ processors near it
//!                                        └─▶ msi_irqs ─▶ /proc/irq/N: who may take it, who does
//! ```
//! Decides nothing, and gives nothing back: the kernel keeps what is set when whoever set it is gone.
//! Source: `Documentation/core-api/irq/irq-affinity.rst`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drover_tune::facts::Interrupt;
use drover_types::CpuSet;
use rustix::io::Errno;

use crate::error::HostError;
use crate::facts::{self, Tree, runs};
use crate::files::{entries, text};
use crate::interfaces::folders;
use crate::limits::{INTERRUPTS, PARENTS};
use crate::placement::Nodes;

const IRQS: &str = "msi_irqs";

/// For anybody (`S_IWUGO`).
const WRITABLE: u32 = 0o222;

/// A device that interfaces stand on, whose NUMA node is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Its folder, by its path from the root.
    pub device: String,
    /// The processors near it.
    pub near: CpuSet,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// What an interface stands on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adapters {
    /// Of those processors are known that are near them.
    pub near: Vec<Adapter>,
    /// Why there are no more, each to be read after "because".
    pub others: Vec<String>,
}

/// Why the kernel did not take who may take an interrupt.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// It spreads this interrupt by itself, such as one of queues for each processor (`IRQD_AFFINITY_MANAGED`).
    #[error("the kernel spreads it by itself")]
    Managed,
    /// It did not for another reason.
    #[error("/proc/irq/{number}/smp_affinity_list is not written")]
    Refused {
        /// Which interrupt.
        number: u32,
        /// Why.
        source: io::Error,
    },
}

/// The adapters of each of these interfaces; `root` is where `/sys` and `/proc` are below.
///
/// # Errors
/// As [`crate::interfaces`], and [`HostError::Asking`].
pub async fn adapters(
    root: &Path,
    names: &[&str],
) -> Result<BTreeMap<String, Adapters>, HostError> {
    let folders = folders(root, names).await?;
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let root = root.to_owned();
    // Two files for each of some hundred interrupts.
    let read = move || {
        let nodes = Nodes::of(&root);
        let of = |name: String| {
            let adapters = match folders.get(&name) {
                Some(folder) => of_folder(&root, &nodes, folder),
                None => Adapters::none("/sys tells nothing of it in this network namespace"),
            };
            (name, adapters)
        };
        names.into_iter().map(of).collect()
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|source| HostError::Asking { source })
}

impl Adapters {
    fn none(why: impl Into<String>) -> Self {
        Self {
            near: Vec::new(),
            others: vec![why.into()],
        }
    }
}

fn of_folder(root: &Path, nodes: &Nodes, folder: &Path) -> Adapters {
    let devices = match nodes.hardware(folder) {
        Ok(devices) => devices,
        Err(why) => return Adapters::none(why),
    };
    let mut adapters = Adapters::default();
    let mut seen = BTreeSet::new();
    for device in &devices {
        match adapter(root, nodes, device) {
            // Ports of one device share its interrupts.
            Ok(adapter) if !seen.insert(adapter.device.clone()) => {}
            Ok(adapter) => adapters.near.push(adapter),
            Err(why) if adapters.others.contains(&why) => {}
            Err(why) => adapters.others.push(why),
        }
    }
    adapters
}

fn adapter(root: &Path, nodes: &Nodes, device: &Path) -> Result<Adapter, String> {
    let (_, near) = nodes.near(device)?;
    let device = with_interrupts(root, device).ok_or("its device tells of no interrupts")?;
    let fixed = fixed(root, &root.join(&device));
    let interrupts = facts::interrupts(&Tree::at(root), &format!("{device}/{IRQS}"), &fixed)?;
    Ok(Adapter {
        device,
        near,
        interrupts,
    })
}

/// The device itself, or, of one on a bus without interrupts (virtio, auxiliary), the parent that has them.
fn with_interrupts(root: &Path, device: &Path) -> Option<String> {
    let device = device.canonicalize().ok()?;
    // A function of PCI has a class; what is above it is a bridge, with interrupts of its own.
    let is_last = |parent: &&Path| parent.join(IRQS).is_dir() || parent.join("class").is_file();
    let has = device.ancestors().take(PARENTS).find(is_last)?;
    let has = Some(has).filter(|has| has.join(IRQS).is_dir())?;
    let from_root = has.strip_prefix(root.canonicalize().ok()?).ok()?;
    from_root.to_str().map(str::to_owned)
}

/// The parent that has a device's interrupts; none where it has its own, or where there are none.
pub(crate) fn parent_with_interrupts(root: &Path, device: &Path) -> Option<String> {
    let is_own = device.join(IRQS).is_dir();
    with_interrupts(root, device).filter(|_| !is_own)
}

/// Those of a device's interrupts that nobody may move: since Linux 6.13 their files are for reading alone (`register_irq_proc`).
pub(crate) fn fixed(root: &Path, device: &Path) -> BTreeSet<u32> {
    let numbers = entries(&device.join(IRQS)).into_iter();
    let numbers = numbers.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    let is_fixed = |number: &u32| {
        let about = fs::metadata(file(root, *number));
        about.is_ok_and(|about| about.permissions().mode() & WRITABLE == 0)
    };
    numbers.take(INTERRUPTS).filter(is_fixed).collect()
}

/// Which processors may take an interrupt of that device; none where it has no such interrupt any more.
#[must_use]
pub fn affinity(root: &Path, device: &str, number: u32) -> Option<CpuSet> {
    let own = root.join(device).join(IRQS).join(number.to_string());
    let list = own.exists().then(|| text(&file(root, number)).ok())??;
    list.parse().ok()
}

/// Says which processors may take an interrupt.
///
/// # Errors
/// [`AffinityError`]
pub fn set_affinity(root: &Path, number: u32, cpus: &CpuSet) -> Result<(), AffinityError> {
    // Nothing is made where there is no such interrupt.
    let opened = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file(root, number));
    let written = opened.and_then(|mut file| file.write_all(cpus.to_string().as_bytes()));
    written.map_err(|source| {
        if is_managed(&source) {
            AffinityError::Managed
        } else {
            AffinityError::Refused { number, source }
        }
    })
}

/// Whether the kernel keeps who may take an interrupt for itself, by its answer to a write: `EPERM` since Linux 6.13, `EIO` before.
pub(crate) fn is_managed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::PERM))
}

fn file(root: &Path, number: u32) -> PathBuf {
    root.join(format!("proc/irq/{number}/smp_affinity_list"))
}

/// Whether irqbalance is running, which puts interrupts where it likes; not known where there are too many processes to
/// look at.
#[must_use]
pub fn irqbalance(root: &Path) -> Option<bool> {
    runs(root, "irqbalance")
}

#[cfg(test)]
mod tests;
