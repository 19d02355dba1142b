//! A clock by which things become too old, also while this host sleeps.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on this host.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Duration);

impl Moment {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        // Unlike that of `Instant`, it goes on in suspend.
        let since_boot = clock_gettime(ClockId::Boottime);
        Self(since_boot.try_into().unwrap_or_default())
    }

    /// How long ago that was.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// Completes at `deadline`, counted from `origin`; never without one. A sleep of the host may delay it.
pub async fn until(origin: Moment, deadline: Option<Duration>) {
    match deadline {
        Some(at) => tokio::time::sleep(at.saturating_sub(origin.elapsed())).await,
        None => std::future::pending().await,
    }
}
