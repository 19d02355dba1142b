//! Where a user's clusters are kept between two commands.
//!
//! One file for each user, written aside and renamed, under a lock. It holds no secret. A file that this
//! version cannot read is never written over.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::book::{Book, FORMAT};
use crate::limits::{LOCK_PAUSE, LOCK_TRIES, RECENT_BYTES, SET_ASIDE};

const NAME: &str = "recent.json";

/// A directory that only its user may read.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
}

/// Why the clusters cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is no place for them.
    #[error("no clusters are kept: {0}")]
    NoPlace(String),
    /// The file is not one of ours, or has been damaged.
    #[error("{path} is damaged: {problem}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A newer version has written it.
    #[error("{path} has format {format}, and this version knows only format {FORMAT}")]
    Newer {
        /// The file.
        path: String,
        /// Its format.
        format: u64,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: String,
        /// Why not.
        source: io::Error,
    },
}

/// All that is read of a file before it is known to be ours.
#[derive(Deserialize)]
struct Versioned {
    format: u64,
}

impl Place {
    /// Of the user that this process runs as.
    pub fn of_user() -> Result<Self, Unusable> {
        let variable = |name: &str| std::env::var_os(name);
        let who = fs::metadata("/proc/self").map(|own| own.uid());
        let who = who.map_err(|source| failed("look at", Path::new("/proc/self"), source))?;
        Self::among(variable("XDG_STATE_HOME"), variable("HOME"), who)
    }

    fn among(state: Option<OsString>, home: Option<OsString>, who: u32) -> Result<Self, Unusable> {
        // The base directory specification has a relative path ignored.
        let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let of_home = |home: PathBuf| home.join(".local/state");
        let state = state.and_then(absolute);
        let state = state.or_else(|| home.and_then(absolute).map(of_home));
        let none = || Unusable::NoPlace("neither XDG_STATE_HOME nor HOME is set".to_owned());
        let directory = state.ok_or_else(none)?.join("drover");
        let owner = directory
            .ancestors()
            .find_map(|path| fs::metadata(path).ok());
        let owner = owner.map_or(who, |there| there.uid());
        // Root would leave files that their owner cannot read, and could be led anywhere by links.
        if who == 0 && owner != 0 {
            let shown = directory.display();
            return Err(Unusable::NoPlace(format!(
                "{shown} would be in a directory of user {owner}, and this runs as root: use `sudo -H`"
            )));
        }
        Ok(Self { directory })
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// What was kept; empty where there is no file.
    pub fn read(&self) -> Result<Book, Unusable> {
        let path = self.path();
        let mut bytes = Vec::new();
        let opened = File::open(&path);
        let read = opened.and_then(|file| file.take(RECENT_BYTES + 1).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Book::default()),
            read => read.map_err(|source| failed("read", &path, source))?,
        };
        decoded(&bytes, &path)
    }

    /// Changes what is kept. It is written only if the change says that it is worth it.
    pub fn change<T>(&self, change: impl FnOnce(&mut Book) -> (bool, T)) -> Result<T, Unusable> {
        let _lock = self.lock()?;
        let mut book = self.read()?;
        let (is_new, answer) = change(&mut book);
        if is_new {
            self.write(&book)?;
        }
        Ok(answer)
    }

    /// Puts a damaged file out of the way, under a name that is free; where it is then.
    pub fn set_aside(&self) -> Result<PathBuf, Unusable> {
        let _lock = self.lock()?;
        let path = self.path();
        let aside = |number: u32| self.directory.join(format!("{NAME}.damaged-{number}"));
        let free = (1..=SET_ASIDE).map(aside).find(|path| !path.exists());
        let full = || {
            let shown = self.directory.display();
            Unusable::NoPlace(format!(
                "{SET_ASIDE} damaged files are in {shown}: remove them"
            ))
        };
        let free = free.ok_or_else(full)?;
        fs::rename(&path, &free).map_err(|source| failed("rename", &path, source))?;
        Ok(free)
    }

    fn write(&self, book: &Book) -> Result<(), Unusable> {
        let path = self.path();
        let aside = self.directory.join(format!("{NAME}.new"));
        let mut text = serde_json::to_string_pretty(book)
            .map_err(|error| failed("write", &path, error.into()))?;
        text.push('\n');
        let written = private().write(true).truncate(true).open(&aside);
        let written = written.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|source| failed("write", &aside, source))?;
        fs::rename(&aside, &path).map_err(|source| failed("write", &path, source))
    }

    /// Two commands at once would each forget what the other one noted.
    fn lock(&self) -> Result<File, Unusable> {
        let path = self.directory.join(format!("{NAME}.lock"));
        let wrong = |source| failed("lock", &path, source);
        let mut directory = fs::DirBuilder::new();
        directory.recursive(true).mode(0o700);
        directory.create(&self.directory).map_err(wrong)?;
        let file = private().write(true).open(&path).map_err(wrong)?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(fs::TryLockError::Error(source)) => return Err(wrong(source)),
            }
        }
        let words = "another command holds it";
        Err(wrong(io::Error::new(ErrorKind::WouldBlock, words)))
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

