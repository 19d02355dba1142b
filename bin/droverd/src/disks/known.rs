//! A file that was a disk, and is nobody's any more.

use std::io;
use std::path::{Path, PathBuf};

use drover_types::{Bytes, MigrationId};
use serde::{Deserialize, Serialize};

use super::identity::FileId;
use super::ledger::{Made, write};
use super::limits;
use super::removed::{Removed, remove_all};
use super::works::{Stop, Works};

/// A file by its path, and by what tells it from another one there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    path: PathBuf,
    file: FileId,
}

impl KnownFile {
    /// What is at a path; a link is not followed.
    ///
    /// # Errors
    /// Nothing is, it cannot be looked at, or it is no regular file.
    pub fn at(path: &Path) -> io::Result<Self> {
        let found = std::fs::symlink_metadata(path)?;
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(Self {
            path: path.to_owned(),
            file: FileId::of(&found),
        })
    }

    /// Takes it away, and nothing else that may be there by now. What was made for `id` is not removed any more: this is in its place.
    ///
    /// # Errors
    /// It stays, for now: a process has it open, or it cannot be removed.
    pub async fn remove(
        &self,
        works: &Works,
        state: &Path,
        id: MigrationId,
    ) -> Result<Removed, String> {
        let state = state.to_owned();
        let made = Made {
            path: self.path.clone(),
            file: Some(self.file),
            at_rest: None,
            most: Bytes(0),
        };
        let work = move |_: &Stop| {
            write(&state, id, &[made])?;
            remove_all(&state, id)
        };
        works.run(id, limits::REMOVE, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn only_the_file_that_was_meant_goes_and_not_while_somebody_has_it_open() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = MigrationId(Uuid::from_u128(7));
        let path = folder.path().join("old.img");
        std::fs::write(&path, "contents").unwrap();
        let known = KnownFile::at(&path).unwrap();
        let works = Works::default();
        let open = std::fs::File::open(&path).unwrap();
        let stays = known.remove(&works, state.path(), id).await.unwrap_err();
        assert!(stays.contains("has it open"), "{stays}");
        drop(open);
        let other = folder.path().join("other.img");
        std::fs::write(&other, "somebody's").unwrap();
        let aside = folder.path().join("aside.img");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::rename(&other, &path).unwrap();
        known.remove(&works, state.path(), id).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
        std::fs::rename(&aside, &path).unwrap();
        let removed = known.remove(&works, state.path(), id).await.unwrap();
        assert!(removed.is_gone(), "{removed:?}");
        assert!(!path.exists());
        assert!(KnownFile::at(&path).is_err());
        assert!(KnownFile::at(folder.path()).is_err());
    }
}
