//! Disks of domains in files that are one host's alone: which of them can be copied, and which come with a domain.

use std::path::PathBuf;

use drover_api::{DomainNeed, MovingDomain, NewDisk};
use drover_libvirt::Disk;

use crate::disks;

/// A disk in a file that no other host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDisk {
    pub disk: Disk,
    pub path: PathBuf,
    /// The kind of file system that it is on.
    pub file_system: String,
}

impl LocalDisk {
    /// Why it keeps its domain here, for as long as nobody asks for a copy.
    pub fn obstacle(&self) -> String {
        format!(
            "its disk {} is in a file on {}, which no other host shares: `drover migrate --with-disks` copies it",
            self.disk.target, self.file_system
        )
    }
}

/// All of them, as they go to another host.
///
/// # Errors
/// Why some cannot be copied.
pub async fn described(locals: &[LocalDisk]) -> Result<Vec<NewDisk>, Vec<String>> {
    disks::few_enough(locals.len()).map_err(|why| vec![why])?;
    let (mut new, mut why_not) = (Vec::new(), Vec::new());
    for local in locals {
        match one(local).await {
            Ok(disk) => new.push(disk),
            Err(why) => {
                let (target, path) = (&local.disk.target, local.path.display());
                why_not.push(format!("its disk {target} ({path}) {why}"));
            }
        }
    }
    match why_not.is_empty() {
        true => Ok(new),
        false => Err(why_not),
    }
}

async fn one(local: &LocalDisk) -> Result<NewDisk, String> {
    if let Some(why) = not_copied(&local.disk) {
        return Err(why);
    }
    // Where libvirt is not told, it takes a disk for a raw one.
    let format = local.disk.format.as_deref().unwrap_or("raw");
    disks::described(&local.disk.target, &local.path, format).await
}

/// What libvirt's description says against a copy.
fn not_copied(disk: &Disk) -> Option<String> {
    if disk.shareable {
        return Some("may be written to by other domains, too (<shareable/>): these would go on with the old one".to_owned());
    }
    if disk.encrypted {
        return Some("is encrypted in its file, which a copy would not be".to_owned());
    }
    (!disk.below.is_empty()).then(|| {
        "is changes of another file only, which are not copied apart: `virsh blockpull` makes one file of both".to_owned()
    })
}

/// Those that come with a domain.
pub fn of(domain: &MovingDomain) -> &[NewDisk] {
    let disks = domain.needs.iter().find_map(|need| match need {
        DomainNeed::NewDisks { disks, .. } => Some(disks.as_slice()),
        _ => None,
    });
    disks.unwrap_or_default()
}
