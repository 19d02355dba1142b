//! The files of what is kept, and what is told of it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use drover_api::CheckpointKind;
use drover_carrier::{BaselineFile, StoredFile};
use drover_types::{Bytes, VmName};
use jiff::{SignedDuration, Timestamp};
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use crate::registry::files as documents;

/// Both kinds.
pub(super) const KINDS: [CheckpointKind; 2] =
    [CheckpointKind::Checkpoint, CheckpointKind::Baseline];

/// How the files are called with its pages.
pub(super) const fn pages(kind: CheckpointKind) -> &'static str {
    match kind {
        CheckpointKind::Checkpoint => "pages",
        CheckpointKind::Baseline => "baseline",
    }
}

/// How the files are called in which it is told.
pub(super) const fn told(kind: CheckpointKind) -> &'static str {
    match kind {
        CheckpointKind::Checkpoint => "json",
        CheckpointKind::Baseline => "baseline-json",
    }
}

/// What is told of one that is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) path: PathBuf,
    pub(super) digests: [u8; 32],
    pub(super) seal: [u8; 32],
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    /// Pages that were not kept.
    #[serde(default)]
    pub(super) left_out: u64,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Told")
            .field("path", &self.path)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl Told {
    /// By this host's clock; one that went back by more than it lasts ends it, too.
    pub(super) fn is_over(&self) -> bool {
        let now = Timestamp::now();
        let lasts = self.until.duration_since(self.since);
        now >= self.until || self.since.duration_since(now) > lasts
    }

    pub(super) fn stored(&self, fill: bool) -> StoredFile {
        StoredFile {
            key: self.digests,
            seal: Some(self.seal),
            fill,
            waiting_bytes: 0,
        }
    }

    pub(super) const fn baseline(&self) -> BaselineFile {
        BaselineFile {
            seal: self.seal,
            waiting_bytes: 0,
        }
    }

    /// It is kept from now on, for so long.
    pub(super) fn begin(&mut self, lasts: SignedDuration) {
        self.since = Timestamp::now();
        self.until = self.since + lasts;
    }
}

/// On the disk: what was not written takes nothing.
pub(super) fn taken(metadata: &fs::Metadata) -> Bytes {
    Bytes(metadata.blocks() * 512)
}

/// First all keys, without which the rest is nothing. What comes back holds the pages, as [`unlink`] says.
#[must_use]
pub(super) fn erase<'p>(
    keys: impl IntoIterator<Item = PathBuf>,
    pages: impl IntoIterator<Item = &'p Path>,
) -> Vec<File> {
    let tell = |file: &Path, removed: io::Result<()>| {
        if let Err(error) = removed {
            let file = file.display();
            tracing::error!(%file, %error, "a checkpoint was not removed, or may be back after a loss of power");
        }
    };
    for key in keys {
        tell(&key, documents::remove(&key));
    }
    let unlinked = pages.into_iter().filter_map(|file| {
        let (held, removed) = unlink(file);
        tell(file, removed);
        held
    });
    unlinked.collect()
}

/// Takes a file its name, durably; one that is not there is fine. What comes back, whether or not that went well, holds what is in it: to
/// let go of much takes the kernel its time.
pub(super) fn unlink(file: &Path) -> (Option<File>, io::Result<()>) {
    // It opens nothing: a pipe would wait for its other end. What cannot be held is let go of at once.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = open(file, flags, Mode::empty());
    (held.ok().map(File::from), documents::remove(file))
}

pub(super) fn place(directory: &Path, vm: &VmName, kind: &str) -> PathBuf {
    directory.join(format!("{vm}.{kind}"))
}

/// Guests with a file of this kind.
pub(super) fn named(directory: &Path, kind: &str) -> io::Result<Vec<VmName>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut guests = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_ours = path.extension().is_some_and(|found| found == kind);
        guests.extend(
            stem.filter(|_| is_ours)
                .and_then(|stem| stem.parse::<VmName>().ok()),
        );
    }
    Ok(guests)
}

pub(super) fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn what_has_the_name_of_pages_and_is_no_file_is_removed_and_neither_opened_nor_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(at("other"), "its own").unwrap();
        symlink(at("other"), at("link")).unwrap();
        let removed = |name: &str| {
            let (held, removed) = unlink(&at(name));
            removed.unwrap();
            assert!(fs::symlink_metadata(at(name)).is_err());
            held.map(|held| held.metadata().unwrap().file_type())
        };
        // Who opened it would wait for who writes to it.
        assert!(removed("pipe").unwrap().is_fifo());
        assert!(removed("link").unwrap().is_symlink());
        assert_eq!(fs::read(at("other")).unwrap(), b"its own");
        assert!(removed("nothing").is_none());
        // What cannot be removed is held, too, and told.
        fs::create_dir(at("folder")).unwrap();
        let (held, removed) = unlink(&at("folder"));
        assert!(held.is_some() && removed.is_err());
    }
}
