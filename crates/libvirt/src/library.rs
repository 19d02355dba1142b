use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::LoadError;
use crate::limits;
use crate::raw::{self, Raw};
use crate::version::Version;

/// The name by which the system's loader finds libvirt.
pub const SYSTEM: &str = "libvirt.so.0";

/// libvirt's library, loaded. It stays for as long as the process lives.
#[derive(Debug, Clone, Copy)]
pub struct Library(pub(crate) &'static Raw);

/// Attempts to connect that have not ended.
static CONNECTING: AtomicUsize = AtomicUsize::new(0);

impl Library {
    /// Loads the library of this path, or by this name ([`SYSTEM`]), and starts the thread of its events. Reads files.
    ///
    /// # Errors
    /// It is not there, or no libvirt that can be used. A later attempt looks again.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        raw::load(path).map(Self)
    }

    /// Its version.
    #[must_use]
    pub fn version(self) -> Version {
        self.0.version()
    }

    /// What it was loaded by.
    #[must_use]
    pub fn path(self) -> &'static Path {
        self.0.path()
    }
}

/// A place among the attempts to connect, given back when dropped.
pub(crate) struct Attempt(());

impl Attempt {
    /// None when [`limits::CONNECTING`] attempts hang.
    pub(crate) fn begin() -> Option<Self> {
        let free = |attempts| (attempts < limits::CONNECTING).then_some(attempts + 1);
        let begun = CONNECTING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free);
        begun.is_ok().then_some(Self(()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_libvirt_is_told_what_to_install() {
        let missing = Library::load(Path::new("libvirt-of-nowhere.so.0")).unwrap_err();
        let words = missing.to_string();
        assert!(words.contains("libvirt-of-nowhere.so.0"), "{words}");
        assert!(words.contains("is libvirt installed"), "{words}");
    }

    #[test]
    fn another_library_is_refused_by_what_it_lacks() {
        let other = Library::load(Path::new("libc.so.6"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            other,
            "libc.so.6 has no virSetErrorFunc: it is no libvirt, or one before 4.5"
        );
    }

    #[test]
    fn attempts_that_hang_are_bounded_and_one_that_ends_makes_room() {
        let mut attempts: Vec<_> = std::iter::from_fn(Attempt::begin).collect();
        assert_eq!(attempts.len(), limits::CONNECTING);
        attempts.pop();
        assert!(Attempt::begin().is_some());
    }
}
