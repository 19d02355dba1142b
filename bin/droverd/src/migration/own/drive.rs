//! Copies of disks, driven from look to look: what is done is [`mirrors::next`]'s word.

use std::sync::Arc;
use std::time::Instant;

use drover_hypervisor::{
    CopyState, DiskProgress, Machine, MachineError, MachineEvent, MachineEvents, MigrationAddress,
    MigrationStatus, Mirror,
};
use drover_migrate::Reason;
use drover_migrate::mirrors::{self, MemorySeen, MirrorSeen, Stage, Step};
use drover_types::{Bytes, with_sources};
use tokio::time::sleep;

use super::copying::{Copying, Now};
use crate::limits::{CLEAR_COPIES, CUT_COPIES, OBSERVE, SOON};

/// Drives them until memory's migration is over, or they came to nothing.
pub async fn drive(copying: Arc<Copying>, stage: Stage, begins: bool) {
    let mut driven = Driven {
        copying,
        stage,
        failed: None,
    };
    if begins && let Err(why) = driven.begin().await {
        return driven.end_copies(Now::Failed(why)).await;
    }
    let mut events = None;
    loop {
        let Some(machine) = driven.copying.machine() else {
            return;
        };
        if machine.exit().is_some() {
            return;
        }
        // Before the look, so that nothing falls between.
        let heard = events.get_or_insert_with(|| machine.events());
        match driven.step(&*machine).await {
            Ok(Then::Look) => {}
            Ok(Then::Wait) => {
                if !driven.wait(heard).await {
                    events = None;
                }
            }
            Ok(Then::End(now)) => return driven.end_copies(now).await,
            // It runs and does not answer: nothing is concluded.
            Err(error) => {
                tracing::debug!(%error, "disks are looked at again");
                events = None;
                sleep(OBSERVE).await;
            }
        }
    }
}

struct Driven {
    copying: Arc<Copying>,
    stage: Stage,
    failed: Option<Reason>,
}

enum Then {
    /// There may be more to do at once.
    Look,
    /// Until something happens.
    Wait,
    /// It is over; what is told once copies are cleared away.
    End(Now),
}

impl Driven {
    /// Has QEMU begin all copies.
    async fn begin(&self) -> Result<(), String> {
        let record = self.copying.record();
        let socket = record.socket();
        let machine = self.copying.machine().ok_or("QEMU is not reached")?;
        let disks = self.copying.names.iter().zip(&record.nodes);
        for ((name, node), disk) in disks.zip(&record.disks) {
            let mirror = Mirror {
                name,
                node,
                socket: &socket,
            };
            if *self.copying.given_up.borrow() {
                return Ok(());
            }
            let begun = machine.mirror(&mirror).await;
            begun.map_err(|error| {
                let (target, why) = (&disk.target, with_sources(&error));
                format!("its disk {target} is not copied: {why}")
            })?;
        }
        Ok(())
    }

    async fn step(&mut self, machine: &dyn Machine) -> Result<Then, MachineError> {
        let memory = memory(&machine.migration().await?.status);
        let mirrors = self.look(machine).await?;
        let given_up = *self.copying.given_up.borrow();
        if given_up && self.stage == Stage::Copying {
            return Ok(Then::End(Now::Cancelled));
        }
        if given_up && memory != MemorySeen::Over {
            machine.cancel().await?;
            return Ok(Then::Wait);
        }
        match mirrors::next(self.stage, &mirrors, memory) {
            Step::Wait => Ok(Then::Wait),
            Step::BeginMemory => self.begin_memory(machine).await,
            Step::End(ready) => {
                for name in ready
                    .iter()
                    .filter_map(|number| self.copying.names.get(*number))
                {
                    machine.end_copy(name).await?;
                }
                Ok(Then::Wait)
            }
            Step::AllEnded => {
                // Not written down, for which the guest would stand still longer: an agent that did not see it gives up.
                self.stage = Stage::Ended;
                Ok(Then::Look)
            }
            Step::SwitchOver => {
                for name in &self.copying.names {
                    machine.let_go(name).await?;
                }
                machine.switch_over().await?;
                Ok(Then::Wait)
            }
            Step::GiveUp(reason) if self.stage == Stage::Copying => {
                Ok(Then::End(Now::Failed(reason.to_string())))
            }
            Step::GiveUp(reason) => {
                self.failed.get_or_insert(reason);
                if memory == MemorySeen::NotBegun {
                    return Ok(self.over());
                }
                machine.cancel().await?;
                Ok(Then::Wait)
            }
            Step::Over => Ok(self.over()),
        }
    }

    /// Why it failed is known here where that was for the disks; QEMU tells all else.
    fn over(&mut self) -> Then {
        let failed = self.failed.take();
        Then::End(failed.map_or(Now::Rest, |reason| Now::Failed(reason.to_string())))
    }

