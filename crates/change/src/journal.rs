//! The folder of one plan: the order, and a journal to which is only added.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use drover_tune::Step;

use crate::folder::{self, JournalError};
use crate::limits::{JOURNAL_BEGIN_BYTES, ORDER_BYTES, PATHS};
use crate::order::Order;
use crate::record::Record;
use crate::standing::Standing;

/// What a plan's folder tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// What is to be carried out.
    pub order: Order,
    /// The plan's steps, by the numbers that records have.
    pub steps: Vec<Step>,
    /// What was written, the oldest first.
    pub records: Vec<Record>,
    /// Where it is.
    pub standing: Standing,
    /// Up to where the file has whole records.
    whole: u64,
}

impl Account {
    /// Reads it, whoever may be writing there. What is not written to its end does not count.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn read(folder: &Path) -> Result<Self, JournalError> {
        let order = folder::order(folder)?;
        let path = folder::journal_of(folder);
        let (records, whole) = folder::records(&path)?;
        let steps: Vec<Step> = order.plan.steps().cloned().collect();
        match Standing::of(steps.len(), order.files().len(), &records) {
            Ok(standing) => Ok(Self {
                order,
                steps,
                records,
                standing,
                whole,
            }),
            Err(source) => Err(JournalError::Records { path, source }),
        }
    }

    /// Whether a restart has made a step void, with this boot id now: no file keeps where interrupts and packets are taken, and by now their
    /// numbers may be others'.
    #[must_use]
    pub fn is_void(&self, step: &Step, boot: &str) -> bool {
        let began = self.standing.boot.as_deref();
        let is_restarted = began.is_some_and(|began| began != boot);
        is_restarted && matches!(step, Step::File { path, .. } if !path.starts_with("proc/sys/"))
    }
}

/// Until it is dropped nobody has any plan of the host open.
#[derive(Debug)]
pub struct Alone {
    _lock: File,
}

impl Alone {
    /// With the folders of all plans in this directory.
    ///
    /// # Errors
    /// [`JournalError`]: somebody has one open, or the lock cannot be made.
    pub fn below(directory: &Path) -> Result<Self, JournalError> {
        let lock = folder::lock_of_all(directory)?;
        Ok(Self { _lock: lock })
    }
}

/// The folder of one plan, to be written by this process alone: no other one has any plan's beside it open meanwhile.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    account: Account,
    /// Records that the disk did not take.
    pending: Vec<u8>,
    is_made: bool,
    lock: File,
}

impl Journal {
    /// Makes the folder, which must not be there. The order is on the disk when this returns.
    ///
    /// # Errors
    /// [`JournalError`]: another process has one open, the plan cannot be carried out, or its files cannot be written.
    pub fn make(folder: &Path, order: &Order) -> Result<Self, JournalError> {
        order.plan.check()?;
        let lock = folder::lock(folder)?;
        let failed = |source| JournalError::File {
            what: "write",
            path: folder.to_owned(),
            source,
        };
        let bytes = serde_json::to_vec_pretty(order).map_err(|error| failed(error.into()))?;
        check_size(order.paths.len(), bytes.len())?;
        folder::make(folder, &bytes).map_err(failed)?;
        Self::with(folder, lock, true)
    }

    /// Opens what is there. What was being written as the host or the process ended counts as not written.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let lock = folder::lock(folder)?;
        Self::with(folder, lock, false)
    }

    /// Removes a folder whose process ended before its order was there; one with an order stays.
    ///
    /// # Errors
    /// [`JournalError`]: another process may be making it.
    pub fn clear_up(folder: &Path) -> Result<(), JournalError> {
        let _lock = folder::lock(folder)?;
        match folder::order(folder) {
            Err(JournalError::NotBegun { path }) => {
                let removed = std::fs::remove_dir_all(&path);
                let what = "remove";
                removed.map_err(|source| JournalError::File { what, path, source })
            }
            _ => Ok(()),
        }
    }

    /// Removes the folder: what was set stays, and nobody can take it back any more. Not of one that has not ended.
    ///
    /// # Errors
    /// [`JournalError`]: it cannot be removed, or has not ended.
    pub fn forget(self) -> Result<(), JournalError> {
        let folder = self.path.parent().unwrap_or(&self.path);
        remove(folder, &self.account)
    }

    /// The same of another folder, by who has the lock for one beside it ([`Journal::into_lock`]).
    ///
    /// # Errors
    /// [`JournalError`]: it cannot be read or removed, or has not ended.
    pub fn forget_beside(folder: &Path, _lock: &OwnedFd) -> Result<(), JournalError> {
        remove(folder, &Account::read(folder)?)
    }

    /// Opens what another process made, or found, and passed on with its lock ([`Journal::into_lock`]). With `is_new` that one made it
    /// for this one to begin with; without, it is gone back with what was left of it.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn passed_on(folder: &Path, lock: OwnedFd, is_new: bool) -> Result<Self, JournalError> {
        let lock = folder::taken_over(folder, lock)?;
        Self::with(folder, lock, is_new)
    }

    /// The lock, for the process that goes on with it. Nobody else has a plan of the host open as long as one of both does.
    #[must_use]
    pub fn into_lock(self) -> OwnedFd {
        self.lock.into()
    }

    fn with(folder: &Path, lock: File, is_made: bool) -> Result<Self, JournalError> {
        Ok(Self {
            path: folder::journal_of(folder),
            account: Account::read(folder)?,
            pending: Vec::new(),
            is_made,
            lock,
        })
    }

    /// What it tells.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.account.standing
    }

    /// Whether it was made by this process, or for it, and nothing of it was begun.
    pub(crate) fn is_new(&self) -> bool {
        self.is_made && self.account.records.is_empty()
    }

    /// Adds a record. When this returns it outlives a loss of power.
    ///
    /// # Errors
    /// It is not on the disk. It counts all the same, and is written with the next one; but not if it does not follow from those
    /// before it ([`io::ErrorKind::InvalidInput`]), or begins something that the journal may have no room to end
    /// ([`io::ErrorKind::FileTooLarge`]).
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        let begins = matches!(record, Record::AboutTo { .. } | Record::UndoAsked { .. });
        if begins && self.account.whole + self.pending.len() as u64 > JOURNAL_BEGIN_BYTES {
            let why = format!("it has more than {JOURNAL_BEGIN_BYTES} bytes already");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        if self.account.standing.take(&record).is_none() {
            let why = format!("it does not follow from those before it: {record:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.account.records.push(record);
        self.pending.append(&mut line);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let whole = self.account.whole;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        // What is behind the last whole record was torn.
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        file.write_all(&self.pending)?;
        file.sync_all()?;
        if whole == 0
            && let Some(folder) = self.path.parent()
        {
            folder::sync(folder)?;
        }
        self.account.whole += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// Removes the folder of one that has ended.
fn remove(folder: &Path, account: &Account) -> Result<(), JournalError> {
    let removed = match account.standing.has_ended() {
        true => folder::remove(folder),
        false => Err(io::Error::other("it is not at its end")),
    };
    removed.map_err(|source| JournalError::File {
        what: "remove",
        path: folder.to_owned(),
        source,
    })
}

/// Nothing is written that is not read.
fn check_size(paths: usize, bytes: usize) -> Result<(), JournalError> {
    if paths > PATHS || bytes as u64 > ORDER_BYTES {
        return Err(JournalError::Long { paths, bytes });
    }
    Ok(())
}
