//! How what was made here goes again, and what of it is somebody's by then.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use drover_types::MigrationId;

use super::identity::{AtRest, FileId};
use super::ledger::{Made, forget, read, write};
use super::limits;
use super::place::{Name, Place};
use super::works::{Stop, Works};
use crate::libvirt::holder;

/// What a file is that may be one that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is.
    Own,
    /// It is, and this process has it open.
    Open(u32),
    /// It was, and is somebody's who has written to it since.
    Written,
    /// Another one.
    Others,
}

impl Made {
    fn of(&self, found: &Metadata) -> io::Result<Seen> {
        if self.file != Some(FileId::of(found)) {
            return Ok(Seen::Others);
        }
        if self
            .at_rest
            .is_some_and(|before| before != AtRest::of(found))
        {
            return Ok(Seen::Written);
        }
        let holder = holder(&self.path, found)?;
        Ok(holder.map_or(Seen::Own, Seen::Open))
    }

    fn see(&self, place: &Place, name: Name) -> io::Result<Option<Seen>> {
        let found = place.see(name)?;
        found.map(|found| self.of(&found)).transpose()
    }

    /// Notes how it stands, where nobody has it open.
    fn settle(&mut self, migration: MigrationId) -> io::Result<()> {
        let Some(place) = Place::open(&self.path, migration)? else {
            return Ok(());
        };
        if let Some(found) = place.see(Name::Own)?
            && self.at_rest.is_none()
            && self.of(&found)? == Seen::Own
        {
            self.at_rest = Some(AtRest::of(&found));
        }
        Ok(())
    }

    /// Takes it away, wherever it is: what it was, where anything was there.
    fn remove(&self, migration: MigrationId) -> io::Result<Option<Seen>> {
        let Some(place) = Place::open(&self.path, migration)? else {
            return Ok(None);
        };
        match self.see(&place, Name::Beside)? {
            None => {}
            // Nobody else has that name, and nothing was exchanged before its number was written down.
            Some(_) if self.file.is_none() => place.remove_beside()?,
            Some(Seen::Own) => place.remove_beside()?,
            Some(Seen::Open(pid)) => return Ok(Some(Seen::Open(pid))),
            // What this one was put in the place of, by an agent that ended there.
            Some(Seen::Written | Seen::Others) => return self.remove_for(&place),
        }
        match self.see(&place, Name::Own)? {
            Some(Seen::Own) => {}
            seen => return Ok(seen),
        }
        place.aside()?;
        // Another one may have had the name by then, or somebody may have begun to use it.
        let seen = self.see(&place, Name::Beside)?;
        match seen {
            Some(Seen::Own) => place.remove_beside()?,
            Some(_) => place.back()?,
            None => {}
        }
        Ok(seen)
    }

    /// The same, where another file is beside, which gets its name again.
    fn remove_for(&self, place: &Place) -> io::Result<Option<Seen>> {
        let seen = self.see(place, Name::Own)?;
        match seen {
            None => place.back()?,
            Some(Seen::Own) => {
                place.exchange()?;
                if self.see(place, Name::Beside)? == Some(Seen::Own) {
                    place.remove_beside()?;
                }
            }
            Some(_) => {}
        }
        Ok(seen)
    }
}

/// What became of what was made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub(super) gone: Vec<PathBuf>,
    /// Somebody has written to these since they were at rest: they are somebody's.
    pub(super) written: Vec<PathBuf>,
    /// Nothing is there: somebody moved it, or its file system is not mounted.
    pub(super) absent: Vec<PathBuf>,
}

impl Removed {
    /// All of it is gone, by this.
    pub fn is_gone(&self) -> bool {
        !self.gone.is_empty() && self.written.is_empty() && self.absent.is_empty()
    }

    pub fn told(&self) -> String {
        let named = |what: &str, paths: &[PathBuf]| {
            (!paths.is_empty()).then(|| format!("{what}: {}", listed(paths)))
        };
        let told = [
            named("what was made here for its disks was removed", &self.gone),
            named(
                "somebody has written since to what was made here for its disks, and it is left",
                &self.written,
            ),
            named(
                "nothing was found of what was made here for its disks (look there again if its file system was not mounted)",
                &self.absent,
            ),
        ];
        let told: Vec<_> = told.into_iter().flatten().collect();
        match told.is_empty() {
            true => "nothing that was made here for its disks is left".to_owned(),
            false => told.join("; "),
        }
    }
}

/// Notes of what was made how it stands, where nobody has it open: whoever writes to it from now on has it for his own.
///
/// # Errors
/// It is not known, or cannot be written down.
pub async fn settle(works: &Works, state: &Path, migration: MigrationId) -> Result<(), String> {
    let state = state.to_owned();
    let work = move |_: &Stop| settle_all(&state, migration);
    works.run(migration, limits::REMOVE, work).await
}

pub fn settle_all(state: &Path, migration: MigrationId) -> Result<(), String> {
    let before = read(state, migration)?;
    let mut all = before.clone();
    for made in &mut all {
        let settled = made.settle(migration);
        settled.map_err(|error| format!("{} cannot be looked at: {error}", made.path.display()))?;
    }
    match all == before {
        true => Ok(()),
        false => write(state, migration, &all),
    }
}

/// Takes away what was made here for a migration, but what somebody wrote to since it was at rest.
///
/// # Errors
/// Something of it stays, for now: a process has it open, or it cannot be removed.
pub async fn remove(
    works: &Works,
    state: &Path,
    migration: MigrationId,
) -> Result<Removed, String> {
    let state = state.to_owned();
    let work = move |_: &Stop| remove_all(&state, migration);
    works.run(migration, limits::REMOVE, work).await
}

pub fn remove_all(state: &Path, migration: MigrationId) -> Result<Removed, String> {
    let mut removed = Removed::default();
    let (mut stay, mut stays) = (Vec::new(), Vec::new());
    for made in read(state, migration)? {
        let why = match made.remove(migration) {
            Ok(Some(Seen::Open(pid))) => format!("process {pid} has it open"),
            Err(error) => error.to_string(),
            Ok(Some(Seen::Own)) => {
                removed.gone.push(made.path);
                continue;
            }
            Ok(Some(Seen::Written)) => {
                removed.written.push(made.path);
                continue;
            }
            Ok(None) if made.file.is_some() => {
                removed.absent.push(made.path);
                continue;
            }
            Ok(Some(Seen::Others) | None) => continue,
        };
        stays.push(format!("{} stays here for now: {why}", made.path.display()));
        stay.push(made);
    }
    if !stay.is_empty() {
        // What is gone is not looked for again.
        write(state, migration, &stay)?;
        return Err(stays.join("; "));
    }
    forget(state, migration);
    Ok(removed)
}

pub fn listed<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> String {
    let paths = paths.into_iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}
