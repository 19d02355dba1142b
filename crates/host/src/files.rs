//! Small files below a root.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::HostError;
use crate::limits::{ENTRIES, FILE};

/// The text of `root/path`, at most [`FILE`] bytes of it.
pub(crate) fn read(root: &Path, path: &str) -> Result<String, HostError> {
    let path = root.join(path);
    text(&path).map_err(|source| HostError::Read { path, source })
}

/// The text of a file that may be absent, or that the driver may refuse to give, trimmed.
pub(crate) fn optional(path: &Path) -> Option<String> {
    text(path).ok().map(|text| text.trim().to_owned())
}

pub(crate) fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The entries of a folder in the order of their names; none if it is not there.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = listed
        .take(ENTRIES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}
