//! What a migration's task asks of a guest of the agent's own.

use std::sync::{Arc, PoisonError};

use drover_api::{ErrorCode, NewDisk, Refusal, VmDefinition};
use drover_hypervisor::{Boxed, Machine, MachineError, Movable};
use drover_migrate::Outcome;
use drover_types::{Bytes, VmName, with_sources};

use super::arriving::Arriving;
use super::clear::clear;
use super::copying::WithCopies;
use super::local::written_to;
use super::{DISKS_SOCKET, Disks, OwnGuest};
use crate::disks::{self, Came, Known, Stale};
use crate::libvirt::Owed;
use crate::migration::{Held, Sockets, Way};
use crate::registry::{Reached, Role};

impl OwnGuest {
    fn movable(&self, machine: Arc<dyn Machine>) -> Arc<dyn Movable> {
        match self.leave() {
            None => machine,
            Some(copying) => {
                copying.reached(Arc::clone(&machine));
                let copying = Arc::clone(copying);
                Arc::new(WithCopies { copying, machine })
            }
        }
    }

    async fn arrive(&self, definition: VmDefinition) -> Result<Arc<dyn Movable>, Refusal> {
        let (state, id) = (&self.context.config.state, self.migration);
        if let Disks::Arrive(arriving) = &self.disks {
            let works = &self.context.disk_works;
            let made = disks::make(works, state, id, &self.owner(), &arriving.new).await;
            let made = made.map_err(|why| {
                let (vm, host) = (self.name(), &self.context.config.host);
                Refusal::new(ErrorCode::HostLacks, format!("guest {vm}: on {host} {why}"))
            })?;
            *arriving.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
        }
        let machine = self.reservation.start_incoming(definition).await?;
        if let Err(stale) = self.finds_nothing_stale(&*machine).await {
            self.reservation.release().await;
            return Err(stale.refusal(self.name(), &self.context.config.host));
        }
        Ok(machine)
    }

    /// It must not go on with files that it left here when it was moved away with copies of them, nor with what others were to fill. Its
    /// QEMU, which waits, has written to none of them.
    async fn finds_nothing_stale(&self, machine: &dyn Machine) -> Result<(), Stale> {
        let known = Known::read(&self.context.config.state, &self.owner()).await?;
        if known.is_empty() {
            return Ok(());
        }
        let drives = machine.drives().await;
        let drives = drives.map_err(|error| Stale::NotKnown(with_sources(&error)))?;
        let paths = written_to(&drives);
        let made = match &self.disks {
            Disks::Arrive(arriving) => arriving.paths.as_slice(),
            Disks::Stay | Disks::Leave(_) => &[],
        };
        let paths = paths.filter(|path| !made.contains(path)).collect();
        known.judge(paths).await
    }

    /// Takes away what was made for disks that do not come; by their source's word only, once it may have written to them.
    async fn end_disks(&self, arriving: &Arriving, has_run: bool) {
        let came = match (has_run, arriving.has_begun()) {
            (true, _) => Came::Ran,
            (false, true) => Came::Begun,
            (false, false) => Came::Not,
        };
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let came = (came, arriving.paths.as_slice());
        let ended = disks::end(works, state, self.migration, &arriving.source, came);
        if let Some(left) = ended.await {
            // What is to go yet is in the ledger.
            let (debt, why) = (None, left.why);
            self.owed().push(Owed { debt, why });
        }
    }
}

impl Held for OwnGuest {
    fn name(&self) -> &VmName {
        self.reservation.name()
    }

    fn machine(&self) -> Option<Arc<dyn Movable>> {
        let machine = self.reservation.machine()?;
        Some(self.movable(machine))
    }

