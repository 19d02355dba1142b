//! What a migration's task asks of a domain that it holds.

use std::sync::Arc;

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::{Boxed, Movable};
use drover_migrate::Outcome;
use drover_types::{Bytes, VmName};

use super::disks::of;
use super::held::{HeldDomain, Side};
use super::record::{DomainRecord, Owed};
use super::words::Left;
use crate::disks::{self, Owner};
use crate::migration::{Held, Sockets, Way};
use crate::registry::Role;

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
        self.leave_disks();
        // libvirt has taken the definition away, or it is taken away with what is left.
        Ok(())
    }

    fn take_back(&self) -> Result<(), Refusal> {
        let why = "its definition went to the destination";
        let refusal = self.refusal(ErrorCode::OfLibvirt, why);
        Err(match &self.side {
            Side::Leaves { terms, .. } if terms.domain.moving.persistent => {
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
            let (state, copied) = (&self.context.config.state, of(&self.domain.moving));
            let owner = Owner::Domain(self.uuid);
            let works = &self.context.disk_works;
            let made = disks::make(works, state, self.migration, &owner, copied).await;
            self.now().made_ready = made.map_err(|why| self.refusal(ErrorCode::HostLacks, why))?;
            let machine: Arc<dyn Movable> = Arc::new(self.arriving(connection, arrival));
            self.now().machine = Some(Arc::clone(&machine));
            Ok(machine)
        })
    }

    fn made_ready(&self) -> Option<String> {
        self.now().made_ready.clone()
    }

    fn way_out(&self, relays_own: Sockets) -> Sockets {
        Sockets {
            qemu: self.memory.clone(),
            disks: self.disks.clone(),
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
        Sockets {
            qemu: self.memory.clone(),
            control,
            disks: self.disks.clone(),
        }
    }

    fn stays(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.remove_sockets();
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
            // Whoever had it run: the next agent has to know it when nothing of it is left.
            self.set_role(Role::Running)?;
            self.give_or_owe().await;
            Ok(())
        })
    }

    fn came_with_its_definition(&self) -> bool {
        self.domain.moving.persistent && self.role() == Some(Role::Running)
    }

    fn over(&self) {
        if let Side::Arrives { arrival, .. } = &self.side {
            if arrival.has_run() {
                disks::give(&self.context.config.state, self.migration);
            }
            arrival.forget();
        }
    }

    fn end(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // One whose QEMU was killed leaves them.
            self.remove_sockets();
            let Side::Arrives { arrival, .. } = &self.side else {
                return;
            };
            if arrival.has_run() {
                // That counts until its end is written down.
                self.give_or_owe().await;
                return;
            }
            if arrival.has_begun() {
                self.owe_definition().await;
            }
            self.end_disks(arrival).await;
            arrival.forget();
        })
    }
}
