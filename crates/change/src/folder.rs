//! The files of a plan's folder, and the lock beside it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use drover_types::in_short;

use crate::check::PlanError;
use crate::limits::{JOURNAL_BYTES, ORDER_BYTES, PATHS};
use crate::order::Order;
use crate::record::Record;
use crate::standing::StandingError;

const ORDER: &str = "order.json";
const ORDER_ASIDE: &str = "order.new";
const JOURNAL: &str = "journal";
const LOCK: &str = "lock";

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process is about a plan of this host.
    #[error("another process changes this host: it holds {}", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// What was passed on is another file.
    #[error("what was passed on is not {}, which the agent that starts this has locked", path.display())]
    NotTheLock {
        /// The lock.
        path: PathBuf,
    },
    /// Its process ended before the order was written: nothing was done.
    #[error("{} has no order: nothing of it was begun, and it can be removed", path.display())]
    NotBegun {
        /// The folder.
        path: PathBuf,
    },
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The order says more than one that is read.
    #[error(
        "the order has {paths} paths and {bytes} bytes; {PATHS} and {ORDER_BYTES} are taken at most"
    )]
    Long {
        /// Paths to other hosts.
        paths: usize,
        /// Bytes in its file.
        bytes: usize,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {}", path.display())]
    File {
        /// Which way.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what a run writes.
    #[error("{} is no such file: {why}", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Its records do not follow from each other.
    #[error("{}", path.display())]
    Records {
        /// Which.
        path: PathBuf,
        /// Which record.
        source: StandingError,
    },
}

/// Where a folder's journal is.
pub(crate) fn journal_of(folder: &Path) -> PathBuf {
    folder.join(JOURNAL)
}

/// Plans exclude each other, and not only processes on the same one: the lock is beside all of their folders. Held until the file is
/// dropped, or its process ends.
pub(crate) fn lock(folder: &Path) -> Result<File, JournalError> {
    lock_of_all(parent(folder))
}

/// The same, of the directory in which all folders are.
pub(crate) fn lock_of_all(directory: &Path) -> Result<File, JournalError> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    // On a disk that nobody can write to any more there may still be something to take back.
    let opened = options.open(&path).or_else(|error| match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => File::open(&path),
        _ => Err(error),
    });
    let locked = match opened {
        Ok(file) => file.try_lock().map(|()| file),
        Err(source) => Err(TryLockError::Error(source)),
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => JournalError::Busy { path },
        TryLockError::Error(source) => JournalError::File {
            what: "lock",
            path,
            source,
        },
    })
}

/// The lock that another process took and passed on.
pub(crate) fn taken_over(folder: &Path, passed: OwnedFd) -> Result<File, JournalError> {
    let path = parent(folder).join(LOCK);
    let file = File::from(passed);
    let is_it = |(passed, there): (Metadata, Metadata)| {
        (passed.dev(), passed.ino()) == (there.dev(), there.ino())
    };
    let both = file
        .metadata()
        .and_then(|passed| Ok((passed, fs::metadata(&path)?)));
    match (both.map(is_it), file.try_lock()) {
        (Ok(true), Ok(())) => Ok(file),
        (Ok(true), Err(TryLockError::WouldBlock)) => Err(JournalError::Busy { path }),
        (Ok(false), _) => Err(JournalError::NotTheLock { path }),
        (Err(source), _) | (_, Err(TryLockError::Error(source))) => Err(JournalError::File {
            what: "lock",
            path,
            source,
        }),
    }
}

/// Makes the folder, which must not be there, with an order that is on the disk when this returns.
pub(crate) fn make(folder: &Path, order: &[u8]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    let beside = folder.join(ORDER_ASIDE);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(order)?;
    file.sync_all()?;
    fs::rename(&beside, folder.join(ORDER))?;
    sync(folder)?;
    sync(parent(folder))
}

/// Removes it. The order goes first: what is left then is a folder of which nothing was begun.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(ORDER))?;
    sync(folder)?;
    fs::remove_dir_all(folder)
}

/// The order of a folder.
pub(crate) fn order(folder: &Path) -> Result<Order, JournalError> {
    let path = folder.join(ORDER);
    let bytes = match read(&path, ORDER_BYTES)? {
        Some(bytes) => bytes,
        None if folder.is_dir() => {
            let path = folder.to_owned();
            return Err(JournalError::NotBegun { path });
        }
        None => {
            return Err(JournalError::File {
                what: "read",
                path,
                source: io::ErrorKind::NotFound.into(),
            });
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| JournalError::Broken {
        path,
        why: in_short(error),
    })
}

/// The records of a journal, and how many bytes they take; none where there is no journal yet.
pub(crate) fn records(path: &Path) -> Result<(Vec<Record>, u64), JournalError> {
    let bytes = read(path, JOURNAL_BYTES)?.unwrap_or_default();
    parsed(&bytes).map_err(|why| JournalError::Broken {
        path: path.to_owned(),
        why,
    })
}

/// Only the last one may be torn.
fn parsed(bytes: &[u8]) -> Result<(Vec<Record>, u64), String> {
    let mut records = Vec::new();
    let mut whole = 0;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let parsed = line.strip_suffix(b"\n").map(serde_json::from_slice);
        match parsed {
            Some(Ok(record)) => records.push(record),
            _ if at + 1 == lines.len() => break,
            Some(Err(error)) => return Err(format!("line {}: {}", at + 1, in_short(error))),
            None => break,
        }
        whole += line.len() as u64;
    }
    Ok((records, whole))
}

/// What is in a file; `None` if there is none.
fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, JournalError> {
    let failed = |source| JournalError::File {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(JournalError::Broken {
            path: path.to_owned(),
            why: format!("it has more than {most} bytes"),
        });
    }
    Ok(Some(bytes))
}

/// The folder in which one is: a bare name is in the current one.
fn parent(folder: &Path) -> &Path {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_in_the_current_folder() {
        assert_eq!(parent(Path::new("x")), Path::new("."));
        assert_eq!(parent(Path::new("a/x")), Path::new("a"));
        assert_eq!(parent(Path::new("/x")), Path::new("/"));
    }
}
