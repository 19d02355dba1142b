//! Looking at a hypervisor while a migration is under way.

use std::sync::Arc;

use drover_hypervisor::{
    Exit, MachineError, MachineEvent, MigrationProgress, MigrationStatus, Movable, RunState,
    UnixMicros,
};
use drover_migrate::{GuestSeen, MigrationSeen, Observation, Reason};
use drover_types::{Bytes, with_sources};
use tokio::task::JoinHandle;

use super::held::{Held, Way};
use crate::limits::{OBSERVE, OBSERVE_SWITCH, REACH_AGAIN, SETTLE};

/// What a watcher reports.
#[derive(Debug)]
pub enum Seen {
    /// A look.
    Look(Observation, Box<MigrationProgress>),
    /// The guest stopped.
    Stopped(UnixMicros),
    /// The guest runs.
    Resumed(UnixMicros),
    /// It was looked at in vain, and why.
    Unclear(String),
    /// The connection to QEMU is lost, while its process runs; the watch is over.
    Lost,
    /// The process has ended.
    Gone(Reason),
}

/// One look: the migration first, the guest after it, as [`Observation`] wants it.
pub async fn look(
    machine: &dyn Movable,
) -> Result<(Observation, Box<MigrationProgress>), MachineError> {
    let progress = machine.migration().await?;
    let guest = guest_seen(&machine.state().await?);
    let migration = migration_seen(&progress);
    Ok((Observation { migration, guest }, Box::new(progress)))
}

/// What a person should know of a look that failed: words of who answered, and did not tell.
pub fn unclear(error: &MachineError) -> Option<String> {
    let answered = matches!(error, MachineError::Other { .. }) && !error.is_unanswered();
    answered.then(|| with_sources(error))
}

fn migration_seen(progress: &MigrationProgress) -> MigrationSeen {
    match &progress.status {
        MigrationStatus::None => MigrationSeen::None,
        MigrationStatus::Completed => MigrationSeen::Completed,
        MigrationStatus::Cancelled => MigrationSeen::Cancelled,
        MigrationStatus::Failed => MigrationSeen::Failed {
            reason: Reason::from(progress.error.as_deref().unwrap_or("qemu gives no reason")),
        },
        MigrationStatus::PostcopyActive => MigrationSeen::Postcopy {
            pages: progress.postcopy_bytes > Bytes(0),
        },
        // Only one whose pages had gone out is ever taken up again.
        MigrationStatus::PostcopyRecoverSetup | MigrationStatus::PostcopyRecover => {
            MigrationSeen::Postcopy { pages: true }
        }
        MigrationStatus::PostcopyPaused => MigrationSeen::PostcopyPaused,
        _ => MigrationSeen::Active,
    }
}

fn guest_seen(state: &RunState) -> GuestSeen {
    match state {
        RunState::Running => GuestSeen::Running,
        RunState::Paused | RunState::Prelaunch => GuestSeen::Paused,
        RunState::InMigrate => GuestSeen::InMigrate,
        RunState::FinishMigrate => GuestSeen::FinishMigrate,
        RunState::PostMigrate => GuestSeen::PostMigrate,
        _ => GuestSeen::Other,
    }
}

/// The guest stands still, and what ends that is told by no event: postcopy's devices are on their way.
fn is_switching(observation: &Observation) -> bool {
    let pages = match observation.migration {
        MigrationSeen::Postcopy { pages } => pages,
        _ => return false,
    };
    match observation.guest {
        GuestSeen::InMigrate => true,
        GuestSeen::FinishMigrate => !pages,
        _ => false,
    }
}

/// Looks for a guest's hypervisor until it answers; `None` when it has ended, or nobody wants to know any more. While it runs and does
/// not answer nothing is concluded, and `tell` is told why, where that is known, and says whether anybody hears.
pub async fn reach<F, R>(held: &dyn Held, tell: F) -> Option<Arc<dyn Movable>>
where
    F: Fn(Option<String>) -> R,
    R: Future<Output = bool>,
{
    loop {
        match held.reach().await {
            Way::Machine(machine) => return Some(machine),
            Way::Gone => return None,
            Way::Unreachable(why) => {
                if !tell(why).await {
                    return None;
                }
                tokio::time::sleep(REACH_AGAIN).await;
            }
        }
    }
}

/// How a process ended, as a reason.
pub fn gone(exit: &Exit) -> Reason {
    let words = match exit.stderr.as_slice() {
        [] => String::new(),
        lines => format!(", saying: {}", lines.join(" / ")),
    };
    Reason::from(format!("qemu ended with {}{words}", exit.status))
}

/// Looks at each of the hypervisor's events and every [`OBSERVE`], until it is dropped.
#[derive(Debug)]
pub struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watcher {
    /// Watches `machine`; `report` is awaited for each thing seen, and ends the watch by `false`.
    pub fn start<F, R>(machine: Arc<dyn Movable>, report: F) -> Self
    where
        F: Fn(Seen) -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send,
    {
        Self(tokio::spawn(async move { watch(machine, report).await }))
    }
}

async fn watch<F, R>(machine: Arc<dyn Movable>, report: F)
where
    F: Fn(Seen) -> R,
    R: Future<Output = bool>,
{
    let mut events = machine.events();
    let exited = machine.exited();
    tokio::pin!(exited);
    let mut tick = tokio::time::interval(OBSERVE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hurries = false;
    loop {
        let event = tokio::select! {
            exit = &mut exited => {
                report(Seen::Gone(gone(&exit))).await;
                return;
            }
            event = events.next() => Some(event),
            _ = tick.tick() => None,
            () = tokio::time::sleep(OBSERVE_SWITCH), if hurries => None,
        };
        let first = match event {
            Some(MachineEvent::Stopped { at }) => Some(Seen::Stopped(at)),
            Some(MachineEvent::Resumed { at }) => Some(Seen::Resumed(at)),
            Some(MachineEvent::Disconnected { .. }) => {
                // Mostly the process is ending: its end comes right behind.
                let seen = match tokio::time::timeout(SETTLE, &mut exited).await {
                    Ok(exit) => Seen::Gone(gone(&exit)),
                    Err(_) => Seen::Lost,
                };
                report(seen).await;
                return;
            }
            Some(MachineEvent::MigrationStatus { .. } | MachineEvent::Missed(_)) | None => None,
            Some(_) => continue,
        };
        if let Some(seen) = first
            && !report(seen).await
        {
            return;
        }
        let (observation, progress) = match look(&*machine).await {
            Ok(looked) => looked,
            Err(error) => {
                if let Some(why) = unclear(&error)
                    && !report(Seen::Unclear(why)).await
                {
                    return;
                }
                continue;
            }
        };
        hurries = is_switching(&observation);
        if !report(Seen::Look(observation, progress)).await {
            return;
        }
    }
}
