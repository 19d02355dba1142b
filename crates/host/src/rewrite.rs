//! Files of `/etc` that settings last by: what is at their place, and what is put there.
//!
//! A file is replaced as a whole: what is new is written beside it, is on the disk, and takes its name. Whoever dies in between leaves what
//! was there, and one file beside it, which is removed by whoever goes on or goes back.
//!
//! # Invariant
//! Nothing is followed that leads elsewhere: no link, neither on the way nor at its end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use drover_tune::lasting::{End, Place, Rewrite};
use rustix::fs::{self as unix, AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::limits::{ATTRIBUTE, ETC_FILE, NAME};

/// Of a file that is new, as `sysctl.d` and others have theirs.
const NEW_FILE: u32 = 0o644;
const NEW_FOLDER: u32 = 0o755;

/// What is computed from a file's bytes or given for them, and does not fit others.
const OF_BYTES: [&[u8]; 3] = [b"security.ima", b"security.evm", b"security.capability"];

/// Why a file is not looked at, or not written.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// It leads elsewhere.
    #[error("on the way to {path}, or in its place, is a link")]
    Link {
        /// The file.
        path: String,
    },
    /// It is something else than a file, or has two names.
    #[error("{path} is no file of one name")]
    NoFile {
        /// Which.
        path: String,
    },
    /// It has something else in it.
    #[error("{path} is no text of at most {ETC_FILE} bytes")]
    NoText {
        /// Which.
        path: String,
    },
    /// Its path is none.
    #[error("{path:?} is no path from the root")]
    NoPath {
        /// As it was given.
        path: String,
    },
    /// What is new of it could not be written first.
    #[error("{path} has too long a name: {name:?} beside it would have more than {NAME} bytes")]
    Long {
        /// The file.
        path: String,
        /// What is written beside it.
        name: String,
    },
    /// Somebody has written it meanwhile.
    #[error("{path} has become another one since it was looked at, and stays so")]
    Moved {
        /// Which.
        path: String,
    },
    /// It cannot be read or written.
    #[error("cannot {what} {path}")]
    File {
        /// Which way.
        what: &'static str,
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// What is at the place of this file.
///
/// # Errors
/// [`RewriteError`].
pub fn place(root: &Path, path: &str) -> Result<Place, RewriteError> {
    let way = Way::to(root, path)?;
    let (path, name) = (path.to_owned(), way.beside());
    if name.len() > NAME {
        return Err(RewriteError::Long { path, name });
    }
    let absent = Place {
        text: None,
        mode: NEW_FILE,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        folders: way.missing.clone(),
    };
    let Some(file) = way.open()? else {
        return Ok(absent);
    };
    let about = unix::fstat(&file).map_err(|error| way.failed("read", error))?;
    if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile || about.st_nlink != 1 {
        return Err(RewriteError::NoFile { path });
    }
    let mut bytes = Vec::new();
    let read = File::from(file).take(ETC_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| way.failed("read", error))?;
    let text = String::from_utf8(bytes).ok();
    let text = text.filter(|text| text.len() as u64 <= ETC_FILE);
    let text = text.ok_or(RewriteError::NoText { path })?;
    Ok(Place {
        text: Some(text),
        mode: Mode::from_raw_mode(about.st_mode).as_raw_mode(),
        uid: about.st_uid,
        gid: about.st_gid,
        folders: Vec::new(),
    })
}

/// Has the file be as it was before, or as it is after: to the byte, with its mode and owner. On the disk when this returns.
///
/// # Errors
/// [`RewriteError`]; it is as it was then, or as it is to be.
pub fn put(root: &Path, file: &Rewrite, to: End) -> Result<(), RewriteError> {
    match (to, &file.before) {
        (End::After, _) => write(root, file, &file.after, |place| file.is_before(place)),
        (End::Before, None) => remove(root, file),
        (End::Before, Some(_)) if file.is_before(&place(root, &file.path)?) => {
            tidy(root, &file.path)
        }
        (End::Before, Some(before)) => write(root, file, before, |place| file.is_after(place)),
    }
}

/// Removes what a process left beside the file that died as it wrote.
///
/// # Errors
/// [`RewriteError`].
pub fn tidy(root: &Path, path: &str) -> Result<(), RewriteError> {
    let way = Way::to(root, path)?;
    way.remove(&way.beside())
}

fn write(
    root: &Path,
    file: &Rewrite,
    text: &str,
    is_ours: impl Fn(&Place) -> bool,
) -> Result<(), RewriteError> {
    make_folders(root, &file.folders)?;
    let way = Way::to(root, &file.path)?;
    let failed = |error: Errno| way.failed("write", error);
    if !way.missing.is_empty() {
        return Err(failed(Errno::NOENT));
    }
    let old = way.open()?;
    let beside = way.beside();
    way.remove(&beside)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new = unix::openat(&way.folder, &beside, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let mut new = File::from(new);
    let written = new.write_all(text.as_bytes());
    written.map_err(|error| way.failed("write", error))?;
    let (uid, gid) = (unix::Uid::from_raw(file.uid), unix::Gid::from_raw(file.gid));
    unix::fchown(&new, Some(uid), Some(gid)).map_err(failed)?;
    unix::fchmod(&new, Mode::from_raw_mode(file.mode)).map_err(failed)?;
    if let Some(old) = &old {
        copy_attributes(old, &new).map_err(failed)?;
    }
    new.sync_all().map_err(|error| way.failed("write", error))?;
    // What has come there since it was looked at is nobody's to replace.
    if !is_ours(&place(root, &file.path)?) {
        way.remove(&beside)?;
        return Err(RewriteError::Moved {
            path: file.path.clone(),
        });
    }
    way.give_name(&beside, old.is_none())?;
    way.sync()
}

fn remove(root: &Path, file: &Rewrite) -> Result<(), RewriteError> {
    let way = Way::to(root, &file.path)?;
    way.remove(&way.beside())?;
    way.remove(way.name)?;
    for folder in file.folders.iter().rev() {
        let way = Way::to(root, folder)?;
        if !way.missing.is_empty() {
            continue;
        }
        match unix::unlinkat(&way.folder, way.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => way.sync()?,
            // Somebody has put something into it meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(way.failed("remove", error)),
        }
    }
    Ok(())
}

fn make_folders(root: &Path, folders: &[String]) -> Result<(), RewriteError> {
    for folder in folders {
        let way = Way::to(root, folder)?;
        let failed = |error: Errno| way.failed("make", error);
        match unix::mkdirat(&way.folder, way.name, Mode::RWXU) {
            Err(Errno::EXIST) => continue,
            made => made.map_err(failed)?,
        }
        let made = unix::openat(&way.folder, way.name, FOLDER, Mode::empty()).map_err(failed)?;
        unix::fchmod(&made, Mode::from_raw_mode(NEW_FOLDER)).map_err(failed)?;
        way.sync()?;
    }
    Ok(())
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The folder that a file is in, or the last one on the way to it that is there.
struct Way<'a> {
    path: &'a str,
    folder: OwnedFd,
    name: &'a str,
    /// Those that are not there, from the root.
    missing: Vec<String>,
}

impl<'a> Way<'a> {
    fn to(root: &Path, path: &'a str) -> Result<Self, RewriteError> {
        let of_path = || path.to_owned();
        let failed = |error: Errno| RewriteError::File {
            what: "reach",
            path: of_path(),
            source: error.into(),
        };
        let (folders, name) =
            parts(path).ok_or_else(|| RewriteError::NoPath { path: of_path() })?;
        // The root is the caller's, wherever that leads.
        let flags = FOLDER.difference(OFlags::NOFOLLOW);
        let mut folder = unix::open(root, flags, Mode::empty()).map_err(failed)?;
        for (at, part) in folders.iter().enumerate() {
            folder = match unix::openat(&folder, *part, FOLDER, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => {
                    let missing = at..folders.len();
                    let missing = missing.map(|last| format!("/{}", folders[..=last].join("/")));
                    return Ok(Self {
                        path,
                        folder,
                        name,
                        missing: missing.collect(),
                    });
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    return Err(RewriteError::Link { path: of_path() });
                }
                Err(error) => return Err(failed(error)),
            };
        }
        Ok(Self {
            path,
            folder,
            name,
            missing: Vec::new(),
        })
    }

    /// The file, to be read; `None` if there is none.
    fn open(&self) -> Result<Option<OwnedFd>, RewriteError> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        // Nobody waits for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match unix::openat(&self.folder, self.name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(RewriteError::Link {
                path: self.path.to_owned(),
            }),
            Err(error) => Err(self.failed("read", error)),
        }
    }

    /// What is new is written there first. Nobody who reads such folders takes it for one of theirs.
    fn beside(&self) -> String {
        format!(".{}.drover", self.name)
    }

    /// Has what is beside it take its name, in place of what has it, or where nothing has.
    fn give_name(&self, beside: &str, is_new: bool) -> Result<(), RewriteError> {
        let (folder, name) = (&self.folder, self.name);
        let flags = match is_new {
            true => RenameFlags::NOREPLACE,
            false => RenameFlags::empty(),
        };
        let renamed = unix::renameat_with(folder, beside, folder, name, flags);
        let named = match renamed {
            // A file system without that flag, such as NFS: it was looked at just now.
            Err(Errno::INVAL) if is_new => unix::renameat(folder, beside, folder, name),
            renamed => renamed,
        };
        named.map_err(|error| self.failed("write", error))
    }

    /// Removes one of its folder, if it is there. On the disk when this returns, also if a process removed it that has died.
    fn remove(&self, name: &str) -> Result<(), RewriteError> {
        if !self.missing.is_empty() {
            return Ok(());
        }
        match unix::unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.sync(),
            Err(error) => Err(self.failed("remove", error)),
        }
    }

    fn sync(&self) -> Result<(), RewriteError> {
        unix::fsync(&self.folder).map_err(|error| self.failed("write", error))
    }

    fn failed(&self, what: &'static str, error: impl Into<io::Error>) -> RewriteError {
        RewriteError::File {
            what,
            path: self.path.to_owned(),
            source: error.into(),
        }
    }
}

/// The folders of a path, and its name.
fn parts(path: &str) -> Option<(Vec<&str>, &str)> {
    let mut parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let is_plain = |part: &&str| !["", ".", ".."].contains(part) && !part.contains('\0');
    if !parts.iter().all(is_plain) {
        return None;
    }
    let name = parts.pop()?;
    Some((parts, name))
}

/// Labels of SELinux and the like, lists of who may read it, notes of users.
fn copy_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    let mut names = vec![0_u8; ATTRIBUTE];
    let length = match unix::flistxattr(&from, &mut names[..]) {
        Err(Errno::NOTSUP) => return Ok(()),
        listed => listed?,
    };
    let names = names.get(..length).unwrap_or_default();
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    for name in names.filter(|name| !OF_BYTES.contains(name)) {
        let mut value = vec![0_u8; ATTRIBUTE];
        let length = unix::fgetxattr(&from, name, &mut value[..])?;
        let value = value.get(..length).unwrap_or_default();
        unix::fsetxattr(&to, name, value, XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
