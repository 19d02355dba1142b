//! Accepting the lanes of all migrations to this host.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use drover_lanes::{Lane, Listener, NotListening};
use drover_types::MigrationId;
use drover_wire::{HELLO_BYTES, Hello, RefusalCode, Token, VersionRange, Welcome};

use crate::Relay;
use crate::limits::{ACCEPT_PAUSE, HANDSHAKE_TIMEOUT, HANDSHAKES_MAX};
use crate::pool::lock;
use crate::shared::spawn;

type Registry = Mutex<HashMap<MigrationId, (Token, Weak<Relay>)>>;

/// The port on which other hosts' lanes arrive. Dropping it closes the port; lanes that were
/// handed to a relay stay.
#[derive(Debug)]
pub struct LaneListener {
    listener: Arc<Listener>,
    expected: Arc<Registry>,
    stopping: Arc<AtomicBool>,
}

/// A migration whose lanes are let in. Dropping it turns later ones away.
#[derive(Debug)]
pub struct Expected {
    migration: MigrationId,
    registry: Arc<Registry>,
}

impl LaneListener {
    /// Listens on `port` on all addresses; 0 takes any free one.
    ///
    /// # Errors
    /// [`NotListening`].
    pub fn bind(port: u16) -> Result<Self, NotListening> {
        let listener = Arc::new(Listener::bind(port)?);
        let this = Self {
            listener,
            expected: Arc::default(),
            stopping: Arc::default(),
        };
        let (listener, expected) = (this.listener.clone(), this.expected.clone());
        let stopping = this.stopping.clone();
        spawn("listen", move || {
            accept_all(&listener, &expected, &stopping)
        })
        .map_err(|source| NotListening { port, source })?;
        Ok(this)
    }

    /// The port listened on.
    ///
    /// # Errors
    /// The socket's error.
    pub fn port(&self) -> io::Result<u16> {
        self.listener.port()
    }

    /// Lets the lanes of a migration in, if they bring this token.
    #[must_use]
    pub fn expect(&self, migration: MigrationId, token: Token, relay: &Arc<Relay>) -> Expected {
        lock(&self.expected).insert(migration, (token, Arc::downgrade(relay)));
        Expected {
            migration,
            registry: self.expected.clone(),
        }
    }
}

impl Drop for LaneListener {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.listener.shut_down();
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        lock(&self.registry).remove(&self.migration);
    }
}

fn accept_all(listener: &Listener, expected: &Arc<Registry>, stopping: &AtomicBool) {
    let under_way = Arc::new(AtomicUsize::new(0));
    while !stopping.load(Ordering::Acquire) {
        match listener.accept() {
            Ok(lane) => shake_hands(lane, expected, &under_way),
            Err(error) if stopping.load(Ordering::Acquire) => {
                tracing::debug!(%error, "stopped listening for lanes");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a lane");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Greets a peer on a thread of its own, so that a silent one keeps nobody waiting.
fn shake_hands(lane: Lane, expected: &Arc<Registry>, under_way: &Arc<AtomicUsize>) {
    if under_way.fetch_add(1, Ordering::AcqRel) >= HANDSHAKES_MAX {
        under_way.fetch_sub(1, Ordering::AcqRel);
        tracing::warn!(peer = %lane.peer(), "turned a lane away: {HANDSHAKES_MAX} are being greeted");
        return;
    }
    let (expected, counter) = (expected.clone(), under_way.clone());
    let started = spawn("greet", move || {
        let peer = lane.peer();
        match greet(lane, &expected) {
            Ok(()) => {}
            Err(Turned::Away(reason)) => tracing::warn!(%peer, reason, "turned a lane away"),
            Err(Turned::Probe) => tracing::debug!(%peer, "was probed"),
        }
        counter.fetch_sub(1, Ordering::AcqRel);
    });
    if let Err(error) = started {
        under_way.fetch_sub(1, Ordering::AcqRel);
        tracing::warn!(%error, "cannot start a thread to greet a lane");
    }
}

/// Why a connection became no lane.
enum Turned {
    /// The peer closed it without a word: it only looked whether we are there.
    Probe,
    /// The reason, for the log.
    Away(String),
}

fn greet(lane: Lane, expected: &Registry) -> Result<(), Turned> {
    let mut bytes = [0; HELLO_BYTES];
    let away = |what: &str, error: &dyn std::fmt::Display| Turned::Away(format!("{what}: {error}"));
    lane.set_receive_timeout(Some(HANDSHAKE_TIMEOUT))
        .and_then(|()| lane.receive(&mut bytes))
        .and_then(|()| lane.set_receive_timeout(None))
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Turned::Probe,
            _ => away("no handshake", &error),
        })?;
    let hello = Hello::decode(&bytes).map_err(|error| away("handshake", &error))?;
    let refuse = |code: RefusalCode| {
        let answer = Welcome::Refused(code, VersionRange::SUPPORTED).encode();
        // The peer may be gone; the refusal stands all the same.
        let _ = lane.send(&answer, b"");
        Err(Turned::Away(format!(
            "migration {}: {code}",
            hello.migration
        )))
    };
    let Ok(version) = VersionRange::SUPPORTED.newest_common(hello.versions) else {
        return refuse(RefusalCode::Version);
    };
    let Some(relay) = find(expected, &hello) else {
        return refuse(RefusalCode::Unexpected);
    };
    // The answer goes out before the relay may send frames behind it.
    lane.send(&Welcome::Accepted(version).encode(), b"")
        .map_err(|error| away("answering", &error))?;
    let added = relay.add_lane(hello.lane, hello.path, lane);
    added.map_err(|refused| away("session", &refused))
}

fn find(expected: &Registry, hello: &Hello) -> Option<Arc<Relay>> {
    let registry = lock(expected);
    let (token, relay) = registry.get(&hello.migration)?;
    // All bytes are compared, so that the time taken tells nothing of the secret.
    let differing = token
        .0
        .iter()
        .zip(hello.token.0)
        .fold(0, |acc, (a, b)| acc | (a ^ b));
    relay.upgrade().filter(|_| differing == 0)
}
