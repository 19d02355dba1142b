//! A guest that stays runs on as it did before.

use std::sync::Arc;
use std::time::Instant;

use drover_hypervisor::{MachineError, MigrationStatus, Movable, RunState};

use super::Link;
use crate::limits;
use crate::migration::held::Held;
use crate::migration::observe;
use crate::registry::Role;

async fn has_failed(machine: &dyn Movable) -> bool {
    let progress = machine.migration().await;
    progress.is_ok_and(|progress| {
        matches!(
            progress.status,
            MigrationStatus::Failed | MigrationStatus::Cancelled
        )
    })
}

/// Until QEMU has ended its migration it refuses.
async fn lift_dirty_limit(link: &Link, machine: &dyn Movable) {
    let begun = Instant::now();
    while let Err(error) = machine.lift_dirty_limit().await {
        if machine.exit().is_some() {
            return;
        }
        if begun.elapsed() >= limits::KEEP_GUEST {
            let note =
                format!("{error}: a guest with dirty-limit stays slowed down until it has moved");
            return link.fallback(note).await;
        }
        tokio::time::sleep(limits::SOON).await;
    }
}

/// Sees to it that a guest that stays runs, as it did before.
pub(super) async fn keep(
    link: Link,
    machine: Option<Arc<dyn Movable>>,
    reservation: Arc<dyn Held>,
) {
    let kept = go_on(&link, machine, &*reservation);
    match tokio::time::timeout(limits::KEEP_GUEST, kept).await {
        Ok(Some(machine)) => lift_dirty_limit(&link, &*machine).await,
        Ok(None) => {}
        Err(_) => {
            let seconds = limits::KEEP_GUEST.as_secs();
            let vm = reservation.name();
            link.fallback(format!(
                "the guest may stand still: its QEMU did not let it run within {seconds} s, look at `drover vm show {vm}`"
            ))
            .await;
        }
    }
    if matches!(reservation.role(), Some(Role::Outgoing { .. }))
        && let Err(refusal) = reservation.set_role(Role::Running)
    {
        link.fallback(refusal.message).await;
    }
}

/// Has a guest that stays run on; none where its process has ended.
async fn go_on(
    link: &Link,
    mut machine: Option<Arc<dyn Movable>>,
    reservation: &dyn Held,
) -> Option<Arc<dyn Movable>> {
    loop {
        let qemu = match machine.take() {
            Some(qemu) => qemu,
            None => observe::reach(reservation).await?,
        };
        let told = match qemu.state().await {
            Ok(RunState::FinishMigrate) | Err(MachineError::NoAnswer { .. }) => {
                tokio::time::sleep(limits::SOON).await;
                machine = Some(qemu);
                continue;
            }
            Ok(RunState::Paused) => qemu.resume().await,
            // So says QEMU before 8.2 of a guest that was stopped before its migration failed.
            Ok(RunState::PostMigrate) if has_failed(&*qemu).await => qemu.run_on().await,
            Err(error) if error.is_unanswered() => {
                tokio::time::sleep(limits::SOON).await;
                continue;
            }
            _ => return Some(qemu),
        };
        match told {
            Ok(()) => return Some(qemu),
            Err(error) => {
                link.fallback(format!("letting the guest run: {error}"))
                    .await;
                tokio::time::sleep(limits::OBSERVE).await;
                machine = Some(qemu);
            }
        }
    }
}
