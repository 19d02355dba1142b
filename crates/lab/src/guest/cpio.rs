//! The archive format of an initramfs: `newc`, as the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst` describes it.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write};

/// `S_IFDIR`, `S_IFREG` and `S_IFCHR` of stat(2).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

/// An archive that is being written.
#[derive(Debug)]
pub struct Archive<W> {
    to: W,
    written: u64,
    entries: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// An empty one.
    pub fn new(to: W) -> Self {
        Self {
            to,
            written: 0,
            entries: 0,
            folders: BTreeSet::new(),
        }
    }

    /// A directory that everybody may read.
    ///
    /// # Errors
    /// What it is written to does not take it; so with all others.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.folders.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, [0, 0], &[])
    }

    /// A file, and the directories above it that are not there yet: the kernel makes none.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        for (at, _) in path.match_indices('/') {
            if !self.folders.contains(&path[..at]) {
                self.directory(&path[..at])?;
            }
        }
        self.entry(path, REGULAR | mode, [0, 0], contents)
    }

    /// A character device.
    pub fn device(&mut self, path: &str, mode: u32, number: [u32; 2]) -> io::Result<()> {
        self.entry(path, CHARACTER | mode, number, &[])
    }

    /// Ends it, at a multiple of so many bytes.
    pub fn finish(mut self, multiple: u64) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, [0, 0], &[])?;
        self.pad(multiple)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: [u32; 2],
        contents: &[u8],
    ) -> io::Result<()> {
        self.entries += 1;
        let too_large = |_| io::Error::other(format!("{path} is too large for an archive"));
        let size = u32::try_from(contents.len()).map_err(too_large)?;
        let name_size = u32::try_from(path.len() + 1).map_err(too_large)?;
        // inode, mode, owner, group, links, time, size, device it is on (2), device it is (2),
        // length of the name with its zero, checksum (none in this variant).
        let [major, minor] = device;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            major,
            minor,
            name_size,
            0,
        ];
        self.put(b"070701")?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(path.as_bytes())?;
        self.put(&[0])?;
        self.pad(4)?;
        self.put(contents)?;
        self.pad(4)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    /// Headers and contents begin at a multiple of four.
    fn pad(&mut self, multiple: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(multiple) - self.written;
        self.written += missing;
        io::copy(&mut io::repeat(0).take(missing), &mut self.to).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_byte_for_byte_what_the_format_says() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a", 0o644, b"hello").unwrap();
        let bytes = archive.finish(512).unwrap();
        let header = "070701\
            00000001000081a400000000000000000000000100000000\
            000000050000000000000000000000000000000000000002\
            00000000";
        assert_eq!(header.len(), 110);
        assert_eq!(&bytes[..110], header.as_bytes());
        assert_eq!(&bytes[110..120], b"a\0hello\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.windows(10).any(|part| part == b"TRAILER!!!"));
        assert_eq!(bytes.len(), 512);
    }

    #[test]
    fn busybox_reads_what_was_written() {
        let Some(busybox) = crate::command::find("busybox") else {
            println!("skipped, because busybox is not installed");
            return;
        };
        let mut archive = Archive::new(Vec::new());
        archive.directory("d").unwrap();
        archive.file("d/x", 0o755, &[7; 5000]).unwrap();
        archive.file("e/f/x", 0o755, b"deep").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        std::fs::write(&path, archive.finish(4).unwrap()).unwrap();
        let status = std::process::Command::new(busybox)
            .args(["cpio", "-i"])
            .stdin(std::fs::File::open(&path).unwrap())
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(status.success());
        let read = |path: &str| std::fs::read(folder.path().join(path)).unwrap();
        assert_eq!(read("d/x"), [7; 5000]);
        assert_eq!(read("e/f/x"), b"deep");
    }
}
