//! The files of this repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders that hold no source.
const NOT_SOURCE: [&str; 2] = [".git", "target"];

/// One text file: its path from the root of the repository, and what is in it.
#[derive(Debug)]
pub struct File {
    /// With `/` between the parts, as it is written in a link.
    pub path: String,
    /// Files that are not UTF-8 are left out of the list.
    pub text: String,
}

impl File {
    /// Whether the name ends so, dot included.
    pub fn is(&self, extension: &str) -> bool {
        self.path.ends_with(extension)
    }
}

/// The folder above this package.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Every text file under `root`, in order of path.
pub fn files(root: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    walk(root, root, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<File>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let name = entry.file_name();
            if !NOT_SOURCE.iter().any(|skipped| name == *skipped) {
                walk(root, &path, found)?;
            }
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            found.push(File { path, text });
        }
    }
    Ok(())
}
