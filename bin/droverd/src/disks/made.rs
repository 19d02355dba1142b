//! Files that are made here for disks that come: each is in a ledger before it is at its path, so that whoever finds the ledger can take
//! away what is left of them.
//!
//! ```text
//!   paths in the ledger ─▶ all beside their paths, by a name of the migration's ─▶ all in the ledger, by their numbers ─▶ all at their paths
//! ```
//! What is done with a new file is done by what is open of it, and what is in its folder is looked at again once nobody else has its name.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use drover_api::NewDisk;
use drover_types::MigrationId;
use tokio::runtime::Handle;

use super::described::PERMISSIONS;
use super::identity::FileId;
use super::image::{self, Image};
use super::ledger::{Made, write};
use super::left::{LeftFile, left};
use super::limits;
use super::owner::Owner;
use super::place::{Name, Place};
use super::removed::{listed, remove_all};
use super::room::most;
use super::works::{Stop, Works};
use crate::libvirt::holder;

/// Makes files for these disks of a guest, with nothing in them. What the same guest left here is replaced: what is to be told of that.
///
/// # Errors
/// Why not; none of them is left then, unless that is said.
pub async fn make(
    works: &Works,
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> Result<Option<String>, String> {
    if disks.is_empty() {
        return Ok(None);
    }
    let (state, owner, disks) = (state.to_owned(), owner.clone(), disks.to_vec());
    let work = move |stop: &Stop| {
        let left = left(&state, &owner);
        make_all(stop, &state, migration, &left, &disks).map_err(|why| {
            match remove_all(&state, migration) {
                Ok(_) => why,
                Err(stays) => format!("{why}; {stays}"),
            }
        })
    };
    works.run(migration, limits::MAKE, work).await
}

fn make_all(
    stop: &Stop,
    state: &Path,
    migration: MigrationId,
    left: &[LeftFile],
    disks: &[NewDisk],
) -> Result<Option<String>, String> {
    let begun = |disk: &NewDisk| Made {
        path: disk.path.clone(),
        file: None,
        at_rest: None,
        most: most(disk),
    };
    let mut all: Vec<Made> = disks.iter().map(begun).collect();
    stop.check()?;
    write(state, migration, &all)?;
    let mut new = Vec::new();
    for (disk, made) in disks.iter().zip(&mut all) {
        stop.check()?;
        let one = New::make(disk, migration);
        let one = one.map_err(|why| format!("{} is not made: {why}", disk.path.display()))?;
        made.file = Some(one.id);
        new.push(one);
    }
    stop.check()?;
    write(state, migration, &all)?;
    let mut replaced = Vec::new();
    let put = put_all(stop, &new, left, &mut replaced);
    let replaced = (!replaced.is_empty()).then(|| {
        let paths = listed(&replaced);
        format!("what it left here when it was handed off is replaced, and is gone whatever becomes of this: {paths}")
    });
    match (put, replaced) {
        (Ok(()), replaced) => Ok(replaced),
        (Err(why), None) => Err(why),
        (Err(why), Some(replaced)) => Err(format!("{why}; {replaced}")),
    }
}

fn put_all(
    stop: &Stop,
    new: &[New],
    left: &[LeftFile],
    replaced: &mut Vec<PathBuf>,
) -> Result<(), String> {
    for one in new {
        stop.check()?;
        let path = one.place.path();
        let put = one.put(left);
        if put.map_err(|why| format!("{} is not made: {why}", path.display()))? {
            replaced.push(path.to_owned());
        }
    }
    Ok(())
}

/// A file that is made.
#[derive(Debug)]
struct New {
    place: Place,
    file: File,
    id: FileId,
}

impl New {
    /// Beside its path, and of whom the disk's own file is. Waits for `qemu-img`.
    fn make(disk: &NewDisk, migration: MigrationId) -> Result<Self, String> {
        let told = |error: io::Error| error.to_string();
        let place = Place::open(&disk.path, migration).map_err(told)?;
        let place = place.ok_or("there is no such folder")?;
        let file = place.create().map_err(told)?;
        let image = Image {
            size: disk.size,
            layout: disk.layout,
        };
        Handle::current().block_on(image::make(&file, image))?;
        let id = own(&file, disk).map_err(|error| {
            format!("it cannot be given its owner and mode, or be written to its disk: {error}")
        })?;
        Ok(Self { place, file, id })
    }

    /// Has it at its path, where nothing is, or what the guest left there: whether that was so.
    fn put(&self, left: &[LeftFile]) -> Result<bool, String> {
        let place = &self.place;
        let replaces = match place.put(&self.file) {
            Ok(there) => !there,
            Err(error) => return Err(format!("it cannot be linked to its path: {error}")),
        };
        let put = match replaces {
            true => self.exchange(left),
            false => self.remove_beside().map(|()| true),
        };
        match put {
            Ok(true) => Ok(replaces),
            Ok(false) => Err("another file is there by now".to_owned()),
            Err(error) => Err(format!("it cannot be put at its path: {error}")),
        }
    }

    /// Whether what was there was what the guest left.
    fn exchange(&self, left: &[LeftFile]) -> io::Result<bool> {
        let place = &self.place;
        let is_left = |name| -> io::Result<bool> {
            let Some(found) = place.see(name)? else {
                return Ok(false);
            };
            let is_left = left.iter().any(|left| left.is(place.path(), &found));
            Ok(is_left && holder(place.path(), &found)?.is_none())
        };
        if !is_left(Name::Own)? {
            return Ok(false);
        }
        place.exchange()?;
        // Another one may have come there before that.
        if is_left(Name::Beside)? {
            return place.remove_beside().map(|()| true);
        }
        place.exchange().map(|()| false)
    }

    /// Its first name, unless somebody gave that to another.
    fn remove_beside(&self) -> io::Result<()> {
        let found = self.place.see(Name::Beside)?;
        match found.is_some_and(|found| FileId::of(&found) == self.id) {
            true => self.place.remove_beside(),
            false => Err(io::Error::other("somebody else changes its folder")),
        }
    }
}

/// Gives it to whom the disk's own file belongs. A peer that says so gives nobody privileges.
fn own(file: &File, disk: &NewDisk) -> io::Result<FileId> {
    std::os::unix::fs::fchown(file, Some(disk.user), Some(disk.group))?;
    file.set_permissions(Permissions::from_mode(disk.mode & PERMISSIONS))?;
    file.sync_all()?;
    Ok(FileId::of(&file.metadata()?))
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{self, is_recorded};
    use super::super::left::leave;
    use super::super::removed::{Removed, settle_all};
    use super::*;
    use drover_api::DiskLayout;
    use drover_types::Bytes;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(7));
    const LEFT: MigrationId = MigrationId(Uuid::from_u128(6));
    const DOMAIN: Owner = Owner::Domain(Uuid::from_u128(8));

    fn works() -> Works {
        Works::default()
    }

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

    fn gone(paths: &[&Path]) -> Removed {
        Removed {
            gone: paths.iter().map(|path| path.to_path_buf()).collect(),
            ..Removed::default()
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
        // Whoever says so gives nobody privileges.
        let told = NewDisk {
            mode: 0o4640,
            ..disk(&path)
        };
        let made = make(&works(), state.path(), ID, &DOMAIN, &[told]).await;
        assert_eq!(made, Ok(None));
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.len(), found.mode() & 0o7777), (1 << 20, 0o640));
        assert!(found.blocks() < 64, "it is sparse");
        assert_eq!(names(folder.path()), ["web.img"]);
        assert!(is_recorded(state.path(), ID));
        let kept = ledger::read(state.path(), ID).unwrap();
        let open = fs::File::open(&path).unwrap();
        let why = remove_all(state.path(), ID).unwrap_err();
        assert!(why.contains("has it open") && path.exists(), "{why}");
        drop(open);
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[&path])));
        assert!(names(folder.path()).is_empty() && !is_recorded(state.path(), ID));
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[])));
        // As where its file system is not mounted.
        write(state.path(), ID, &kept).unwrap();
        let told = remove_all(state.path(), ID).unwrap().told();
        assert!(
            told.starts_with("nothing was found") && told.ends_with("web.img"),
            "{told}"
        );
    }

    #[tokio::test]
    async fn none_is_made_over_anothers_file_and_what_was_made_before_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let [first, second] = ["a.img", "b.img"].map(|name| folder.path().join(name));
        fs::write(&second, "somebody's").unwrap();
        let why = make(
            &works(),
            state.path(),
            ID,
            &DOMAIN,
            &[disk(&first), disk(&second)],
        )
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
        make(&works(), state.path(), ID, &DOMAIN, &[disk(&path)])
            .await
            .unwrap();
        let other = folder.path().join("restored.img");
        fs::write(&other, "somebody's").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[])));
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
    }

    #[tokio::test]
    async fn what_somebody_wrote_to_once_nobody_copied_to_it_any_more_is_somebodys() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let [copied, used] = ["a.img", "b.img"].map(|name| folder.path().join(name));
        make(
            &works(),
            state.path(),
            ID,
            &DOMAIN,
            &[disk(&copied), disk(&used)],
        )
        .await
        .unwrap();
        let write = |path: &Path, seconds| {
            let file = fs::File::options().write(true).open(path).unwrap();
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(at).unwrap();
            file
        };
        // While it is copied to it is not at rest.
        let open = write(&copied, 10);
        drop(write(&used, 10));
        settle_all(state.path(), ID).unwrap();
        drop(open);
        drop(write(&copied, 20));
        settle_all(state.path(), ID).unwrap();
        // A guest was started with it, and has ended, while nobody looked.
        drop(write(&used, 30));
        settle_all(state.path(), ID).unwrap();
        let removed = remove_all(state.path(), ID).unwrap();
        let written = vec![used];
        let gone = vec![copied];
        let absent = Vec::new();
        assert_eq!(
            removed,
            Removed {
                gone,
                written,
                absent
            }
        );
        assert_eq!(names(folder.path()), ["b.img"]);
        assert!(!is_recorded(state.path(), ID));
    }

    #[tokio::test]
    async fn a_guest_that_comes_back_has_what_it_left_replaced_and_no_other_has() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        fs::write(&path, "contents").unwrap();
        leave(state.path(), LEFT, &DOMAIN, &[disk(&path)]).unwrap();
        let another = make(
            &works(),
            state.path(),
            ID,
            &Owner::Domain(Uuid::from_u128(9)),
            &[disk(&path)],
        )
        .await;
        assert!(another.unwrap_err().contains("another file is there"));
        let told = make(&works(), state.path(), ID, &DOMAIN, &[disk(&path)])
            .await
            .unwrap();
        assert!(told.unwrap().contains("is replaced"));
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        assert_eq!(names(folder.path()), ["web.img"]);
    }

    #[tokio::test]
    async fn what_is_replaced_is_told_though_another_disk_fails_and_nothing_is_before_all_are_made()
    {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let [first, second] = ["a.img", "b.img"].map(|name| folder.path().join(name));
        fs::write(&first, "contents").unwrap();
        leave(state.path(), LEFT, &DOMAIN, &[disk(&first)]).unwrap();
        let nowhere = NewDisk {
            path: folder.path().join("none/b.img"),
            ..disk(&second)
        };
        let why = make(
            &works(),
            state.path(),
            ID,
            &DOMAIN,
            &[disk(&first), nowhere],
        )
        .await
        .unwrap_err();
        assert!(why.contains("there is no such folder"), "{why}");
        assert_eq!(fs::read(&first).unwrap(), b"contents");
        fs::write(&second, "somebody's").unwrap();
        let both = [disk(&first), disk(&second)];
        let why = make(&works(), state.path(), ID, &DOMAIN, &both)
            .await
            .unwrap_err();
        assert!(why.contains("b.img is not made: another file"), "{why}");
        let gone = format!("gone whatever becomes of this: {}", first.display());
        assert!(why.contains(&gone), "{why}");
        assert_eq!(names(folder.path()), ["b.img"]);
    }

    #[tokio::test]
    async fn what_a_process_has_open_keeps_no_other_from_going() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let [held, free] = ["a.img", "b.img"].map(|name| folder.path().join(name));
        make(
            &works(),
            state.path(),
            ID,
            &DOMAIN,
            &[disk(&held), disk(&free)],
        )
        .await
        .unwrap();
        let open = File::open(&held).unwrap();
        let why = remove_all(state.path(), ID).unwrap_err();
        assert!(why.contains("a.img stays here for now: process"), "{why}");
        assert_eq!(names(folder.path()), ["a.img"]);
        drop(open);
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[&held])));
    }

    /// As a thread would that makes it.
    fn new(disk: &NewDisk) -> New {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        New::make(disk, ID).unwrap()
    }

    #[test]
    fn a_link_that_takes_the_new_files_name_leads_nobody_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let [path, secret] = ["web.img", "secret"].map(|name| folder.path().join(name));
        fs::write(&secret, "root's").unwrap();
        let new = new(&disk(&path));
        let beside = folder.path().join(format!(".web.img.drover-{ID}"));
        fs::rename(&beside, folder.path().join("taken")).unwrap();
        std::os::unix::fs::symlink(&secret, &beside).unwrap();
        let why = new.put(&[]).unwrap_err();
        assert!(why.contains("somebody else changes its folder"), "{why}");
        let there = FileId::of(&fs::symlink_metadata(&path).unwrap());
        assert_eq!(there, new.id, "it is the one that was made, or none");
        assert_eq!(fs::read(&secret).unwrap(), b"root's");
        // Another folder by the same path is another.
        let parent = folder.path().parent().unwrap();
        let moved = parent.join(format!(
            "{}-moved",
            folder.path().file_name().unwrap().display()
        ));
        fs::rename(folder.path(), &moved).unwrap();
        std::os::unix::fs::symlink("/", folder.path()).unwrap();
        assert!(new.place.see(Name::Own).unwrap().is_some());
        fs::remove_file(folder.path()).unwrap();
        fs::rename(&moved, folder.path()).unwrap();
    }

    #[test]
    fn what_a_dead_agent_had_put_a_new_one_in_the_place_of_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        fs::write(&path, "contents").unwrap();
        let new = new(&disk(&path));
        let made = Made {
            path: path.clone(),
            file: Some(new.id),
            at_rest: None,
            most: Bytes(0),
        };
        write(state.path(), ID, &[made]).unwrap();
        new.place.exchange().unwrap();
        drop(new);
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[&path])));
        assert_eq!(names(folder.path()), ["web.img"]);
        assert_eq!(fs::read(&path).unwrap(), b"contents");
    }

    #[tokio::test]
    async fn what_a_dead_agent_had_only_begun_to_make_goes_too() {
        let folder = tempfile::tempdir().unwrap();
        let state = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        let begun = Made {
            path: path.clone(),
            file: None,
            at_rest: None,
            most: Bytes(0),
        };
        write(state.path(), ID, &[begun]).unwrap();
        let place = Place::open(&path, ID).unwrap().unwrap();
        drop(place.create().unwrap());
        // What came there meanwhile is somebody's.
        fs::write(&path, "somebody's").unwrap();
        assert_eq!(remove_all(state.path(), ID), Ok(gone(&[])));
        assert_eq!(names(folder.path()), ["web.img"]);
    }
}
