//! The folder of one plan: the order, and a journal to which is only added.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use drover_tune::Step;
use drover_types::in_short;

use crate::limits::{JOURNAL_BYTES, ORDER_BYTES};
use crate::order::Order;
use crate::record::Record;
use crate::standing::{Standing, StandingError};

const ORDER: &str = "order.json";
const ORDER_ASIDE: &str = "order.new";
const JOURNAL: &str = "journal";

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
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

/// The folder of one plan, open.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    order: Order,
    steps: Vec<Step>,
    records: Vec<Record>,
    /// Up to where the file has whole records.
    whole: u64,
    /// Records that the disk did not take.
    pending: Vec<u8>,
    standing: Standing,
}

impl Journal {
    /// Makes the folder, which must not be there. The order is on the disk when this returns.
    ///
    /// # Errors
    /// [`JournalError::File`].
    pub fn make(folder: &Path, order: Order) -> Result<Self, JournalError> {
        let failed = |source| JournalError::File {
            what: "write",
            path: folder.to_owned(),
            source,
        };
        let written = || -> io::Result<()> {
            DirBuilder::new().mode(0o700).create(folder)?;
            let beside = folder.join(ORDER_ASIDE);
            let mut file = new_file().open(&beside)?;
            file.write_all(&serde_json::to_vec_pretty(&order)?)?;
            file.sync_all()?;
            fs::rename(&beside, folder.join(ORDER))?;
            sync(folder)?;
            folder.parent().map_or(Ok(()), sync)
        };
        written().map_err(failed)?;
        Self::with(folder.join(JOURNAL), order, Vec::new(), 0)
    }

    /// Opens what is there. What was being written as the host or the process ended counts as not written.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join(ORDER);
        let bytes = read(&path, ORDER_BYTES)?;
        let order: Order =
            serde_json::from_slice(&bytes).map_err(|error| JournalError::Broken {
                path,
                why: in_short(error),
            })?;
        let path = folder.join(JOURNAL);
        let bytes = match read(&path, JOURNAL_BYTES) {
            Err(JournalError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Vec::new()
            }
            other => other?,
        };
        let (records, whole) = records(&bytes).map_err(|why| JournalError::Broken {
            path: path.clone(),
            why,
        })?;
        Self::with(path, order, records, whole)
    }

    fn with(
        path: PathBuf,
        order: Order,
        records: Vec<Record>,
        whole: u64,
    ) -> Result<Self, JournalError> {
        let steps: Vec<Step> = order.plan.steps().cloned().collect();
        match Standing::of(steps.len(), &records) {
            Ok(standing) => Ok(Self {
                path,
                order,
                steps,
                records,
                whole,
                pending: Vec::new(),
                standing,
            }),
            Err(source) => Err(JournalError::Records { path, source }),
        }
    }

    /// What is to be carried out.
    #[must_use]
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The plan's steps, by the numbers that records have.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What was written, the oldest first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Where it is.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Adds a record. When this returns it outlives a loss of power.
    ///
    /// # Errors
    /// It is not on the disk. It counts all the same, and is written with the next one.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.pending, &record)?;
        self.pending.push(b'\n');
        if self.standing.take(&record).is_none() {
            tracing::error!(?record, "a record that does not follow");
        }
        self.records.push(record);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let is_new = self.whole == 0;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        // What is behind the last whole record was torn.
        file.set_len(self.whole)?;
        file.seek(SeekFrom::Start(self.whole))?;
        file.write_all(&self.pending)?;
        file.sync_all()?;
        if is_new && let Some(folder) = self.path.parent() {
            sync(folder)?;
        }
        self.whole += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// The records, and how many bytes they take. Only the last one may be torn.
fn records(bytes: &[u8]) -> Result<(Vec<Record>, u64), String> {
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

fn read(path: &Path, most: u64) -> Result<Vec<u8>, JournalError> {
    let failed = |source| JournalError::File {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(JournalError::Broken {
            path: path.to_owned(),
            why: format!("it has more than {most} bytes"),
        });
    }
    Ok(bytes)
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
