//! Processes of guests: started, watched, ended.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use drover_api::{ErrorCode, ExitView, Refusal, VmDefinition};
use drover_hypervisor::{
    Exit, ExitStatus, Guest, Machine, MachineEvent, MachineEvents, ProcessId, Start, StartError,
};
use drover_types::{VmName, with_sources};
use jiff::Timestamp;

use super::exit::exit_view;
use super::record::{self, Record, Role};
use super::reservation::Reservation;
use super::room::Room;
use super::slot::Running;
use super::{Inner, broken, files};
use crate::facts;

/// What the hypervisor is told of a definition.
pub fn guest(definition: &VmDefinition) -> Guest {
    Guest {
        name: definition.name.clone(),
        memory: definition.memory,
        // A checked definition has fewer.
        vcpus: u16::try_from(definition.vcpus).unwrap_or(u16::MAX),
        binary: definition.qemu.clone(),
        machine: definition.machine.clone(),
        args: definition.args.clone(),
    }
}

impl Reservation {
    /// Starts QEMU. The record is written first, so that an agent that dies meanwhile finds the
    /// process again.
    pub(super) async fn launch(
        &self,
        definition: VmDefinition,
        start: Start,
        role: Role,
    ) -> Result<Arc<dyn Machine>, Refusal> {
        self.launch_as(definition, None, start, role).await
    }

    /// The same with a concrete machine type, where there is one that has to be it.
    pub(super) async fn launch_as(
        &self,
        definition: VmDefinition,
        machine_type: Option<&str>,
        start: Start,
        role: Role,
    ) -> Result<Arc<dyn Machine>, Refusal> {
        let (inner, name) = (&self.inner, self.name());
        self.claim(definition.memory)?;
        let directory = self.directory();
        // Its files are not to be touched: they are how that process is found again.
        if let Some(process) = inner.hypervisor.find(&directory) {
            let message = format!("guest {name} has a qemu already, process {}", process.pid);
            return Err(Refusal::new(ErrorCode::VmRunning, message)
                .next("restart droverd, which takes it up again, or end that process"));
        }
        let record = Record {
            definition,
            role,
            since: Timestamp::now(),
        };
        prepare(&directory, &record).map_err(|error| {
            broken(
                format_args!("prepare the runtime directory {}", directory.display()),
                &error,
            )
        })?;
        let guest = guest(&record.definition);
        let guest = machine_type.map_or(guest.clone(), |own| guest.with_machine_type(own));
        let started = inner.hypervisor.start(&guest, &directory, start).await;
        let machine = match started {
            Ok(machine) => machine,
            Err(error) => return Err(self.not_started(&error, start)),
        };
        let events = machine.events();
        let machine_type = machine.machine_type().await.ok();
        let running = Running {
            process: machine.process(),
            machine: Some(Arc::clone(&machine)),
            record: Some(record),
            machine_type,
            problem: None,
            ending: false,
        };
        tracing::info!(vm = %name, pid = running.process.pid, "qemu started");
        inner.take(name, running, Some(events));
        Ok(machine)
    }

    /// Takes memory for the guest, so that no other start counts on it.
    fn claim(&self, memory: drover_types::Bytes) -> Result<(), Refusal> {
        let available = facts::memory()
            .map_err(|e| broken("read the host's memory", &e))?
            .available;
        let room = Room {
            available,
            headroom: self.inner.config.memory_headroom,
        };
        let mut slots = self.inner.slots();
        room.check(&self.inner.config.host, self.name(), memory, &slots)?;
        if let Some(slot) = slots.get_mut(self.name()) {
            slot.claimed = memory;
        }
        Ok(())
    }

    fn not_started(&self, error: &StartError, start: Start) -> Refusal {
        let name = self.name();
        if start == Start::Incoming {
            self.inner.forget_files(name);
        } else {
            let directory = self.directory();
            if let Err(error) = Record::remove(&directory) {
                tracing::warn!(vm = %name, %error, "record not removed");
            }
            if let StartError::Ended { exit } = error {
                let exit = self.inner.keep_exit(name, exit_view(exit, false));
                self.inner
                    .slots()
                    .entry(name.clone())
                    .or_default()
                    .last_exit = Some(exit);
            }
        }
        let code = match error {
            StartError::Binary { .. } => ErrorCode::QemuMissing,
            StartError::Argument { .. } => ErrorCode::DefinitionInvalid,
            StartError::AlreadyRunning { .. } => ErrorCode::VmRunning,
            _ => ErrorCode::QemuFailed,
        };
        let next = match error {
            StartError::Binary { .. } => "install QEMU there, or correct `qemu` in the definition",
            StartError::PathTooLong { .. } => "choose a shorter `runtime` in droverd.toml",
            _ => "correct the definition, then start it again",
        };
        Refusal::new(
            code,
            format!("guest {name} did not start: {}", with_sources(error)),
        )
        .next(next)
    }

