//! Starting a guest that was suspended: QEMU loads its state, and only then it runs.
//!
//! ```text
//!   QEMU waits ─▶ loads the file ─▶ same bytes? ─▶ saved.json is gone ─▶ runs ─▶ nothing is left of the file
//!       └───────────┴────────────────────┴──────────────────┴─▶ anything fails: QEMU is ended, the state stays
//! ```

use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use drover_api::{ErrorCode, Refusal, VmDefinition};
use drover_hypervisor::{Machine, MachineError, MigrationAddress, RunState, Start};
use drover_types::VmName;
use tokio::time::{sleep, timeout};

use super::broken;
use super::record::Role;
use super::reservation::{Reached, Reservation};
use super::suspend::{copied, plainly, runs_on};
use super::view::started_from;
use crate::limits;
use crate::saved::{SavedState, copy};

impl Reservation {
    /// The saved state from which the guest goes on, where there is one that counts.
    ///
    /// # Errors
    /// It cannot be read, or is of another definition.
    pub(super) fn saved_state(
        &self,
        definition: &VmDefinition,
    ) -> Result<Option<SavedState>, Refusal> {
        let (name, states) = (self.name(), &self.inner.saved);
        let unusable = |problem: String| {
            let path = states.path(name);
            let message = format!(
                "the saved state of guest {name} in {} {problem}",
                path.display()
            );
            Refusal::new(ErrorCode::SavedStateUnusable, message)
        };
        let found = states.find(name);
        let found = found.map_err(|error| {
            unusable(format!("cannot be used: {error}")).next(boots_instead(name))
        })?;
        match found {
            Some(state) if !started_from(definition, &state.definition) => Err(unusable(
                "is of another definition than its file has now".to_owned(),
            )
            .next(format!(
                "take back what was changed in {name}.toml since; {}",
                boots_instead(name)
            ))),
            found => Ok(found),
        }
    }

    /// Boots the guest: what there is of a saved state is given up, unless QEMU does not start.
    ///
    /// # Errors
    /// As [`Self::launch`], or the state cannot be given up.
    pub(super) async fn boot(&self, definition: VmDefinition) -> Result<(), Refusal> {
        let (name, states) = (self.name(), &self.inner.saved);
        let giving_up = format!("give up the saved state of guest {name}");
        let counts = states.counts(name);
        if counts {
            states
                .use_up(name)
                .map_err(|error| broken(&giving_up, &error))?;
        }
        let launched = self.launch(definition, Start::Run, Role::Running).await;
        if launched.is_err() && counts {
            states
                .give_back(name)
                .map_err(|error| broken(&giving_up, &error))?;
        }
        launched?;
        if let Err(error) = states.discard(name) {
            tracing::warn!(vm = %name, %error, "what was saved of it is left");
        }
        Ok(())
    }

    /// Has the guest go on from its saved state.
    ///
    /// # Errors
    /// QEMU does not start or does not take the state. Nothing runs then, and the state is kept.
    pub(super) async fn go_on(
        &self,
        definition: VmDefinition,
        state: &SavedState,
    ) -> Result<(), Refusal> {
        let name = self.name();
        let machine_type = Some(state.machine_type.as_str());
        let machine = self
            .launch_as(definition, machine_type, Start::Incoming, Role::Running)
            .await?;
        let loaded = async {
            self.load(&machine, state).await?;
            let used_up = self.inner.saved.use_up(name);
            used_up.map_err(|error| format!("it cannot be marked as used: {error}"))?;
            self.may_run(&machine).await
        };
        if let Err(problem) = loaded.await {
            self.end().await;
            let message = format!(
                "guest {name} does not go on from its saved state, which is kept: {problem}"
            );
            return Err(Refusal::new(ErrorCode::QemuFailed, message).next(boots_instead(name)));
        }
        self.runs(&machine).await?;
        tracing::info!(vm = %name, since = %state.since, "goes on from its saved state");
        if let Err(error) = self.inner.saved.discard(name) {
            tracing::warn!(vm = %name, %error, "its used state is left");
        }
        Ok(())
    }

