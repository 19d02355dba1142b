//! Whether the directory of pages is the one that they were put in: where its file system is not mounted, yet or any more, there is an empty
//! one, of which nothing is missed and to which nothing is written.
//!
//! ```text
//!   STATE/checkpoints/mark          made once: the host, and a number that no other agent has
//!   STATE/checkpoints/marked        the directories that have had it
//!   DIRECTORY/.drover-checkpoints   the same as in `mark`; beside it a lock, for who makes it
//! ```

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use drover_types::HostName;
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use super::files::make;
use crate::registry::files as documents;

const IN_DIRECTORY: &str = ".drover-checkpoints";

/// Beside it: held while one begins with the directory.
const LOCK: &str = ".drover-checkpoints.lock";

/// What this agent marks directories with, and which it has.
#[derive(Debug)]
pub(super) struct Marks {
    own: PathBuf,
    host: HostName,
    mark: String,
    marked: BTreeSet<PathBuf>,
}

/// A directory of pages cannot be used for now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Away {
    /// It is another one.
    #[error(
        "{} has no mark of this agent any more: is its file system mounted? Where it is a new one, begin with \
         `cp {} {}`",
        .directory.display(), .mark.display(), .directory.join(IN_DIRECTORY).display()
    )]
    Unmarked {
        /// It.
        directory: PathBuf,
        /// The file with the mark.
        mark: PathBuf,
    },
    /// Whoever puts pages there removes all that it does not know.
    #[error(
        "{} is the mark of another agent ({found}), or of this one before its directory `state` was lost, and each needs a directory of \
         its own: where that agent is gone, remove the file",
        .place.display()
    )]
    Another {
        /// The file with the mark.
        place: PathBuf,
        /// What it says.
        found: String,
    },
    /// It cannot be looked at, or written.
    #[error("{} cannot be used: {why}", .directory.display())]
    Unusable {
        /// It.
        directory: PathBuf,
        /// What the kernel says.
        why: String,
    },
}

impl Marks {
    /// As an earlier agent left them.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn open(own: &Path, host: &HostName) -> io::Result<Self> {
        let mark = documents::read(&own.join("mark"))?;
        let marked = own.join("marked");
        let listed = documents::read_document(&marked).unwrap_or_else(|error| {
            tracing::warn!(file = %marked.display(), %error, "it cannot be read");
            None
        });
        Ok(Self {
            own: own.to_owned(),
            host: host.clone(),
            mark: mark.unwrap_or_else(|| format!("{host} {}\n", Uuid::now_v7())),
            marked: listed.unwrap_or_default(),
        })
    }

    /// Looks whether pages can be put there. One that was never used is marked, if it `may_begin`.
    pub(super) fn look(
        &mut self,
        directory: &Path,
        may_begin: impl Fn() -> bool,
    ) -> Result<(), Away> {
        let unusable = |error: io::Error| Away::Unusable {
            directory: directory.to_owned(),
            why: error.to_string(),
        };
        match self.check(directory) {
            Ok(()) if self.marked.contains(directory) => Ok(()),
            // An agent died in between.
            Ok(()) => self.remember(directory).map_err(unusable),
            Err(Away::Unmarked { .. }) if !self.marked.contains(directory) && may_begin() => {
                self.begin(directory)
            }
            Err(away) => Err(away),
        }
    }

    /// Refuses one that was given to two agents. One that was this agent's and has another mark now is another disk in its place; and where
    /// the mark is of an agent of this host, this one's own directory was lost, or made anew.
    pub(super) fn refuse_anothers(&self, directory: &Path) -> Result<(), Away> {
        match self.check(directory) {
            Err(Away::Another { place, found })
                if !self.marked.contains(directory) && !self.is_of_this_host(&found) =>
            {
                Err(Away::Another { place, found })
            }
            _ => Ok(()),
        }
    }

    fn is_of_this_host(&self, found: &str) -> bool {
        found.split_whitespace().next() == Some(self.host.as_str())
    }

    /// Whether an agent finds it as it left it, or begins with it. Changes nothing.
    pub(super) fn is_there(&self, directory: &Path) -> Result<(), Away> {
        match self.check(directory) {
            Err(Away::Unmarked { .. }) if !self.marked.contains(directory) => Ok(()),
            checked => checked,
        }
    }

    /// Whether a file with pages may be removed: another agent has some of the same name.
    pub(super) fn may_remove(&self, file: &Path) -> bool {
        let checked = file.parent().map(|directory| self.check(directory));
        !matches!(checked, Some(Err(Away::Another { .. })))
    }

    /// Whether it has the mark.
    pub(super) fn check(&self, directory: &Path) -> Result<(), Away> {
        let place = directory.join(IN_DIRECTORY);
        match documents::read(&place) {
            Ok(Some(found)) if found == self.mark => Ok(()),
            Ok(Some(found)) => Err(Away::Another {
                place,
                found: found.trim().chars().take(SHOWN).collect(),
            }),
            Ok(None) => Err(Away::Unmarked {
                directory: directory.to_owned(),
                mark: self.own.join("mark"),
            }),
            Err(error) => Err(Away::Unusable {
                directory: directory.to_owned(),
                why: error.to_string(),
            }),
        }
    }

    /// Whether what is there and unknown may be removed.
    pub(super) fn may_clean(&self, directory: &Path) -> bool {
        match self.check(directory) {
            Ok(()) => true,
            Err(Away::Unmarked { .. }) => !self.marked.contains(directory),
            Err(_) => false,
        }
    }

    /// The agent's own word comes first: a mark that nobody knows would be another agent's.
    fn begin(&mut self, directory: &Path) -> Result<(), Away> {
        let unusable = |error: io::Error| Away::Unusable {
            directory: directory.to_owned(),
            why: error.to_string(),
        };
        let ready = || {
            make(&self.own)?;
            documents::write_whole(&self.own.join("mark"), self.mark.as_bytes())?;
            make(directory)?;
            // File systems of other hosts lock only what is opened to be written.
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(directory.join(LOCK))
        };
        let opened = ready().map_err(unusable)?;
        // Of two agents that begin at once the second one finds the first one's mark. The lock goes with the file, which stays.
        if let Err(error) = flock(&opened, FlockOperation::LockExclusive) {
            let directory = directory.display();
            tracing::warn!(%error, %directory, "its file system has no locks: of two agents that begin with it at once both may");
        }
        match self.check(directory) {
            Err(Away::Unmarked { .. }) => {
                let mark = directory.join(IN_DIRECTORY);
                documents::write_whole(&mark, self.mark.as_bytes()).map_err(unusable)?;
                // Without a lock it may be another one's by now.
                self.check(directory)?;
                self.remember(directory).map_err(unusable)
            }
            checked => checked,
        }
    }

    fn remember(&mut self, directory: &Path) -> io::Result<()> {
        let mut marked = self.marked.clone();
        marked.insert(directory.to_owned());
        let text = serde_json::to_vec_pretty(&marked)?;
        documents::write_whole(&self.own.join("marked"), &text)?;
        self.marked = marked;
        Ok(())
    }
}

/// Characters of another agent's mark that are shown: a host's name and a number.
const SHOWN: usize = 128;
