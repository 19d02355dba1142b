use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_carrier::Disks;
use drover_hypervisor::Movable;
use drover_libvirt::Connection;
use drover_types::{HostName, MigrationId, VmName, with_sources};
use uuid::Uuid;

use super::arrival::Arrival;
use super::arriving::{Arriving, Expected};
use super::call::Call;
use super::disks::of;
use super::leaving::{Leaving, Terms};
use super::line::Line;
use super::owed::{self, Given};
use super::places;
use super::record::{Debt, DomainRecord, Owed};
use super::turns::{self, Turn};
use crate::agent::Context;
use crate::disks::{self, Came, Leaves, Owner};
use crate::libvirt::is_in_memory;
use crate::libvirt::virsh::Place;
use crate::limits::SHOW;
use crate::migration::Way;
use crate::registry::{Reservation, Role};

/// The right to a domain that moves, for one migration of it on one host.
#[derive(Debug)]
pub struct HeldDomain {
    pub(super) context: Arc<Context>,
    pub(super) vm: VmName,
    pub(super) uuid: Uuid,
    pub(super) domain: DomainRecord,
    /// The other host.
    pub(super) other: HostName,
    pub(super) line: Arc<Line>,
    pub(super) memory: PathBuf,
    pub(super) disks: Option<Disks>,
    pub(super) side: Side,
    pub(super) held: Mutex<Now>,
    pub(super) leaves: Leaves,
    pub(super) migration: MigrationId,
}

/// Which host this is.
#[derive(Debug)]
pub(super) enum Side {
    /// It leaves.
    Leaves {
        /// As it travels; none after a restart, when it has been told.
        definition: Option<Box<VmDefinition>>,
        terms: Arc<Terms>,
        call: Call,
    },
    /// It arrives.
    Arrives {
        /// Where libvirtd listens.
        control: Option<PathBuf>,
        arrival: Arc<Arrival>,
        /// No guest of the agent's own takes its name meanwhile.
        _name: Option<Reservation>,
    },
}

/// What changes while it is held.
#[derive(Debug, Default)]
pub(super) struct Now {
    pub(super) role: Option<Role>,
    pub(super) machine: Option<Arc<dyn Movable>>,
    /// Over which that is reached.
    connection: Option<Connection>,
    /// Nobody else moves it meanwhile. Without it nothing is done with the domain.
    turn: Option<Turn>,
    pub(super) owes: Vec<Owed>,
    /// What is to be told of how this host was made ready for it.
    pub(super) made_ready: Option<String>,
}

impl Now {
    /// At the beginning, with the turn where that was had.
    pub(super) fn with(turn: Option<Turn>) -> Self {
        Self {
            turn,
            ..Self::default()
        }
    }
}

