//! Disks of domains in files that are one host's alone: which of them can be copied, and which come with a domain.

use std::path::PathBuf;

use drover_api::{DomainNeed, MovingDomain, NewDisk};
use drover_libvirt::Disk;
use futures_util::future::join_all;

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
pub async fn described(locals: &[LocalDisk]) -> (Vec<NewDisk>, Vec<String>) {
    if let Err(why) = disks::few_enough(locals.len()) {
        return (Vec::new(), vec![why]);
    }
    let (mut new, mut why_not) = (Vec::new(), Vec::new());
    let found = join_all(locals.iter().map(one)).await;
    for (local, found) in locals.iter().zip(found) {
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
    let (target, path) = (&local.disk.target, &local.path);
    disks::described(target, path, format, disks::Bitmaps::Carried).await
}

/// What libvirt's description says against a copy.
pub fn not_copied(disk: &Disk) -> Option<String> {
    if disk.shareable {
        return Some("may be written to by other domains, too (<shareable/>): these would go on with the old one".to_owned());
    }
    if disk.encrypted {
        return Some(disks::ENCRYPTED.to_owned());
    }
    (!disk.below.is_empty()).then(|| disks::changes_of("another file"))
}

/// Those that come with a domain.
pub fn of(domain: &MovingDomain) -> &[NewDisk] {
    let disks = domain.needs.iter().find_map(|need| match need {
        DomainNeed::NewDisks { disks, .. } => Some(disks.as_slice()),
        _ => None,
    });
    disks.unwrap_or_default()
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
