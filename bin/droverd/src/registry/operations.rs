//! Starting and stopping guests.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    ErrorCode, Refusal, StartRequest, StopRequest, VmDefinition, VmView, limits as api_limits,
};
use drover_hypervisor::{Exit, Machine, MachineError, ProcessId, RunState};
use drover_types::VmName;

use super::definitions;
use super::exit::unwatched_exit;
use super::reservation::Reservation;
use super::shutdown::Shutdown;
use super::{Purpose, Registry};

impl Registry {
    /// Starts a guest: it goes on from its saved state where it has one, unless that is to be discarded.
    ///
    /// # Errors
    /// It runs, is busy, is not or badly defined, has no room, or QEMU does not start; or its saved state cannot be
    /// used.
    pub async fn start(&self, name: &VmName, request: StartRequest) -> Result<VmView, Refusal> {
        // Before the definition is read: a guest that leaves takes it along.
        let reservation = self.reserve(name, Purpose::Start)?;
        let definition = self.definition(name)?;
        match reservation.saved_state(&definition) {
            _ if request.discard_saved_state => reservation.boot(definition).await?,
            Ok(None) => reservation.boot(definition).await?,
            Ok(Some(state)) => reservation.go_on(definition, &state).await?,
            Err(refusal) => return Err(refusal),
        }
        drop(reservation);
        Ok(self.afterwards(name).await)
    }

    /// The guest's definition, checked.
    fn definition(&self, name: &VmName) -> Result<VmDefinition, Refusal> {
        let entry = definitions::get(&self.0.config.definitions, name);
        entry
            .ok_or_else(|| self.0.no_such_vm(name))?
            .map_err(|problem| {
                let message = format!("guest {name} is not usably defined: {problem}");
                Refusal::new(ErrorCode::DefinitionInvalid, message)
                    .next("correct the file, then start the guest again")
            })
    }

    /// Stops a guest: presses its power button and waits, or pulls its plug.
    ///
    /// # Errors
    /// It does not run or is busy, or it did not obey in time and still runs.
    pub async fn stop(&self, name: &VmName, request: &StopRequest) -> Result<VmView, Refusal> {
        let within = (!request.force).then(|| request.within());
        self.stop_within(name, within, std::future::pending()).await
    }

    /// Stops a guest: presses its power button and waits so long or until that is given up, or pulls its plug where
    /// that is none.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub async fn stop_within(
        &self,
        name: &VmName,
        within: Option<Duration>,
        given_up: impl Future<Output = ()>,
    ) -> Result<VmView, Refusal> {
        let reservation = self.reserve(name, Purpose::Stop)?;
        let machine = match reservation.machine() {
            Some(machine) if !is_lost(&machine).await => Some(machine),
            _ => self.0.reconnect(name).await,
        };
        reservation.set_ending(true);
        let stopped = match (machine, within) {
            (Some(machine), None) => reservation.pull_plug(&machine).await,
            (Some(machine), Some(within)) => {
                reservation.press_button(&machine, within, given_up).await
            }
            (None, None) => reservation.kill_unreachable().await,
            (None, Some(_)) => Err(no_answer(name)),
        };
        match stopped {
            Ok(Some((process, exit))) => self.0.ended(name, process, &exit, true),
            Ok(None) => {}
            Err(refusal) => {
                reservation.set_ending(false);
                return Err(refusal);
            }
        }
        drop(reservation);
        Ok(self.afterwards(name).await)
    }
}

/// The process that was ended and how; `None` when it had ended before.
type Ended = Option<(ProcessId, Exit)>;

/// Whether the connection to its QEMU is gone; a new one may work.
pub(super) async fn is_lost(machine: &Arc<dyn Machine>) -> bool {
    matches!(machine.state().await, Err(MachineError::Lost { .. }))
}

pub(super) fn no_answer(name: &VmName) -> Refusal {
    let message = format!("the QEMU of guest {name} does not answer");
    Refusal::new(ErrorCode::QemuFailed, message)
        .next(format!("`drover vm stop {name} --force` ends it at once"))
}

impl Reservation {
    pub(super) fn set_ending(&self, ending: bool) {
        let mut slots = self.inner.slots();
        if let Some(running) = slots
            .get_mut(self.name())
            .and_then(|slot| slot.process.as_mut())
        {
            running.ending = ending;
        }
    }

    fn process(&self) -> Option<ProcessId> {
        Some(
            self.inner
                .slots()
                .get(self.name())?
                .process
                .as_ref()?
                .process,
        )
    }

    pub(super) async fn pull_plug(&self, machine: &Arc<dyn Machine>) -> Result<Ended, Refusal> {
        let exit = match machine.quit().await {
            Ok(exit) => exit,
            Err(error) => {
                tracing::warn!(vm = %self.name(), %error, "killed instead");
                machine.kill().await.map_err(|error| {
                    let message = format!("guest {}: {error}", self.name());
                    Refusal::new(ErrorCode::QemuFailed, message)
                })?
            }
        };
        Ok(Some((machine.process(), exit)))
    }

    async fn press_button(
        &self,
        machine: &Arc<dyn Machine>,
        within: Duration,
        given_up: impl Future<Output = ()>,
    ) -> Result<Ended, Refusal> {
        let name = self.name();
        let failed = |error| Refusal::new(ErrorCode::QemuFailed, format!("guest {name}: {error}"));
        let force = format!("`drover vm stop {name} --force` ends it at once");
        let state = machine.state().await.map_err(failed)?;
        if !matches!(state, RunState::Running | RunState::Suspended) {
            let message = format!("guest {name} is {state}: it cannot obey the power button");
            return Err(Refusal::new(ErrorCode::VmNotRunning, message).next(force));
        }
        let shutdown = Shutdown::of(self, machine);
        match machine.power_down().await {
            // It may have been pressed all the same.
            Ok(()) | Err(MachineError::NoAnswer { .. } | MachineError::Lost { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let ended = tokio::select! {
            ended = tokio::time::timeout(within, shutdown.awaited()) => ended,
            () = given_up => {
                let message = format!("guest {name} is not waited for any more, since it is ended by force");
                return Err(Refusal::new(ErrorCode::VmBusy, message));
            }
        };
        ended.map(Some).map_err(|_| {
            let message = format!(
                "guest {name} did not shut down within {} s of the power button; it still runs",
                within.as_secs()
            );
            Refusal::new(ErrorCode::StopTimeout, message).next(force)
        })
    }

    async fn kill_unreachable(&self) -> Result<Ended, Refusal> {
        let Some(process) = self.process() else {
            return Ok(None);
        };
        process.kill().await.map_err(|error| {
            let (name, pid) = (self.name(), process.pid);
            let message = format!("guest {name}: process {pid} is not ended: {error}");
            Refusal::new(ErrorCode::QemuFailed, message)
                .next(format!("look at it: `ps -o stat,wchan {pid}`"))
        })?;
        Ok(Some((process, unwatched_exit(&self.directory()))))
    }
}

trait Within {
    fn within(&self) -> Duration;
}

impl Within for StopRequest {
    fn within(&self) -> Duration {
        let asked = self
            .timeout_s
            .map_or(api_limits::POWERDOWN, |s| Duration::from_secs(s.into()));
        asked.min(api_limits::POWERDOWN)
    }
}
