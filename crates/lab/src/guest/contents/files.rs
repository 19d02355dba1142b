//! Files of this machine, chosen alike each time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits;

/// Where a userland is taken from, with the share of each in percent.
const PLACES: [(&[&str], u64); 4] = [
    (&["/usr/bin", "/usr/sbin"], 35),
    (&["/usr/lib/x86_64-linux-gnu"], 35),
    (&["/usr/lib/python3", "/usr/lib/python3.11"], 15),
    (&["/usr/share/doc", "/usr/share/man", "/usr/share/perl"], 15),
];

/// What building programs needs, and a server does not have.
const LEFT_OUT: [&str; 3] = ["a", "o", "la"];

/// A file that may be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of memory that it takes in a page cache: whole pages.
    pub memory: u64,
    order: u64,
}

/// Whole files of a userland, programs, libraries, Python and documentation, for so many bytes of
/// memory, or as many as there are.
#[must_use]
pub fn userland(memory: u64) -> Vec<Candidate> {
    let (mut chosen, mut rest) = (Vec::new(), Vec::new());
    let (mut left, mut seen) = (memory, BTreeSet::new());
    for (places, percent) in PLACES {
        let keep = |path: &Path| {
            let kind = path.extension().and_then(|kind| kind.to_str());
            kind.is_none_or(|kind| !LEFT_OUT.contains(&kind))
        };
        let all = candidates(places, &mut seen, keep);
        let share = (memory * percent / 100).min(left);
        let (taken, others) = take(all, share);
        left -= taken.iter().map(|one| one.memory).sum::<u64>();
        chosen.extend(taken);
        rest.extend(others);
    }
    chosen.extend(take(rest, left).0);
    chosen
}

/// Those that fit, in their order, and the others.
pub fn take(all: Vec<Candidate>, mut room: u64) -> (Vec<Candidate>, Vec<Candidate>) {
    all.into_iter().partition(|one| {
        let fits = one.memory <= room;
        room -= if fits { one.memory } else { 0 };
        fits
    })
}

/// Files below these folders that everybody may read, each once, in an order that mixes all of
/// them and is the same again. `seen` has the files that others took.
pub fn candidates(
    places: &[&str],
    seen: &mut BTreeSet<(u64, u64)>,
    keep: impl Fn(&Path) -> bool,
) -> Vec<Candidate> {
    let mut paths = Vec::new();
    for place in places {
        list(
            Path::new(place),
            limits::FOLDER_DEPTH,
            limits::FOLDER_FILES,
            &mut paths,
        );
    }
    let mut all: Vec<_> = paths
        .into_iter()
        .filter(|path| keep(path))
        .filter_map(|path| candidate(path, seen))
        .collect();
    all.sort_by(|a, b| (a.order, &a.path).cmp(&(b.order, &b.path)));
    all
}

fn candidate(path: PathBuf, seen: &mut BTreeSet<(u64, u64)>) -> Option<Candidate> {
    let file = fs::symlink_metadata(&path).ok()?;
    let is_public = file.is_file() && file.mode() & 0o004 != 0 && file.uid() == 0;
    let fits = (1..=limits::CONTENT_FILE).contains(&file.len());
    // The names go through lines whose words are parted by spaces.
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_whitespace))?;
    let order = scattered(text.as_bytes());
    let is_new = is_public && fits && seen.insert((file.dev(), file.ino()));
    is_new.then(|| Candidate {
        order,
        memory: file.len().next_multiple_of(PAGE),
        path,
    })
}

const PAGE: u64 = drover_probe::settings::PAGE as u64;

/// FNV-1a: files of one folder are not taken one after another.
fn scattered(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Files below a folder, at most so many in all, in an order that is the same again.
pub fn list(folder: &Path, depth: usize, most: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        if files.len() >= most {
            return;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 1 => {
                list(&entry.path(), depth - 1, most, files);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_userland_is_the_same_again_fits_its_size_and_has_no_file_twice() {
        let size = 24 << 20;
        let files = userland(size);
        assert_eq!(files, userland(size));
        let memory: u64 = files.iter().map(|file| file.memory).sum();
        assert!(memory <= size);
        let names: BTreeSet<_> = files.iter().map(|file| &file.path).collect();
        assert_eq!(names.len(), files.len());
        if memory < size * 9 / 10 {
            println!(
                "skipped, because this machine has little in /usr: how much is taken was tested, and not of what"
            );
            return;
        }
        for place in ["/usr/bin", "/usr/lib", "/usr/share"] {
            assert!(names.iter().any(|path| path.starts_with(place)), "{place}");
        }
    }

    #[test]
    fn files_that_not_everybody_may_read_are_left_out() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("open", 0o644), ("secret", 0o640), ("two words", 0o644)] {
            let path = folder.path().join(name);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let place = folder.path().to_str().unwrap();
        let found = candidates(&[place], &mut BTreeSet::new(), |_| true);
        if !rustix::process::geteuid().is_root() {
            println!("skipped, because only root's files are taken");
            return;
        }
        assert_eq!(found.len(), 1);
        assert!(found[0].path.ends_with("open"));
    }
}
