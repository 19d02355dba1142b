use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, MovingDomain, Refusal, VmDefinition};
use drover_hypervisor::{Boxed, Movable};
use drover_libvirt::Connection;
use drover_types::{Bytes, VmName, with_sources};
use uuid::Uuid;

use super::arriving::{Arriving, Seen};
use super::call::Call;
use super::leaving::{Leaving, Terms};
use super::line::Line;
use super::places;
use super::turns::Turn;
use crate::agent::Context;
use crate::libvirt::is_in_memory;
use crate::migration::{Held, Sockets, Way};
use crate::registry::{Reservation, Role};

/// The right to a domain that moves, for one migration of it on one host.
#[derive(Debug)]
pub struct HeldDomain {
    pub(super) context: Arc<Context>,
    pub(super) vm: VmName,
    pub(super) uuid: Uuid,
    pub(super) domain: MovingDomain,
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
        seen: Arc<Seen>,
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
        let (name, host) = (&self.domain.name, &self.context.config.host);
        Refusal::new(code, format!("domain {name:?} of {host}: {why}"))
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
            Side::Arrives { seen, .. } => match connection.look(self.uuid).await {
                Ok(Some(look)) if is_in_memory(look.domain.state) => {
                    let paused = self.domain.paused;
                    let seen = Arc::clone(seen);
                    Way::Machine(Arc::new(Arriving::new(connection, self.uuid, paused, seen)))
                }
                Ok(_) => Way::Gone,
                Err(error) => {
                    tracing::debug!(vm = %self.vm, error = with_sources(&error), "not looked at");
                    Way::Unreachable
                }
            },
        }
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

    /// libvirt may have written its definition here before its hypervisor ended; there was none before it came.
    async fn take_definition_away(&self) -> Result<(), String> {
        let connection = self.line.connect().await?;
        let look = connection.look(self.uuid).await;
        let look = look.map_err(|error| with_sources(&error))?;
        match look {
            Some(look) if !is_in_memory(look.domain.state) => {
                let undefined = connection.undefine(self.uuid).await;
                undefined.map_err(|error| with_sources(&error))
            }
            _ => Ok(()),
        }
    }

    /// Has it be started with its host as it was before.
    async fn give_autostart(&self) -> Result<(), String> {
        if !self.domain.autostart {
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
        self.now().role.clone()
    }

    fn set_role(&self, role: Role) -> Result<(), Refusal> {
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
        let why = "its definition went to the destination: define it here again by hand";
        Err(self.refusal(ErrorCode::OfLibvirt, why))
    }

    fn start_incoming(
        &self,
        _definition: VmDefinition,
    ) -> Boxed<'_, Result<Arc<dyn Movable>, Refusal>> {
        Box::pin(async {
            let Side::Arrives { seen, .. } = &self.side else {
                return Err(self.refusal(ErrorCode::Internal, "it does not arrive"));
            };
            let connection = self.line.connect().await;
            let connection =
                connection.map_err(|why| self.refusal(ErrorCode::LibvirtNotKnown, why))?;
            let paused = self.domain.paused;
            let arriving = Arriving::new(connection, self.uuid, paused, Arc::clone(seen));
            let machine: Arc<dyn Movable> = Arc::new(arriving);
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
            match self.give_autostart().await {
                Ok(()) => Vec::new(),
                Err(why) => vec![no_autostart(&self.domain.name, &why)],
            }
        })
    }

    fn domain(&self) -> Option<&MovingDomain> {
        Some(&self.domain)
    }

    fn session_ended(&self) {
        if let Side::Leaves { call, .. } = &self.side {
            call.session_ended();
        }
    }

    fn doubt(&self) -> Option<String> {
        match &self.side {
            Side::Leaves { call, .. } => call.doubt(),
            Side::Arrives { .. } => None,
        }
    }

    fn adopt<'a>(&'a self, _arrived: Option<&'a VmDefinition>) -> Boxed<'a, Result<(), Refusal>> {
        Box::pin(async {
            // It runs here whatever becomes of that, and nobody is kept waiting for it.
            if let Err(why) = self.give_autostart().await {
                tracing::error!(vm = %self.vm, "{}", no_autostart(&self.domain.name, &why));
            }
            Ok(())
        })
    }

    fn does_not_come(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            if let Err(why) = self.take_definition_away().await {
                tracing::error!(vm = %self.vm, "a definition may be left of what did not come: {why}");
            }
        })
    }

    fn end(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // One whose QEMU was killed leaves it.
            places::remove(&self.memory);
        })
    }
}

fn no_autostart(name: &str, why: &str) -> String {
    format!(
        "the domain is not started with its host any more, as it was before: {why}; `virsh autostart` for {name:?} has it be"
    )
}
