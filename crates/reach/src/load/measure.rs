//! Loads one path, and says what it carried.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use drover_lanes::{ConnectError, Connection, Lane, Progress, Target};
use drover_types::{BitRate, ByteRate, MigrationId};
use drover_wire::{
    ANSWER_BYTES, ANSWER_HEAD_BYTES, Answer, Mode, Nonce, Preamble, RefusalCode, VersionRange,
};
use serde::{Deserialize, Serialize};

use super::prove;
use crate::Ticket;
use crate::limits::{
    LOAD_BUFFER, LOAD_CONNECTIONS, LOAD_GREETING, LOAD_LATE, LOAD_LOOK, LOAD_REST, LOAD_TIME_LEAST,
    LOAD_TIME_MOST, LOAD_WARM_UP, PEER_FULL_SHARE, UNFED_SHARE,
};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Load {
    /// The interface that it leaves by, whatever the routing table prefers.
    pub interface: String,
    /// Our address on that interface.
    pub local: IpAddr,
    /// The far end's address, and its port for lanes.
    pub remote: SocketAddr,
    /// The far end's order.
    pub order: MigrationId,
    /// Its secret.
    pub ticket: Ticket,
    /// Most that is sent, all connections together; no limit where there is none.
    pub most: Option<BitRate>,
    /// How long it is measured, after [`LOAD_WARM_UP`]: [`LOAD_TIME_LEAST`] to [`LOAD_TIME_MOST`].
    pub time: Duration,
    /// When it begins, where others begin then, too: it goes on for [`LOAD_REST`] after it was measured. At once where there is none.
    pub begin: Option<Instant>,
}

/// What a path carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Of TCP's payload.
    pub rate: BitRate,
    /// Segments that were sent.
    pub segments: u64,
    /// Of these, segments that were sent again.
    pub retransmits: u64,
    /// What it waited for.
    pub held_up_by: HeldUpBy,
}

/// What a path waited for most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldUpBy {
    /// The path, or the rate that was allowed.
    Path,
    /// The near host, whose processors gave it no more bytes.
    Near,
    /// The far host, whose processors took no more.
    Far,
}

