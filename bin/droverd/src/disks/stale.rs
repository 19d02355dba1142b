//! Files that a guest must not go on with: they are out of date, or only begun.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use drover_api::{ErrorCode, Refusal};
use drover_types::{HostName, MigrationId, VmName};
use tokio::time::timeout;

use super::ledger::{self, Made};
use super::left::{self, Leaving};
use super::owner::Owner;
use super::{identity::FileId, limits, removed::listed};

/// What such files of a guest are here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    left: Vec<Leaving>,
    made: Vec<(MigrationId, Made)>,
}

/// Why it must not go on with what is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// It left these by this migration.
    Left(MigrationId, Vec<PathBuf>),
    /// This was made for this migration, which has not ended with it here.
    Made(MigrationId, PathBuf),
    /// That is not known; why.
    NotKnown(String),
}

impl Known {
    /// What is written down of them.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(state: &Path, owner: &Owner) -> Result<Self, Stale> {
        let (state, owner) = (state.to_owned(), owner.clone());
        within_bounds(move || {
            let made = ledger::recorded(&state).into_iter().map(|id| {
                let made = ledger::read(&state, id)?;
                Ok(made.into_iter().map(move |made| (id, made)))
            });
            let made: Vec<_> = made.collect::<Result<_, String>>()?;
            Ok(Self {
                left: left::known(&state, &owner)?,
                made: made.into_iter().flatten().collect(),
            })
        })
        .await
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it may go on with what is at these paths.
    ///
    /// # Errors
    /// It may not, or that is not known.
    pub async fn judge(self, paths: Vec<PathBuf>) -> Result<(), Stale> {
        let stale = within_bounds(move || self.stale(&paths)).await?;
        stale.map_or(Ok(()), Err)
    }

    fn stale(&self, paths: &[PathBuf]) -> Result<Option<Stale>, String> {
        let (mut left, mut by) = (Vec::new(), None);
        for path in paths {
            // As QEMU opens it.
            let found = std::fs::metadata(path)
                .map_err(|error| format!("{} cannot be looked at: {error}", path.display()))?;
            if let Some(id) = self.made_for(path, &found) {
                return Ok(Some(Stale::Made(id, path.clone())));
            }
            if let Some(id) = self.left_by(path, &found) {
                left.push(path.clone());
                by.get_or_insert(id);
            }
        }
        Ok(by.map(|by| Stale::Left(by, left)))
    }

    fn made_for(&self, path: &Path, found: &Metadata) -> Option<MigrationId> {
        let file = Some(FileId::of(found));
        let mut made = self.made.iter();
        let it = made.find(|(_, made)| made.path == path && made.file == file);
        it.map(|(id, _)| *id)
    }

    fn left_by(&self, path: &Path, found: &Metadata) -> Option<MigrationId> {
        let is_in = |leaving: &&Leaving| leaving.files.iter().any(|file| file.is(path, found));
        self.left
            .iter()
            .find(is_in)
            .map(|leaving| leaving.migration)
    }
}

/// A file system may not answer.
async fn within_bounds<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Stale> {
    let looked = timeout(limits::LOOK, tokio::task::spawn_blocking(look)).await;
    let seconds = limits::LOOK.as_secs();
    let looked = looked.map_err(|_| Stale::NotKnown(format!("no answer within {seconds} s")))?;
    let looked = looked.map_err(|error| Stale::NotKnown(error.to_string()))?;
    looked.map_err(Stale::NotKnown)
}

impl Stale {
    /// What is told of a guest that must not come for it.
    pub fn refusal(&self, vm: &VmName, host: &HostName) -> Refusal {
        let refused = |why: String| {
            Refusal::new(
                ErrorCode::HostLacks,
                format!("guest {vm} cannot come to {host}: {why}"),
            )
        };
        match self {
            Self::Left(id, paths) => {
                let (are, it) = match paths.len() {
                    1 => ("is", "it"),
                    _ => ("are", "them"),
                };
                let paths = listed(paths);
                refused(format!(
                    "of its disks there {paths} {are} what it left there itself (migration {id}), and out of date"
                ))
                .next(format!(
                    "migrate it with `--with-disks`, which replaces {it}; where you know that what is in {it} is up to date, `touch` {it} on {host}"
                ))
            }
            Self::Made(id, path) => refused(format!(
                "its disk {} on {host} was made for migration {id}, with which it did not come: what is in it may be a part only",
                path.display()
            ))
            .next(format!(
                "it goes once that migration has ended: `drover status` on {host} tells what is waited for"
            )),
            Self::NotKnown(why) => refused(format!(
                "whether it would go on with disks there that are out of date is not known: {why}"
            ))
            .next(format!("see to that on {host}, then migrate it again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::left::leave;
    use drover_api::{DiskLayout, NewDisk};
    use drover_types::Bytes;
    use std::os::unix::fs::MetadataExt as _;
    use uuid::Uuid;

    const ID: MigrationId = MigrationId(Uuid::from_u128(1));

    #[tokio::test]
    async fn a_guest_does_not_go_on_with_what_it_left_or_what_was_made_for_another_migration() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let web = Owner::Guest("web".parse().unwrap());
        let [one, other] = ["a.img", "b.img"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, "contents").unwrap();
            path
        });
        let judged = async |paths: &[&PathBuf]| {
            let known = Known::read(&state, &web).await?;
            let paths = paths.iter().map(|path| path.to_path_buf());
            known.judge(paths.collect()).await
        };
        assert!(Known::read(&state, &web).await.unwrap().is_empty());
        assert_eq!(judged(&[&one, &other]).await, Ok(()));

        let disk = NewDisk {
            target: "vda".to_owned(),
            path: one.clone(),
            layout: DiskLayout::Raw,
            size: Bytes(8),
            allocated: Bytes(8),
            inode: std::fs::metadata(&one).unwrap().ino(),
            user: 0,
            group: 0,
            mode: 0o600,
        };
        leave(&state, ID, &web, &[disk]).unwrap();
        let stale = judged(&[&other, &one]).await.unwrap_err();
        assert_eq!(stale, Stale::Left(ID, vec![one.clone()]));
        let (vm, host) = ("web".parse().unwrap(), "a".parse().unwrap());
        let told = stale.refusal(&vm, &host);
        assert_eq!(told.code, ErrorCode::HostLacks);
        let words = format!("there {} is what it left there itself", one.display());
        assert!(told.message.contains(&words), "{told:?}");
        assert!(told.next.unwrap().contains("--with-disks"));
        // It is somebody's that has been written to since.
        let file = std::fs::File::options().write(true).open(&one).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(judged(&[&other, &one]).await, Ok(()));

        let made = Made {
            path: other.clone(),
            file: Some(FileId::of(&std::fs::metadata(&other).unwrap())),
            at_rest: None,
            most: Bytes(8),
        };
        ledger::write(&state, ID, &[made]).unwrap();
        assert_eq!(
            judged(&[&one, &other]).await,
            Err(Stale::Made(ID, other.clone()))
        );

        // What cannot be read is taken for the worst.
        std::fs::write(state.join("left-behind/guest-web.json"), "{").unwrap();
        assert!(matches!(judged(&[&one]).await, Err(Stale::NotKnown(_))));
    }
}
