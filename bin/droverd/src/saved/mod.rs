//! Saved states: memory and devices of suspended guests, in files of this host.
//!
//! ```text
//!   begin ─▶ NAME.state grows ─▶ keep ─▶ NAME.json ─▶ use_up ─▶ NAME.used
//!                 └───────────── discard: nothing is left ◀──────────┘
//! ```
//! `NAME.state` is where the configuration wants it, the others are with the agent's own state: so a disk that is not
//! there, or comes back later, is never taken for a guest without a state, or with one.
//!
//! Owns these files. Never talks to a guest, and never decides which counts, a file or a process.
//!
//! # Invariants
//! - `NAME.json` is there only beside a state that is whole and on disk, and only with it does the state count.
//! - It is gone, durably, before the guest runs again: no state is used twice.

mod copy;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use drover_api::VmDefinition;
use drover_types::{Bytes, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::copy::{Copied, Sum, copy};
use crate::config::Config;
use crate::registry::files;

const STATE: &str = "state";
const SAVED: &str = "json";
const USED: &str = "used";

/// What is told of a state that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedState {
    /// The file that holds it.
    pub path: PathBuf,
    /// What its guest was started from.
    pub definition: VmDefinition,
    /// Its concrete machine type: an alias may be another one to a QEMU that was updated meanwhile.
    pub machine_type: String,
    /// The version of the QEMU that saved it.
    pub qemu_version: String,
    /// What the file holds.
    pub sum: Sum,
    /// Since when its guest stands still.
    pub since: Timestamp,
}

/// The saved states of this host's guests.
#[derive(Debug)]
pub struct SavedStates {
    /// Where it is told which count.
    own: PathBuf,
    /// Where new ones are put.
    directory: PathBuf,
}

impl SavedStates {
    /// Those of a host; their directories need not be there yet.
    pub fn of(config: &Config) -> Self {
        Self {
            own: config.state.join("suspended"),
            directory: config.suspended.clone(),
        }
    }

