//! Data that are compressed already: what this machine has of it, then files of its userland
//! compressed by the usual programs. No page twice.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use drover_probe::settings::PAGE;

use super::disk::Disk;
use super::files::{Candidate, candidates, userland};
use crate::command::find;
use crate::guest::kernel;
use crate::limits;

/// Where compressed files are; kernels of the lab's cache have their modules compressed, too.
const PLACES: [&str; 3] = ["/var/cache/apt/archives", "/usr/share", "/usr/lib"];

/// How such a file is called.
const KINDS: [&str; 8] = ["deb", "xz", "gz", "zst", "bz2", "whl", "zip", "jar"];

/// A smaller file is for the most part what fills up its last page.
const LEAST: u64 = 16 << 10;

/// How userland is compressed, by turns: as distributions and applications do it most.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("zstd", &["-q", "-c", "-3"]),
    ("gzip", &["-c", "-6"]),
    ("zstd", &["-q", "-c", "-3"]),
    ("xz", &["-c", "-2"]),
];

/// Fills a disk.
///
/// # Errors
/// A program that is missing, or the system's.
pub fn write<W: Write>(disk: &mut Disk<W>) -> Result<()> {
    let mut seen = Seen::default();
    for file in ready() {
        if disk.is_enough() {
            return Ok(());
        }
        let bytes = std::fs::read(&file.path).unwrap_or_default();
        if disk.has_room(&bytes) && seen.is_new(&bytes) {
            disk.add(&file.path.to_string_lossy(), &bytes)?;
        }
    }
    // Compressed, each gives a part of what it takes; there are enough when all were looked at.
    let raw = userland(limits::RAW);
    let large = raw.iter().filter(|file| file.memory >= 4 * LEAST);
    for (file, (program, arguments)) in large.zip(PROGRAMS.iter().cycle()) {
        if disk.is_enough() {
            return Ok(());
        }
        let bytes = compress(&file.path, program, arguments)?;
        if bytes.len() as u64 >= LEAST && disk.has_room(&bytes) && seen.is_new(&bytes) {
            disk.add(&format!("{}.{program}", file.path.display()), &bytes)?;
        }
    }
    Ok(())
}

/// Looks whether the programs are there.
///
/// # Errors
/// One that is missing, with what to install.
pub fn check() -> Result<()> {
    PROGRAMS
        .iter()
        .try_for_each(|(program, _)| locate(program).map(drop))
}

fn locate(program: &str) -> Result<PathBuf> {
    let package = if program == "xz" { "xz-utils" } else { program };
    find(program)
        .with_context(|| format!("missing: {program}; install with: apt-get install {package}"))
}

fn ready() -> Vec<Candidate> {
    let cache = kernel::cache();
    let cache = cache.to_str().unwrap_or_default();
    let places = [&PLACES[..], &[cache]].concat();
    let is_compressed = |path: &Path| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| KINDS.contains(&kind))
    };
    let mut files = candidates(&places, &mut BTreeSet::new(), is_compressed);
    files.retain(|file| file.memory >= LEAST);
    files
}

fn compress(file: &Path, program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(locate(program)?)
        .args(arguments)
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    // One that cannot be compressed is left out as one that does not pay.
    Ok(if output.status.success() {
        output.stdout
    } else {
        Vec::new()
    })
}

/// Pages that were taken.
#[derive(Default)]
struct Seen(HashSet<[u8; PAGE]>);

impl Seen {
    /// Whether no whole page of this was taken before; from then on all of them were.
    fn is_new(&mut self, bytes: &[u8]) -> bool {
        let (pages, _) = bytes.as_chunks::<PAGE>();
        let own: HashSet<_> = pages.iter().collect();
        let is_new = own.len() == pages.len() && !pages.iter().any(|page| self.0.contains(page));
        if is_new {
            self.0.extend(pages);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_page_that_was_taken_is_left_out() {
        let mut seen = Seen::default();
        let file = |bytes: &[u8]| bytes.iter().flat_map(|b| [*b; PAGE]).collect::<Vec<_>>();
        assert!(seen.is_new(&file(&[1, 2])));
        assert!(!seen.is_new(&file(&[3, 2])));
        assert!(!seen.is_new(&file(&[4, 4])), "twice in itself");
        assert!(seen.is_new(&file(&[3, 5])));
    }

    #[test]
    fn what_the_programs_make_is_smaller_than_what_they_took() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        for (program, arguments) in PROGRAMS {
            if find(program).is_none() {
                println!("skipped, because {program} is not installed");
                continue;
            }
            let bytes = compress(&path, program, arguments).unwrap();
            assert!(
                (1..10_000).contains(&bytes.len()),
                "{program}: {}",
                bytes.len()
            );
        }
    }
}
