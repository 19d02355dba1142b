use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::{Boxed, Movable};
use drover_libvirt::Connection;
use drover_migrate::Outcome;
use drover_types::{Bytes, HostName, VmName, with_sources};
use uuid::Uuid;

use super::arrival::Arrival;
use super::arriving::{Arriving, Expected};
use super::call::Call;
use super::leaving::{Leaving, Terms};
use super::line::Line;
use super::places;
use super::record::DomainRecord;
use super::turns::Turn;
use super::words::Left;
use crate::agent::Context;
use crate::libvirt::is_in_memory;
use crate::libvirt::virsh::Place;
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
    /// Nobody else moves it meanwhile.
    pub(super) _turn: Turn,
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

    fn no_autostart(&self, why: &str) -> String {
        let command = self
            .place()
            .command("autostart {}", &self.domain.moving.name);
        format!(
            "the domain is not started with its host any more, as it was before: {why}; {command} has it be"
        )
    }

    /// Has a domain that leaves be asked over this connection.
    pub(super) fn reach_at_first(&self, connection: Connection) {
        if let Side::Leaves { terms, call, .. } = &self.side {
            let line = Arc::clone(&self.line);
            let leaving = Leaving::new(line, connection, terms.clone(), call.clone());
            self.now().machine = Some(Arc::new(leaving));
        }
    }

    /// A way to it over a new connection.
    async fn way(&self) -> Way {
        let connection = match self.line.connect().await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(vm = %self.vm, error, "libvirt is not reached");
                return Way::Unreachable;
            }
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
                Err(error) => {
                    tracing::debug!(vm = %self.vm, error = with_sources(&error), "not looked at");
                    Way::Unreachable
                }
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

    /// Has it be started with its host as it was before.
    async fn give_autostart(&self) -> Result<(), String> {
        if !self.domain.moving.autostart {
            return Ok(());
        }
        let connection = self.line.connect().await?;
        let set = connection.set_autostart(self.uuid, true).await;
        set.map_err(|error| with_sources(&error))
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
            let connection = self.line.connect().await;
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

    fn stays(&self) -> Boxed<'_, Vec<String>> {
        Box::pin(async {
            places::remove(&self.memory);
            if let Side::Leaves { terms, .. } = &self.side {
                terms.forget_definition();
            }
            match self.give_autostart().await {
                Ok(()) => Vec::new(),
                Err(why) => vec![self.no_autostart(&why)],
            }
        })
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
            if let Err(why) = self.give_autostart().await {
                tracing::error!(vm = %self.vm, "{}", self.no_autostart(&why));
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
                arrival.forget();
            }
        })
    }
}
