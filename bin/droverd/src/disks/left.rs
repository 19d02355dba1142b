//! What a guest left here when it was handed off: files that nobody uses any more, which it may find replaced when it comes back.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::identity::{FileId, nanos};
use super::owner::Owner;
use crate::registry::files;
use drover_api::NewDisk;
use drover_types::HostName;
use serde::{Deserialize, Serialize};

/// The folder below the state directory.
const FOLDER: &str = "left-behind";

/// As it was when its guest had left. One that was written to since is somebody's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFile {
    path: PathBuf,
    file: FileId,
    modified: Option<u64>,
    bytes: u64,
}

impl LeftFile {
    fn of(path: &Path, found: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            file: FileId::of(found),
            modified: found.modified().ok().and_then(nanos),
            bytes: found.len(),
        }
    }

    /// Whether that is at its path now.
    pub fn is(&self, path: &Path, found: &Metadata) -> bool {
        *self == Self::of(path, found)
    }
}

/// Writes down what stays of a guest's disks: those that are still the files that it wrote to.
///
/// # Errors
/// It cannot be written; they are somebody's then, as any other file.
pub fn leave(state: &Path, owner: &Owner, disks: &[NewDisk]) -> io::Result<()> {
    let left = disks.iter().filter_map(|disk| {
        let found = std::fs::metadata(&disk.path).ok()?;
        (found.ino() == disk.inode).then(|| LeftFile::of(&disk.path, &found))
    });
    let left: Vec<_> = left.collect();
    let file = ledger(state, owner);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    files::write_whole(&file, &serde_json::to_vec(&left)?)
}

/// What this guest left here, as far as that can be read: what is not known was not.
pub fn left(state: &Path, owner: &Owner) -> Vec<LeftFile> {
    let file = ledger(state, owner);
    let left = files::read_document(&file).unwrap_or_else(|error| {
        tracing::error!(file = %file.display(), %error, "not known what the guest left here");
        None
    });
    left.unwrap_or_default()
}

fn ledger(state: &Path, owner: &Owner) -> PathBuf {
    state.join(FOLDER).join(owner.file())
}

/// What an operator does with them.
pub fn told(host: &HostName, disks: &[NewDisk]) -> Option<String> {
    if disks.is_empty() {
        return None;
    }
    let of = |disk: &NewDisk| format!("{} ({})", disk.path.display(), disk.allocated);
    let files: Vec<_> = disks.iter().map(of).collect();
    Some(format!(
        "its disks are left on {host} as they were when it left, and are out of date from now on: {}. Start nothing with them; where they \
         are not wanted for its return, which replaces them, remove them",
        files.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::DiskLayout;
    use drover_types::Bytes;
    use uuid::Uuid;

    fn disk(path: &Path) -> NewDisk {
        NewDisk {
            target: "vda".to_owned(),
            path: path.to_owned(),
            layout: DiskLayout::Raw,
            size: Bytes(4096),
            allocated: Bytes(4096),
            inode: std::fs::metadata(path).map_or(0, |found| found.ino()),
            user: 0,
            group: 0,
            mode: 0o600,
        }
    }

    #[test]
    fn what_was_left_is_known_again_until_somebody_writes_to_it_or_puts_another_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        std::fs::write(&path, "contents").unwrap();
        let state = folder.path().join("state");
        let id = Owner::Domain(Uuid::from_u128(7));
        assert_eq!(left(&state, &id), []);
        leave(&state, &id, &[disk(&path)]).unwrap();
        let known = || {
            let found = std::fs::metadata(&path).unwrap();
            left(&state, &id).iter().any(|left| left.is(&path, &found))
        };
        assert!(known());
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, "others'!").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(before + std::time::Duration::from_nanos(1000))
            .unwrap();
        assert!(!known());
        file.set_modified(before).unwrap();
        assert!(known());
        let other = folder.path().join("other.img");
        std::fs::write(&other, "restored").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!known());
        assert!(left(&state, &Owner::Domain(Uuid::from_u128(8))).is_empty());
    }

    #[test]
    fn a_file_that_took_the_place_of_the_disk_while_it_moved_was_not_left_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        std::fs::write(&path, "contents").unwrap();
        let gone = disk(&path);
        std::fs::rename(&path, folder.path().join("kept.img")).unwrap();
        std::fs::write(&path, "another").unwrap();
        let web = Owner::Guest("web".parse().unwrap());
        leave(folder.path(), &web, &[gone]).unwrap();
        assert_eq!(left(folder.path(), &web), []);
    }
}
