//! What another host has to know of a disk that goes there.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use drover_api::{NEW_DISKS, NewDisk};
use drover_libvirt::Disk;
use drover_types::Bytes;

use super::image;

/// Of `st_blocks` (stat(2)).
const BLOCK: u64 = 512;

/// What is a file's own of its mode: no privileges of whoever runs it.
pub const PERMISSIONS: u32 = 0o777;

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
pub async fn described(disks: &[LocalDisk]) -> Result<Vec<NewDisk>, Vec<String>> {
    let (count, most) = (disks.len(), NEW_DISKS);
    if count > most {
        let why =
            format!("it has {count} disks that no other host has, and {most} are copied at most");
        return Err(vec![why]);
    }
    let (mut new, mut why_not) = (Vec::new(), Vec::new());
    for local in disks {
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
    let image = image::look(&local.path, format).await?;
    let found =
        std::fs::metadata(&local.path).map_err(|error| format!("cannot be looked at: {error}"))?;
    Ok(NewDisk {
        target: local.disk.target.clone(),
        path: local.path.clone(),
        layout: image.layout,
        size: image.size,
        allocated: Bytes(found.blocks() * BLOCK),
        inode: found.ino(),
        user: found.uid(),
        group: found.gid(),
        mode: found.permissions().mode() & PERMISSIONS,
    })
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
