//! Reads without waiting for a disk.

use std::fs::File;
use std::io::{self, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads what the kernel has in memory; whether that was all.
pub(crate) fn read_at_once(file: &File, to: &mut [u8], at: u64) -> io::Result<bool> {
    let mut read = 0;
    while read < to.len() {
        let mut rest = [IoSliceMut::new(&mut to[read..])];
        match preadv2(file, &mut rest, at + read as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => read += count,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
