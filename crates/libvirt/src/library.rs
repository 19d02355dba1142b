use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

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
static CONNECTING: Semaphore = Semaphore::const_new(limits::CONNECTING);

/// Migrations that are ready or under way.
static MIGRATING: AtomicUsize = AtomicUsize::new(0);

/// Jobs that are being ended.
static ABORTING: AtomicUsize = AtomicUsize::new(0);

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

/// A place among those who connect, given back when dropped.
pub(crate) struct Connecting(
    #[allow(dead_code, reason = "it is had and not read")] SemaphorePermit<'static>,
);

impl Connecting {
    /// Waits for its turn, as many connect at once when a host's domains all move; none when [`limits::CONNECTING`] attempts to
    /// connect have hung for [`limits::CONNECT`].
    pub(crate) async fn turn() -> Option<Self> {
        let turn = timeout(limits::CONNECT, CONNECTING.acquire()).await;
        // It is never closed.
        turn.ok()?.ok().map(Self)
    }
}

/// A place among those that something bounded has, given back when dropped.
pub(crate) struct Place(&'static AtomicUsize);

impl Place {
    /// None when there are [`limits::MIGRATIONS`] migrations.
    pub(crate) fn to_migrate() -> Option<Self> {
        Self::take(&MIGRATING, limits::MIGRATIONS)
    }

    /// None when [`limits::ABORTS`] jobs are being ended.
    pub(crate) fn to_abort() -> Option<Self> {
        Self::take(&ABORTING, limits::ABORTS)
    }

    fn take(taken: &'static AtomicUsize, most: usize) -> Option<Self> {
        let free = |taken| (taken < most).then_some(taken + 1);
        let found = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free);
        found.is_ok().then_some(Self(taken))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

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
            "libc.so.6 has no virSetErrorFunc: it is no libvirt, or one before 6.0"
        );
    }

    #[tokio::test]
    async fn attempts_that_hang_are_bounded_and_one_that_ends_makes_room() {
        let mut attempts = Vec::new();
        for _ in 0..limits::CONNECTING {
            attempts.push(Connecting::turn().await.unwrap());
        }
        let mut waits = std::pin::pin!(Connecting::turn());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        // Those who migrate or end something do not wait for them.
        assert!(Place::to_migrate().is_some());
        assert!(Place::to_abort().is_some());
        attempts.pop();
        assert!(waits.await.is_some());
    }
}
