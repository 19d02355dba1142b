//! What a guest left here when it was handed off: files that nobody uses any more, which it may find replaced when it comes back.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use drover_api::NewDisk;
use drover_types::{HostName, MigrationId};
use serde::{Deserialize, Serialize};

use super::identity::{AtRest, FileId};
use super::ledger::take;
use super::limits;
use super::owner::Owner;
use super::works::{Stop, Works};
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "left-behind";

/// As it was when its guest had left. One that was written to since is somebody's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFile {
    path: PathBuf,
    file: FileId,
    #[serde(flatten)]
    at_rest: AtRest,
}

impl LeftFile {
    fn of(path: &Path, found: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            file: FileId::of(found),
            at_rest: AtRest::of(found),
        }
    }

    /// Whether that is at its path now.
    pub fn is(&self, path: &Path, found: &Metadata) -> bool {
        *self == Self::of(path, found)
    }
}

/// What a guest left, by one migration.
#[derive(Debug, Serialize, Deserialize)]
struct Leaving {
    migration: MigrationId,
    files: Vec<LeftFile>,
}

/// Has it written down once what a guest leaves, however often it is handed off.
#[derive(Debug, Default)]
pub struct Leaves(AtomicBool);

impl Leaves {
    /// The same as [`leave`], for which nobody waits: a file system may not answer.
    pub fn begin(
        &self,
        works: &Works,
        state: &Path,
        migration: MigrationId,
        owner: Owner,
        disks: &[NewDisk],
    ) {
        if disks.is_empty() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let (works, state, disks) = (works.clone(), state.to_owned(), disks.to_vec());
        tokio::spawn(async move {
            let shown = owner.clone();
            let work = move |_: &Stop| {
                let left = leave(&state, migration, &owner, &disks);
                left.map_err(|error| error.to_string())
            };
            if let Err(why) = works.run(migration, limits::REMOVE, work).await {
                tracing::error!(guest = ?shown, why, "not written down which disks it leaves here: they are in its way when it comes back");
            }
        });
    }
}

/// Writes down what stays of a guest's disks: those that are still the files that it wrote to. That is once for a migration: whoever
/// writes to them afterwards has them for his own.
///
/// # Errors
/// It cannot be written; they are somebody's then, as any other file.
pub fn leave(
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> io::Result<()> {
    let file = ledger(state, owner);
    let before: Option<Leaving> = files::read_document(&file).ok().flatten();
    if before.is_some_and(|before| before.migration == migration) {
        return Ok(());
    }
    let paths: Vec<&Path> = disks.iter().map(|disk| disk.path.as_path()).collect();
    take(state, &paths);
    let left = disks.iter().filter_map(|disk| {
        let found = std::fs::metadata(&disk.path).ok()?;
        (found.ino() == disk.inode).then(|| LeftFile::of(&disk.path, &found))
    });
    let files = left.collect();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let left = Leaving { migration, files };
    files::write_whole(&file, &serde_json::to_vec(&left)?)
}

/// What this guest left here, as far as that can be read: what is not known was not.
pub fn left(state: &Path, owner: &Owner) -> Vec<LeftFile> {
    let file = ledger(state, owner);
    let left: Option<Leaving> = files::read_document(&file).unwrap_or_else(|error| {
        tracing::error!(file = %file.display(), %error, "not known what the guest left here");
        None
    });
    left.map_or_else(Vec::new, |left| left.files)
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

    const ID: MigrationId = MigrationId(Uuid::from_u128(1));

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
        leave(&state, ID, &id, &[disk(&path)]).unwrap();
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
        // The destination is told again, or asked again, that it has the guest: what is there by now is not what was left.
        leave(&state, ID, &id, &[disk(&path)]).unwrap();
        assert!(!known());
        file.set_modified(before).unwrap();
        assert!(known());
        let other = folder.path().join("other.img");
        std::fs::write(&other, "restored").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!known());
        assert!(left(&state, &Owner::Domain(Uuid::from_u128(8))).is_empty());
        // By its next migration it leaves that.
        leave(&state, MigrationId(Uuid::from_u128(2)), &id, &[disk(&path)]).unwrap();
        assert!(known());
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
        leave(folder.path(), ID, &web, &[gone]).unwrap();
        assert_eq!(left(folder.path(), &web), []);
    }
}
