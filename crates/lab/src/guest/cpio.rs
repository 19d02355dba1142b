//! The archive format of an initramfs: `newc`, as the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst` describes it.

/// `S_IFDIR`, `S_IFREG` and `S_IFCHR` of stat(2).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

/// An archive that is being written, in memory.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A directory that everybody may read.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, [0, 0], &[]);
    }

    /// A file.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.entry(path, REGULAR | mode, [0, 0], contents);
    }

    /// A character device.
    pub fn device(&mut self, path: &str, mode: u32, number: [u32; 2]) {
        self.entry(path, CHARACTER | mode, number, &[]);
    }

    /// The whole archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, [0, 0], &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: [u32; 2], contents: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(contents.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
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
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    /// Headers and contents begin at a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_byte_for_byte_what_the_format_says() {
        let mut archive = Archive::default();
        archive.file("a", 0o644, b"hello");
        let bytes = archive.finish();
        let header = "070701\
            00000001000081a400000000000000000000000100000000\
            000000050000000000000000000000000000000000000002\
            00000000";
        assert_eq!(header.len(), 110);
        assert_eq!(&bytes[..110], header.as_bytes());
        assert_eq!(&bytes[110..120], b"a\0hello\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.windows(10).any(|part| part == b"TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn busybox_reads_what_was_written() {
        let Some(busybox) = crate::command::find("busybox") else {
            println!("skipped, because busybox is not installed");
            return;
        };
        let mut archive = Archive::default();
        archive.directory("d");
        archive.file("d/x", 0o755, &[7; 5000]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        std::fs::write(&path, archive.finish()).unwrap();
        let status = std::process::Command::new(busybox)
            .args(["cpio", "-i", "-d"])
            .stdin(std::fs::File::open(&path).unwrap())
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read(folder.path().join("d/x")).unwrap(), [7; 5000]);
    }
}
