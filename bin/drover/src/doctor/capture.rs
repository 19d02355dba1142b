//! A captured host: the files that were read, as below `/`, `told.json` with what the kernel told by netlink, and `guests.json` with what
//! its agent told.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use drover_host::{Seen, Told, Tree, facts};
use drover_tune::facts::Host;

use super::agents_word::AgentsWord;
use super::anonymous::ANONYMOUS;
use crate::failure::Failure;

const TOLD: &str = "told.json";

/// Some 2 KiB of each of 8192 interfaces.
const TOLD_MOST: u64 = 16 << 20;

/// Writes it; how many files that were.
pub fn write(
    directory: &Path,
    seen: &Seen,
    told: &Told,
    word: Option<&AgentsWord>,
) -> Result<usize, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::error(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir(directory).map_err(|error| failed(directory, error))?;
    for (folder, names) in &seen.folders {
        // Entries count by their names: those that were not read are empty.
        for entry in names.iter().map(|name| format!("{folder}/{name}")) {
            let path = directory.join(&entry);
            let made = if seen.is_folder(&entry) {
                fs::create_dir_all(&path)
            } else {
                put(&path, "")
            };
            made.map_err(|error| failed(&path, error))?;
        }
    }
    for (file, text) in &seen.files {
        let path = directory.join(file);
        put(&path, text).map_err(|error| failed(&path, error))?;
    }
    let path = directory.join(TOLD);
    let told =
        serde_json::to_string_pretty(told).map_err(|error| Failure::error(error.to_string()))?;
    put(&path, &told).map_err(|error| failed(&path, error))?;
    if let Some(word) = word {
        let written = word.write(directory);
        written.map_err(|error| failed(directory, error))?;
    }
    Ok(seen.files.len() + 1 + usize::from(word.is_some()))
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// The host that was captured there.
pub fn read(directory: &Path) -> Result<Host, Failure> {
    let path = directory.join(TOLD);
    let failed = |why: String| {
        Failure::error(format!(
            "{} is no captured host: {}: {why}",
            directory.display(),
            path.display()
        ))
    };
    let mut told = String::new();
    let opened =
        fs::File::open(&path).and_then(|file| file.take(TOLD_MOST).read_to_string(&mut told));
    opened.map_err(|error| failed(error.to_string()))?;
    let mut told: Told = serde_json::from_str(&told).map_err(|error| failed(error.to_string()))?;
    told.check().map_err(|error| failed(error.to_string()))?;
    if told.host == ANONYMOUS {
        let name = directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        told.host = name.unwrap_or_else(|| ANONYMOUS.to_owned());
    }
    let host = facts(&Tree::captured(directory), &told);
    let word = AgentsWord::read(directory)
        .map_err(|why| Failure::error(format!("{}/{why}", directory.display())))?;
    Ok(match word {
        Some(word) => word.given_to(host),
        None => host,
    })
}
