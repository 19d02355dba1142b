//! What was made here for the disks of each migration, as the next agent has to know it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drover_types::{Bytes, MigrationId};
use serde::{Deserialize, Serialize};

use super::identity::{AtRest, FileId};
use crate::registry::files;

/// The folder below the state directory.
const FOLDER: &str = "new-disks";

/// The same for those that are a guest's by now.
const GIVEN: &str = "given-disks";

/// One that was made, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub path: PathBuf,
    /// None before all were there under any name.
    pub file: Option<FileId>,
    /// As it was once nothing was copied to it any more, and nobody had it open; none before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_rest: Option<AtRest>,
    /// What it may come to: nobody else is promised that room meanwhile.
    #[serde(default)]
    pub most: Bytes,
}

/// What was made by all migrations that have a ledger still, as far as that can be read.
pub fn all(state: &Path) -> Vec<(MigrationId, Made)> {
    all_in(&state.join(FOLDER))
}

/// What guests have come with that they may write to still, as far as that can be read: each may be another file by now.
pub fn given(state: &Path) -> Vec<Made> {
    let all = all_in(&state.join(GIVEN)).into_iter();
    all.map(|(_, made)| made).collect()
}

fn all_in(folder: &Path) -> Vec<(MigrationId, Made)> {
    let made = |id| {
        let file = document(folder, id);
        let read = read_in(&file).unwrap_or_else(|why| {
            tracing::error!(%id, why, "their room is not kept free");
            Vec::new()
        });
        read.into_iter().map(move |made| (id, made))
    };
    recorded_in(folder).into_iter().flat_map(made).collect()
}

/// The migrations for which files were made here that are their own still. What cannot be read is none.
pub fn recorded(state: &Path) -> BTreeSet<MigrationId> {
    recorded_in(&state.join(FOLDER))
}

fn recorded_in(folder: &Path) -> BTreeSet<MigrationId> {
    let Ok(found) = fs::read_dir(folder) else {
        // There are none.
        return BTreeSet::new();
    };
    let names = found
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()));
    let ids = names.filter_map(|name| name.file_stem()?.to_str()?.parse().ok().map(MigrationId));
    ids.collect()
}

/// Of other migrations than these nobody removes anything any more: an agent ended before it had said so.
pub fn forget_all_but(state: &Path, kept: &BTreeSet<MigrationId>) {
    let over = recorded(state).into_iter();
    for id in over.filter(|id| !kept.contains(id)) {
        tracing::info!(%id, "its migration is over: files that were made for its disks are left as they are");
        forget(state, id);
    }
}

/// Whether files were made here for a migration, and are its own still.
pub fn is_recorded(state: &Path, migration: MigrationId) -> bool {
    ledger(state, migration).exists()
}

/// Where files were made for one, as far as that can be read.
pub fn paths(state: &Path, migration: MigrationId) -> Vec<PathBuf> {
    let made = read(state, migration).unwrap_or_default();
    made.into_iter().map(|made| made.path).collect()
}

/// They are the guest's from now on, which may write to all of them.
pub fn give(state: &Path, migration: MigrationId) {
    let (made, given) = (
        ledger(state, migration),
        document(&state.join(GIVEN), migration),
    );
    let moved = fs::create_dir_all(state.join(GIVEN)).and_then(|()| fs::rename(&made, &given));
    match moved {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(file = %made.display(), %error, "what its disks may take yet is not kept free");
            forget(state, migration);
        }
        Ok(()) => {}
    }
}

/// The guest has left, which had its disks in these: nobody writes to them any more. Others that are not there any more are forgotten as
/// well.
pub fn take(state: &Path, paths: &[&Path]) {
    let folder = state.join(GIVEN);
    for id in recorded_in(&folder) {
        let file = document(&folder, id);
        let is_given = |made: &Made| {
            let found = fs::symlink_metadata(&made.path).ok();
            let is_there = found.is_some_and(|found| made.file == Some(FileId::of(&found)));
            is_there && !paths.contains(&made.path.as_path())
        };
        // What cannot be read is told of where it is read for its room.
        let Ok(before) = read_in(&file) else { continue };
        let after: Vec<_> = before.iter().filter(|made| is_given(made)).collect();
        if after.len() == before.len() {
            continue;
        }
        let kept = match after.is_empty() {
            true => files::remove(&file),
            false => serde_json::to_vec(&after)
                .map_err(io::Error::other)
                .and_then(|document| files::write_whole(&file, &document)),
        };
        if let Err(error) = kept {
            tracing::warn!(file = %file.display(), %error, "room is kept free that nobody takes");
        }
    }
}

/// There are none any more.
pub fn forget(state: &Path, migration: MigrationId) {
    let file = ledger(state, migration);
    if let Err(error) = files::remove(&file) {
        tracing::warn!(file = %file.display(), %error, "not removed");
    }
}

pub fn read(state: &Path, migration: MigrationId) -> Result<Vec<Made>, String> {
    read_in(&ledger(state, migration))
}

fn read_in(file: &Path) -> Result<Vec<Made>, String> {
    let all = files::read_document(file);
    let all = all.map_err(|error| {
        format!(
            "what was made for its disks is not known: {}: {error}",
            file.display()
        )
    })?;
    Ok(all.unwrap_or_default())
}

pub fn write(state: &Path, migration: MigrationId, all: &[Made]) -> Result<(), String> {
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
    document(&state.join(FOLDER), migration)
}

fn document(folder: &Path, migration: MigrationId) -> PathBuf {
    folder.join(format!("{migration}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn what_was_made_is_known_by_its_migration_until_that_is_over() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(all(state.path()), []);
        let [first, second] = [1, 2].map(|number| MigrationId(Uuid::from_u128(number)));
        let made = |name: &str| Made {
            path: name.into(),
            file: None,
            at_rest: None,
            most: Bytes(7),
        };
        write(state.path(), first, &[made("/a")]).unwrap();
        write(state.path(), second, &[made("/b")]).unwrap();
        fs::write(state.path().join(FOLDER).join("other"), "").unwrap();
        let mut known = all(state.path());
        known.sort_by_key(|(id, _)| *id);
        assert_eq!(known, [(first, made("/a")), (second, made("/b"))]);
        give(state.path(), second);
        assert_eq!(all(state.path()), [(first, made("/a"))]);
        assert_eq!(given(state.path()), [made("/b")]);
        give(state.path(), second);
        assert_eq!(given(state.path()), [made("/b")], "given once");
        write(state.path(), second, &[made("/b")]).unwrap();
        forget_all_but(state.path(), &[second].into());
        assert_eq!(all(state.path()), [(second, made("/b"))]);
    }

    #[test]
    fn what_a_guest_came_with_is_known_until_it_leaves_or_somebody_removes_it() {
        let state = tempfile::tempdir().unwrap();
        let id = MigrationId(Uuid::from_u128(1));
        let one = |name: &str| {
            let path = state.path().join(name);
            fs::write(&path, "").unwrap();
            Made {
                file: Some(FileId::of(&fs::metadata(&path).unwrap())),
                path,
                at_rest: None,
                most: Bytes(7),
            }
        };
        let [first, second, third] = ["a", "b", "c"].map(one);
        let all = [first.clone(), second.clone(), third.clone()];
        write(state.path(), id, &all).unwrap();
        give(state.path(), id);
        fs::remove_file(&second.path).unwrap();
        take(state.path(), &[&first.path]);
        assert_eq!(given(state.path()), std::slice::from_ref(&third));
        take(state.path(), &[&third.path]);
        assert_eq!(given(state.path()), []);
    }
}
