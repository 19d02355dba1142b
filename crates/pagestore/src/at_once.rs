//! Reads without waiting for a disk.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads what the kernel has in memory; whether that was all. Not every file system has such reads: of one that has none, and is not in
/// memory as a whole, nothing is read.
pub(crate) fn read_at_once(file: &File, to: &mut [u8], at: u64) -> io::Result<bool> {
    let mut read = 0;
    while read < to.len() {
        let (rest, at) = (&mut to[read..], at + read as u64);
        match ask(file, rest, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => read += count,
            Err(Errno::OPNOTSUPP) if is_in_memory(file)? => {
                return file.read_exact_at(rest, at).map(|()| true);
            }
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Whether anything of it can be read so.
pub(crate) fn is_read_at_once(file: &File) -> io::Result<bool> {
    match ask(file, &mut [0], 0) {
        Err(Errno::OPNOTSUPP) => is_in_memory(file),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn ask(file: &File, to: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    preadv2(file, &mut [IoSliceMut::new(to)], at, ReadWriteFlags::NOWAIT)
}

/// Whether it is on a tmpfs (`TMPFS_MAGIC`, `statfs(2)`), which has no such reads, and never waits for a disk but for one with swap.
fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok(fstatfs(file)?.f_type == 0x0102_1994)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_system_without_such_reads_nothing_is_read_unless_it_is_in_memory() {
        // Files of `/proc` are made when they are read.
        let other = File::open("/proc/version").unwrap();
        assert!(!is_read_at_once(&other).unwrap());
        assert!(!read_at_once(&other, &mut [0; 8], 0).unwrap());

        let memory = match tempfile::tempfile_in("/dev/shm") {
            Ok(memory) if is_in_memory(&memory).unwrap() => memory,
            other => {
                println!("skipped, because there is no tmpfs at /dev/shm: {other:?}");
                return;
            }
        };
        memory.write_all_at(b"pages", 7).unwrap();
        assert!(is_read_at_once(&memory).unwrap());
        let mut read = [0; 5];
        assert!(read_at_once(&memory, &mut read, 7).unwrap());
        assert_eq!(&read, b"pages");
        let beyond = read_at_once(&memory, &mut read, 8).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
    }
}
