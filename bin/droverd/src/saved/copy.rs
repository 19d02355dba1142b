//! From QEMU into a file, and back.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use drover_types::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits;

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// How much.
    pub bytes: Bytes,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.sha256.chars().take(8).collect();
        write!(f, "{} bytes with SHA-256 {short}...", self.bytes.0)
    }
}

/// How much has been copied so far, for whoever waits.
pub type Copied = Arc<AtomicU64>;

/// Copies all that comes.
///
/// # Errors
/// One of both sides has failed.
pub fn copy(mut from: impl Read, mut to: impl Write, copied: &Copied) -> io::Result<Sum> {
    let mut buffer = vec![0; limits::SAVED_COPY];
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let part = buffer.get(..read).unwrap_or_default();
        hasher.update(part);
        to.write_all(part)?;
        bytes += part.len() as u64;
        copied.store(bytes, Ordering::Relaxed);
    }
    Ok(Sum {
        bytes: Bytes(bytes),
        sha256: HEXLOWER.encode(&hasher.finalize()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_summed_up() {
        let from = vec![7; 3 * limits::SAVED_COPY + 5];
        let mut to = Vec::new();
        let copied = Copied::default();
        let sum = copy(&from[..], &mut to, &copied).unwrap();
        assert_eq!(copied.load(Ordering::Relaxed), sum.bytes.0);
        assert_eq!(to, from);
        assert_eq!(sum.bytes.0, from.len() as u64);
        // printf '' | sha256sum
        assert_eq!(
            copy(io::empty(), io::sink(), &copied).unwrap().to_string(),
            "0 bytes with SHA-256 e3b0c442..."
        );
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let error = copy(&b"memory"[..], full.unwrap(), &Copied::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
