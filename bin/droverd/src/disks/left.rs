//! What a guest left here when it was handed off: files that nobody uses any more, which it may find replaced when it comes back.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Whether that may be at its path yet: one of which that is not known is.
    fn may_be_there(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => self.is(&self.path, &found),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Whether that is at its path now.
    pub fn is(&self, path: &Path, found: &Metadata) -> bool {
        *self == Self::of(path, found)
    }
}

/// What a guest left, by one migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    pub migration: MigrationId,
    pub files: Vec<LeftFile>,
}

/// All that a guest left here, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Ledger {
    #[serde(flatten)]
    last: Leaving,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Leaving>,
}

/// Has it written down once what a guest leaves, however often it is handed off.
#[derive(Debug, Default)]
pub struct Leaves {
    begun: AtomicBool,
    fate: Arc<Mutex<Fate>>,
}

/// What becomes of that.
#[derive(Debug, Default)]
enum Fate {
    #[default]
    Open,
    /// It cannot be written down; why.
    Failed(String),
    /// The guest is here again, and has left nothing.
    TakenBack,
}

impl Leaves {
    /// Writes down what stays of a guest's disks: those that are still the files that it wrote to. That is once for a migration: whoever
    /// writes to them afterwards has them for his own. Nobody waits for it, as a file system may not answer.
    pub fn begin(
        &self,
        works: &Works,
        state: &Path,
        migration: MigrationId,
        owner: Owner,
        disks: &[NewDisk],
    ) {
        if disks.is_empty() || self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        let (works, state, disks) = (works.clone(), state.to_owned(), disks.to_vec());
        let (fate, shown) = (Arc::clone(&self.fate), owner.clone());
        let at_last = Arc::clone(&fate);
        tokio::spawn(async move {
            let work = move |_: &Stop| {
                let Some(all) = all_left(&state, migration, &owner, &disks) else {
                    return Ok(());
                };
                let fate = lock(&fate);
                match *fate {
                    Fate::TakenBack => Ok(()),
                    _ => write(&state, &owner, all).map_err(|error| error.to_string()),
                }
            };
            if let Err(why) = works.run(migration, limits::REMOVE, work).await {
                tracing::error!(guest = ?shown, why, "not written down which disks it leaves here: they are in its way when it comes back");
                let mut fate = lock(&at_last);
                if matches!(*fate, Fate::Open) {
                    *fate = Fate::Failed(why);
                }
            }
        });
    }

    /// Why it is not written down, where that is known by now.
    pub fn failed(&self) -> Option<String> {
        match &*lock(&self.fate) {
            Fate::Failed(why) => Some(why.clone()),
            Fate::Open | Fate::TakenBack => None,
        }
    }

    /// The guest was not handed off after all: its files are its own.
    ///
    /// # Errors
    /// It stays written down that it left them.
    pub fn take_back(&self, state: &Path, migration: MigrationId, owner: &Owner) -> io::Result<()> {
        let mut fate = lock(&self.fate);
        *fate = Fate::TakenBack;
        let mut all = read(state, owner)?;
        let before = all.len();
        all.retain(|leaving| leaving.migration != migration);
        match all.len() == before {
            true => Ok(()),
            false => write(state, owner, all),
        }
    }
}

/// Nothing that holds it panics.
fn lock(fate: &Mutex<Fate>) -> MutexGuard<'_, Fate> {
    fate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same at once.
