//! Saved states: memory and devices of suspended guests, in files of this host.
//!
//! ```text
//!   begin ─▶ NAME/state grows ─▶ keep ─▶ NAME/saved.json ─▶ use_up ─▶ NAME/used.json
//!                  └──────────────── discard: nothing is left ◀──────────┘
//! ```
//! Owns these files. Never talks to a guest, and never decides which counts, a file or a process.
//!
//! # Invariants
//! - `saved.json` is there only beside a state that is whole and on disk, and only with it does the state count.
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

pub use self::copy::{Sum, copy};
use crate::registry::files;

const STATE: &str = "state";
const SAVED: &str = "saved.json";
const USED: &str = "used.json";

/// All that is ever in a guest's directory, what makes its state count first.
const FILES: [&str; 4] = [SAVED, "saved.json.new", USED, STATE];

/// What is told of a state that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedState {
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
    directory: PathBuf,
}

impl SavedStates {
    /// Those below a directory, which need not be there yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Guests of which there is anything.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn guests(&self) -> io::Result<Vec<VmName>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut guests = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().parse();
            guests.extend(name.ok().filter(|vm| self.has_any(vm)));
        }
        Ok(guests)
    }

    /// The state of a guest, where it counts.
    ///
    /// # Errors
    /// What is told of it cannot be read.
    pub fn find(&self, vm: &VmName) -> io::Result<Option<SavedState>> {
        files::read_document(&self.told(vm))
    }

    /// Whether a guest has a state that counts, also where what is told of it cannot be read.
    pub fn counts(&self, vm: &VmName) -> bool {
        // What cannot be looked at may be there.
        self.told(vm).try_exists().unwrap_or(true)
    }

    /// The file of a guest's state.
    pub fn path(&self, vm: &VmName) -> PathBuf {
        self.of(vm).join(STATE)
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
        make(&self.of(vm))?;
        let mut new = OpenOptions::new();
        let new = new.write(true).create_new(true).mode(0o600);
        new.open(self.path(vm))
    }

    /// Has a state count that is whole and on disk.
    ///
    /// # Errors
    /// It does not count, surely.
    pub fn keep(&self, vm: &VmName, state: &SavedState) -> io::Result<()> {
        let told = self.told(vm);
        let kept = files::sync(&self.directory)
            .and_then(|()| files::write_whole(&told, &serde_json::to_vec_pretty(state)?));
        let Err(error) = kept else { return Ok(()) };
        match files::remove(&told) {
            Ok(()) => Err(error),
            // It is there: one that counts must not be taken for one that does not.
            Err(left) => {
                let told = told.display();
                tracing::error!(%told, %error, %left, "written, but perhaps not to outlive a loss of power");
                Ok(())
            }
        }
    }

    /// Has a state count no longer, since its guest is about to run.
    ///
    /// # Errors
    /// It may count still: the guest must not run.
    pub fn use_up(&self, vm: &VmName) -> io::Result<()> {
        let (told, used) = (self.told(vm), self.of(vm).join(USED));
        fs::rename(&told, &used)?;
        let durably = files::sync(&self.of(vm));
        if durably.is_err() {
            fs::rename(&used, &told)?;
        }
        durably
    }

    /// Removes whatever there is of a guest's state, what makes it count first.
    ///
    /// # Errors
    /// Something is left.
    pub fn discard(&self, vm: &VmName) -> io::Result<()> {
        let of = self.of(vm);
        if !of.try_exists()? {
            return Ok(());
        }
        for file in FILES {
            files::remove(&of.join(file))?;
        }
        fs::remove_dir(&of)
    }

    /// Whether anything of a guest's state is there. Whatever else an operator keeps in such a directory is not ours.
    fn has_any(&self, vm: &VmName) -> bool {
        FILES.iter().any(|file| self.of(vm).join(file).exists())
    }

    fn of(&self, vm: &VmName) -> PathBuf {
        self.directory.join(vm.as_str())
    }

    fn told(&self, vm: &VmName) -> PathBuf {
        self.of(vm).join(SAVED)
    }
}

fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn web() -> VmName {
        "web".parse().unwrap()
    }

    fn state() -> SavedState {
        SavedState {
            definition: toml::from_str("name = \"web\"\nmemory = \"64MiB\"\nvcpus = 1").unwrap(),
            machine_type: "pc-q35-10.0".to_owned(),
            qemu_version: "10.0.2".to_owned(),
            sum: copy(&b"memory"[..], io::sink()).unwrap(),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    fn saved() -> (tempfile::TempDir, SavedStates) {
        let directory = tempfile::tempdir().unwrap();
        let states = SavedStates::new(directory.path().join("suspended"));
        states.begin(&web()).unwrap().write_all(b"memory").unwrap();
        (directory, states)
    }

    #[test]
    fn a_state_counts_once_it_is_kept_and_until_it_is_used_up() {
        let (_directory, states) = saved();
        assert_eq!(states.guests().unwrap(), [web()]);
        assert!(!states.counts(&web()) && states.find(&web()).unwrap().is_none());
        states.keep(&web(), &state()).unwrap();
        assert_eq!(states.find(&web()).unwrap(), Some(state()));
        assert!(states.begin(&web()).is_err(), "it counts");
        assert_eq!(fs::read(states.path(&web())).unwrap(), b"memory");
        states.use_up(&web()).unwrap();
        assert!(!states.counts(&web()));
        assert!(states.use_up(&web()).is_err(), "it is used up");
        states.discard(&web()).unwrap();
        assert_eq!(states.guests().unwrap(), []);
        states.discard(&web()).unwrap();
    }

    #[test]
    fn what_an_attempt_has_left_is_in_nobodys_way() {
        let (_directory, states) = saved();
        let file = states.begin(&web()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_is_not_ours_is_neither_a_guests_nor_removed() {
        let (directory, states) = saved();
        fs::create_dir(directory.path().join("suspended/home")).unwrap();
        assert_eq!(states.guests().unwrap(), [web()]);
        let own = states.of(&web()).join("letter");
        fs::write(&own, "").unwrap();
        assert!(states.discard(&web()).is_err());
        assert!(own.exists() && !states.path(&web()).exists());
    }

    #[test]
    fn memory_is_for_its_owner_only() {
        let (_directory, states) = saved();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = states.path(&web());
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert_eq!(mode(states.directory()), 0o700);
    }

    #[test]
    fn what_is_told_of_a_state_and_cannot_be_read_makes_it_count_all_the_same() {
        let (_directory, states) = saved();
        fs::write(states.told(&web()), "{").unwrap();
        assert!(states.find(&web()).is_err() && states.counts(&web()));
    }

    #[test]
    fn what_cannot_be_kept_does_not_count() {
        let (_directory, states) = saved();
        // In the way of the file that is written beside.
        fs::create_dir(states.of(&web()).join("saved.json.new")).unwrap();
        assert!(states.keep(&web(), &state()).is_err());
        assert!(!states.counts(&web()));
    }
}
