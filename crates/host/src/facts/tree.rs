//! Files below a root, and which of them were looked at.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use drover_tune::facts::Fact;

use crate::files;
use crate::limits::ENTRIES;

/// What was looked at, by paths from the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Files and their text.
    pub files: BTreeMap<String, String>,
    /// Folders and the names of their entries.
    pub folders: BTreeMap<String, Vec<String>>,
}

impl Seen {
    /// Whether something below that path was looked at.
    #[must_use]
    pub fn is_folder(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let next = |paths: &mut dyn Iterator<Item = &String>| {
            paths.next().is_some_and(|next| next.starts_with(&below))
        };
        self.folders.contains_key(path)
            || next(&mut self.files.range(below.clone()..).map(|(path, _)| path))
            || next(&mut self.folders.range(below.clone()..).map(|(path, _)| path))
    }
}

/// A host's files. Absent ones are facts, too.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    /// Somebody else wrote it: only files and folders in it count, and nothing that leads elsewhere.
    captured: bool,
    seen: Mutex<Seen>,
}

impl Tree {
    /// The files of the host whose root directory is `root`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            captured: false,
            seen: Mutex::default(),
        }
    }

    /// Files that were captured of a host.
    pub fn captured(directory: &Path) -> Self {
        Self {
            captured: true,
            ..Self::at(directory)
        }
    }

    /// Whether the path leads to that kind of thing without leaving the tree.
    fn leads_to(&self, path: &str, is_kind: fn(&Metadata) -> bool) -> bool {
        if !self.captured {
            return true;
        }
        let mut at = self.root.clone();
        let mut names = Path::new(path).components().peekable();
        while let Some(name) = names.next() {
            let Component::Normal(name) = name else {
                return false;
            };
            at.push(name);
            let kind = if names.peek().is_some() {
                Metadata::is_dir
            } else {
                is_kind
            };
            if !fs::symlink_metadata(&at).is_ok_and(|found| kind(&found)) {
                return false;
            }
        }
        true
    }

    /// What was looked at so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The trimmed text of a file.
    ///
    /// # Errors
    /// Why it cannot be had, to be read after "because".
    pub(super) fn text(&self, path: &str) -> Result<String, String> {
        if !self.leads_to(path, Metadata::is_file) {
            return Err(format!("{path} was not captured"));
        }
        let text = files::read(&self.root, path);
        let text = text.map_err(|error| drover_types::with_sources(&error))?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.files.insert(path.to_owned(), text.clone());
        Ok(text.trim().to_owned())
    }

    /// The same, as a fact.
    pub(super) fn fact(&self, path: &str) -> Fact<String> {
        match self.text(path) {
            Ok(text) => Fact::Known(text),
            Err(why) => Fact::Unknown(why),
        }
    }

    /// What a file says, if it is there and says that.
    pub(super) fn parsed<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path).ok()?.parse().ok()
    }

    /// The names of a folder's entries, in their order; none if it is not there. They are not remembered: whoever goes on to read them
    /// has those remembered that could be read.
    pub(super) fn passing(&self, path: &str) -> Vec<String> {
        if !self.leads_to(path, Metadata::is_dir) {
            return Vec::new();
        }
        let paths = files::entries(&self.root.join(path));
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        names.take(ENTRIES).map(str::to_owned).collect()
    }

    /// The same, and they are remembered.
    pub(super) fn entries(&self, path: &str) -> Vec<String> {
        if !self.leads_to(path, Metadata::is_dir) {
            return Vec::new();
        }
        let names = self.passing(path);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.folders.insert(path.to_owned(), names.clone());
        names
    }

    /// Entries whose names begin with that and go on with a number, in the order of the numbers.
    pub(super) fn numbered(&self, path: &str, prefix: &str) -> Vec<(u32, String)> {
        let entries = self.entries(path).into_iter();
        let mut numbered: Vec<(u32, String)> = entries
            .filter_map(|name| Some((name.strip_prefix(prefix)?.parse().ok()?, name)))
            .collect();
        numbered.sort_unstable();
        numbered
    }
}
