//! Files that are made here for disks that come: each is in a ledger before it is at its path, so that whoever finds the ledger can take
//! away what is left of them.
//!
//! ```text
//!   beside its path, by a name of the migration's ─▶ in the ledger, by its number ─▶ at its path
//! ```

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use drover_api::NewDisk;
use drover_types::MigrationId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::identity::FileId;
use super::image::{self, Image};
use super::left::{LeftFile, left};
use super::limits;
use super::owner::Owner;
use crate::libvirt::holder;
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "new-disks";

/// One that was made, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    path: PathBuf,
    /// None before it was there under any name.
    file: Option<FileId>,
}

/// Makes files for these disks of a guest, with nothing in them. What the same guest left here is replaced: what is to be told of that.
///
/// # Errors
/// Why not; none of them is left then.
pub async fn make(
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> Result<Option<String>, String> {
    let made = timeout(limits::MAKE, make_all(state, migration, owner, disks)).await;
    let made = made.unwrap_or_else(|_| {
        let seconds = limits::MAKE.as_secs();
        Err(format!("its disks' files were not made within {seconds} s"))
    });
    made.map_err(|why| match remove(state, migration) {
        Ok(_) => why,
        Err(left) => format!("{why}; {left}"),
    })
}

async fn make_all(
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> Result<Option<String>, String> {
    let left = left(state, owner);
    let (mut all, mut replaced) = (Vec::new(), Vec::new());
    for disk in disks {
        let shown = disk.path.display();
        let failed = |why: String| format!("{shown} is not made: {why}");
        all.push(Made {
            path: disk.path.clone(),
            file: None,
        });
        write(state, migration, &all).map_err(failed)?;
        let beside = beside(&disk.path, migration);
        let image = Image {
            size: disk.size,
            layout: disk.layout,
        };
        image::make(&beside, image).await.map_err(failed)?;
        let file = own(&beside, disk).map_err(|error| failed(error.to_string()))?;
        if let Some(made) = all.last_mut() {
            made.file = Some(file);
        }
        write(state, migration, &all).map_err(failed)?;
        if put(&beside, &disk.path, &left).map_err(|error| failed(error.to_string()))? {
            replaced.push(shown.to_string());
        }
    }
    let replaced = (!replaced.is_empty()).then(|| replaced.join(", "));
    Ok(replaced.map(|paths| {
        format!("what it left here when it was handed off is replaced, and is gone whatever becomes of this: {paths}")
    }))
}

/// Gives it to whom the disk's own file belongs.
fn own(beside: &Path, disk: &NewDisk) -> io::Result<FileId> {
    std::os::unix::fs::chown(beside, Some(disk.user), Some(disk.group))?;
    fs::set_permissions(beside, Permissions::from_mode(disk.mode))?;
    let file = fs::File::open(beside)?;
    file.sync_all()?;
    Ok(FileId::of(&file.metadata()?))
}

/// Has it at its path, where nothing is, or what the guest left there: whether that was so.
fn put(beside: &Path, path: &Path, left: &[LeftFile]) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Never over one that comes there meanwhile.
            fs::hard_link(beside, path)?;
            fs::remove_file(beside)?;
            return sync(path).map(|()| false);
        }
        found => found?,
    };
    let is_left = left.iter().any(|left| left.is(path, &found));
    if !is_left || holder(path, &found)?.is_some() {
        return Err(io::Error::other("another file is there by now"));
    }
    fs::rename(beside, path)?;
    sync(path).map(|()| true)
}

fn sync(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Takes away what was made here for a migration: what that was.
///
/// # Errors
/// Something of it stays, for now: a process has it open, or it cannot be removed.
pub fn remove(state: &Path, migration: MigrationId) -> Result<Vec<PathBuf>, String> {
    let all = read(state, migration)?;
    let mut removed = Vec::new();
    for Made { path, file } in &all {
        let stays = |why: String| format!("{} stays here for now: {why}", path.display());
        files::remove(&beside(path, migration)).map_err(|error| stays(error.to_string()))?;
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(|error| stays(error.to_string()))?,
        };
        // Another one may be there by now, or still.
        if *file != Some(FileId::of(&found)) {
            continue;
        }
        let holder = holder(path, &found).map_err(|error| stays(error.to_string()))?;
        if let Some(pid) = holder {
            return Err(stays(format!("process {pid} has it open")));
        }
        files::remove(path).map_err(|error| stays(error.to_string()))?;
        removed.push(path.clone());
    }
    forget(state, migration);
    Ok(removed)
}

/// The same, in words.
///
/// # Errors
/// As for [`remove`].
pub fn removed(state: &Path, migration: MigrationId) -> Result<String, String> {
    let removed = remove(state, migration)?;
    let removed: Vec<_> = removed
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Ok(match removed.is_empty() {
        true => "nothing that was made here for its disks is left".to_owned(),
        false => format!(
            "what was made here for its disks was removed: {}",
            removed.join(", ")
        ),
    })
}

/// Whether files were made here for a migration, and are its own still.
pub fn is_recorded(state: &Path, migration: MigrationId) -> bool {
    ledger(state, migration).exists()
}

/// The migrations for which files were made here that are their own still. What cannot be read is none.
pub fn recorded(state: &Path) -> BTreeSet<MigrationId> {
    let all = fs::read_dir(state.join(FOLDER)).into_iter().flatten();
    let id = |entry: fs::DirEntry| entry.path().file_stem()?.to_str()?.parse().ok();
    all.flatten().filter_map(id).collect()
}

