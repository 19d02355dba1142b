//! What becomes of saved states that an earlier agent was at work with, or that were left where a QEMU did not answer.
//!
//! | NAME.json | its QEMU | what is done |
//! |---|---|---|
//! | is there | none | nothing: the guest is suspended |
//! | is there | stands still | it is ended: the state counts |
//! | is there | runs | somebody had it run by hand: the state is removed |
//! | is not | none | what is left of the state is removed |
//! | is not | stands still | it runs on, then the same |
//! | is not | runs | the same |

use std::sync::Arc;

use drover_hypervisor::{Machine, RunState};
use drover_types::VmName;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::reservation::{Reached, Reservation};
use super::suspend::runs_on;
use super::{Purpose, Registry};
use crate::limits;

impl Registry {
    /// Sees to it for as long as the agent runs: a QEMU that did not answer may do so later.
    pub async fn keep_settled(self) {
        loop {
            sleep(limits::SAVED_SETTLE).await;
            self.settle_saved().await;
        }
    }

    /// Decides of all of them, as far as that is possible now.
    pub(super) async fn settle_saved(&self) {
        let states = &self.0.saved;
        let guests = states.guests().unwrap_or_else(|error| {
            let directory = states.directory().display();
            tracing::error!(%directory, %error, "saved states not looked at");
            Vec::new()
        });
        let open = guests.iter().filter(|vm| self.is_unsettled(vm));
        join_all(open.map(|vm| self.settle(vm))).await;
    }

    /// Whether a guest has a saved state that counts.
    pub fn is_suspended(&self, vm: &VmName) -> bool {
        self.0.saved.counts(vm)
    }

    /// Whether something is there of a saved state that its QEMU, or its end, contradicts.
    pub fn is_unsettled(&self, vm: &VmName) -> bool {
        let states = &self.0.saved;
        let has_process = self.held(vm).process;
        states.has_any(vm) && (has_process || !states.counts(vm))
    }

    async fn settle(&self, vm: &VmName) {
        let reservation = match self.reserve_recovered(vm, Purpose::Suspend) {
            Ok(reservation) => reservation,
            // Whoever is at work with it sees to it.
            Err(refusal) => return tracing::debug!(%vm, %refusal, "its saved state is left"),
        };
        let counts = self.0.saved.counts(vm);
        let is_void = match reservation.reach().await {
            Reached::Gone => !counts,
            Reached::Machine(machine) => reservation.settles(&machine, counts).await,
            Reached::Unreachable => {
                tracing::error!(%vm, counts, "its QEMU does not answer: its saved state is left");
                false
            }
        };
        if is_void && let Err(error) = self.0.saved.discard(vm) {
            tracing::error!(%vm, %error, "what was saved of it is left");
        }
    }
}

impl Reservation {
    /// Decides between a guest's QEMU and its saved state, and says whether nothing is to be left of the state.
    async fn settles(&self, machine: &Arc<dyn Machine>, counts: bool) -> bool {
        let vm = self.name();
        match machine.state().await {
            Err(error) => {
                tracing::error!(%vm, counts, %error, "its saved state is left");
                false
            }
            Ok(state) if !stands_still(&state) => {
                if counts {
                    tracing::error!(%vm, %state, "somebody had it run: its saved state counts no longer");
                }
                true
            }
            Ok(_) if counts => {
                tracing::info!(%vm, "saved before the agent ended: its QEMU is ended");
                if let Err(refusal) = self.quit_saved(machine).await {
                    tracing::error!(%vm, %refusal, "its QEMU is left");
                }
                false
            }
            Ok(_) => {
                let runs = runs_on(machine).await;
                match &runs {
                    Ok(()) => tracing::info!(%vm, "was being suspended or started: it runs on"),
                    Err(problem) => {
                        tracing::error!(%vm, %problem, "stands still: `drover vm stop --force` ends it");
                    }
                }
                runs.is_ok()
            }
        }
    }
}

/// Whether a guest has not run since its state was saved.
fn stands_still(state: &RunState) -> bool {
    matches!(
        state,
        RunState::Paused
            | RunState::PostMigrate
            | RunState::FinishMigrate
            | RunState::InMigrate
            | RunState::Prelaunch
    )
}
