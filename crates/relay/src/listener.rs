//! Accepting the lanes of all migrations to this host.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use drover_lanes::{Connection, Encryption, Listener, NotListening};
use drover_types::MigrationId;
use drover_wire::{PREAMBLE_BYTES, RefusalCode, Token};

use crate::acceptor::{Acceptor, Begun, refuse};
use crate::half_open::{HalfOpen, Place};
use crate::limits::{ACCEPT_PAUSE, GREETED_MAX, GREETED_PER_ADDRESS, HANDSHAKE_TIMEOUT};
use crate::pool::lock;
use crate::shared::spawn;
use crate::turned_away::{Cause, Refusals, TurnedAway};
use crate::{Relay, Security};

type Registry = Mutex<HashMap<MigrationId, Admission>>;

/// Gives a connection, whose preamble was read, to the process that has its migration's relay.
type HandOver =
    dyn Fn(BorrowedFd<'_>, [u8; PREAMBLE_BYTES]) -> Result<(), TurnedAway> + Send + Sync;

/// Who lets the lanes of a migration in.
#[derive(Clone)]
enum Admission {
    Here(Arc<Acceptor>),
    Elsewhere(Arc<HandOver>),
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here(_) => "Here",
            Self::Elsewhere(_) => "Elsewhere",
        })
    }
}

/// What the threads that greet share.
#[derive(Debug, Default)]
struct Door {
    expected: Registry,
    half_open: Arc<HalfOpen>,
    refusals: Refusals,
    stopping: AtomicBool,
}

/// The port on which other hosts' lanes arrive. Dropping it closes the port; lanes that were
/// handed to a relay stay.
#[derive(Debug)]
pub struct LaneListener {
    listener: Arc<Listener>,
    door: Arc<Door>,
}

/// A migration whose lanes are let in. Dropping it turns later ones away.
#[derive(Debug)]
pub struct Expected {
    migration: MigrationId,
    admission: Admission,
    door: Arc<Door>,
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
            door: Arc::default(),
        };
        let (listener, door) = (this.listener.clone(), this.door.clone());
        spawn("listen", move || accept_all(&listener, &door))
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

    /// Lets the lanes of a migration in, if they prove this token and are protected so.
    #[must_use]
    pub fn expect(
        &self,
        migration: MigrationId,
        token: Token,
        security: Security,
        relay: &Arc<Relay>,
    ) -> Expected {
        let acceptor = Acceptor::new(token, security, relay);
        self.admit(migration, Admission::Here(Arc::new(acceptor)))
    }

    /// Hands the lanes of a migration over to the process that its relay lives in, which has an
    /// [`Acceptor`] of its own. The call lasts as long as the opening of the lane, and tells why it
    /// was turned away.
    #[must_use]
    pub fn expect_elsewhere(
        &self,
        migration: MigrationId,
        hand_over: impl Fn(BorrowedFd<'_>, [u8; PREAMBLE_BYTES]) -> Result<(), TurnedAway>
        + Send
        + Sync
        + 'static,
    ) -> Expected {
        self.admit(migration, Admission::Elsewhere(Arc::new(hand_over)))
    }

    fn admit(&self, migration: MigrationId, admission: Admission) -> Expected {
        lock(&self.door.expected).insert(migration, admission.clone());
        Expected {
            migration,
            admission,
            door: self.door.clone(),
        }
    }

    /// How many connections were turned away so far, by cause.
    #[must_use]
    pub fn turned_away(&self) -> BTreeMap<Cause, u64> {
        self.door.refusals.counts()
    }
}

impl Drop for LaneListener {
    fn drop(&mut self) {
        self.door.stopping.store(true, Ordering::Release);
        self.listener.shut_down();
    }
}

impl Expected {
    /// What protects the lanes that were let in, once there is one.
    #[must_use]
    pub fn encryption(&self) -> Option<Encryption> {
        match &self.admission {
            Admission::Here(acceptor) => acceptor.encryption(),
            Admission::Elsewhere(_) => None,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        lock(&self.door.expected).remove(&self.migration);
    }
}

fn accept_all(listener: &Listener, door: &Arc<Door>) {
    let stopping = || door.stopping.load(Ordering::Acquire);
    while !stopping() {
        match listener.accept() {
            Ok(connection) => greet_aside(connection, door),
            Err(error) if stopping() => {
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
fn greet_aside(connection: Connection, door: &Arc<Door>) {
    let peer = connection.peer();
    let Some(place) = door.half_open.place(peer, connection.closer()) else {
        let reason = format!(
            "{GREETED_MAX} connections are being greeted, or {GREETED_PER_ADDRESS} of its address"
        );
        return door
            .refusals
            .note(peer, &TurnedAway::new(Cause::Crowd, reason));
    };
    let shared = door.clone();
    let started = spawn("greet", move || {
        match greet(connection, &shared, place) {
            Ok(()) => {}
            Err(Some(turned)) => shared.refusals.note(peer, &turned),
            // It only looked whether we are there.
            Err(None) => tracing::debug!(%peer, "was probed"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start a thread to greet a lane");
    }
}

/// Reads a connection's preamble and hands it to its migration. `None` when the peer closed
/// without a word.
fn greet(connection: Connection, door: &Door, _place: Place) -> Result<(), Option<TurnedAway>> {
    connection
        .set_deadline(Instant::now() + HANDSHAKE_TIMEOUT)
        .map_err(|error| TurnedAway::by_io("its socket", &error))?;
    let begun = begin(&connection)?;
    let found = lock(&door.expected).get(&begun.preamble.migration).cloned();
    let migration = begun.preamble.migration;
    let Some(admission) = found else {
        refuse(&connection, RefusalCode::Unexpected);
        let reason = format!("no migration {migration} is expected");
        return Err(Some(TurnedAway::new(Cause::Unexpected, reason)));
    };
    let admitted = match admission {
        Admission::Here(acceptor) => acceptor.accept(connection, &begun),
        Admission::Elsewhere(hand_over) => hand_over(connection.fd(), begun.bytes),
    };
    admitted.map_err(|turned| {
        let reason = format!("migration {migration}: {}", turned.reason);
        Some(TurnedAway { reason, ..turned })
    })
}

fn begin(connection: &Connection) -> Result<Begun, Option<TurnedAway>> {
    let mut bytes = [0; PREAMBLE_BYTES];
    let (first, rest) = bytes.split_at_mut(1);
    let waiting = |error: io::Error| TurnedAway::by_io("waiting for its first message", &error);
    connection
        .receive(first)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => None,
            _ => Some(waiting(error)),
        })?;
    connection.receive(rest).map_err(waiting)?;
    Begun::read(bytes).map_err(|turned| {
        if turned.cause == Cause::Version {
            refuse(connection, RefusalCode::Version);
        }
        Some(turned)
    })
}
