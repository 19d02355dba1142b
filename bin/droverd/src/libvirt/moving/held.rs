use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::{Boxed, Movable};
use drover_libvirt::Connection;
use drover_migrate::Outcome;
use drover_types::{Bytes, HostName, MigrationId, VmName, with_sources};
use uuid::Uuid;

use super::arrival::Arrival;
use super::arriving::{Arriving, Expected};
use super::call::Call;
use super::leaving::{Leaving, Terms};
use super::line::Line;
use super::owed;
use super::places;
use super::record::{Debt, DomainRecord, Owed};
use super::turns::Turn;
use super::words::Left;
use crate::agent::Context;
use crate::libvirt::is_in_memory;
use crate::libvirt::virsh::Place;
use crate::limits::SHOW;
use crate::migration::{Held, Sockets, Way};
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
    pub(super) side: Side,
    pub(super) held: Mutex<Now>,
    pub(super) migration: MigrationId,
}

/// Which host this is.
#[derive(Debug)]
pub(super) enum Side {
    /// It leaves.
    Leaves {
        /// As it travels; none after a restart, when it has been told.
        definition: Option<Box<VmDefinition>>,
        terms: Terms,
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
    role: Option<Role>,
    machine: Option<Arc<dyn Movable>>,
    /// Over which that is reached.
    connection: Option<Connection>,
    /// Nobody else moves it meanwhile. Without it nothing is done with the domain.
    turn: Option<Turn>,
    owes: Vec<Owed>,
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
    fn now(&self) -> MutexGuard<'_, Now> {
        // A panic while it was held leaves nothing half done: each change is one store.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self, code: ErrorCode, why: impl std::fmt::Display) -> Refusal {
        let (name, host) = (&self.domain.moving.name, &self.context.config.host);
        Refusal::new(code, format!("domain {name:?} of {host}: {why}"))
    }

