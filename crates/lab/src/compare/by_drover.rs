//! Drover's way to move a guest: one request to the source's agent.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use drover_api::{MigrateRequest, MigrationPhase, MigrationView};
use drover_types::{Convergence, Deadline, DowntimeLimit, HostName};

use super::by_qemu::DOWNTIME_LIMIT_MS;
use super::method::Method;
use crate::agent::Agent;
use crate::lab::Lab;
use crate::libvirt;
use crate::limits;
use crate::meter::{Measured, Meter, QemuTotals};
use crate::resident::{Keeper, Resident};

/// Between two questions to the agent how far it is.
const ASK: std::time::Duration = std::time::Duration::from_millis(100);

/// Where a method has a deadline: past the first round of the lab's usual guest and lines.
const DEADLINE_S: i64 = 6;

/// Moves a guest that an agent runs to the other host, with a deadline where the method does something at it;
/// `watch` is shown every state. What was measured, and what the source's agent tells at the end, and the destination's.
///
/// # Errors
/// The agent refused, or the move failed.
pub async fn move_guest(
    lab: &Lab,
    guest: &mut Resident,
    agents: &[Agent],
    method: Method,
    watch: &mut (dyn FnMut(&MigrationView) + Send),
) -> Result<(Measured, [MigrationView; 2])> {
    let at = |number: usize| {
        let found = agents.iter().find(|agent| agent.host.number == number);
        found.with_context(|| format!("no agent runs on host {number}"))
    };
    let (source, destination) = (at(guest.host)?, at(1 - guest.host)?);
    let at_deadline = method.at_deadline();
    let meter = Meter::begin(lab.settings(), guest, Some([source.pid, destination.pid])).await?;
    let sockets = guest.sockets_on(&destination.host);
    let to: HostName = destination.host.name.parse().context("a host's name")?;
    let request = MigrateRequest {
        to,
        convergence: Convergence {
            downtime_limit_ms: DowntimeLimit::try_from(DOWNTIME_LIMIT_MS).ok(),
            deadline_s: at_deadline.and(Deadline::try_from(DEADLINE_S).ok()),
            at_deadline,
            ..Convergence::default()
        },
        channels: None,
        lanes_per_path: None,
        reduction: method.reduction(),
        with_disks: method.moves_disks(),
        id: None,
    };
    let begun = source
        .client
        .migrate(&guest.definition.name, &request)
        .await?;

    let moved = async {
        let view = follow(source, &begun, watch).await?;
        check(&view).map(|()| view)
    };
    let (monitor, view) = guest.arrive(&sockets, moved).await?;
    let pid = pid_at(destination, guest).await?;
    let totals = QemuTotals {
        payload_bytes: view.bytes.transferred.0,
        rounds: view.round,
    };
    let measured = meter
        .end(lab.settings(), guest, (&monitor, pid), totals)
        .await?;
    let measured = if method.moves_disks() {
        measured.since_the_order()
    } else {
        measured
    };
    guest.monitor = monitor;
    guest.pid = pid;
    guest.host = destination.host.number;
    let arrived = follow(destination, &begun, &mut |_| {}).await?;
    Ok((measured, [view, arrived]))
}

/// The process of a guest that has arrived, as numbered here.
async fn pid_at(agent: &Agent, guest: &Resident) -> Result<u32> {
    let name = &guest.definition.name;
    if matches!(guest.keeper, Keeper::Libvirt) {
        return libvirt::pid_of(&agent.host, name).await;
    }
    let vm = agent.client.vm(name).await?;
    vm.pid
        .context("the destination's agent tells no process of the guest")
}

/// Waits for the end of a migration, as an agent tells of it.
///
/// # Errors
/// The agent does not answer, or it does not end in time.
pub(crate) async fn follow(
    agent: &Agent,
    begun: &MigrationView,
    watch: &mut (dyn FnMut(&MigrationView) + Send),
) -> Result<MigrationView> {
    let deadline = Instant::now() + limits::MOVE;
    loop {
        let view = agent.client.migration(begun.id).await?;
        watch(&view);
        if view.phase.has_ended() {
            return Ok(view);
        }
        if Instant::now() > deadline {
            bail!(
                "migration {} is still {:?} after {} s",
                view.id,
                view.phase,
                limits::MOVE.as_secs()
            );
        }
        tokio::time::sleep(ASK).await;
    }
}

/// Whether a migration ended as wanted, as its source tells it.
///
/// # Errors
/// It did not; why.
pub(crate) fn check(view: &MigrationView) -> Result<()> {
    if view.phase == MigrationPhase::Completed {
        return Ok(());
    }
    let cause = view.cause.as_deref().unwrap_or("no cause was told");
    let next = view
        .next
        .as_ref()
        .map(|next| format!("; {next}"))
        .unwrap_or_default();
    bail!("the migration ended {:?}: {cause}{next}", view.phase)
}
