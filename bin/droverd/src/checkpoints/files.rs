//! The files of what is kept, and what is told of it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use drover_api::CheckpointKind;
use drover_carrier::{BaselineFile, StoredFile};
use drover_types::{Bytes, VmName};
use jiff::{SignedDuration, Timestamp};
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
        }
    }

    pub(super) const fn baseline(&self) -> BaselineFile {
        BaselineFile { seal: self.seal }
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
    let unlinked = |file: &Path| {
        unlink(file).unwrap_or_else(|error| {
            tracing::error!(file = %file.display(), %error, "a checkpoint was not removed");
            None
        })
    };
    for key in keys {
        drop(unlinked(&key));
    }
    pages.into_iter().filter_map(unlinked).collect()
}

/// Nobody finds the file any more; one that is not there is fine. What comes back holds what is in it, as to let go of much takes the kernel
/// its time.
///
/// # Errors
/// It stays where it is.
pub(super) fn unlink(file: &Path) -> io::Result<Option<File>> {
    // One that cannot be opened is let go of at once.
    let held = File::open(file).ok();
    documents::remove(file)?;
    Ok(held)
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