/// A path that was not measured.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// No connection.
    #[error(transparent)]
    Unreachable(#[from] ConnectError),
    /// The far end knows nothing of the order.
    #[error("the far host turned the connection away: {0}")]
    TurnedAway(RefusalCode),
    /// No relay of Drover answered.
    #[error("the far host did not answer as an agent does")]
    Foreign,
    /// The kernel's word.
    #[error("a connection broke")]
    Io(#[from] io::Error),
    /// A connection ended before it was told to: the far host has ended the order, or its agent is gone.
    #[error("the far host ended a connection meanwhile")]
    Cut,
    /// The others had begun, so that it would have been measured without them.
    #[error("its connections were open {} ms after the others had begun", .0.as_millis())]
    Late(Duration),
    /// It was halted.
    #[error("it was given up, as a guest began to move")]
    Halted,
    /// Nothing was acknowledged in all that time.
    #[error("nothing arrived in {} ms", .0.as_millis())]
    Nothing(Duration),
}

/// Measures it, unless it is halted; blocks for the time of it, [`LOAD_WARM_UP`], and up to [`LOAD_GREETING`]; together with others also
/// until they begin, and for [`LOAD_REST`].
///
/// # Errors
/// [`NotMeasured`].
pub fn measure(load: &Load, halt: &AtomicBool) -> Result<Measured, NotMeasured> {
    let time = load.time.clamp(LOAD_TIME_LEAST, LOAD_TIME_MOST);
    let until = Instant::now() + LOAD_GREETING;
    let connections = (0..LOAD_CONNECTIONS).map(|_| open(load, until));
    let connections: Vec<_> = connections.collect::<Result<_, _>>()?;
    let rest = match load.begin {
        Some(begin) => {
            wait_for(begin, halt)?;
            LOAD_REST
        }
        None => Duration::ZERO,
    };
    let full = Full::new(connections, Instant::now() + LOAD_WARM_UP + time + rest)?;
    let measured = full.measured((time, rest), halt);
    let cut = full.end();
    if cut { Err(NotMeasured::Cut) } else { measured }
}

/// Connections that are full. Dropped, they are shut down.
struct Full {
    lanes: Vec<Arc<Lane>>,
    senders: Vec<JoinHandle<bool>>,
    over: Arc<AtomicBool>,
}

impl Full {
    /// What has not left by `end` is waited for no longer than a greeting.
    fn new(connections: Vec<Connection>, end: Instant) -> Result<Self, NotMeasured> {
        let mut full = Self {
            lanes: Vec::new(),
            senders: Vec::new(),
            over: Arc::default(),
        };
        for connection in connections {
            connection.set_deadline(end + LOAD_GREETING)?;
            let lane = Arc::new(connection.into_plain());
            full.lanes.push(lane.clone());
            let over = full.over.clone();
            let sender = thread::Builder::new().name("load".into()).spawn(move || {
                let buffer = vec![0; LOAD_BUFFER];
                while lane.send(&[], &buffer).is_ok() {}
                over.load(Ordering::Acquire)
            })?;
            full.senders.push(sender);
        }
        Ok(full)
    }

    fn measured(
        &self,
        (time, rest): (Duration, Duration),
        halt: &AtomicBool,
    ) -> Result<Measured, NotMeasured> {
        wait(LOAD_WARM_UP, halt)?;
        let (from, first) = (Instant::now(), sum(&self.lanes)?);
        wait(time, halt)?;
        let (took, last) = (from.elapsed(), sum(&self.lanes)?);
        wait(rest, halt)?;
        judge(first, last, took).ok_or(NotMeasured::Nothing(took))
    }

    /// Shuts them down; whether one had ended before.
    fn end(mut self) -> bool {
        self.shut_down();
        let mut cut = false;
        for sender in std::mem::take(&mut self.senders) {
            let as_told = sender.join().unwrap_or(false);
            cut |= !as_told;
        }
        cut
    }

    fn shut_down(&self) {
        self.over.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.shut_down();
        }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Until the others begin, or not at all where they have.
fn wait_for(begin: Instant, halt: &AtomicBool) -> Result<(), NotMeasured> {
    let late = Instant::now().saturating_duration_since(begin);
    if late > LOAD_LATE {
        return Err(NotMeasured::Late(late));
    }
    wait(begin.saturating_duration_since(Instant::now()), halt)
}

fn wait(time: Duration, halt: &AtomicBool) -> Result<(), NotMeasured> {
    let end = Instant::now() + time;
    loop {
        if halt.load(Ordering::Acquire) {
            return Err(NotMeasured::Halted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOAD_LOOK));
    }
}

/// Opens one as a lane is opened, and proves the ticket, by `until`.
fn open(load: &Load, until: Instant) -> Result<Connection, NotMeasured> {
    let patience = until.saturating_duration_since(Instant::now());
    let connection = Connection::connect(&Target {
        interface: load.interface.clone(),
        local: load.local,
        remote: load.remote,
        segment: None,
        patience: patience.max(LOAD_LOOK),
    })?;
    connection.set_deadline(until)?;
    if let Some(most) = load.most {
        connection.pace(ByteRate(most.0 / 8 / LOAD_CONNECTIONS as u64))?;
    }
    let nonce = Nonce(Ticket::random()?.0);
    let preamble = Preamble {
        versions: VersionRange::SUPPORTED,
        mode: Mode::Plain,
        migration: load.order,
        nonce,
    };
    let preamble = preamble.encode();
    connection.send(&preamble)?;
    connection.send(prove(&load.ticket, &preamble).as_bytes())?;
    let mut head = [0; ANSWER_HEAD_BYTES];
    connection.receive(&mut head)?;
    match Answer::decode_head(&head) {
        Ok(Ok(_)) => {}
        Ok(Err((code, _))) => return Err(NotMeasured::TurnedAway(code)),
        Err(_) => return Err(NotMeasured::Foreign),
    }
    connection.receive(&mut [0; ANSWER_BYTES - ANSWER_HEAD_BYTES])?;
    Ok(connection)
}

/// Of all connections together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    connections: u32,
    acknowledged: u64,
    segments: u64,
    retransmits: u64,
    busy: Duration,
    peer_full: Duration,
}

fn sum(lanes: &[Arc<Lane>]) -> io::Result<Sum> {
    let mut sum = Sum::default();
    for lane in lanes {
        let Progress {
            acknowledged,
            segments,
            retransmits,
            busy,
            peer_full,
        } = lane.progress()?;
        sum.connections += 1;
        sum.acknowledged += acknowledged;
        sum.segments += u64::from(segments);
        sum.retransmits += u64::from(retransmits);
        sum.busy += busy;
        sum.peer_full += peer_full;
    }
    Ok(sum)
}

/// What crossed between the two moments; nothing if none did.
fn judge(first: Sum, last: Sum, took: Duration) -> Option<Measured> {
    let bytes = last.acknowledged.saturating_sub(first.acknowledged);
    if bytes == 0 || took.is_zero() {
        return None;
    }
    let all = took.as_secs_f64() * f64::from(last.connections);
    let of_all = |first: Duration, last: Duration| last.saturating_sub(first).as_secs_f64() / all;
    let held_up_by = if of_all(first.peer_full, last.peer_full) > PEER_FULL_SHARE {
        HeldUpBy::Far
    } else if 1.0 - of_all(first.busy, last.busy) > UNFED_SHARE {
        HeldUpBy::Near
    } else {
        HeldUpBy::Path
    };
    Some(Measured {
        rate: BitRate((bytes as f64 * 8.0 / took.as_secs_f64()) as u64),
        segments: last.segments.saturating_sub(first.segments),
        retransmits: last.retransmits.saturating_sub(first.retransmits),
        held_up_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(busy_ms: u64, peer_full_ms: u64) -> Sum {
        Sum {
            connections: 4,
            acknowledged: 1_125_000_000,
            segments: 80_000,
            retransmits: 30,
            busy: Duration::from_millis(busy_ms),
            peer_full: Duration::from_millis(peer_full_ms),
        }
    }

    #[test]
    fn what_was_acknowledged_between_two_moments_is_the_rate() {
        let first = Sum {
            connections: 4,
            acknowledged: 1_000_000_000,
            segments: 10_000,
            retransmits: 20,
            ..Sum::default()
        };
        let measured = judge(first, after(4000, 0), SECOND).unwrap();
        assert_eq!(measured.rate, BitRate(1_000_000_000));
        assert_eq!((measured.segments, measured.retransmits), (70_000, 10));
        assert_eq!(measured.held_up_by, HeldUpBy::Path);
        assert_eq!(judge(first, first, SECOND), None);
    }

    #[test]
    fn who_held_it_up_is_who_was_waited_for_most_of_the_time() {
        let by = |busy, full| {
            judge(Sum::default(), after(busy, full), SECOND)
                .unwrap()
                .held_up_by
        };
        assert_eq!(by(4000, 3000), HeldUpBy::Far);
        assert_eq!(by(1000, 100), HeldUpBy::Near);
        assert_eq!(by(3900, 500), HeldUpBy::Path);
    }
}
