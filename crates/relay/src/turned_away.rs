//! Connections that became no lane: why, how many, and what the log says of it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limits::TURNED_AWAY_PAUSE;
use crate::pool::lock;

/// Why a connection to the port for lanes was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Too many others are being greeted.
    Crowd,
    /// It does not begin like a lane.
    Garbage,
    /// It speaks another version of the protocol.
    Version,
    /// No such migration is expected.
    Unexpected,
    /// It asks for other protection than was agreed on.
    Mode,
    /// It has not the certificate that was agreed on, or no TLS.
    Peer,
    /// It does not know the token, repeats what another said, or something was changed.
    Proof,
    /// It did not say enough in time.
    Slow,
    /// It ended in the middle.
    Cut,
    /// The process that its relay lives in did not answer; how stands in the reason.
    Relay,
    /// The session does not take it: its number is taken, or the session is over.
    Session,
}

impl Cause {
    /// Every one.
    pub const ALL: [Self; 11] = [
        Self::Crowd,
        Self::Garbage,
        Self::Version,
        Self::Unexpected,
        Self::Mode,
        Self::Peer,
        Self::Proof,
        Self::Slow,
        Self::Cut,
        Self::Relay,
        Self::Session,
    ];

    /// One word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Crowd => "crowd",
            Self::Garbage => "garbage",
            Self::Version => "version",
            Self::Unexpected => "unexpected",
            Self::Mode => "mode",
            Self::Peer => "peer",
            Self::Proof => "proof",
            Self::Slow => "slow",
            Self::Cut => "cut",
            Self::Relay => "relay",
            Self::Session => "session",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crowd => "too many at once",
            Self::Garbage => "no lane of Drover",
            Self::Version => "another version",
            Self::Unexpected => "no such migration",
            Self::Mode => "other encryption than agreed on",
            Self::Peer => "not the peer",
            Self::Proof => "wrong proof",
            Self::Slow => "too slow",
            Self::Cut => "cut off",
            Self::Relay => "no answer of its relay",
            Self::Session => "not taken by the session",
        })
    }
}

/// Why one connection became no lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedAway {
    /// For the count.
    pub cause: Cause,
    /// For the log.
    pub reason: String,
}

impl TurnedAway {
    /// For this cause.
    #[must_use]
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { cause, reason }
    }

    /// For what the kernel said when something was done.
    #[must_use]
    pub fn by_io(what: &str, error: &io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::TimedOut => Cause::Slow,
            io::ErrorKind::InvalidData => Cause::Peer,
            _ => Cause::Cut,
        };
        Self::new(cause, format!("{what}: {error}"))
    }
}

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    told_at: Option<Instant>,
}

/// Counts, and tells the log without letting a stranger fill it.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<Cause, Tally>>);

impl Refusals {
    pub(crate) fn note(&self, peer: SocketAddr, turned: &TurnedAway) {
        let TurnedAway { cause, reason } = turned;
        let (so_far, tell) = {
            let now = Instant::now();
            let mut tallies = lock(&self.0);
            let tally = tallies.entry(*cause).or_default();
            tally.count += 1;
            let recently = |at: Instant| now.duration_since(at) < TURNED_AWAY_PAUSE;
            let tell = !tally.told_at.is_some_and(recently);
            if tell {
                tally.told_at = Some(now);
            }
            (tally.count, tell)
        };
        if tell {
            tracing::warn!(%peer, %cause, reason, so_far, "turned a lane away");
        } else {
            tracing::debug!(%peer, %cause, reason, so_far, "turned a lane away");
        }
    }

    pub(crate) fn counts(&self) -> BTreeMap<Cause, u64> {
        let tallies = lock(&self.0);
        let counts = tallies.iter().map(|(cause, tally)| (*cause, tally.count));
        counts.collect()
    }
}