#[cfg(test)]
pub fn leave(
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> io::Result<()> {
    all_left(state, migration, owner, disks).map_or(Ok(()), |all| write(state, owner, all))
}

/// All that a guest has left once it left these, the last first; none where that was written down for this migration before.
fn all_left(
    state: &Path,
    migration: MigrationId,
    owner: &Owner,
    disks: &[NewDisk],
) -> Option<Vec<Leaving>> {
    let mut earlier = read(state, owner).unwrap_or_default();
    if earlier.iter().any(|before| before.migration == migration) {
        return None;
    }
    let paths: Vec<&Path> = disks.iter().map(|disk| disk.path.as_path()).collect();
    take(state, &paths);
    let left = disks.iter().filter_map(|disk| {
        let found = std::fs::metadata(&disk.path).ok()?;
        (found.ino() == disk.inode).then(|| LeftFile::of(&disk.path, &found))
    });
    let files: Vec<_> = left.collect();
    for before in &mut earlier {
        let is_new = |path: &Path| files.iter().any(|new| new.path == path);
        before
            .files
            .retain(|file| !is_new(&file.path) && file.may_be_there());
    }
    earlier.retain(|before| !before.files.is_empty());
    earlier.insert(0, Leaving { migration, files });
    Some(earlier)
}

fn read(state: &Path, owner: &Owner) -> io::Result<Vec<Leaving>> {
    let ledger: Option<Ledger> = files::read_document(&ledger(state, owner))?;
    Ok(
        ledger.map_or_else(Vec::new, |Ledger { last, mut earlier }| {
            earlier.insert(0, last);
            earlier
        }),
    )
}

fn write(state: &Path, owner: &Owner, mut all: Vec<Leaving>) -> io::Result<()> {
    let file = ledger(state, owner);
    if all.is_empty() {
        return files::remove(&file);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let last = all.remove(0);
    let ledger = Ledger { last, earlier: all };
    files::write_whole(&file, &serde_json::to_vec(&ledger)?)
}

/// What this guest left here.
///
/// # Errors
/// That cannot be read.
pub fn known(state: &Path, owner: &Owner) -> Result<Vec<Leaving>, String> {
    read(state, owner).map_err(|error| {
        let file = ledger(state, owner);
        format!(
            "not known what the guest left here: {}: {error}",
            file.display()
        )
    })
}

/// Its files, as far as that can be read: what is not known was not left.
pub fn left(state: &Path, owner: &Owner) -> Vec<LeftFile> {
    let known = known(state, owner).unwrap_or_else(|why| {
        tracing::error!("{why}");
        Vec::new()
    });
    let files = known.into_iter().map(|leaving| leaving.files);
    files.flatten().collect()
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
    fn what_was_left_before_is_known_beside_what_is_left_now_and_none_of_it_once_it_was_taken_back()
    {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, third] = ["a.img", "b.img", "c.img"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, "contents").unwrap();
            path
        });
        let state = folder.path().join("state");
        let web = Owner::Guest("web".parse().unwrap());
        let next = MigrationId(Uuid::from_u128(2));
        leave(
            &state,
            ID,
            &web,
            &[&first, &second, &third].map(|path| disk(path)),
        )
        .unwrap();
        std::fs::remove_file(&third).unwrap();
        let leaves = Leaves::default();
        leave(&state, next, &web, &[disk(&second)]).unwrap();
        let all = || {
            let all = known(&state, &web).unwrap().into_iter();
            let paths =
                |leaving: &Leaving| leaving.files.iter().map(|file| file.path.clone()).collect();
            all.map(|leaving| (leaving.migration, paths(&leaving)))
                .collect::<Vec<(MigrationId, Vec<PathBuf>)>>()
        };
        assert_eq!(all(), [(next, vec![second]), (ID, vec![first.clone()])]);
        leaves.take_back(&state, next, &web).unwrap();
        assert_eq!(all(), [(ID, vec![first])]);
        leaves.take_back(&state, ID, &web).unwrap();
        assert_eq!(all(), []);
        assert!(!ledger(&state, &web).exists());
    }

    #[tokio::test]
    async fn what_is_not_written_down_yet_when_the_guest_is_taken_back_is_not_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.img");
        std::fs::write(&path, "contents").unwrap();
        let web = Owner::Guest("web".parse().unwrap());
        let (works, leaves) = (Works::default(), Leaves::default());
        leaves.begin(&works, folder.path(), ID, web.clone(), &[disk(&path)]);
        // Its task is not begun before this one waits.
        leaves.take_back(folder.path(), ID, &web).unwrap();
        while Arc::strong_count(&leaves.fate) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(left(folder.path(), &web), []);
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