    /// Where commands of libvirt's own are typed.
    fn place(&self) -> Place<'_> {
        Place {
            host: &self.context.config.host,
            uri: Some(self.line.uri()),
        }
    }

    /// What was changed of it so that it could move is not as before.
    fn owe_settings(&self, why: &str) {
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
    async fn owe_definition(&self) {
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

    /// Has a domain that leaves be asked over this connection.
    pub(super) fn reach_at_first(&self, connection: Connection) {
        if let Side::Leaves { terms, call, .. } = &self.side {
            let line = Arc::clone(&self.line);
            let (terms, call) = (terms.clone(), call.clone());
            let mut now = self.now();
            now.connection = Some(connection.clone());
            now.machine = Some(Arc::new(Leaving::new(line, connection, terms, call)));
        }
    }

    /// Has the turn, where another migration of the domain had it when an agent was started in the middle of both.
    fn take_turn(&self) -> Result<(), String> {
        let mut now = self.now();
        if now.turn.is_none() {
            let turn = self.context.libvirt.turns().take(self.uuid, self.migration);
            let turn = turn.map_err(|other| {
                format!("the domain moves by migration {other}, which has to end before")
            })?;
            now.turn = Some(turn);
        }
        Ok(())
    }

    /// A connection that was had before, if it has not ended, or a new one.
    async fn connection(&self) -> Result<Connection, String> {
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
    async fn way(&self) -> Way {
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
                let leaving = Leaving::new(line, connection, terms.clone(), call.clone());
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

    fn arriving(&self, connection: Connection, arrival: &Arc<Arrival>) -> Arriving {
        let expected = Expected {
            uuid: self.uuid,
            persistent: self.domain.moving.persistent,
            paused: self.domain.moving.paused,
        };
        let (context, arrival) = (Arc::clone(&self.context), Arc::clone(arrival));
        Arriving::new(context, connection, expected, arrival)
    }

    /// Has libvirt's own QEMU be let in by the relay.
    async fn let_qemu_in(&self) -> Result<(), String> {
        let seen = self.context.libvirt.seen();
        let pid = self.context.libvirt.pids(&seen).await.remove(&self.uuid);
        let pid = pid.ok_or("the domain's QEMU is not among this host's processes")?;
        let memory = self.memory.clone();
        let given = tokio::task::spawn_blocking(move || places::give_to_user_of(&memory, pid));
        let given = given.await.map_err(|error| error.to_string())?;
        given.map_err(|error| {
            let memory = self.memory.display();
            format!("{memory} cannot be given to the user that the domain's QEMU runs as: {error}")
        })
    }

    /// Has what was changed of it so that it could move be as before.
    async fn give_back(&self) -> Result<(), String> {
        let connection = self.connection().await?;
        let given = owed::give_back(&connection, self.uuid, &self.domain).await;
        given.map_err(|error| with_sources(&error))
    }

    /// What is left here of one that does not come; why that is not known, else.
    async fn left(&self) -> Result<owed::Left, String> {
        let connection = self.connection().await?;
        let left = owed::left(&connection, self.uuid).await;
        left.map_err(|error| with_sources(&error))
    }

    fn owe(&self, debt: Debt, why: String) {
        self.now().owes.push(Owed { debt, why });
    }
}

impl Held for HeldDomain {
    fn name(&self) -> &VmName {
        &self.vm
    }

    fn machine(&self) -> Option<Arc<dyn Movable>> {
        self.now().machine.clone()
    }

    fn reach(&self) -> Boxed<'_, Way> {
        Box::pin(async {
            let way = self.way().await;
            if let Way::Machine(machine) = &way {
                self.now().machine = Some(Arc::clone(machine));
            }
            way
        })
    }

    fn pid(&self) -> Option<u32> {
        // Its memory may be of a kind that libvirt chose: nothing is concluded from it.
        None
    }

    fn role(&self) -> Option<Role> {
        match &self.side {
            Side::Arrives { arrival, .. } => arrival.has_run().then_some(Role::Running),
            Side::Leaves { .. } => self.now().role.clone(),
        }
    }

    fn set_role(&self, role: Role) -> Result<(), Refusal> {
        if let (Side::Arrives { arrival, .. }, Role::Running) = (&self.side, &role) {
            // Before the source is told so.
            arrival.runs().map_err(|error| {
                let why = format!("that it runs here is not written down: {error}");
                self.refusal(ErrorCode::Internal, why)
            })?;
        }
        self.now().role = Some(role);
        Ok(())
    }

    fn travelling_definition(&self) -> Boxed<'_, Result<VmDefinition, Refusal>> {
        Box::pin(async {
            match &self.side {
                Side::Leaves {
                    definition: Some(definition),
                    ..
                } => Ok(VmDefinition::clone(definition)),
                _ => Err(self.refusal(ErrorCode::Internal, "it does not begin to move")),
            }
        })
    }

    fn may_be_kept(&self) -> Option<Bytes> {
        None
    }

    fn hand_off(&self) -> Result<(), Refusal> {
        // libvirt has taken the definition away, or it is taken away with what is left.
        Ok(())
    }

    fn take_back(&self) -> Result<(), Refusal> {
        let why = "its definition went to the destination";
        let refusal = self.refusal(ErrorCode::OfLibvirt, why);
        Err(match &self.side {
            Side::Leaves { terms, .. } if terms.persistent => {
                let kept = terms.kept.display().to_string();
                refusal.next(self.place().command("define {}", &kept))
            }
            _ => refusal,
        })
    }

    fn start_incoming(
        &self,
        _definition: VmDefinition,
    ) -> Boxed<'_, Result<Arc<dyn Movable>, Refusal>> {
        Box::pin(async {
            let Side::Arrives { arrival, .. } = &self.side else {
                return Err(self.refusal(ErrorCode::Internal, "it does not arrive"));
            };
            let connection = self.connection().await;
            let connection =
                connection.map_err(|why| self.refusal(ErrorCode::LibvirtNotKnown, why))?;
            let machine: Arc<dyn Movable> = Arc::new(self.arriving(connection, arrival));
            self.now().machine = Some(Arc::clone(&machine));
            Ok(machine)
        })
    }

    fn way_out(&self, relays_own: Sockets) -> Sockets {
        Sockets {
            qemu: self.memory.clone(),
            ..relays_own
        }
    }

    fn relay_listens(&self) -> Boxed<'_, Result<(), String>> {
        Box::pin(self.let_qemu_in())
    }

    fn way_in(&self) -> Sockets {
        let control = match &self.side {
            Side::Arrives { control, .. } => control.clone(),
            Side::Leaves { .. } => None,
        };
        let qemu = self.memory.clone();
        Sockets { qemu, control }
    }

    fn stays(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            places::remove(&self.memory);
            if let Side::Leaves { terms, call, .. } = &self.side {
                call.never("its migration has ended");
                terms.forget_definition();
            }
            if let Err(why) = self.give_back().await {
                self.owe_settings(&why);
            }
        })
    }

    fn owes(&self) -> Vec<Owed> {
        self.now().owes.clone()
    }

    fn domain(&self) -> Option<&DomainRecord> {
        Some(&self.domain)
    }

    fn after(&self, outcome: &Outcome) -> Option<String> {
        let Side::Leaves { terms, .. } = &self.side else {
            return None;
        };
        let left = Left {
            place: self.place(),
            domain: &self.domain.moving,
            destination: &self.other,
            kept: &terms.kept,
        };
        left.after(outcome)
    }

    fn in_doubt(&self) -> Vec<String> {
        let commands = ["resume {}", "destroy {}"].into_iter();
        let line = |command| self.place().line(command, &self.domain.moving.name);
        commands.map(line).collect()
    }

    fn session_ended(&self) {
        if let Side::Leaves { call, .. } = &self.side {
            call.session_ended();
        }
    }

    fn adopt<'a>(&'a self, _arrived: Option<&'a VmDefinition>) -> Boxed<'a, Result<(), Refusal>> {
        Box::pin(async {
            // It runs here whatever becomes of that, and nobody is kept waiting for it.
            let given = tokio::time::timeout(SHOW, self.give_back()).await;
            let given = given.unwrap_or_else(|_| {
                Err(format!(
                    "libvirt did not answer within {} s",
                    SHOW.as_secs()
                ))
            });
            self.now().owes.clear();
            if let Err(why) = given {
                self.owe_settings(&why);
            }
            Ok(())
        })
    }

    fn came_with_its_definition(&self) -> bool {
        self.domain.moving.persistent && self.role() == Some(Role::Running)
    }

    fn over(&self) {
        if let Side::Arrives { arrival, .. } = &self.side {
            arrival.forget();
        }
    }

    fn end(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // One whose QEMU was killed leaves it.
            places::remove(&self.memory);
            // That it has run counts until its end is written down.
            if let Side::Arrives { arrival, .. } = &self.side
                && !arrival.has_run()
            {
                if arrival.has_begun() {
                    self.owe_definition().await;
                }
                arrival.forget();
            }
        })
    }
}