    async fn begin_memory(&mut self, machine: &dyn Machine) -> Result<Then, MachineError> {
        if let Err(error) = self.copying.enter(Stage::Memory) {
            let why = format!("that its memory moves cannot be written down: {error}");
            return Ok(Then::End(Now::Failed(why)));
        }
        self.stage = Stage::Memory;
        self.copying.show(|shown| shown.now = Now::Memory);
        let address = MigrationAddress::Unix(self.copying.record().memory);
        match machine.migrate(&address).await {
            Ok(()) => Ok(Then::Look),
            Err(error) if error.is_unanswered() => Ok(Then::Look),
            Err(error) => Ok(Then::End(Now::Failed(with_sources(&error)))),
        }
    }

    async fn look(&self, machine: &dyn Machine) -> Result<Vec<MirrorSeen>, MachineError> {
        let copies = machine.copies().await?;
        let (mut seen, mut disks) = (
            Vec::new(),
            DiskProgress {
                copied: Bytes(0),
                total: Bytes(0),
            },
        );
        for name in &self.copying.names {
            let copy = copies.iter().find(|copy| copy.name == *name);
            if let Some(copy) = copy {
                disks.copied.0 = disks.copied.0.saturating_add(copy.done.0);
                disks.total.0 = disks.total.0.saturating_add(copy.total.0);
            }
            seen.push(match copy.map(|copy| &copy.state) {
                None => MirrorSeen::Absent,
                Some(CopyState::Copies) => MirrorSeen::Copies,
                Some(CopyState::Ready) => MirrorSeen::Ready,
                Some(CopyState::Ended(None)) => MirrorSeen::Ended,
                Some(CopyState::Ended(Some(why))) => MirrorSeen::Failed(why.as_str().into()),
            });
        }
        if !seen.contains(&MirrorSeen::Absent) {
            self.copying.show(|shown| shown.disks = Some(disks));
        }
        Ok(seen)
    }

    /// Until something that matters happens; false where nothing is heard any more.
    async fn wait(&self, events: &mut MachineEvents) -> bool {
        let mut given_up = self.copying.given_up.subscribe();
        let until = sleep(OBSERVE);
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return true,
                _ = given_up.changed() => return true,
                event = events.next() => match event {
                    MachineEvent::MigrationStatus { .. } | MachineEvent::Missed(_) => return true,
                    MachineEvent::Other { name, .. } if name.contains("JOB") => return true,
                    MachineEvent::Disconnected { .. } => {
                        sleep(OBSERVE).await;
                        return false;
                    }
                    _ => {}
                },
            }
        }
    }

    async fn end_copies(self, now: Now) {
        if let Some(machine) = self.copying.machine() {
            clear(&*machine, &self.copying.names).await;
        }
        self.copying.show(|shown| shown.now = now);
    }
}

fn memory(status: &MigrationStatus) -> MemorySeen {
    match status {
        MigrationStatus::None => MemorySeen::NotBegun,
        MigrationStatus::PreSwitchover => MemorySeen::Waits,
        status if status.is_final() => MemorySeen::Over,
        _ => MemorySeen::UnderWay,
    }
}

/// Cuts all of them off, whatever QEMU waits for.
pub async fn cut(machine: &dyn Machine, names: &[String]) {
    for name in names {
        if let Err(error) = machine.cut_copy(name).await {
            tracing::debug!(name, %error, "copy not cut");
        }
    }
}

/// Sees to it that nothing is left of them in a QEMU that goes on. They are cut off only where they do not end otherwise: QEMU 10.0.2 has hung,
/// its guest with it, when two were cut off at once.
pub async fn clear(machine: &dyn Machine, names: &[String]) {
    let cut_off = async {
        sleep(CUT_COPIES).await;
        cut(machine, names).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = give_up(machine, names) => {}
        () = cut_off => {}
    }
}

async fn give_up(machine: &dyn Machine, names: &[String]) {
    let begun = Instant::now();
    let mut asked = false;
    loop {
        if machine.exit().is_some() {
            return;
        }
        let copies = machine.copies().await.unwrap_or_default();
        let runs = |name: &&String| {
            let mut copies = copies.iter();
            copies.any(|copy| copy.name == **name && !matches!(copy.state, CopyState::Ended(_)))
        };
        let left: Vec<_> = names.iter().filter(runs).collect();
        if left.is_empty() {
            break;
        }
        if begun.elapsed() > CLEAR_COPIES {
            return tracing::warn!(?left, "copies of disks have not ended yet");
        }
        if !std::mem::replace(&mut asked, true) {
            for name in left {
                // One that has just ended is none to give up.
                if let Err(error) = machine.give_copy_up(name).await {
                    tracing::debug!(name, %error, "copy not given up");
                }
            }
        }
        sleep(SOON).await;
    }
    for name in names {
        if let Err(error) = machine.let_go(name).await {
            tracing::warn!(name, %error, "a disk's copy is not let go");
        }
    }
}