    fn reach(&self) -> Boxed<'_, Way> {
        Box::pin(async {
            match self.reservation.reach().await {
                Reached::Machine(machine) => Way::Machine(self.movable(machine)),
                Reached::Unreachable => Way::Unreachable(None),
                Reached::Gone => Way::Gone,
            }
        })
    }

    fn pid(&self) -> Option<u32> {
        let machine = self.reservation.machine();
        machine.map(|machine| machine.process().pid)
    }

    fn role(&self) -> Option<Role> {
        self.reservation.role()
    }

    fn set_role(&self, role: Role) -> Result<(), Refusal> {
        self.reservation.set_role(role)
    }

    fn travelling_definition(&self) -> Boxed<'_, Result<VmDefinition, Refusal>> {
        Box::pin(self.reservation.travelling_definition())
    }

    fn travelling_disks(&self) -> Vec<NewDisk> {
        let copying = self.leave();
        copying.map_or_else(Vec::new, |copying| copying.record().disks)
    }

    fn may_be_kept(&self) -> Option<Bytes> {
        self.reservation.may_be_kept()
    }

    fn hand_off(&self) -> Result<(), Refusal> {
        if let Some(copying) = self.leave() {
            let (works, state) = (&self.context.disk_works, &self.context.config.state);
            let (owner, left) = (self.owner(), copying.record().disks);
            self.leaves
                .begin(works, state, self.migration, owner, &left);
        }
        self.reservation.hand_off()
    }

    fn take_back(&self) -> Result<(), Refusal> {
        let (state, owner) = (&self.context.config.state, self.owner());
        if let Err(error) = self.leaves.take_back(state, self.migration, &owner) {
            tracing::error!(vm = %self.name(), %error, "written down still: that it left its disks here");
        }
        self.reservation.take_back()
    }

    fn start_incoming(
        &self,
        definition: VmDefinition,
    ) -> Boxed<'_, Result<Arc<dyn Movable>, Refusal>> {
        Box::pin(self.arrive(definition))
    }

    fn made_ready(&self) -> Option<String> {
        match &self.disks {
            Disks::Arrive(arriving) => {
                let made = arriving.made.lock();
                made.unwrap_or_else(PoisonError::into_inner).clone()
            }
            Disks::Stay | Disks::Leave(_) => None,
        }
    }

    fn way_out(&self, relays_own: Sockets) -> Sockets {
        let disks = self.leave().map(|copying| {
            let record = copying.record();
            drover_carrier::Disks {
                socket: record.socket(),
                count: u16::try_from(record.disks.len()).unwrap_or(u16::MAX),
            }
        });
        Sockets {
            disks,
            ..Sockets::of(relays_own.qemu)
        }
    }

    fn way_in(&self) -> Sockets {
        let directory = self.reservation.directory();
        let disks = match &self.disks {
            Disks::Arrive(arriving) => Some(drover_carrier::Disks {
                socket: directory.join(DISKS_SOCKET),
                count: u16::try_from(arriving.new.len()).unwrap_or(u16::MAX),
            }),
            Disks::Stay | Disks::Leave(_) => None,
        };
        Sockets {
            disks,
            ..Sockets::of(directory.join("migration.sock"))
        }
    }

    fn before_it_listens(&self) -> Boxed<'_, Result<(), MachineError>> {
        Box::pin(async {
            let (Disks::Arrive(arriving), Some(machine)) =
                (&self.disks, self.reservation.machine())
            else {
                return Ok(());
            };
            let socket = self.reservation.directory().join(DISKS_SOCKET);
            arriving.export(&*machine, self.migration, &socket).await
        })
    }

    fn before_it_runs(&self) -> Boxed<'_, Result<(), MachineError>> {
        Box::pin(async {
            match (&self.disks, self.reservation.machine()) {
                (Disks::Arrive(_), Some(machine)) => machine.end_exports().await,
                _ => Ok(()),
            }
        })
    }

    fn stays(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let Some(copying) = self.leave() else {
                return;
            };
            let cleared = match self.reservation.reach().await {
                Reached::Machine(machine) => clear(&*machine, &copying.names).await,
                Reached::Gone => Ok(()),
                Reached::Unreachable => {
                    Err("its QEMU does not answer, and may go on to copy its disks".to_owned())
                }
            };
            match cleared {
                Ok(()) => copying.forget(),
                Err(why) => {
                    let debt = None;
                    self.owed().push(Owed { debt, why });
                }
            }
        })
    }

    fn owes(&self) -> Vec<Owed> {
        self.owed().clone()
    }

    fn after(&self, outcome: &Outcome) -> Option<String> {
        let copying = self.leave().filter(|_| *outcome == Outcome::Completed)?;
        let told = disks::told(&self.context.config.host, &copying.record().disks)?;
        Some(match self.leaves.failed() {
            None => told,
            Some(why) => format!(
                "{told}. This is not written down ({why}): move it back here with `--with-disks` only, once they are removed"
            ),
        })
    }

    fn adopt<'a>(&'a self, arrived: Option<&'a VmDefinition>) -> Boxed<'a, Result<(), Refusal>> {
        Box::pin(async move {
            self.reservation.adopt(arrived)?;
            if let Disks::Arrive(_) = &self.disks {
                disks::give(&self.context.config.state, self.migration);
            }
            Ok(())
        })
    }

    fn end(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let has_run = self.role() == Some(Role::Running);
            self.reservation.release().await;
            match &self.disks {
                Disks::Stay => {}
                Disks::Leave(copying) => copying.forget(),
                Disks::Arrive(arriving) => self.end_disks(arriving, has_run).await,
            }
        })
    }
}
