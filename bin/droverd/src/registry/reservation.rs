//! The right to change one guest, and what migrations do with it.
//!
//! ```text
//!   source                                  destination
//!   reserve(Outgoing)                       reserve(Incoming)
//!   set_role(Outgoing)                      start_incoming      QEMU waits
//!     (memory is copied)                      (memory arrives)
//!   hand_off   definition leaves            machine.resume
//!   release    QEMU ends, nothing is left   adopt               definition arrives
//!      or set_role(Running) when kept          or release       nothing is left
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::{Machine, Start};
use drover_types::{Bytes, Convergence, VmName};
use jiff::Timestamp;

use super::definitions;
use super::files;
use super::operations;
use super::record::{Record, Role};
use super::{Inner, Purpose, broken};

/// The right to change one guest; dropping it gives the right back. It changes nothing by itself:
/// a guest keeps the role that it was last given.
#[derive(Debug)]
pub struct Reservation {
    pub(super) inner: Arc<Inner>,
    name: VmName,
}

/// What a look for a guest's process found.
#[derive(Debug)]
pub enum Reached {
    /// It answers.
    Machine(Arc<dyn Machine>),
    /// It runs and does not answer: nothing may be concluded of its guest.
    Unreachable,
    /// It has ended, certainly.
    Gone,
}

/// A guest that was part of a migration when the agent ended. Its process may have ended meanwhile,
/// or not answer: then the reservation has no machine.
#[derive(Debug)]
pub struct Recovered {
    /// The right to change it.
    pub reservation: Reservation,
    /// What it was.
    pub role: Role,
}

impl Reservation {
    pub(super) fn new(inner: Arc<Inner>, name: VmName) -> Self {
        Self { inner, name }
    }

    /// The guest.
    #[must_use]
    pub fn name(&self) -> &VmName {
        &self.name
    }

