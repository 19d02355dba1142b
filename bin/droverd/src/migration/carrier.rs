//! The session of one migration as its task sees it: the relay, its paths, and what it reports.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{EventKind, SessionSizes};
use drover_carrier::{Side, Start};
use drover_relay::{ByeCode, End, Event, Reduction, Sizes, sizes};
use drover_types::{BitRate, ByteRate, MigrationId, NicPlacement, Path, PathId};
use tokio::sync::mpsc;

use super::held::Sockets;
use super::outgoing::millis;
use super::relays::{News, RelayProcess};

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
    /// The relay, in its process.
    pub relay: Arc<RelayProcess>,
    paths: Arc<Mutex<Vec<Path>>>,
}

impl Carrier {
    /// A relay with these paths so far.
    pub fn new(relay: RelayProcess, paths: Vec<Path>) -> Self {
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
        self.relay.close(finished);
    }

    /// The same, and waits for the last counters, and until it is known whether its end speaks against stored pages.
    pub async fn settle(&self, finished: bool) {
        self.close(finished);
        self.wait(RelayProcess::settle).await;
    }

    /// Waits until everything that it has told by now was heard.
    pub async fn refresh(&self) {
        self.wait(RelayProcess::refresh).await;
    }

    async fn wait(&self, until: fn(&RelayProcess)) {
        let relay = self.relay.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || until(&relay)).await {
            tracing::warn!(%error, "the last counters are missing");
        }
    }
}

/// The next message to a task, or none once that is over: where its relay's thread waits for it, the relay's answer is behind what that tells.
pub async fn next_until<M>(
    messages: &mut mpsc::Receiver<M>,
    over: Pin<&mut impl Future<Output = ()>>,
) -> Option<M> {
    tokio::select! {
        () = over => None,
        Some(message) = messages.recv() => Some(message),
    }
}

/// Sizes for links of these rates and at most `channels` multifd channels, and so many for disks.
pub fn session_sizes(rates: &[Option<BitRate>], channels: u8, disks: u16) -> SessionSizes {
    // Beside the multifd channels: the main channel, one for postcopy's urgent pages, and the one on which relays tell of
    // stored pages.
    let channels_max = u16::from(channels).saturating_add(disks).saturating_add(3);
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

/// What a relay's process is to carry.
pub struct Order {
    /// Which migration.
    pub migration: MigrationId,
    /// Which side of it.
    pub side: Side,
    /// Sizes of the session.
    pub sizes: SessionSizes,
    /// How long it waits for a lane, or for an agent.
    pub outage_limit: Duration,
    /// Where QEMU connects to, or listens.
    pub sockets: Sockets,
    /// Whether its bytes may stay in the kernel: not where they are encrypted.
    pub pass_through: bool,
    /// Whether every chunk has a checksum, as both agents agreed on.
    pub verify: bool,
    /// How the source's bytes are reduced, as both agents agreed on.
    pub reduction: Option<Reduction>,
    /// Where lanes' threads are to run.
    pub nics: Vec<NicPlacement>,
    /// How long, in microseconds, processors may take to wake.
    pub cpu_latency_us: Option<u32>,
    /// For the next agent.
    pub memo: String,
}

impl From<Order> for Start {
    fn from(order: Order) -> Self {
        let SessionSizes {
            chunk_bytes,
            window,
            channels_max,
        } = order.sizes;
        Self {
            migration: order.migration,
            side: order.side,
            socket: order.sockets.qemu,
            control: order.sockets.control,
            disks: order.sockets.disks,
            chunk_bytes,
            window,
            channels_max,
            outage_limit: order.outage_limit,
            pass_through: order.pass_through,
            verify: order.verify,
            reduction: order.reduction,
            patience: order.outage_limit,
            nics: order.nics,
            cpu_latency_us: order.cpu_latency_us,
            memo: order.memo,
        }
    }
}

/// Tells a task what its relay's process tells.
pub fn tell(news: News, report: &impl Fn(Carried)) {
    match news {
        News::Event(event) => tell_event(event, report),
        News::Died(reason) => report(Carried::Failed(reason)),
    }
}

fn tell_event(event: Event, report: &impl Fn(Carried)) {
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
            let nics = None;
            report(Carried::Event(EventKind::PathLost { path, nics, reason }));
        }
        Event::PathBack { path, lasted } => report(Carried::Event(EventKind::PathBack {
            path,
            nics: None,
            lasted_ms: millis(lasted),
        })),
        Event::PathNarrowed { path, segment } => {
            report(Carried::Event(EventKind::PathNarrowed { path, segment }));
        }
        Event::PathGivenUp { path, reason } => {
            report(Carried::Event(EventKind::PathGivenUp { path, reason }));
        }
        // By what is heard where its relay is (`Doubt`).
        Event::ChannelBroke {
            channel, reason, ..
        } => {
            report(Carried::Event(EventKind::ChannelBroke { channel, reason }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_task_that_waits_for_its_relay_takes_what_that_tells_first() {
        let (tell, mut messages) = mpsc::channel(1);
        // As its thread does, which reads an answer when all of that is taken.
        let told = tokio::task::spawn_blocking(move || {
            (0..100).for_each(|number| tell.blocking_send(number).unwrap());
        });
        let mut over = pin!(async { told.await.unwrap() });
        let mut taken = Vec::new();
        while let Some(number) = next_until(&mut messages, over.as_mut()).await {
            taken.push(number);
        }
        while let Ok(number) = messages.try_recv() {
            taken.push(number);
        }
        assert!(taken.into_iter().eq(0..100));
    }
}
