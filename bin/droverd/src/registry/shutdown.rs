//! A guest that was told to shut down, until its process has ended.
//!
//! Owns the wait, over as many monitor connections as it takes. Never kills: a QEMU is told to quit only when
//! it says itself that its guest has shut down. A monitor that breaks off says nothing of its guest.

use std::sync::Arc;

use drover_hypervisor::{Exit, Machine, MachineEvent, MachineEvents, ProcessId, RunState};

use super::reservation::Reservation;
use crate::limits;

/// The wait for a guest's end.
pub struct Shutdown<'r> {
    reservation: &'r Reservation,
    machine: Arc<dyn Machine>,
    events: MachineEvents,
}

/// What was learned.
enum Heard {
    Ended(Exit),
    /// Look at its state.
    Something,
    Lost,
}

impl<'r> Shutdown<'r> {
    /// From now on: taken before the guest is told, so that nothing falls between.
    pub fn of(reservation: &'r Reservation, machine: &Arc<dyn Machine>) -> Self {
        Self {
            reservation,
            machine: Arc::clone(machine),
            events: machine.events(),
        }
    }

    /// Waits for the end of its process, for ever.
    pub async fn awaited(mut self) -> (ProcessId, Exit) {
        let exit = loop {
            match self.hears().await {
                Heard::Ended(exit) => break exit,
                Heard::Something => {
                    if let Some(exit) = self.quits_if_down().await {
                        break exit;
                    }
                }
                Heard::Lost => {
                    if let Some(exit) = self.connects_again().await {
                        break exit;
                    }
                }
            }
        };
        (self.machine.process(), exit)
    }

    async fn hears(&mut self) -> Heard {
        loop {
            tokio::select! {
                exit = self.machine.exited() => return Heard::Ended(exit),
                event = self.events.next() => match event {
                    MachineEvent::Shutdown { .. } | MachineEvent::Missed(_) => return Heard::Something,
                    MachineEvent::Disconnected { .. } => return Heard::Lost,
                    _ => {}
                },
            }
        }
    }

    /// QEMU ends after its guest, unless its arguments tell it to stay.
    async fn quits_if_down(&self) -> Option<Exit> {
        let ended = tokio::time::timeout(limits::AFTER_SHUTDOWN, self.machine.exited());
        if let Ok(exit) = ended.await {
            return Some(exit);
        }
        match self.machine.state().await {
            Ok(RunState::Shutdown) => self.machine.quit().await.ok(),
            _ => None,
        }
    }

    /// Its process may be about to end; if not, only the connection was lost.
    async fn connects_again(&mut self) -> Option<Exit> {
        let ended = tokio::time::timeout(limits::MONITOR_AGAIN, self.machine.exited());
        if let Ok(exit) = ended.await {
            return Some(exit);
        }
        let Reservation { inner, .. } = self.reservation;
        if let Some(machine) = inner.reconnect(self.reservation.name()).await {
            self.events = machine.events();
            self.machine = machine;
            // What it has said meanwhile was not heard.
            if matches!(self.machine.state().await, Ok(RunState::Shutdown)) {
                return self.quits_if_down().await;
            }
        }
        None
    }
}