    /// Where new ones are put.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Guests of which there is anything. A file of another name is nobody's.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn guests(&self) -> io::Result<Vec<VmName>> {
        let mut guests = Vec::new();
        for directory in [&self.own, &self.directory] {
            let entries = match fs::read_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                guests.extend(whose(&entry?.path()));
            }
        }
        guests.sort_unstable();
        guests.dedup();
        Ok(guests)
    }

    /// The state of a guest, where it counts.
    ///
    /// # Errors
    /// What is told of it cannot be read, or its file is not there.
    pub fn find(&self, vm: &VmName) -> io::Result<Option<SavedState>> {
        let state: Option<SavedState> = files::read_document(&self.told(vm))?;
        if let Some(state) = &state
            && let Err(error) = fs::metadata(&state.path)
        {
            let path = state.path.display();
            let problem = format!("{path}: {error}; is its disk mounted?");
            return Err(io::Error::new(error.kind(), problem));
        }
        Ok(state)
    }

    /// Whether a guest has a state that counts, also where it cannot be read.
    pub fn counts(&self, vm: &VmName) -> bool {
        // What cannot be looked at may be there.
        self.told(vm).try_exists().unwrap_or(true)
    }

    /// Whether anything is there of a state that counts or does not.
    pub fn has_any(&self, vm: &VmName) -> bool {
        let files = [self.told(vm), self.used(vm), self.path(vm)];
        files.iter().any(|file| file.exists())
    }

    /// The file of a guest's state that is saved from now on.
    pub fn path(&self, vm: &VmName) -> PathBuf {
        self.directory.join(format!("{vm}.{STATE}"))
    }

    /// Space on its disk that can be written to.
    ///
    /// # Errors
    /// The directory cannot be made, or not be asked.
    pub fn room(&self) -> io::Result<Bytes> {
        make(&self.directory)?;
        let disk = rustix::fs::statvfs(&self.directory)?;
        Ok(Bytes(disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    /// An empty file for the state of a guest that has none. What an earlier attempt has left there is gone.
    ///
    /// # Errors
    /// The guest has a state that counts, or the file cannot be made.
    pub fn begin(&self, vm: &VmName) -> io::Result<File> {
        if self.counts(vm) {
            let told = self.told(vm);
            return Err(io::Error::other(format!("{} is there", told.display())));
        }
        self.discard(vm)?;
        make(&self.own)?;
        make(&self.directory)?;
        let mut new = OpenOptions::new();
        let new = new.write(true).create_new(true).mode(0o600);
        new.open(self.path(vm))
    }

    /// Has a state count that is whole and on disk.
    ///
    /// # Errors
    /// It does not count, and never will.
    pub fn keep(&self, vm: &VmName, state: &SavedState) -> io::Result<()> {
        let told = self.told(vm);
        let kept = files::sync(&self.directory)
            .and_then(|()| files::write_whole(&told, &serde_json::to_vec_pretty(state)?));
        let Err(error) = kept else { return Ok(()) };
        // Were it to come back after a loss of power, what it tells of would not be there.
        let emptied = File::options().write(true).open(&state.path);
        let emptied = emptied.and_then(|file| file.set_len(0).and_then(|()| file.sync_all()));
        let removed = files::remove(&told);
        if emptied.is_err() && removed.is_err() && told.exists() {
            let told = told.display();
            tracing::error!(%told, %error, "written, but perhaps not to outlive a loss of power");
            return Ok(());
        }
        Err(error)
    }

    /// Has a state count no longer, since its guest is about to run.
    ///
    /// # Errors
    /// It may count still: the guest must not run.
    pub fn use_up(&self, vm: &VmName) -> io::Result<()> {
        let (told, used) = (self.told(vm), self.used(vm));
        fs::rename(&told, &used)?;
        let Err(error) = files::sync(&self.own) else {
            return Ok(());
        };
        match self.give_back(vm) {
            Ok(()) => Err(error),
            Err(left) => {
                let (told, used) = (told.display(), used.display());
                let problem = format!(
                    "{error}; then {left}: before anything else, see that {used} is called {told} again"
                );
                Err(io::Error::other(problem))
            }
        }
    }

    /// Has a state count again that was used up by a guest that has not run.
    ///
    /// # Errors
    /// It does not count, or perhaps not for long.
    pub fn give_back(&self, vm: &VmName) -> io::Result<()> {
        fs::rename(self.used(vm), self.told(vm))?;
        files::sync(&self.own)
    }

    /// Removes whatever there is of a guest's state, what makes it count first.
    ///
    /// # Errors
    /// Something is left.
    pub fn discard(&self, vm: &VmName) -> io::Result<()> {
        let told = files::read_document::<SavedState>(&self.told(vm));
        let told = told.ok().flatten().map(|state| state.path);
        for file in [
            Some(self.told(vm)),
            Some(self.used(vm)),
            told,
            Some(self.path(vm)),
        ] {
            file.map_or(Ok(()), |file| files::remove(&file))?;
        }
        Ok(())
    }

    fn told(&self, vm: &VmName) -> PathBuf {
        self.own.join(format!("{vm}.{SAVED}"))
    }

    fn used(&self, vm: &VmName) -> PathBuf {
        self.own.join(format!("{vm}.{USED}"))
    }
}

/// The guest whose file this is.
fn whose(path: &Path) -> Option<VmName> {
    let kind = path.extension()?.to_str()?;
    let is_ours = [STATE, SAVED, USED].contains(&kind);
    path.file_stem()?.to_str()?.parse().ok().filter(|_| is_ours)
}

/// Durably, where it is not there.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    directory.parent().map_or(Ok(()), files::sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn web() -> VmName {
        "web".parse().unwrap()
    }

    fn at(directory: &Path) -> SavedStates {
        SavedStates {
            own: directory.join("own"),
            directory: directory.join("disk/suspended"),
        }
    }

    fn state(states: &SavedStates) -> SavedState {
        SavedState {
            path: states.path(&web()),
            definition: toml::from_str("name = \"web\"\nmemory = \"64MiB\"\nvcpus = 1").unwrap(),
            machine_type: "pc-q35-10.0".to_owned(),
            qemu_version: "10.0.2".to_owned(),
            sum: copy(&b"memory"[..], io::sink(), &Copied::default()).unwrap(),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    fn saved() -> (tempfile::TempDir, SavedStates) {
        let directory = tempfile::tempdir().unwrap();
        let states = at(directory.path());
        states.begin(&web()).unwrap().write_all(b"memory").unwrap();
        (directory, states)
    }

    #[test]
    fn a_state_counts_once_it_is_kept_and_until_it_is_used_up() {
        let (_directory, states) = saved();
        assert_eq!(states.guests().unwrap(), [web()]);
        assert!(!states.counts(&web()) && states.find(&web()).unwrap().is_none());
        let told = state(&states);
        states.keep(&web(), &told).unwrap();
        assert_eq!(states.find(&web()).unwrap(), Some(told));
        assert!(states.begin(&web()).is_err(), "it counts");
        assert_eq!(fs::read(states.path(&web())).unwrap(), b"memory");
        states.use_up(&web()).unwrap();
        assert!(!states.counts(&web()) && states.has_any(&web()));
        assert!(states.use_up(&web()).is_err(), "it is used up");
        states.give_back(&web()).unwrap();
        assert!(states.counts(&web()));
        states.discard(&web()).unwrap();
        assert!(!states.has_any(&web()));
        assert_eq!(states.guests().unwrap(), []);
        states.discard(&web()).unwrap();
    }

    #[test]
    fn a_disk_that_is_not_there_makes_no_guest_one_without_a_state_and_one_that_comes_back_none_with_it()
     {
        let (directory, states) = saved();
        states.keep(&web(), &state(&states)).unwrap();
        let disk = directory.path().join("disk");
        let away = directory.path().join("away");
        fs::rename(&disk, &away).unwrap();
        assert!(states.counts(&web()));
        let problem = states.find(&web()).unwrap_err().to_string();
        assert!(problem.contains("mounted"), "{problem}");
        states.discard(&web()).unwrap();
        fs::rename(&away, &disk).unwrap();
        assert!(!states.counts(&web()) && states.find(&web()).unwrap().is_none());
        assert_eq!(states.guests().unwrap(), [web()], "to be removed");
    }

    #[test]
    fn a_state_is_found_where_it_was_put_whatever_is_configured_now() {
        let (directory, states) = saved();
        let told = state(&states);
        states.keep(&web(), &told).unwrap();
        let elsewhere = SavedStates {
            directory: directory.path().join("elsewhere"),
            ..at(directory.path())
        };
        assert_eq!(elsewhere.find(&web()).unwrap(), Some(told));
        elsewhere.discard(&web()).unwrap();
        assert!(!states.has_any(&web()));
    }

    #[test]
    fn what_an_attempt_has_left_is_in_nobodys_way() {
        let (_directory, states) = saved();
        let file = states.begin(&web()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_is_not_ours_is_neither_a_guests_nor_removed() {
        let (_directory, states) = saved();
        let letter = states.directory.join("web.letter");
        fs::write(&letter, "").unwrap();
        fs::create_dir(states.directory.join("home")).unwrap();
        assert_eq!(states.guests().unwrap(), [web()]);
        states.discard(&web()).unwrap();
        assert!(letter.exists() && !states.path(&web()).exists());
    }

    #[test]
    fn memory_is_for_its_owner_only() {
        let (_directory, states) = saved();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&states.path(&web())), 0o600);
        assert_eq!(mode(states.directory()), 0o700);
    }

    #[test]
    fn what_is_told_of_a_state_and_cannot_be_read_makes_it_count_all_the_same() {
        let (_directory, states) = saved();
        fs::write(states.told(&web()), "{").unwrap();
        assert!(states.find(&web()).is_err() && states.counts(&web()));
    }

    #[test]
    fn what_cannot_be_kept_does_not_count_and_holds_nothing() {
        let (_directory, states) = saved();
        // In the way of the file that is written beside.
        fs::create_dir(states.own.join("web.json.new")).unwrap();
        assert!(states.keep(&web(), &state(&states)).is_err());
        assert!(!states.counts(&web()));
        assert_eq!(fs::read(states.path(&web())).unwrap(), b"");
    }
}
