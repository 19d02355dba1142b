//! A request to the kernel that its processors wake quickly (PM QoS, `Documentation/power/pm_qos_interface.rst`).
//!
//! ```text
//!  open ─▶ the request is there ─▶ write: its value ─▶ close, or the process's end, however it ends: it is gone
//! ```
//! Of several requests the strictest counts.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use crate::error::HostError;

const DEVICE: &str = "dev/cpu_dma_latency";

/// While this lives, no processor of the host goes into an idle state that it wakes from more slowly. The kernel takes
/// it back by itself when the process ends, even by `SIGKILL`.
#[derive(Debug)]
pub struct LatencyRequest {
    /// Being open is what counts.
    _device: File,
}

impl LatencyRequest {
    /// Asks for it, of the host whose root directory is `root`, in microseconds.
    ///
    /// # Errors
    /// [`HostError::Latency`]: there is no such device, as in most containers, or this process may not write to it.
    pub fn new(root: &Path, microseconds: u32) -> Result<Self, HostError> {
        let path = root.join(DEVICE);
        let opened = OpenOptions::new().write(true).open(&path);
        // An s32 in the machine's own byte order, in one piece.
        let value = i32::try_from(microseconds).unwrap_or(i32::MAX);
        let written = opened.and_then(|mut device| {
            device.write_all(&value.to_ne_bytes())?;
            Ok(device)
        });
        match written {
            Ok(device) => Ok(Self { _device: device }),
            Err(source) => Err(HostError::Latency { path, source }),
        }
    }
}

/// What processors are held to now, by whoever asks for the least, in microseconds; whether this process may ask shows by the way.
///
/// # Errors
/// As for [`LatencyRequest::new`].
pub fn held_latency(root: &Path) -> Result<u32, HostError> {
    let path = root.join(DEVICE);
    // Open it asks for the kernel's default, which holds nothing.
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let read = opened.and_then(|mut device| {
        let mut value = [0; 4];
        device.read_exact(&mut value)?;
        Ok(i32::from_ne_bytes(value))
    });
    let read = read.map_err(|source| HostError::Latency { path, source })?;
    Ok(u32::try_from(read).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_request_is_four_bytes_in_the_device() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join(DEVICE);
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(&device, "").unwrap();
        let _held = LatencyRequest::new(root.path(), 20).unwrap();
        assert_eq!(fs::read(&device).unwrap(), 20_i32.to_ne_bytes());
        assert_eq!(held_latency(root.path()).unwrap(), 20);
    }

    #[test]
    fn where_there_is_no_device_none_is_made_and_its_name_is_told() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        let refused = LatencyRequest::new(root.path(), 20).unwrap_err();
        assert!(
            refused
                .to_string()
                .ends_with("dev/cpu_dma_latency takes no request")
        );
        let HostError::Latency { source, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(source.kind(), ErrorKind::NotFound);
        assert!(held_latency(root.path()).is_err());
        assert!(!root.path().join(DEVICE).exists());
    }
}