    /// Its runtime directory; sockets for a migration may be put there.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.inner.directory(&self.name)
    }

    /// The guest's process, while there is one that answers.
    #[must_use]
    pub fn machine(&self) -> Option<Arc<dyn Machine>> {
        let slots = self.inner.slots();
        slots.get(&self.name)?.process.as_ref()?.machine.clone()
    }

    /// The way to the guest's process, made anew where it was lost.
    pub async fn reach(&self) -> Reached {
        if let Some(machine) = self.machine()
            && !operations::is_lost(&machine).await
        {
            return Reached::Machine(machine);
        }
        let slots = |inner: &Inner| inner.slots().get(&self.name)?.process.clone();
        let Some(running) = slots(&self.inner) else {
            return Reached::Gone;
        };
        match self.inner.reconnect(&self.name).await {
            Some(machine) => Reached::Machine(machine),
            None if running.process.is_running() => Reached::Unreachable,
            None => Reached::Gone,
        }
    }

    /// What the guest is here, while it has a process.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.record().map(|record| record.role)
    }

    /// How the running guest's migrations are to be brought to their end.
    #[must_use]
    pub fn convergence(&self) -> Convergence {
        let definition = self.record().map(|record| record.definition);
        let directory = &self.inner.config.definitions;
        definition.map_or_else(Convergence::default, |definition| {
            definitions::as_wished(directory, definition).convergence
        })
    }

    /// The memory of the running guest, where its pages may be kept when it leaves.
    #[must_use]
    pub fn may_be_kept(&self) -> Option<Bytes> {
        let definition = self.record()?.definition;
        let wished = definitions::as_wished(&self.inner.config.definitions, definition);
        wished.checkpoint.then_some(wished.memory)
    }

    /// Why its definition's file cannot be read, where that is so: then what it was started with counts.
    #[must_use]
    pub fn unreadable_wishes(&self) -> Option<String> {
        let read = definitions::get(&self.inner.config.definitions, &self.name);
        read.and_then(Result::err)
    }

    /// The definition of the running guest as it may travel: with its concrete machine type, since
    /// an alias such as `q35` means another machine to another QEMU.
    ///
    /// # Errors
    /// The guest does not run, or QEMU does not tell its machine type.
    pub async fn travelling_definition(&self) -> Result<VmDefinition, Refusal> {
        let (Some(machine), Some(record)) = (self.machine(), self.record()) else {
            return Err(self.inner.not_running(&self.name));
        };
        let machine_type = machine
            .machine_type()
            .await
            .map_err(|error| self.failed(&error))?;
        let guest = super::process::guest(&record.definition).with_machine_type(&machine_type);
        let definition = VmDefinition {
            machine: guest.machine,
            ..record.definition
        };
        Ok(definitions::as_wished(
            &self.inner.config.definitions,
            definition,
        ))
    }

    /// Starts QEMU for a guest that arrives: it waits, and does not run by itself at the end.
    ///
    /// # Errors
    /// A precondition does not hold (the binary, the machine type, the memory), or QEMU does not
    /// start. Nothing is left in either case.
    pub async fn start_incoming(
        &self,
        definition: VmDefinition,
    ) -> Result<Arc<dyn Machine>, Refusal> {
        let Some(Purpose::Incoming { migration, source }) = self.purpose() else {
            return Err(broken(
                "take a guest in",
                &"its reservation has another purpose",
            ));
        };
        self.check_incoming(&definition).await?;
        let role = Role::Incoming { migration, source };
        self.launch(definition, Start::Incoming, role).await
    }

    /// Records what the guest is here. Not for [`Role::HandedOff`]: see [`Self::hand_off`].
    ///
    /// # Errors
    /// The guest has no process, or its record cannot be written.
    pub fn set_role(&self, role: Role) -> Result<(), Refusal> {
        let Some(mut record) = self.record() else {
            return Err(self.inner.not_running(&self.name));
        };
        // A guest that is copied away goes on running as it did.
        let stays = |role: &Role| matches!(role, Role::Running | Role::Outgoing { .. });
        if !(stays(&record.role) && stays(&role)) {
            record.since = Timestamp::now();
        }
        record.role = role;
        let directory = self.directory();
        record.save(&directory).map_err(|error| {
            broken(
                format_args!("write the record in {}", directory.display()),
                &error,
            )
        })?;
        if let Some(running) = self
            .inner
            .slots()
            .get_mut(&self.name)
            .and_then(|s| s.process.as_mut())
        {
            running.record = Some(record);
        }
        Ok(())
    }

    /// Gives the guest away for good, durably: its definition leaves this host, so that nothing
    /// can start it here again. To be called after the verdict is in the journal and before the
    /// destination is told to run. Calling it again does no harm.
    ///
    /// # Errors
    /// The definition cannot be moved. The guest must not run here all the same.
    pub fn hand_off(&self) -> Result<(), Refusal> {
        let Some(Purpose::Outgoing {
            migration,
            destination,
        }) = self.purpose()
        else {
            return Err(broken(
                "hand a guest off",
                &"its reservation has another purpose",
            ));
        };
        let path = definitions::path_of(&self.inner.config.definitions, &self.name);
        let departed = self.inner.departed(&self.name);
        let record = self.record();
        let again = |record: &Record| matches!(record.role, Role::HandedOff { .. });
        if record.as_ref().is_some_and(again) && !path.exists() {
            return Ok(());
        }
        let text = match (files::read(&path), record) {
            (Ok(Some(text)), _) => Some(text),
            // Its file vanished while it ran: what it was started from is known all the same.
            (_, Some(record)) => {
                let remark = format!("{} left this host for {destination}.", self.name);
                definitions::render(&record.definition, &remark).ok()
            }
            // Handed off before, and the agent was restarted since.
            (_, None) => None,
        };
        let moving = format!("move {} to {}", path.display(), departed.display());
        if let Some(text) = text {
            files::write_whole(&departed, text.as_bytes()).map_err(|e| broken(&moving, &e))?;
        }
        files::remove(&path).map_err(|error| broken(&moving, &error))?;
        if self.record().is_some() {
            self.set_role(Role::HandedOff {
                migration,
                destination,
            })?;
        }
        Ok(())
    }

    /// Takes the definition of a guest back that was handed off and then given up, durably. Calling
    /// it again does no harm.
    ///
    /// # Errors
    /// The definition cannot be moved, or is not there.
    pub fn take_back(&self) -> Result<(), Refusal> {
        let path = definitions::path_of(&self.inner.config.definitions, &self.name);
        let departed = self.inner.departed(&self.name);
        let moving = format!("move {} to {}", departed.display(), path.display());
        if path.exists() {
            return Ok(());
        }
        let text = files::read(&departed).map_err(|error| broken(&moving, &error))?;
        let text = text.ok_or_else(|| broken(&moving, &"it is not there"))?;
        files::write_whole(&path, text.as_bytes()).map_err(|error| broken(&moving, &error))?;
        files::remove(&departed).map_err(|error| broken(&moving, &error))
    }

    /// Whether there is a process of the guest here.
    #[must_use]
    pub fn has_process(&self) -> bool {
        let slots = self.inner.slots();
        slots
            .get(&self.name)
            .is_some_and(|slot| slot.process.is_some())
    }

    /// Ends what is left of a guest that was handed off, or that was arriving and will not: its QEMU and its runtime directory.
    pub async fn release(&self) {
        self.end().await;
    }

    /// Makes an arrived guest this host's own: its definition is written, durably. To be called
    /// right after `machine.resume()`, as the guest stands still until then. Calling it again does
    /// no harm. `arrived` is what it was taken in with, for a guest whose process has ended since.
    ///
    /// # Errors
    /// The definition or the record cannot be written. The guest runs here all the same.
    pub fn adopt(&self, arrived: Option<&VmDefinition>) -> Result<(), Refusal> {
        let record = self.record();
        let definition = record.as_ref().map(|record| &record.definition);
        let Some(definition) = definition.or(arrived) else {
            return Err(self.inner.not_running(&self.name));
        };
        let path = definitions::path_of(&self.inner.config.definitions, &self.name);
        let writing = format!("write {}", path.display());
        let remark = match self.purpose() {
            Some(Purpose::Incoming { source, .. }) => format!("{} came from {source}.", self.name),
            _ => format!("{} arrived.", self.name),
        };
        let text =
            definitions::render(definition, &remark).map_err(|error| broken(&writing, &error))?;
        keep_what_is_there(&path, &text).map_err(|error| broken(&writing, &error))?;
        files::write_whole(&path, text.as_bytes()).map_err(|error| broken(&writing, &error))?;
        // It has come back: what is kept from its last departure is out of date.
        let departed = self.inner.departed(&self.name);
        files::remove(&departed)
            .map_err(|error| broken(format_args!("remove {}", departed.display()), &error))?;
        if record.is_none() {
            return Ok(()); // it has run, and ended: there is nothing left to mark
        }
        self.set_role(Role::Running)
    }

    pub(super) fn record(&self) -> Option<Record> {
        self.inner
            .slots()
            .get(&self.name)?
            .process
            .as_ref()?
            .record
            .clone()
    }

    fn purpose(&self) -> Option<Purpose> {
        self.inner.slots().get(&self.name)?.reserved.clone()
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Refusal {
        Refusal::new(
            ErrorCode::QemuFailed,
            format!("guest {}: {error}", self.name),
        )
        .next(format!("`drover vm show {}` tells more", self.name))
    }
}

/// An operator may have put a file there since the guest was taken in.
fn keep_what_is_there(path: &std::path::Path, new: &str) -> std::io::Result<()> {
    match files::read(path) {
        Ok(None) => Ok(()),
        Ok(Some(old)) if old == new => Ok(()),
        _ => std::fs::rename(path, path.with_extension("toml.before-arrival")),
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut slots = self.inner.slots();
        if let Some(slot) = slots.get_mut(&self.name) {
            slot.reserved = None;
            slot.claimed = drover_types::Bytes(0);
            if slot.is_empty() {
                slots.remove(&self.name);
            }
        }
    }
}
