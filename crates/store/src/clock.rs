//! The time by which leases run: since the host was started, which no one can set.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use crate::error::StoreError;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A moment on one host, by a clock that goes on while the host is suspended and that nobody sets.
/// After a restart of the host it begins anew, with another `boot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Which start of the host this is.
    pub boot: Uuid,
    /// How long it is up.
    pub up: Duration,
}

impl Moment {
    /// How long from this moment to a later one; none when the host was started again since, or
    /// when the other one is earlier.
    #[must_use]
    pub fn until(self, later: Self) -> Option<Duration> {
        (self.boot == later.boot).then(|| later.up.checked_sub(self.up))?
    }
}

/// Where the time comes from; tests have one of their own.
pub trait Clock: Send + Sync + 'static {
    /// This moment.
    fn now(&self) -> Moment;
}

/// The host's own clock (`CLOCK_BOOTTIME`).
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    boot: Uuid,
}

impl HostClock {
    /// The clock of this host.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] if the kernel does not say which start of the host this is.
    pub fn new() -> Result<Self, StoreError> {
        let unusable = |problem: String| StoreError::Unusable {
            path: BOOT_ID.to_owned(),
            problem,
        };
        let text = std::fs::read_to_string(BOOT_ID).map_err(|error| unusable(error.to_string()))?;
        let boot = text
            .trim()
            .parse()
            .map_err(|error: uuid::Error| unusable(error.to_string()))?;
        Ok(Self { boot })
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
        Moment {
            boot: self.boot,
            up: Duration::new(seconds, nanoseconds),
        }
    }
}
