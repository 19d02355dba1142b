//! Where a disk's file is to be: in a folder that is opened once, by a name. Whatever somebody makes of the folder's path meanwhile, and
//! of links in it, nothing is done elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use drover_types::MigrationId;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// By which of its names a file is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The one that its disk has.
    Own,
    /// The one that it has before, and that nobody else has.
    Beside,
}

#[derive(Debug)]
pub struct Place {
    folder: File,
    own: OsString,
    beside: OsString,
    path: PathBuf,
}

impl Place {
    /// None where there is no such folder.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, migration: MigrationId) -> io::Result<Option<Self>> {
        let (Some(folder), Some(own)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other("it is no path of a file"));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match openat(CWD, folder, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            folder => folder?,
        };
        let mut beside = OsString::from(".");
        beside.push(own);
        beside.push(format!(".drover-{migration}"));
        Ok(Some(Self {
            folder: folder.into(),
            own: own.to_owned(),
            beside,
            path: path.to_owned(),
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self, name: Name) -> &OsStr {
        match name {
            Name::Own => &self.own,
            Name::Beside => &self.beside,
        }
    }

    /// A new file beside, which nobody but root may read yet.
    ///
    /// # Errors
    /// Also where anything has that name.
    pub fn create(&self) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.folder, self.name(Name::Beside), flags, mode)?;
        Ok(file.into())
    }

    /// What has this name; a link is looked at itself.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn see(&self, name: Name) -> io::Result<Option<Metadata>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.folder, self.name(name), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            found => File::from(found?).metadata().map(Some),
        }
    }

    /// Has this very file at its path, where nothing is: whether it is.
    ///
    /// # Errors
    /// It cannot be.
    pub fn put(&self, file: &File) -> io::Result<bool> {
        // By its name it could be another by now.
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (folder, own) = (&self.folder, self.name(Name::Own));
        match linkat(CWD, open, folder, own, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::EXIST) => Ok(false),
            put => Ok(put.map(|()| true)?),
        }
    }

    /// Has what is at its path, and what is beside, change places, at once.
    ///
    /// # Errors
    /// They do not; also where their file system cannot do so.
    pub fn exchange(&self) -> io::Result<()> {
        let folder = &self.folder;
        let [own, beside] = [Name::Own, Name::Beside].map(|name| self.name(name));
        let exchanged = renameat_with(folder, own, folder, beside, RenameFlags::EXCHANGE);
        exchanged.map_err(|error| match error {
            Errno::INVAL | Errno::NOSYS => io::Error::other(
                "its file system cannot exchange two files (renameat2(2)): remove the file there that the guest left",
            ),
            error => error.into(),
        })
    }

    /// Has what is at its path beside, which was seen to be free: nobody else has that name.
    ///
    /// # Errors
    /// It is not.
    pub fn aside(&self) -> io::Result<()> {
        let folder = &self.folder;
        let [own, beside] = [Name::Own, Name::Beside].map(|name| self.name(name));
        Ok(renameat_with(
            folder,
            own,
            folder,
            beside,
            RenameFlags::empty(),
        )?)
    }

    /// Has what is beside at its path, where nothing is.
    ///
    /// # Errors
    /// It stays beside.
    pub fn back(&self) -> io::Result<()> {
        let folder = &self.folder;
        let [own, beside] = [Name::Own, Name::Beside].map(|name| self.name(name));
        linkat(folder, beside, folder, own, AtFlags::empty())?;
        self.remove_beside()
    }

    /// Removes what is beside, durably.
    ///
    /// # Errors
    /// It is there still.
    pub fn remove_beside(&self) -> io::Result<()> {
        unlinkat(&self.folder, self.name(Name::Beside), AtFlags::empty())?;
        self.folder.sync_all()
    }
}
