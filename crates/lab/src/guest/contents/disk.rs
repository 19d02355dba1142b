//! A guest's disk: an archive of files that the guest copies into its page cache when it boots.
//!
//! Not the initramfs: that is in the guest's memory twice while it is unpacked.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use drover_types::Bytes;

use super::{compressed, files};
use crate::guest::cpio::Archive;
use crate::settings::{Contents, GuestSettings};

/// QEMU takes disks of whole sectors; some more does no harm.
const MULTIPLE: u64 = 1 << 20;

/// A disk with less than this of what was asked for, in percent, is none: files are whole, so that
/// some room always stays.
const ENOUGH: u64 = 98;

/// Where in a folder the disk of such a guest is; `None` where it has none.
#[must_use]
pub fn path(folder: &Path, guest: &GuestSettings) -> Option<PathBuf> {
    let name = format!("{}-{}", guest.contents, guest.content.0);
    guest.contents.are_files().then(|| folder.join(name))
}

/// Writes the disk of such a guest.
///
/// # Errors
/// This machine has not enough of such files, or the system's.
pub fn write(path: &Path, guest: &GuestSettings) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(cannot)?;
    let mut disk = Disk {
        archive: Archive::new(BufWriter::new(file)),
        wanted: guest.content.0,
        left: guest.content.0,
    };
    if guest.contents == Contents::Compressed {
        compressed::write(&mut disk)?;
    } else {
        for file in files::userland(guest.content.0) {
            disk.copy(&file.path).with_context(cannot)?;
        }
    }
    if !disk.is_enough() {
        bail!(
            "this machine has {} of {} contents, and not {}: ask for less (--content)",
            Bytes(disk.wanted - disk.left),
            guest.contents,
            guest.content
        );
    }
    disk.archive.finish(MULTIPLE).map(drop).with_context(cannot)
}

/// A disk that is being written.
pub struct Disk<W> {
    archive: Archive<W>,
    /// Memory for files, in bytes, and what of it is left.
    wanted: u64,
    left: u64,
}

impl<W: Write> Disk<W> {
    /// Whether it has about as much as was asked for.
    pub fn is_enough(&self) -> bool {
        self.wanted - self.left >= self.wanted / 100 * ENOUGH
    }

    /// Whether there is room for a file with these bytes.
    pub fn has_room(&self, bytes: &[u8]) -> bool {
        memory(bytes) <= self.left
    }

    /// Adds a file of this machine under its own name. One that is gone meanwhile is left out.
    pub fn copy(&mut self, path: &Path) -> std::io::Result<()> {
        match std::fs::read(path) {
            Ok(bytes) => self.add(&path.to_string_lossy(), &bytes),
            Err(_) => Ok(()),
        }
    }

    /// Adds a file, if there is room.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        if !self.has_room(bytes) {
            return Ok(());
        }
        self.left -= memory(bytes);
        self.archive
            .file(name.trim_start_matches('/'), 0o644, bytes)
    }
}

/// What a file takes of a guest's.
fn memory(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).next_multiple_of(drover_probe::settings::PAGE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_takes_whole_files_as_long_as_there_is_room() {
        let mut disk = Disk {
            archive: Archive::new(Vec::new()),
            wanted: 3 * 4096,
            left: 3 * 4096,
        };
        disk.add("/a", &[1; 5000]).unwrap();
        disk.add("/b", &[2; 5000]).unwrap();
        disk.add("/c", &[3; 4096]).unwrap();
        assert_eq!(disk.left, 0);
        let archive = disk.archive.finish(512).unwrap();
        let has = |byte| archive.windows(4096).any(|part| part == [byte; 4096]);
        assert_eq!([has(1), has(2), has(3)], [true, false, true]);
    }
}
