//! What another host has to know of a disk that goes there.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use drover_api::{NEW_DISKS, NewDisk};
use drover_libvirt::Disk;
use drover_types::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::image;
use super::limits;
use super::room::BLOCK;

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
        let copied = match not_copied(&self.disk) {
            None => "`--with-disks` has it copied".to_owned(),
            Some(why) => format!("it {why}, so that it is not copied either"),
        };
        format!(
            "its disk {} is in a file on {}, which no other host shares: {copied}",
            self.disk.target, self.file_system
        )
    }
}

/// All of them, as they go to another host; and why some cannot be copied.
pub async fn described(disks: &[LocalDisk]) -> (Vec<NewDisk>, Vec<String>) {
    let (count, most) = (disks.len(), NEW_DISKS);
    if count > most {
        let why =
            format!("it has {count} disks that no other host has, and {most} are copied at most");
        return (Vec::new(), vec![why]);
    }
    let (mut new, mut why_not) = (Vec::new(), Vec::new());
    let found = join_all(disks.iter().map(one)).await;
    for (local, found) in disks.iter().zip(found) {
        match found {
            Ok(disk) => new.push(disk),
            Err(why) => {
                let (target, path) = (&local.disk.target, local.path.display());
                why_not.push(format!("its disk {target} ({path}) {why}"));
            }
        }
    }
    (new, why_not)
}

async fn one(local: &LocalDisk) -> Result<NewDisk, String> {
    if let Some(why) = not_copied(&local.disk) {
        return Err(why);
    }
    // Where libvirt is not told, it takes a disk for a raw one.
    let format = local.disk.format.as_deref().unwrap_or("raw");
    let image = image::look(&local.path, format).await?;
    let found = found(&local.path).await?;
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

async fn found(path: &Path) -> Result<Metadata, String> {
    let path = path.to_owned();
    let look = tokio::task::spawn_blocking(move || std::fs::metadata(path));
    let Ok(found) = timeout(limits::LOOK, look).await else {
        let seconds = limits::LOOK.as_secs();
        return Err(format!("cannot be looked at within {seconds} s"));
    };
    let found = found.map_err(io::Error::other).flatten();
    found.map_err(|error| format!("cannot be looked at: {error}"))
}

/// What libvirt's description says against a copy.
fn not_copied(disk: &Disk) -> Option<String> {
    if disk.shareable {
        return Some("may be written to by other domains, too (<shareable/>): these would go on with the old one".to_owned());
    }
    if disk.encrypted {
        return Some(image::ENCRYPTED.to_owned());
    }
    (!disk.below.is_empty()).then(|| image::changes_of("another file"))
}

#[cfg(test)]
mod tests {
    use drover_libvirt::Source;

    use super::*;

    #[test]
    fn a_copy_is_named_where_one_can_be_made_and_else_what_is_in_its_way() {
        let path = PathBuf::from("/images/web.qcow2");
        let mut local = LocalDisk {
            disk: Disk {
                target: "vda".to_owned(),
                source: Source::File(path.clone()),
                format: Some("qcow2".to_owned()),
                below: Vec::new(),
                read_only: false,
                transient: false,
                mirrored: false,
                shareable: false,
                encrypted: false,
            },
            path,
            file_system: "ext4".to_owned(),
        };
        let plain = local.obstacle();
        assert!(plain.contains("vda is in a file on ext4"), "{plain}");
        assert!(plain.contains("--with-disks"), "{plain}");
        local.disk.below = vec![Source::File("/images/base.qcow2".into())];
        let chain = local.obstacle();
        assert!(chain.contains("`virsh blockpull`"), "{chain}");
        assert!(!chain.contains("--with-disks"), "{chain}");
    }
}
