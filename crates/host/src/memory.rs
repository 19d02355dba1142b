//! How much memory a host has and can give.

use std::path::Path;

use drover_types::Bytes;

use crate::error::HostError;
use crate::files::read;

const PATH: &str = "proc/meminfo";

/// A host's memory (`/proc/meminfo`, proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemAvailable`: what a new process can have without swapping, by the kernel's estimate.
    pub available: Bytes,
}

/// Reads the memory of the host whose root directory is `root`.
///
/// # Errors
///
/// [`HostError::Read`] and [`HostError::Form`] where `/proc` is not mounted.
pub fn memory(root: &Path) -> Result<Memory, HostError> {
    let text = read(root, PATH)?;
    let value = |name: &'static str| {
        let found = text.lines().find_map(|line| {
            let kib: u64 = line
                .strip_prefix(name)?
                .trim()
                .strip_suffix("kB")?
                .trim()
                .parse()
                .ok()?;
            kib.checked_mul(1024)
        });
        found.map(Bytes).ok_or_else(|| HostError::Form {
            path: root.join(PATH),
            what: name,
        })
    };
    Ok(Memory {
        total: value("MemTotal:")?,
        available: value("MemAvailable:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(meminfo: &str) -> Result<Memory, HostError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join(PATH), meminfo).unwrap();
        memory(root.path())
    }

    #[test]
    fn total_and_available_memory_are_read_in_bytes() {
        let meminfo = "MemTotal:       24684096 kB\nMemFree:        24271636 kB\n\
                       MemAvailable:   24297096 kB\n";
        let expected = Memory {
            total: Bytes(24_684_096 * 1024),
            available: Bytes(24_297_096 * 1024),
        };
        assert_eq!(of(meminfo).unwrap(), expected);
    }

    #[test]
    fn a_file_of_another_form_is_an_error_that_names_file_and_line() {
        for bad in [
            "",
            "MemTotal: 1 kB\n",
            "MemTotal: x kB\nMemAvailable: 1 kB\n",
        ] {
            let message = of(bad).unwrap_err().to_string();
            assert!(
                message.contains("proc/meminfo") && message.contains("Mem"),
                "{message}"
            );
        }
        let huge = format!("MemTotal: {} kB\nMemAvailable: 1 kB\n", u64::MAX);
        assert!(of(&huge).is_err());
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_it() {
        let error = memory(Path::new("/nonexistent")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nonexistent/proc/meminfo");
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = memory(Path::new("/")).unwrap();
        assert!(memory.available <= memory.total && memory.available.0 > 0);
    }
}
