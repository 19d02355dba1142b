//! Suspending a guest: its state goes through a UNIX socket into a file, then its QEMU ends.
//!
//! ```text
//!   pause ─▶ migrate to the socket ─▶ file, synced ─▶ saved.json ─▶ quit
//!     └───────────────┴── anything fails ──┴─▶ cancel, run on, nothing is kept
//! ```
//! The guest is not quit before its state counts, and does not run on once it does.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use drover_api::{ErrorCode, Refusal, VmView};
use drover_hypervisor::{Machine, MigrationAddress, MigrationSettings, MigrationStatus, RunState};
use drover_types::{Bytes, VmName};
use jiff::Timestamp;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::definitions::{self, Entry};
use super::operations::no_answer;
use super::reservation::{Reached, Reservation};
use super::view::started_from;
use super::{Purpose, Registry, broken, files};
use crate::limits;
use crate::saved::{Copied, SavedState, Sum, copy};

impl Registry {
    /// Suspends a guest, unless that is given up before its state counts.
    ///
    /// # Errors
    /// It does not run, is busy or cannot be saved: it runs on. Or its QEMU has ended by itself.
    pub async fn suspend(
        &self,
        name: &VmName,
        given_up: impl Future<Output = ()>,
    ) -> Result<VmView, Refusal> {
        let reservation = self.reserve(name, Purpose::Suspend)?;
        let machine = match reservation.reach().await {
            Reached::Machine(machine) => machine,
            Reached::Unreachable => return Err(no_answer(name)),
            Reached::Gone => return Err(self.0.not_running(name)),
        };
        reservation.can_be_saved(&machine).await?;
        if let Err(problem) = reservation.save(&machine, given_up).await {
            return Err(reservation.run_on(&problem).await);
        }
        reservation.quit_saved(&machine).await?;
        drop(reservation);
        Ok(self.afterwards(name).await)
    }
}

impl Reservation {
    /// What can be known before the guest is stopped.
    async fn can_be_saved(&self, machine: &Arc<dyn Machine>) -> Result<(), Refusal> {
        let name = self.name();
        let failed = |problem: &dyn std::fmt::Display| not_suspended(name, problem);
        let state = machine.state().await.map_err(|error| failed(&error))?;
        if state != RunState::Running {
            let message = format!("guest {name} is {state}: only one that runs is suspended");
            return Err(Refusal::new(ErrorCode::VmNotRunning, message));
        }
        let blockers = machine.migration_blockers().await;
        let blockers = blockers.map_err(|error| failed(&error))?;
        if !blockers.is_empty() {
            return Err(failed(&blockers.join("; ")));
        }
        let Some(record) = self.record() else {
            return Err(failed(&"the agent's record of it was lost"));
        };
        let file = definitions::get(&self.inner.config.definitions, name);
        let is_same = |file: &Entry| {
            let file = file.as_ref().ok();
            file.is_some_and(|file| started_from(file, &record.definition))
        };
        if !file.is_some_and(|file| is_same(&file)) {
            let problem = "its definition is not what it was started from any more, so that it could not go on";
            let next = format!(
                "take back what was changed in {name}.toml since, or stop it and start it again"
            );
            return Err(failed(&problem).next(next));
        }
        let wanted = limits::saved_most(record.definition.memory);
        self.has_room(wanted)
    }

    fn has_room(&self, wanted: Bytes) -> Result<(), Refusal> {
        let (name, states) = (self.name(), &self.inner.saved);
        let directory = states.directory().display();
        let room = states
            .room()
            .map_err(|error| broken(format_args!("use {directory}"), &error))?;
        if room >= wanted {
            return Ok(());
        }
        let (mib, free) = (wanted.0 >> 20, room.0 >> 20);
        let message = format!(
            "guest {name} is not suspended: its state may need {mib} MiB, and {directory} has {free} MiB free"
        );
        Err(Refusal::new(ErrorCode::NotEnoughSpace, message)
            .next("make room there, or choose another disk by `suspended` in droverd.toml"))
    }