impl HeldDomain {
    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        // A panic while it was held leaves nothing half done: each change is one store.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refusal(&self, code: ErrorCode, why: impl std::fmt::Display) -> Refusal {
        let (name, host) = (&self.domain.moving.name, &self.context.config.host);
        Refusal::new(code, format!("domain {name:?} of {host}: {why}"))
    }

    /// Where commands of libvirt's own are typed.
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            host: &self.context.config.host,
            uri: Some(self.line.uri()),
        }
    }

    /// What was changed of it so that it could move is not as before.
    pub(super) fn owe_settings(&self, why: &str) {
        let name = &self.domain.moving.name;
        let mut what = Vec::new();
        if self.domain.moving.autostart {
            let command = self.place().command("autostart {}", name);
            what.push(format!(
                "it is not started with its host, as it was before ({command} has it be)"
            ));
        }
        if let Some(millis) = self.domain.downtime_limit_ms {
            what.push(format!(
                "it may stand still for another time than {millis} ms at the end of a migration"
            ));
        }
        if !what.is_empty() {
            let what = what.join(", and ");
            self.owe(Debt::Settings, format!("{what}: {why}; it is tried again"));
        }
    }

    /// Its definition may have come with it, before its hypervisor ended.
    pub(super) async fn owe_definition(&self) {
        if !self.domain.moving.persistent {
            return;
        }
        let (source, name) = (&self.other, &self.domain.moving.name);
        let command = self.place().command("undefine {}", name);
        let goes = format!(
            "goes once {source} says that it keeps the domain; if {source} is gone for good, {command} takes it away"
        );
        match self.left().await {
            Ok(owed::Left::Nothing | owed::Left::InMemory) => {}
            Ok(owed::Left::Definition) => self.owe(Debt::Definition, format!("a definition of it that came with it is left here, off: it {goes}")),
            Err(why) => self.owe(Debt::Definition, format!("whether a definition that came with it is left here is not known: {why}; one that is {goes}")),
        }
    }

    /// Takes away what was made here for its disks, where it does not come; that is owed until its source has said so, once that may have
    /// asked libvirt. What it may have written to is left.
    pub(super) async fn end_disks(&self, arrival: &Arrival) {
        let came = match (arrival.may_have_written(), arrival.has_begun()) {
            (true, _) => Came::Ran,
            (false, true) => Came::Begun,
            (false, false) => Came::Not,
        };
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let paths = of(&self.domain.moving).iter();
        let paths: Vec<_> = paths.map(|disk| disk.path.clone()).collect();
        let ended = disks::end(works, state, self.migration, &self.other, (came, &paths));
        if let Some(left) = ended.await {
            let debt = left.is_owed.then_some(Debt::Disks);
            let why = left.why;
            self.now().owes.push(Owed { debt, why });
        }
    }

    /// Has written down which disks it leaves here.
    pub(super) fn leave_disks(&self) {
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let (owner, copied) = (Owner::Domain(self.uuid), of(&self.domain.moving));
        self.leaves
            .begin(works, state, self.migration, owner, copied);
    }

    /// Has a domain that leaves be asked over this connection.
    pub(super) fn reach_at_first(&self, connection: Connection) {
        if let Side::Leaves { terms, call, .. } = &self.side {
            let line = Arc::clone(&self.line);
            let (terms, call) = (Arc::clone(terms), call.clone());
            let mut now = self.now();
            now.connection = Some(connection.clone());
            now.machine = Some(Arc::new(Leaving::new(line, connection, terms, call)));
        }
    }

    /// Has the turn, where another migration of the domain had it when an agent was started in the middle of both.
    fn take_turn(&self) -> Result<(), String> {
        let mut now = self.now();
        if now.turn.is_none() {
            let (here, other) = (self.context.config.host.clone(), self.other.clone());
            let (source, destination) = match &self.side {
                Side::Leaves { .. } => (here, other),
                Side::Arrives { .. } => (other, here),
            };
            let way = turns::Way {
                source,
                destination,
            };
            let turns = self.context.libvirt.turns();
            let turn = turns
                .move_it(self.uuid, self.migration, way)
                .map_err(|taken| format!("the domain {taken}, and has to have its end before"))?;
            now.turn = Some(turn);
        }
        Ok(())
    }

    /// A connection that was had before, if it has not ended, or a new one.
    pub(super) async fn connection(&self) -> Result<Connection, String> {
        let had = self.now().connection.clone();
        match had.filter(|had| had.closed().is_none()) {
            Some(had) => Ok(had),
            None => {
                let connection = self.line.connect().await?;
                self.now().connection = Some(connection.clone());
                Ok(connection)
            }
        }
    }

    /// A way to it over a new connection.
    pub(super) async fn way(&self) -> Way {
        if let Err(why) = self.take_turn() {
            return Way::Unreachable(Some(why));
        }
        // What hangs with the one before may hang for ever.
        self.now().connection = None;
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(why) => return Way::Unreachable(Some(format!("libvirt is not reached: {why}"))),
        };
        match &self.side {
            Side::Leaves { call, terms, .. } => {
                let line = Arc::clone(&self.line);
                let leaving = Leaving::new(line, connection, Arc::clone(terms), call.clone());
                Way::Machine(Arc::new(leaving))
            }
            Side::Arrives { arrival, .. } => match connection.look(self.uuid).await {
                Ok(Some(look)) if is_in_memory(look.domain.state) => {
                    Way::Machine(Arc::new(self.arriving(connection, arrival)))
                }
                Ok(_) => Way::Gone,
                Err(error) => Way::Unreachable(Some(with_sources(&error))),
            },
        }
    }

    pub(super) fn arriving(&self, connection: Connection, arrival: &Arc<Arrival>) -> Arriving {
        let expected = Expected {
            uuid: self.uuid,
            persistent: self.domain.moving.persistent,
            paused: self.domain.moving.paused,
        };
        let (context, arrival) = (Arc::clone(&self.context), Arc::clone(arrival));
        Arriving::new(context, connection, expected, arrival)
    }

    /// How many disks are copied with it.
    pub fn disks(&self) -> u16 {
        self.disks.as_ref().map_or(0, |disks| disks.count)
    }

    /// Those between libvirt's QEMU and a relay.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &PathBuf> {
        let disks = self.disks.as_ref().map(|disks| &disks.socket);
        std::iter::once(&self.memory).chain(disks)
    }

    /// Removes those, which whoever made them may leave.
    pub(super) fn remove_sockets(&self) {
        self.sockets().for_each(|socket| places::remove(socket));
    }

    /// Has libvirt's own QEMU be let in by the relay.
    pub(super) async fn let_qemu_in(&self) -> Result<(), String> {
        let seen = self.context.libvirt.seen();
        let pid = self.context.libvirt.pids(&seen).await.remove(&self.uuid);
        let pid = pid.ok_or("the domain's QEMU is not among this host's processes")?;
        for socket in self.sockets() {
            let (shown, socket) = (socket.display(), socket.clone());
            let given = tokio::task::spawn_blocking(move || places::give_to_user_of(&socket, pid));
            let given = given.await.map_err(|error| error.to_string())?;
            given.map_err(|error| {
                format!(
                    "{shown} cannot be given to the user that the domain's QEMU runs as: {error}"
                )
            })?;
        }
        Ok(())
    }

    /// Has what was changed of it so that it could move be as before.
    pub(super) async fn give_back(&self) -> Result<(), String> {
        let connection = self.connection().await?;
        let given = owed::give_back(&connection, self.uuid, &self.domain).await;
        let given = given.map_err(|error| with_sources(&error))?;
        if given != Given::Back {
            tracing::warn!(domain = %self.uuid, "{}", given.told());
        }
        Ok(())
    }

    /// The same of one that runs here, or did, whatever becomes of that: nobody is kept waiting for it, and what libvirt does not do
    /// is owed.
    pub(super) async fn give_or_owe(&self) {
        let given = tokio::time::timeout(SHOW, self.give_back()).await;
        let given = given.unwrap_or_else(|_| {
            let seconds = SHOW.as_secs();
            Err(format!("libvirt did not answer within {seconds} s"))
        });
        self.now().owes.clear();
        if let Err(why) = given {
            self.owe_settings(&why);
        }
    }

    /// What is left here of one that does not come; why that is not known, else.
    async fn left(&self) -> Result<owed::Left, String> {
        let connection = self.connection().await?;
        let left = owed::left(&connection, self.uuid).await;
        left.map_err(|error| with_sources(&error))
    }

    fn owe(&self, debt: Debt, why: String) {
        let debt = Some(debt);
        self.now().owes.push(Owed { debt, why });
    }
}
