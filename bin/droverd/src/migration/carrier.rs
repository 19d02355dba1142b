//! The session of one migration as its task sees it: the relay, its paths, and what it reports.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use drover_api::SessionSizes;
use drover_relay::{ByeCode, End, Event, NotStarted, Relay, Settings, Sizes, sizes};
use drover_types::{BitRate, Path};

/// What a relay reports, reduced to what a migration acts on or shows.
#[derive(Debug)]
pub enum Carried {
    /// The session is over before it was closed by us; why.
    Failed(String),
    /// Something worth a note: a lane lost, a channel broken.
    Note(String),
}

/// A relay and the paths of its lanes.
#[derive(Debug, Clone)]
pub struct Carrier {
    /// The relay.
    pub relay: Arc<Relay>,
    /// Its paths.
    pub paths: Vec<Path>,
}

impl Carrier {
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

fn settings(sizes: SessionSizes, outage_limit: Duration) -> Settings {
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
    }
}

/// The source's relay, listening for QEMU at `socket`.
///
/// # Errors
/// As [`Relay::source`].
pub fn source(
    sizes: SessionSizes,
    outage_limit: Duration,
    socket: &FilePath,
    report: impl Fn(Carried) + Send + Sync + 'static,
) -> Result<Relay, NotStarted> {
    Relay::source(settings(sizes, outage_limit), socket, move |event| {
        tell(event, &report)
    })
}

/// The destination's relay, connecting to QEMU at `socket`.
///
/// # Errors
/// As [`Relay::destination`].
pub fn destination(
    sizes: SessionSizes,
    outage_limit: Duration,
    socket: &FilePath,
    report: impl Fn(Carried) + Send + Sync + 'static,
) -> Result<Relay, NotStarted> {
    Relay::destination(settings(sizes, outage_limit), socket, move |event| {
        tell(event, &report)
    })
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
            report(Carried::Note(format!(
                "lane {lane} on path {path} was lost: {reason}"
            )));
        }
        Event::OutageBegan { limit } => {
            let limit = limit.as_secs();
            report(Carried::Note(format!(
                "no path to the other host is left: waiting up to {limit} s for one"
            )));
        }
        Event::OutageEnded { lasted } => {
            let lasted = lasted.as_millis();
            report(Carried::Note(format!(
                "there is a path to the other host again, after {lasted} ms without"
            )));
        }
        Event::PathLost { path, reason } => report(Carried::Note(format!(
            "path {path} has no lane left, and is dialled again: {reason}"
        ))),
        Event::PathBack { path, lasted } => report(Carried::Note(format!(
            "path {path} has lanes again after {} ms",
            lasted.as_millis()
        ))),
        Event::PathNarrowed { path, segment } => report(Carried::Note(format!(
            "large packets vanish on path {path} (something on it has a smaller MTU than both \
             interfaces, and does not say so): it is used with segments of {segment} bytes"
        ))),
        Event::PathGivenUp { path, reason } => report(Carried::Note(format!(
            "path {path} is given up, and tried again from time to time: {reason}"
        ))),
        Event::ChannelBroke { channel, reason } => {
            report(Carried::Note(format!(
                "channel {channel} of QEMU broke: {reason}"
            )));
        }
    }
}