fn decoded(bytes: &[u8], path: &Path) -> Result<Book, Unusable> {
    let path = path.display().to_string();
    let damaged = |problem: String| Unusable::Damaged {
        path: path.clone(),
        problem,
    };
    if bytes.len() as u64 > RECENT_BYTES {
        return Err(damaged(format!("it has more than {RECENT_BYTES} bytes")));
    }
    let read: Versioned = drover_api::decode(bytes).map_err(|error| damaged(error.to_string()))?;
    if read.format > u64::from(FORMAT) {
        let format = read.format;
        return Err(Unusable::Newer { path, format });
    }
    let book: Book = drover_api::decode(bytes).map_err(|error| damaged(error.to_string()))?;
    match book.problem() {
        Some(problem) => Err(damaged(problem)),
        None => Ok(book),
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> Unusable {
    Unusable::Io {
        what,
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn place(directory: &Path) -> Place {
        let own = fs::metadata("/proc/self").unwrap().uid();
        Place::among(Some(directory.into()), None, own).unwrap()
    }

    #[test]
    fn the_state_directory_of_the_user_is_used_and_none_without_one() {
        let path = |state: Option<&str>, home: Option<&str>| {
            let place = Place::among(state.map(Into::into), home.map(Into::into), 1);
            place.ok().map(|place| place.path())
        };
        let expected = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            path(Some("/s"), Some("/h")),
            expected("/s/drover/recent.json")
        );
        let of_home = expected("/h/.local/state/drover/recent.json");
        assert_eq!(path(None, Some("/h")), of_home);
        assert_eq!(path(Some("s"), Some("/h")), of_home);
        assert_eq!(path(None, None), None);
    }

    #[test]
    fn root_keeps_nothing_in_a_directory_of_somebody_else() {
        let directory = tempfile::tempdir().unwrap();
        let given = std::os::unix::fs::chown(directory.path(), Some(65_534), None);
        if given.is_err() {
            eprintln!("skipped, because only root can give a directory away");
            return;
        }
        let refused = Place::among(Some(directory.path().into()), None, 0).unwrap_err();
        assert!(refused.to_string().contains("user 65534"), "{refused}");
        let own = Place::among(Some(directory.path().into()), None, 65_534);
        assert!(own.is_ok());
    }

    #[test]
    fn a_file_is_for_its_user_alone_and_written_only_when_there_is_something_new() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        assert_eq!(place.read().unwrap(), Book::default());
        place.change(|_| (false, ())).unwrap();
        assert!(!place.path().exists());
        place.change(|_| (true, ())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place.path()), 0o600);
        assert_eq!(mode(&directory.path().join("drover")), 0o700);
        assert_eq!(place.read().unwrap(), Book::default());
    }

    #[test]
    fn a_damaged_file_is_told_and_set_aside_and_never_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        place.change(|_| (true, ())).unwrap();
        let long = " ".repeat(usize::try_from(RECENT_BYTES).unwrap() + 1);
        for bad in ["", "{", "[]", "{\"format\": 1, \"clusters\": [7]}", &long] {
            fs::write(place.path(), bad).unwrap();
            let error = place.change(|_| (true, ())).unwrap_err();
            assert!(matches!(error, Unusable::Damaged { .. }), "{error}");
            assert_eq!(fs::read_to_string(place.path()).unwrap(), bad);
            let aside = place.set_aside().unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), bad);
            assert_eq!(place.read().unwrap(), Book::default());
        }
        assert!(
            directory
                .path()
                .join("drover/recent.json.damaged-5")
                .exists()
        );
    }

    #[test]
    fn a_file_of_a_newer_version_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        place.change(|_| (true, ())).unwrap();
        let newer = "{\"format\": 2, \"circles\": []}";
        fs::write(place.path(), newer).unwrap();
        let error = place.change(|_| (true, ())).unwrap_err();
        assert!(
            matches!(error, Unusable::Newer { format: 2, .. }),
            "{error}"
        );
        assert_eq!(fs::read_to_string(place.path()).unwrap(), newer);
    }

    #[test]
    fn a_lock_that_somebody_holds_is_waited_for_within_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path());
        let held = place.lock().unwrap();
        let error = place.change(|_| (true, ())).unwrap_err();
        assert!(error.to_string().contains("another command"), "{error}");
        drop(held);
        place.change(|_| (true, ())).unwrap();
    }
}
