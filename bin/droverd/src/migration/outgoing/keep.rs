//! A guest that stays runs on as it did before.

use std::sync::Arc;
use std::time::Instant;

use drover_hypervisor::{MachineError, MigrationStatus, Movable, RunState};
use drover_migrate::KeptGuest;
use drover_types::with_sources;

use super::{Link, Message};
use crate::limits;
use crate::migration::held::Held;
use crate::migration::observe;
use crate::migration::trouble::About;
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

/// Sees to it that a guest that stays runs, as it did before. How a domain of libvirt's is left is found out.
pub(super) async fn keep(
    link: Link,
    machine: Option<Arc<dyn Movable>>,
    reservation: Arc<dyn Held>,
) -> Option<KeptGuest> {
    if reservation.domain().is_some() {
        return Some(keep_domain(&link, machine, &*reservation).await);
    }
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
    None
}

/// The same of a domain, for as long as it takes: libvirt may have just been killed, which is why the domain stands still, and
/// nobody else has it run again.
async fn keep_domain(
    link: &Link,
    mut machine: Option<Arc<dyn Movable>>,
    held: &dyn Held,
) -> KeptGuest {
    let was_paused = held.domain().is_some_and(|domain| domain.moving.paused);
    let mut resumed = false;
    loop {
        let domain = match machine.take() {
            Some(domain) => domain,
            None => match observe::reach(held, link.not_reached()).await {
                Some(domain) => domain,
                None => return KeptGuest::Gone,
            },
        };
        let error = match domain.state().await {
            Ok(state) => match left(&state, was_paused, resumed) {
                Some(left) => return left,
                None => match domain.resume().await {
                    Ok(()) => {
                        resumed = true;
                        machine = Some(domain);
                        continue;
                    }
                    Err(error) => error,
                },
            },
            Err(error) => error,
        };
        let why = with_sources(&error);
        let why = format!(
            "the domain may stand still on the source until libvirt has it run, which is tried again: {why}"
        );
        link.tell(Message::Trouble(About::Keeping, why)).await;
        machine = Some(domain).filter(|_| !error.is_unanswered());
        tokio::time::sleep(limits::KEEP_AGAIN).await;
    }
}

/// How a domain is left that is in this state; none where it is to be resumed.
fn left(state: &RunState, was_paused: bool, resumed: bool) -> Option<KeptGuest> {
    match state {
        // One whose own system has it sleep does what it did.
        RunState::Running | RunState::Suspended => Some(KeptGuest::Runs),
        RunState::Paused | RunState::FinishMigrate if was_paused => Some(KeptGuest::Runs),
        RunState::Paused | RunState::FinishMigrate if !resumed => None,
        RunState::PostMigrate | RunState::Shutdown => Some(KeptGuest::Gone),
        // Something else stops it again, such as its disk.
        _ => Some(KeptGuest::Stopped),
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
            None => observe::reach(reservation, link.not_reached()).await?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_stays_is_said_to_run_only_where_it_does_or_stood_still_before() {
        let first = |state| left(&state, false, false);
        assert_eq!(first(RunState::Running), Some(KeptGuest::Runs));
        assert_eq!(first(RunState::Paused), None);
        assert_eq!(first(RunState::FinishMigrate), None);
        assert_eq!(first(RunState::PostMigrate), Some(KeptGuest::Gone));
        assert_eq!(first(RunState::InternalError), Some(KeptGuest::Stopped));
        let again = |state| left(&state, false, true);
        assert_eq!(again(RunState::Running), Some(KeptGuest::Runs));
        assert_eq!(again(RunState::Paused), Some(KeptGuest::Stopped));
        let paused = left(&RunState::Paused, true, false);
        assert_eq!(paused, Some(KeptGuest::Runs));
    }
}
