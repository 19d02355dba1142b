use std::time::SystemTime;

use drover_hypervisor::{Boxed, MachineEvent, MigrationStatus, Teller, UnixMicros};
use drover_libvirt::{Events, Happening, Notice};
use tokio::sync::watch;
use uuid::Uuid;

use super::call::Stands;

/// What libvirt tells of one domain, and how its migration ends.
pub struct DomainEvents {
    pub events: Events,
    pub domain: Uuid,
    pub call: Option<watch::Receiver<Stands>>,
}

impl Teller for DomainEvents {
    fn next(&mut self) -> Boxed<'_, MachineEvent> {
        Box::pin(async move {
            loop {
                let notice = tokio::select! {
                    notice = self.events.next() => notice,
                    () = changed(&mut self.call) => return look(),
                };
                match notice {
                    Notice::Event(event) if event.uuid == self.domain => {
                        return understood(&event.happening);
                    }
                    Notice::Event(_) => {}
                    Notice::Missed(missed) => return MachineEvent::Missed(missed),
                    Notice::Closed(closed) => {
                        let reason = closed.to_string();
                        return MachineEvent::Disconnected { reason };
                    }
                }
            }
        })
    }
}

/// Waits for news of the call; for ever where there is none.
async fn changed(call: &mut Option<watch::Receiver<Stands>>) {
    if let Some(call) = call
        && call.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn understood(happening: &Happening) -> MachineEvent {
    let at = now();
    match happening {
        Happening::Suspended { .. } => MachineEvent::Stopped { at },
        Happening::Resumed => MachineEvent::Resumed { at },
        Happening::Round(round) => MachineEvent::Round {
            round: u64::from(*round),
            at,
        },
        _ => look(),
    }
}

/// Something of its migration may have changed: the domain itself tells what.
fn look() -> MachineEvent {
    MachineEvent::MigrationStatus {
        status: MigrationStatus::Other("as libvirt shows".to_owned()),
        at: now(),
    }
}

/// libvirt's events have no time of their own; they come within a millisecond.
fn now() -> UnixMicros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    UnixMicros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_and_a_round_are_told_and_all_else_has_the_domain_looked_at() {
        let leaving = Happening::Suspended { leaving: true };
        assert!(matches!(understood(&leaving), MachineEvent::Stopped { .. }));
        assert!(matches!(
            understood(&Happening::Round(3)),
            MachineEvent::Round { round: 3, .. }
        ));
        for other in [Happening::Defined, Happening::Stopped { left: true }] {
            assert!(matches!(
                understood(&other),
                MachineEvent::MigrationStatus { .. }
            ));
        }
    }
}