    /// Stops the guest and saves its state, to where it counts.
    pub(super) async fn save(
        &self,
        machine: &Arc<dyn Machine>,
        given_up: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let (name, states) = (self.name(), &self.inner.saved);
        let record = self.record().ok_or("the agent's record of it was lost")?;
        let machine_type = machine.machine_type().await.map_err(|e| e.to_string())?;
        let file = states.begin(name);
        let path = states.path(name);
        let file = file.map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        let door = Door::open(self)?;
        let settings = machine.set_migration(&plainly()).await;
        settings.map_err(|error| error.to_string())?;
        machine.pause().await.map_err(|error| error.to_string())?;
        let state = machine.state().await.map_err(|error| error.to_string())?;
        if state != RunState::Paused {
            return Err(format!("it is {state} by now"));
        }
        let since = Timestamp::now();
        tracing::info!(vm = %name, path = %path.display(), "stopped, and is saved");
        let sum = door.take_in(machine, file, given_up).await;
        let sum = sum.map_err(|problem| format!("{}: {problem}", path.display()))?;
        tracing::info!(vm = %name, %sum, "saved");
        let state = SavedState {
            path,
            definition: record.definition,
            machine_type,
            qemu_version: machine.version().to_string(),
            sum,
            since,
        };
        states.keep(name, &state).map_err(|error| error.to_string())
    }

    /// Has a guest run on whose state does not count, and says why it was not suspended.
    async fn run_on(&self, problem: &str) -> Refusal {
        let (name, states) = (self.name(), &self.inner.saved);
        let and = match self.reach().await {
            Reached::Machine(machine) => match runs_on(&machine).await {
                Ok(()) => "it runs on".to_owned(),
                Err(error) => {
                    let message = format!("{problem}; and it stands still: {error}");
                    return not_suspended(name, &message)
                        .next("restart droverd, which has it run on");
                }
            },
            Reached::Unreachable => {
                let message = format!("{problem}; its QEMU does not answer");
                return not_suspended(name, &message).next("restart droverd, which has it run on");
            }
            Reached::Gone => "its QEMU has ended".to_owned(),
        };
        if let Err(error) = states.discard(name) {
            tracing::warn!(vm = %name, %error, "what was saved of it is left");
        }
        not_suspended(name, &format!("{problem}; {and}"))
    }

    /// Ends the QEMU of a guest whose state counts.
    pub(super) async fn quit_saved(&self, machine: &Arc<dyn Machine>) -> Result<(), Refusal> {
        self.set_ending(true);
        if let Some((process, exit)) = self.pull_plug(machine).await? {
            self.inner.ended(self.name(), process, &exit, true);
        }
        Ok(())
    }

    /// Where QEMU hands a state over; no longer than that of its monitor.
    pub(super) fn state_socket(&self) -> PathBuf {
        self.directory().join("vm.sock")
    }
}

/// Has a guest run on that was stopped to be saved.
pub(super) async fn runs_on(machine: &Arc<dyn Machine>) -> Result<(), String> {
    let told = |error: drover_hypervisor::MachineError| error.to_string();
    if machine.state().await.map_err(told)? == RunState::Running {
        return Ok(());
    }
    // Where none is under way that says nothing.
    machine.cancel().await.map_err(told)?;
    ended(machine).await?;
    // A moment after that QEMU refuses to have it run still ("Migration is not finalized yet").
    let finished = async {
        while machine.state().await.map_err(told)? == RunState::FinishMigrate {
            sleep(limits::SAVED_POLL).await;
        }
        machine.run_on().await.map_err(told)
    };
    let late = |_| Err("QEMU does not finish its migration".to_owned());
    timeout(limits::SAVED_STALL, finished)
        .await
        .unwrap_or_else(late)
}

