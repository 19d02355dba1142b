//! The session of one migration as its task sees it: the relay, its paths, and what it reports.

use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{EventKind, SessionSizes};
use drover_relay::{ByeCode, End, Event, NotStarted, Relay, Security, Settings, Sizes, sizes};
use drover_types::{BitRate, ByteRate, Path, PathId};

use super::outgoing::millis;

/// What a relay reports, reduced to what a migration acts on or shows.
#[derive(Debug)]
pub enum Carried {
    /// The session is over before it was closed by us; why.
    Failed(String),
    /// What else happened: a lane lost, a channel broken.
    Event(EventKind),
}

/// A relay and the paths of its lanes. Clones share both.
#[derive(Debug, Clone)]
pub struct Carrier {
    /// The relay.
    pub relay: Arc<Relay>,
    paths: Arc<Mutex<Vec<Path>>>,
}

impl Carrier {
    /// A relay with these paths so far.
    pub fn new(relay: Relay, paths: Vec<Path>) -> Self {
        Self {
            relay: Arc::new(relay),
            paths: Arc::new(Mutex::new(paths)),
        }
    }

    /// The paths, those that joined included.
    pub fn paths(&self) -> Vec<Path> {
        self.locked().clone()
    }

    /// Changes them.
    pub fn change_paths(&self, change: impl FnOnce(&mut Vec<Path>)) {
        change(&mut self.locked());
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Path>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends no more than this on a path, or on all together.
    pub fn limit(&self, path: Option<PathId>, rate: Option<ByteRate>) {
        self.relay.limit(path, rate);
    }

    /// Ends the session; QEMU's sockets close.
    pub fn close(&self, finished: bool) {
        let code = if finished {
            ByeCode::Finished
        } else {
            ByeCode::Aborted
        };
        self.relay.close(code);
    }
}

/// Sizes for links of these rates and at most `channels` multifd channels.
pub fn session_sizes(rates: &[Option<BitRate>], channels: u8) -> SessionSizes {
    // Beside the multifd channels: the main channel, and one for postcopy's urgent pages.
    let channels_max = u16::from(channels) + 2;
    let Sizes {
        chunk_bytes,
        window,
    } = sizes(rates, channels_max);
    SessionSizes {
        chunk_bytes,
        window,
        channels_max,
    }
}

fn settings(sizes: SessionSizes, outage_limit: Duration, security: &Security) -> Settings {
    let SessionSizes {
        chunk_bytes,
        window,
        channels_max,
    } = sizes;
    Settings {
        sizes: Sizes {
            chunk_bytes,
            window,
        },
        channels_max,
        outage_limit,
        // What is encrypted passes through our memory.
        pass_through: matches!(security, Security::Plain),
        verify: false,
    }
}

/// The source's relay, listening for QEMU at `socket`.
///
/// # Errors
/// As [`Relay::source`].
pub fn source(
    sizes: SessionSizes,
    outage_limit: Duration,
    security: &Security,
    socket: &FilePath,
    report: impl Fn(Carried) + Send + Sync + 'static,
) -> Result<Relay, NotStarted> {
    Relay::source(
        settings(sizes, outage_limit, security),
        socket,
        move |event| tell(event, &report),
    )
}

/// The destination's relay, connecting to QEMU at `socket`.
///
/// # Errors
/// As [`Relay::destination`].
pub fn destination(
    sizes: SessionSizes,
    outage_limit: Duration,
    security: &Security,
    socket: &FilePath,
    report: impl Fn(Carried) + Send + Sync + 'static,
) -> Result<Relay, NotStarted> {
    Relay::destination(
        settings(sizes, outage_limit, security),
        socket,
        move |event| tell(event, &report),
    )
}

fn tell(event: Event, report: &impl Fn(Carried)) {
    match event {
        // What follows a delivered session, or our own farewell, is no news.
        Event::Ended {
            end: End::Finished | End::Closed(ByeCode::Finished | ByeCode::Aborted),
            ..
        } => {}
        Event::Ended {
            end: End::PeerClosed(ByeCode::Finished),
            ..
        } => {}
        Event::Ended { reason, .. } => report(Carried::Failed(reason)),
        Event::LaneLost { lane, path, reason } => {
            report(Carried::Event(EventKind::LaneLost { lane, path, reason }));
        }
        Event::OutageBegan { limit } => report(Carried::Event(EventKind::OutageBegan {
            limit_ms: millis(limit),
        })),
        Event::OutageEnded { lasted } => report(Carried::Event(EventKind::OutageEnded {
            lasted_ms: millis(lasted),
        })),
        Event::PathLost { path, reason } => {
            report(Carried::Event(EventKind::PathLost { path, reason }));
        }
        Event::PathBack { path, lasted } => report(Carried::Event(EventKind::PathBack {
            path,
            lasted_ms: millis(lasted),
        })),
        Event::PathNarrowed { path, segment } => {
            report(Carried::Event(EventKind::PathNarrowed { path, segment }));
        }
        Event::PathGivenUp { path, reason } => {
            report(Carried::Event(EventKind::PathGivenUp { path, reason }));
        }
        Event::ChannelBroke { channel, reason } => {
            report(Carried::Event(EventKind::ChannelBroke { channel, reason }));
        }
    }
}
