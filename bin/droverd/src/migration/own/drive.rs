//! Copies of disks, driven from look to look: what is done is [`mirrors::next`]'s word.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use drover_hypervisor::{
    CopyState, DiskProgress, Machine, MachineError, MachineEvent, MachineEvents, MigrationAddress,
    MigrationStatus, Mirror,
};
use drover_migrate::Reason;
use drover_migrate::mirrors::{self, MemorySeen, MirrorSeen, Stage, Step};
use drover_types::{Bytes, with_sources};
use tokio::time::sleep;

use super::clear::{clear, cut_off};
use super::copying::{Copying, Now};
use crate::limits::OBSERVE;

/// Drives them until memory's migration is over, or they came to nothing.
pub async fn drive(copying: Arc<Copying>, stage: Stage, begins: bool) {
    let mut driven = Driven {
        copying: Arc::clone(&copying),
        stage,
        failed: None,
        ended: BTreeSet::new(),
        was_refused: false,
    };
    let over = tokio::select! {
        over = driven.until_over(begins) => over,
        never = cut_once_yanked(&copying) => match never {},
    };
    if let Some(now) = over {
        driven.end_copies(now).await;
    }
}

/// What QEMU does not end by itself when memory's migration is cut off: it may not be heard of again.
async fn cut_once_yanked(copying: &Copying) -> Infallible {
    let mut yanked = copying.yanked.subscribe();
    // Who sends it is there as long as this is.
    let _ = yanked.wait_for(|yanked| *yanked).await;
    match copying.machine() {
        Some(machine) => cut_off(&*machine, &copying.names).await,
        None => std::future::pending().await,
    }
}

struct Driven {
    copying: Arc<Copying>,
    stage: Stage,
    failed: Option<Reason>,
    /// Those that QEMU was told to end, by their numbers.
    ended: BTreeSet<usize>,
    /// It refused that once.
    was_refused: bool,
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
    /// What is to be told then; none where its QEMU has ended.
    async fn until_over(&mut self, begins: bool) -> Option<Now> {
        if begins && let Err(why) = self.begin().await {
            return Some(Now::Failed(why));
        }
        let mut events = None;
        loop {
            let machine = self.copying.machine()?;
            if machine.exit().is_some() {
                return None;
            }
            // Before the look, so that nothing falls between.
            let heard = events.get_or_insert_with(|| machine.events());
            match self.step(&*machine).await {
                Ok(Then::Look) => {}
                Ok(Then::Wait) => {
                    if !self.wait(heard).await {
                        events = None;
                    }
                }
                Ok(Then::End(now)) => return Some(now),
                // It runs and does not answer: nothing is concluded.
                Err(error) => {
                    tracing::debug!(%error, "disks are looked at again");
                    events = None;
                    sleep(OBSERVE).await;
                }
            }
        }
    }

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
        let status = machine.migration().await?.status;
        let memory = memory(&status);
        let mirrors = self.look(machine).await?;
        let given_up = *self.copying.given_up.borrow();
        if given_up && (self.stage == Stage::Copying || memory == MemorySeen::NotBegun) {
            return Ok(Then::End(Now::Cancelled));
        }
        if given_up && memory != MemorySeen::Over {
            machine.cancel().await?;
            return Ok(Then::Wait);
        }
        match mirrors::next(self.stage, &mirrors, memory) {
            Step::Wait => Ok(Then::Wait),
            Step::BeginMemory => self.begin_memory(machine).await,
            Step::End(ready) => self.end(machine, &ready).await,
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
            Step::GiveUp(disk, reason) => {
                let reason = self.named(disk, reason);
                if self.stage == Stage::Copying {
                    return Ok(Then::End(Now::Failed(reason.to_string())));
                }
                self.failed.get_or_insert(reason);
                if memory == MemorySeen::NotBegun {
                    return Ok(self.over());
                }
                machine.cancel().await?;
                Ok(Then::Wait)
            }
            Step::Over => {
                if status == MigrationStatus::Completed {
                    self.failed = None;
                }
                Ok(self.over())
            }
        }
    }

    /// Why all is given up, with whose copy that is for.
    fn named(&self, disk: Option<usize>, reason: Reason) -> Reason {
        let record = self.copying.record();
        match disk.and_then(|number| record.disks.get(number)) {
            None => reason,
            Some(disk) => {
                let (target, path) = (&disk.target, disk.path.display());
                format!("the copy of its disk {target} ({path}) {reason}").into()
            }
        }
    }

    /// Ends these, each once, as the guest stands still meanwhile.
    async fn end(&mut self, machine: &dyn Machine, ready: &[usize]) -> Result<Then, MachineError> {
        let mut then = Then::Wait;
        for number in ready {
            let Some(name) = self.copying.names.get(*number) else {
                continue;
            };
            if self.ended.contains(number) {
                continue;
            }
            match machine.end_copy(name).await {
                Ok(()) => {
                    self.ended.insert(*number);
                }
                // It has ended since it was looked at. What else it may be is not asked for without a pause.
                Err(MachineError::Refused { operation, reason }) => {
                    tracing::debug!(operation, reason, "disks are looked at again");
                    if !std::mem::replace(&mut self.was_refused, true) {
                        then = Then::Look;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(then)
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
        let address = MigrationAddress::Unix(self.copying.record().memory);
        let begun = machine.migrate(&address).await;
        if let Err(error) = begun
            && !error.is_unanswered()
        {
            return Ok(Then::End(Now::Failed(with_sources(&error))));
        }
        // Before, what QEMU tells is of an earlier one.
        self.copying.show(|shown| shown.now = Now::Memory);
        Ok(Then::Look)
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
        if let Some(machine) = self.copying.machine()
            && let Err(why) = clear(&*machine, &self.copying.names).await
        {
            tracing::warn!(id = %self.copying.migration, why, "tried again once its migration is over");
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
