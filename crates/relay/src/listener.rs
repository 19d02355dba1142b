//! Accepting the lanes of all migrations to this host, at the addresses that their sources were offered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::IpAddr;
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

type Registry = Mutex<HashMap<MigrationId, Awaited>>;

/// Gives a connection, whose preamble was read, to the process that has its migration's relay.
type HandOver =
    dyn Fn(BorrowedFd<'_>, [u8; PREAMBLE_BYTES], Instant) -> Result<(), TurnedAway> + Send + Sync;

/// Who lets the lanes of a migration in.
#[derive(Clone)]
enum Admission {
    Here(Arc<Acceptor>),
    Elsewhere(Arc<HandOver>),
}

/// One migration's lanes.
#[derive(Debug)]
struct Awaited {
    admission: Admission,
    /// Where they may come to.
    addresses: BTreeSet<IpAddr>,
    /// Where they were to come to as well, and nobody can listen.
    failed: BTreeSet<IpAddr>,
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
#[derive(Debug)]
struct Door {
    /// Listens at the addresses of all migrations that are expected, and at no others.
    listener: Listener,
    expected: Registry,
    half_open: Arc<HalfOpen>,
    refusals: Refusals,
    stopping: AtomicBool,
}

/// The port on which other hosts' lanes arrive. Nobody reaches it but at an address that a migration
/// which is expected was [offered](Expected::offer). Dropping it closes the port; lanes that were
/// handed to a relay stay.
#[derive(Debug)]
pub struct LaneListener {
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
    /// Takes `port`; 0 takes any free one. Until a migration is expected it is listened on nowhere.
    ///
    /// # Errors
    /// [`NotListening`].
    pub fn hold(port: u16) -> Result<Self, NotListening> {
        let this = Self {
            door: Arc::new(Door {
                listener: Listener::hold(port)?,
                expected: Registry::default(),
                half_open: Arc::default(),
                refusals: Refusals::default(),
                stopping: AtomicBool::new(false),
            }),
        };
        let door = this.door.clone();
        spawn("listen", move || accept_all(&door))
            .map_err(|source| NotListening::Port { port, source })?;
        Ok(this)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.door.listener.port()
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
    /// [`Acceptor`] of its own, with the moment by which they have to be lanes. The call lasts as long
    /// as the opening of the lane, and tells why it was turned away.
    #[must_use]
    pub fn expect_elsewhere(
        &self,
        migration: MigrationId,
        hand_over: impl Fn(BorrowedFd<'_>, [u8; PREAMBLE_BYTES], Instant) -> Result<(), TurnedAway>
        + Send
        + Sync
        + 'static,
    ) -> Expected {
        self.admit(migration, Admission::Elsewhere(Arc::new(hand_over)))
    }

    fn admit(&self, migration: MigrationId, admission: Admission) -> Expected {
        let awaited = Awaited {
            admission: admission.clone(),
            addresses: BTreeSet::new(),
            failed: BTreeSet::new(),
        };
        lock(&self.door.expected).insert(migration, awaited);
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
        self.door.listener.shut_down();
    }
}

impl Expected {
    /// The source is offered these addresses, too: from now on its lanes are let in there. Tells where
    /// that is not possible, once for each address.
    pub fn offer(&self, addresses: &[IpAddr]) -> Vec<NotListening> {
        let mut all = lock(&self.door.expected);
        let Some(awaited) = all.get_mut(&self.migration) else {
            return Vec::new();
        };
        let listen = |address: &IpAddr| match self.door.listener.listen(*address) {
            Ok(()) => {
                awaited.addresses.insert(*address);
                awaited.failed.remove(address);
                None
            }
            Err(error) => awaited.failed.insert(*address).then_some(error),
        };
        addresses.iter().filter_map(listen).collect()
    }

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
        let mut all = lock(&self.door.expected);
        all.remove(&self.migration);
        let awaited = |address| all.values().any(|one| one.addresses.contains(&address));
        self.door.listener.keep(awaited);
    }
}

impl Door {
    /// Who lets a lane of this migration in that came to this address.
    fn admission(&self, migration: MigrationId, at: IpAddr) -> Option<Admission> {
        let all = lock(&self.expected);
        let awaited = all.get(&migration)?;
        let offered = awaited.addresses.contains(&at);
        offered.then(|| awaited.admission.clone())
    }
}

fn accept_all(door: &Arc<Door>) {
    let stopping = || door.stopping.load(Ordering::Acquire);
    while !stopping() {
        match door.listener.accept() {
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
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    connection
        .set_deadline(until)
        .map_err(|error| TurnedAway::by_io("its socket", &error))?;
    let begun = begin(&connection)?;
    let migration = begun.preamble.migration;
    let Some(admission) = door.admission(migration, connection.local().ip()) else {
        refuse(&connection, RefusalCode::Unexpected);
        let at = connection.local().ip();
        let reason = format!("no migration {migration} is expected at {at}");
        return Err(Some(TurnedAway::new(Cause::Unexpected, reason)));
    };
    let admitted = match admission {
        Admission::Here(acceptor) => acceptor.accept(connection, &begun),
        Admission::Elsewhere(hand_over) => hand_over(connection.fd(), begun.bytes, until),
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