    /// Ends the guest's process, whatever its state, and leaves nothing of it.
    pub(super) async fn end(&self) {
        let running = self.inner.slots().get_mut(self.name()).and_then(|slot| {
            slot.process.as_mut().map(|running| {
                running.ending = true;
                running.clone()
            })
        });
        if let Some(running) = running {
            match &running.machine {
                Some(machine) => {
                    if let Err(error) = machine.kill().await {
                        tracing::error!(vm = %self.name(), %error, "qemu not ended");
                        return;
                    }
                }
                None => {
                    if let Err(error) = running.process.kill().await {
                        tracing::error!(vm = %self.name(), %error, "qemu not ended");
                        return;
                    }
                }
            }
            let mut slots = self.inner.slots();
            if let Some(slot) = slots.get_mut(self.name())
                && slot
                    .process
                    .as_ref()
                    .is_some_and(|r| r.process == running.process)
            {
                slot.process = None;
            }
        }
        self.inner.forget_files(self.name());
    }
}

impl Inner {
    /// Takes a process in and watches it.
    pub(super) fn take(
        self: &Arc<Self>,
        name: &VmName,
        running: Running,
        events: Option<MachineEvents>,
    ) {
        let machine = running.machine.clone();
        {
            let mut slots = self.slots();
            let slot = slots.entry(name.clone()).or_default();
            slot.process = Some(running);
            slot.claimed = drover_types::Bytes(0);
            slot.last_exit = None;
        }
        let Some(machine) = machine else { return };
        let (inner, name) = (Arc::clone(self), name.clone());
        let events = events.unwrap_or_else(|| machine.events());
        tokio::spawn(async move {
            let (exit, clean) = watch(&*machine, events).await;
            inner.ended(&name, machine.process(), &exit, clean);
        });
    }

    /// Notes that a process has ended; the second call for the same one does nothing.
    pub(super) fn ended(&self, name: &VmName, process: ProcessId, exit: &Exit, clean: bool) {
        // Held to the end: whoever sees that the process is gone may start the next one, and its
        // files must not be taken for those of this one.
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(name) else {
            return;
        };
        let Some(running) = slot.process.take_if(|running| running.process == process) else {
            return;
        };
        let expected = running.ending || clean || exit.status == ExitStatus::Code(0);
        let role = running.record.map(|record| record.role);
        let (pid, status) = (process.pid, exit.status);
        if matches!(role, Some(Role::HandedOff { .. } | Role::Incoming { .. })) {
            // Not a guest of this host: nothing to keep. Its migration tells what became of it.
            tracing::info!(vm = %name, pid, %status, "qemu ended");
            self.forget_files(name);
            return;
        }
        if expected {
            tracing::info!(vm = %name, pid, %status, "qemu ended");
        } else {
            let stderr = exit.stderr.join(" / ");
            tracing::error!(vm = %name, pid, %status, %stderr, "qemu ended unasked");
        }
        slot.last_exit = Some(self.keep_exit(name, exit_view(exit, expected)));
    }

    /// Keeps how a guest's last process ended, also for an agent that is started later.
    pub(super) fn keep_exit(&self, name: &VmName, exit: ExitView) -> ExitView {
        let directory = self.directory(name);
        let kept = Record::remove(&directory).and_then(|()| record::save_exit(&directory, &exit));
        if let Err(error) = kept {
            tracing::warn!(vm = %name, %error, "how it ended is not kept across a restart");
        }
        exit
    }

    pub(super) fn forget_files(&self, name: &VmName) {
        let directory = self.directory(name);
        if let Err(error) = files::remove_tree(&directory) {
            let directory = directory.display();
            tracing::warn!(vm = %name, %directory, %error, "runtime directory not removed");
        }
    }
}

/// Waits for a machine's end; whether the guest ended by itself in order.
async fn watch(machine: &dyn Machine, mut events: MachineEvents) -> (Exit, bool) {
    let mut clean = false;
    loop {
        match events.next().await {
            MachineEvent::Shutdown { .. } => clean = true,
            // Everything that it said has been read.
            MachineEvent::Disconnected { .. } => break,
            _ => {}
        }
    }
    let exit = machine.exited().await;
    // Death by a signal is no shutdown, even when one had begun.
    let clean = clean && !matches!(exit.status, ExitStatus::Signal(_));
    (exit, clean)
}

fn prepare(directory: &Path, record: &Record) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    record.save(directory)
}