/// They are the guest's from now on.
pub fn forget(state: &Path, migration: MigrationId) {
    let file = ledger(state, migration);
    if let Err(error) = files::remove(&file) {
        tracing::warn!(file = %file.display(), %error, "not removed");
    }
}

fn read(state: &Path, migration: MigrationId) -> Result<Vec<Made>, String> {
    let file = ledger(state, migration);
    let all = files::read_document(&file);
    let all = all.map_err(|error| {
        format!(
            "what was made for its disks is not known: {}: {error}",
            file.display()
        )
    })?;
    Ok(all.unwrap_or_default())
}

fn write(state: &Path, migration: MigrationId, all: &[Made]) -> Result<(), String> {
    let file = ledger(state, migration);
    let written = serde_json::to_vec(all)
        .map_err(io::Error::other)
        .and_then(|document| {
            fs::create_dir_all(state.join(FOLDER))?;
            files::write_whole(&file, &document)
        });
    written.map_err(|error| format!("that cannot be written down in {}: {error}", file.display()))
}

fn ledger(state: &Path, migration: MigrationId) -> PathBuf {
    state.join(FOLDER).join(format!("{migration}.json"))
}

/// Where it is before it is at its path: a name that nobody else has.
fn beside(path: &Path, migration: MigrationId) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".drover-{migration}"));
    path.with_file_name(beside)
}

#[cfg(test)]
mod tests {
    use super::super::left::leave;
    use super::*;
    use drover_api::DiskLayout;
    use drover_types::Bytes;
    use std::os::unix::fs::MetadataExt as _;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(7));
    const DOMAIN: Owner = Owner::Domain(Uuid::from_u128(8));

    fn disk(path: &Path) -> NewDisk {
        let found = fs::metadata(path.parent().unwrap()).unwrap();
        NewDisk {
            target: "vda".to_owned(),
            path: path.to_owned(),
            layout: DiskLayout::Raw,
            size: Bytes(1 << 20),
            allocated: Bytes(0),
            inode: fs::metadata(path).map_or(0, |found| found.ino()),
            user: found.uid(),
            group: found.gid(),
            mode: 0o640,
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).unwrap();
        let mut all: Vec<_> = all
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        all.sort();
        all
    }

    #[tokio::test]
    async fn a_file_that_was_made_is_as_its_disks_own_and_goes_when_its_guest_does_not_come() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        assert_eq!(
            make(state.path(), ID, &DOMAIN, &[disk(&path)]).await,
            Ok(None)
        );
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.len(), found.mode() & 0o777), (1 << 20, 0o640));
        assert!(found.blocks() < 64, "it is sparse");
        assert_eq!(names(folder.path()), ["web.img"]);
        assert!(is_recorded(state.path(), ID));
        assert_eq!(recorded(state.path()), [ID].into());
        let open = fs::File::open(&path).unwrap();
        let why = remove(state.path(), ID).unwrap_err();
        assert!(why.contains("has it open") && path.exists(), "{why}");
        drop(open);
        assert_eq!(remove(state.path(), ID), Ok(vec![path.clone()]));
        assert!(names(folder.path()).is_empty() && !is_recorded(state.path(), ID));
        assert_eq!(remove(state.path(), ID), Ok(vec![]));
    }

    #[tokio::test]
    async fn none_is_made_over_anothers_file_and_what_was_made_before_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let [first, second] = ["a.img", "b.img"].map(|name| folder.path().join(name));
        fs::write(&second, "somebody's").unwrap();
        let why = make(state.path(), ID, &DOMAIN, &[disk(&first), disk(&second)])
            .await
            .unwrap_err();
        assert!(
            why.contains("b.img is not made: another file is there"),
            "{why}"
        );
        assert_eq!(names(folder.path()), ["b.img"]);
        assert_eq!(fs::read(&second).unwrap(), b"somebody's");
        assert!(!is_recorded(state.path(), ID));
    }

    #[tokio::test]
    async fn a_file_that_took_the_place_of_what_was_made_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        make(state.path(), ID, &DOMAIN, &[disk(&path)])
            .await
            .unwrap();
        let other = folder.path().join("restored.img");
        fs::write(&other, "somebody's").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(remove(state.path(), ID), Ok(vec![]));
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
    }

    #[tokio::test]
    async fn a_guest_that_comes_back_has_what_it_left_replaced_and_no_other_has() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        fs::write(&path, "contents").unwrap();
        leave(state.path(), &DOMAIN, &[disk(&path)]).unwrap();
        let another = Owner::Domain(Uuid::from_u128(9));
        let another = make(state.path(), ID, &another, &[disk(&path)]).await;
        assert!(another.unwrap_err().contains("another file is there"));
        let told = make(state.path(), ID, &DOMAIN, &[disk(&path)])
            .await
            .unwrap();
        assert!(told.unwrap().contains("is replaced"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        assert_eq!(names(folder.path()), ["web.img"]);
    }

    #[tokio::test]
    async fn what_a_dead_agent_had_only_begun_to_make_goes_too() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        let begun = Made {
            path: path.clone(),
            file: None,
        };
        write(state.path(), ID, &[begun]).unwrap();
        fs::write(beside(&path, ID), "").unwrap();
        // What came there meanwhile is somebody's.
        fs::write(&path, "somebody's").unwrap();
        assert_eq!(remove(state.path(), ID), Ok(vec![]));
        assert_eq!(names(folder.path()), ["web.img"]);
    }
}