    pub(super) async fn load(
        &self,
        machine: &Arc<dyn Machine>,
        state: &SavedState,
    ) -> Result<(), String> {
        let path = &state.path;
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let settings = machine.set_migration(&plainly()).await;
        settings.map_err(|error| error.to_string())?;
        let socket = self.state_socket();
        let listens = machine
            .listen_incoming(&MigrationAddress::Unix(socket.clone()))
            .await;
        listens.map_err(|error| error.to_string())?;
        let stream = UnixStream::connect(&socket);
        let copied = copied(stream, std::future::pending(), move |stream, copied| {
            let sum = copy(file, stream, copied)?;
            stream.shutdown(Shutdown::Write)?;
            Ok(sum)
        });
        let copied = copied.await;
        let arrived = arrived(machine).await;
        match copied {
            Ok(sum) if sum != state.sum => Err(format!(
                "{} is damaged: it was saved as {}, and is {sum}",
                path.display(),
                state.sum
            )),
            // QEMU's own words tell more than a connection that it broke.
            Ok(_) => arrived,
            Err(problem) => Err(arrived.err().unwrap_or(problem)),
        }
    }

    /// Lets it run. Where QEMU refuses, as when somebody else has locked a disk, it has not run: its state counts again.
    async fn may_run(&self, machine: &Arc<dyn Machine>) -> Result<(), String> {
        let Err(MachineError::Refused { reason, .. }) = machine.resume().await else {
            return Ok(());
        };
        if machine.state().await != Ok(RunState::Paused) {
            return Ok(());
        }
        let given_back = self.inner.saved.give_back(self.name());
        given_back.map_err(|error| format!("{reason}; and it is not marked as unused: {error}"))?;
        Err(reason)
    }

    /// That it runs. Once it may have, there is no way back.
    async fn runs(&self, machine: &Arc<dyn Machine>) -> Result<(), Refusal> {
        if machine.state().await == Ok(RunState::Running) {
            return Ok(());
        }
        let again = match self.reach().await {
            Reached::Machine(machine) => runs_on(&machine).await,
            Reached::Unreachable => Err("its QEMU does not answer".to_owned()),
            Reached::Gone => Err("its QEMU has ended".to_owned()),
        };
        again.map_err(|problem| {
            let message = format!(
                "guest {} was loaded and does not run: {problem}",
                self.name()
            );
            Refusal::new(ErrorCode::QemuFailed, message).next(
                "it is tried again each 10 s; to end it by force loses what was in its memory",
            )
        })
    }
}

/// Waits until QEMU has taken the whole state in.
async fn arrived(machine: &Arc<dyn Machine>) -> Result<(), String> {
    let there = async {
        loop {
            match machine.state().await.map_err(|error| error.to_string())? {
                RunState::InMigrate => sleep(limits::SAVED_POLL).await,
                RunState::Paused | RunState::Prelaunch => return Ok(()),
                state => return Err(format!("QEMU has it {state}")),
            }
        }
    };
    let there = async {
        tokio::select! {
            there = timeout(limits::SAVED_STALL, there) => there.unwrap_or_else(|_| {
                let seconds = limits::SAVED_STALL.as_secs();
                Err(format!("QEMU has not taken it in within {seconds} s"))
            }),
            exit = machine.exited() => Err(format!("QEMU has ended: {}", exit.stderr.join(" / "))),
        }
    };
    match there.await {
        // A monitor that breaks off is QEMU ending: what it wrote tells more.
        Err(problem) => match timeout(limits::SAVED_POLL * 50, machine.exited()).await {
            Ok(exit) => Err(format!("QEMU has ended: {}", exit.stderr.join(" / "))),
            Err(_) => Err(problem),
        },
        there => there,
    }
}

fn boots_instead(name: &VmName) -> String {
    format!(
        "`drover vm start {name} --discard-saved-state` gives up what was in its memory, and boots it"
    )
}