/// Waits until no migration is under way, and how it ended.
async fn ended(machine: &Arc<dyn Machine>) -> Result<MigrationStatus, String> {
    let over = async {
        loop {
            let progress = machine.migration().await;
            let status = progress.map_err(|error| error.to_string())?.status;
            if status.is_final() || status == MigrationStatus::None {
                return Ok(status);
            }
            sleep(limits::SAVED_POLL).await;
        }
    };
    let late = || format!("not over after {} s", limits::SAVED_STALL.as_secs());
    timeout(limits::SAVED_STALL, over)
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// A migration whose other end is a file: nobody answers, and every byte comes in its order.
pub(super) fn plainly() -> MigrationSettings {
    MigrationSettings {
        channels: 0,
        return_path: false,
        ..MigrationSettings::default()
    }
}

/// The socket that QEMU saves to.
struct Door {
    path: PathBuf,
    listener: UnixListener,
}

impl Door {
    fn open(of: &Reservation) -> Result<Self, String> {
        let path = of.state_socket();
        let opened = files::remove(&path).and_then(|()| UnixListener::bind(&path));
        let listener = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, listener })
    }

    /// Takes a guest's state into a file, durably.
    async fn take_in(
        &self,
        machine: &Arc<dyn Machine>,
        file: File,
        given_up: impl Future<Output = ()>,
    ) -> Result<Sum, String> {
        let address = MigrationAddress::Unix(self.path.clone());
        let told = machine.migrate(&address).await;
        told.map_err(|error| error.to_string())?;
        let connected = async {
            tokio::select! {
                connected = self.listener.accept() => connected.map_err(|error| error.to_string()),
                status = ended(machine) => Err(format!("saving it has {}", status?)),
            }
        };
        let connected = timeout(limits::SAVED_STALL, connected).await;
        let connected = connected.unwrap_or_else(|_| Err("QEMU does not connect".to_owned()));
        let (stream, _) = connected?;
        let sum = copied(stream.into_std(), given_up, move |stream, copied| {
            let sum = copy(stream, &file, copied)?;
            copied.store(SYNCS, Ordering::Relaxed);
            file.sync_all()?;
            Ok(sum)
        });
        let sum = sum.await?;
        match ended(machine).await? {
            MigrationStatus::Completed => Ok(sum),
            status => Err(format!("saving it has {status}")),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "not removed");
        }
    }
}

/// Told as copied when everything is, and is only to be on disk.
const SYNCS: u64 = u64::MAX;

/// Copies in a thread of its own, unless that is given up or does not move on. The thread then ends when it can: a disk
/// that hangs holds nobody else.
pub(super) async fn copied(
    stream: io::Result<UnixStream>,
    given_up: impl Future<Output = ()>,
    copies: impl FnOnce(&UnixStream, &Copied) -> io::Result<Sum> + Send + 'static,
) -> Result<Sum, String> {
    let prepared = stream.and_then(|stream| {
        stream.set_nonblocking(false)?;
        Ok((stream.try_clone()?, stream))
    });
    let (cut, stream) = prepared.map_err(|error| error.to_string())?;
    let so_far = Copied::default();
    let of_thread = Arc::clone(&so_far);
    let copied = tokio::task::spawn_blocking(move || copies(&stream, &of_thread));
    let problem = tokio::select! {
        copied = copied => {
            let copied = copied.map_err(|error| error.to_string())?;
            return copied.map_err(|error| error.to_string());
        }
        () = given_up => "it was given up".to_owned(),
        problem = stalls(&so_far) => problem,
    };
    if let Err(error) = cut.shutdown(Shutdown::Both) {
        tracing::debug!(%error, "not cut");
    }
    Err(problem)
}

/// Until nothing has moved on for too long.
async fn stalls(so_far: &Copied) -> String {
    loop {
        let before = so_far.load(Ordering::Relaxed);
        let limit = if before == SYNCS {
            limits::SAVED_SYNC
        } else {
            limits::SAVED_STALL
        };
        sleep(limit).await;
        if so_far.load(Ordering::Relaxed) == before {
            return format!("nothing moved on for {} s", limit.as_secs());
        }
    }
}

fn not_suspended(name: &VmName, problem: &dyn std::fmt::Display) -> Refusal {
    let message = format!("guest {name} is not suspended: {problem}");
    Refusal::new(ErrorCode::SuspendFailed, message)
}
