//! Who gets the right to change a guest, and why others do not.

use std::sync::Arc;

use drover_api::{ErrorCode, Refusal};
use drover_types::VmName;

use super::definitions;
use super::record::Role;
use super::reservation::Reservation;
use super::slot::Slot;
use super::{Inner, Purpose, Registry};

impl Registry {
    /// Reserves a guest.
    ///
    /// # Errors
    /// It is reserved already, or is not in a state in which this purpose makes sense: one that
    /// starts must not run, one that leaves must run, one that arrives must not be here at all.
    pub fn reserve(&self, name: &VmName, purpose: Purpose) -> Result<Reservation, Refusal> {
        let mut slots = self.0.slots();
        let slot = slots.get(name);
        let allowed = slot
            .map_or(Ok(()), |slot| not_reserved(name, slot))
            .and_then(|()| self.0.suits(name, slot, &purpose));
        allowed?;
        slots.entry(name.clone()).or_default().reserved = Some(purpose);
        Ok(Reservation::new(Arc::clone(&self.0), name.clone()))
    }
}

impl Registry {
    /// Reserves a guest for a migration of the journal, whatever the guest's state: its process
    /// may have ended with the host, and it must not be started until the migration is decided.
    ///
    /// # Errors
    /// It is reserved already.
    pub fn reserve_recovered(
        &self,
        name: &VmName,
        purpose: Purpose,
    ) -> Result<Reservation, Refusal> {
        let mut slots = self.0.slots();
        let slot = slots.entry(name.clone()).or_default();
        not_reserved(name, slot)?;
        slot.reserved = Some(purpose);
        Ok(Reservation::new(Arc::clone(&self.0), name.clone()))
    }
}

fn not_reserved(name: &VmName, slot: &Slot) -> Result<(), Refusal> {
    let busy = |code, what: String, next: String| {
        Err(Refusal::new(code, format!("guest {name} {what}")).next(next))
    };
    let wait = || format!("wait until `drover vm show {name}` tells that it is done");
    match &slot.reserved {
        None => Ok(()),
        Some(Purpose::Start) => busy(ErrorCode::VmBusy, "is being started".into(), wait()),
        Some(Purpose::Stop) => busy(ErrorCode::VmBusy, "is being stopped".into(), wait()),
        Some(Purpose::Suspend) => busy(ErrorCode::VmBusy, "is being suspended".into(), wait()),
        Some(Purpose::Outgoing {
            migration,
            destination,
        }) => busy(
            ErrorCode::MigrationUnderWay,
            format!("is migrating to {destination} (migration {migration})"),
            format!("wait for its end, or end it with `drover cancel {name}`"),
        ),
        Some(Purpose::Incoming { migration, source }) => busy(
            ErrorCode::MigrationUnderWay,
            format!("is arriving from {source} (migration {migration})"),
            format!("wait for its end, or end it on {source} with `drover cancel {name}`"),
        ),
    }
}

impl Inner {
    fn suits(&self, name: &VmName, slot: Option<&Slot>, purpose: &Purpose) -> Result<(), Refusal> {
        let process = slot.and_then(|slot| slot.process.as_ref());
        let role = process
            .and_then(|running| running.record.as_ref())
            .map(|record| &record.role);
        if let Some(Role::HandedOff {
            destination,
            migration,
        }) = role
        {
            let message = format!(
                "guest {name} was handed off to {destination} (migration {migration}); this copy \
                 never runs again"
            );
            let next = format!("ask `drover status` on {destination}");
            return Err(Refusal::new(ErrorCode::VmHandedOff, message).next(next));
        }
        match (purpose, process) {
            (Purpose::Start, Some(running)) => {
                let pid = running.process.pid;
                let message = format!("guest {name} runs already, as process {pid}");
                Err(Refusal::new(ErrorCode::VmRunning, message))
            }
            (Purpose::Incoming { .. }, Some(running)) => {
                let (host, pid) = (&self.config.host, running.process.pid);
                let message = format!("{host} already has a guest {name}, as process {pid}");
                Err(Refusal::new(ErrorCode::VmExists, message)
                    .next(format!("stop it on {host}, or rename one of the two")))
            }
            (Purpose::Incoming { .. }, None) => self.not_known(name),
            (Purpose::Stop | Purpose::Suspend | Purpose::Outgoing { .. }, None) => {
                Err(self.not_running(name))
            }
            _ => Ok(()),
        }
    }

    fn not_known(&self, name: &VmName) -> Result<(), Refusal> {
        let path = definitions::path_of(&self.config.definitions, name);
        let host = &self.config.host;
        if !path.exists() && self.saved.counts(name) {
            let message = format!("{host} has a saved state of a guest {name}");
            return Err(Refusal::new(ErrorCode::VmExists, message).next(format!(
                "`drover vm show {name}` on {host} tells where; define it there to have it go on, or start it there \
                 with --discard-saved-state and stop it"
            )));
        }
        if !path.exists() {
            return Ok(());
        }
        let path = path.display();
        let message = format!("{host} already has a guest {name}, defined in {path}");
        Err(Refusal::new(ErrorCode::VmExists, message).next(format!(
            "remove {path} on {host} if that guest is no longer wanted"
        )))
    }

    /// Why a guest without a process cannot be stopped or moved.
    pub(super) fn not_running(&self, name: &VmName) -> Refusal {
        let start = format!("start it with `drover vm start {name}`");
        match definitions::get(&self.config.definitions, name) {
            Some(_) if self.saved.counts(name) => {
                let message = format!("guest {name} does not run: it is suspended");
                Refusal::new(ErrorCode::VmNotRunning, message).next(format!(
                    "`drover vm start {name}` has it go on, with --discard-saved-state boot"
                ))
            }
            Some(_) => Refusal::new(
                ErrorCode::VmNotRunning,
                format!("guest {name} does not run"),
            )
            .next(start),
            None => self.no_such_vm(name),
        }
    }

    /// Why a guest is not known here.
    pub(super) fn no_such_vm(&self, name: &VmName) -> Refusal {
        let host = &self.config.host;
        let departed = self.departed(name);
        if departed.exists() {
            let message = format!("guest {name} has left {host}");
            let next = format!(
                "`drover status` tells where it went; its definition is kept in {}",
                departed.display()
            );
            return Refusal::new(ErrorCode::NoSuchVm, message).next(next);
        }
        let path = definitions::path_of(&self.config.definitions, name);
        let message = format!("{host} has no guest {name}");
        Refusal::new(ErrorCode::NoSuchVm, message).next(format!(
            "`drover vm list` shows the guests; define one in {}",
            path.display()
        ))
    }
}
