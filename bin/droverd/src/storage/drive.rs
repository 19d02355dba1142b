//! One move of a disk, from the file that is made to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_api::{NewDisk, StorageMovePhase};
use drover_libvirt::DiskCopy;
use drover_migrate::storage_move::{End, FileSeen, Stage, Step, Wishes, next};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::record::{Owes, Record, files_of};
use super::{Move, StorageMoves, files, limits};
use crate::disks::{self, Owner};
use crate::libvirt::{DiskShown, DomainDisk, Untold};

/// What is remembered from look to look, and needs not outlive the agent.
#[derive(Debug, Default)]
struct Between {
    /// Since when something goes on that is to take a moment.
    moment: Option<Instant>,
    /// What was told of last that hinders it.
    hindered: Option<String>,
}

impl StorageMoves {
    /// Carries it out to its end, then has what is to go go.
    pub(super) async fn drive(
        &self,
        moving: &Move,
        disk: DomainDisk,
        new: Option<(NewDisk, DiskCopy)>,
    ) {
        let begun = match new {
            Some((new, copy)) => self.begin(moving, &disk, &new, &copy).await,
            // What an agent before was making is of no use.
            None if moving.record().stage == Some(Stage::Making) => {
                Err("the agent ended before anything was copied".to_owned())
            }
            None => Ok(()),
        };
        let (end, shown) = match begun {
            Ok(()) => self.follow(moving, &disk).await,
            Err(why) => (End::Kept(why.into()), None),
        };
        self.conclude(moving, end, shown.as_ref());
        drop(disk);
        self.settle(moving).await;
    }

    /// Makes the file, and has libvirt copy to it.
    async fn begin(
        &self,
        moving: &Move,
        disk: &DomainDisk,
        new: &NewDisk,
        copy: &DiskCopy,
    ) -> Result<(), String> {
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let id = moving.view().id;
        let nobody = Owner::nobody(id.0);
        let made = disks::make(
            works,
            state,
            files_of(id),
            &nobody,
            std::slice::from_ref(new),
        );
        made.await?;
        {
            let mut record = moving.record();
            if record.cancelled {
                return Err("it was cancelled before anything was copied".to_owned());
            }
            record.go(Stage::Copying);
            let to = record.view.to.display().to_string();
            record.tell(format!("{to} is made, and the disk is copied to it"));
            self.write(&record)
                .map_err(|error| format!("it cannot be written down: {error}"))?;
        }
        match disk.begin(copy).await {
            Ok(()) => Ok(()),
            Err(Untold::Refused(why)) => Err(why),
            Err(Untold::Unanswered(why)) => {
                moving
                    .record()
                    .tell(format!("whether it is copied is looked at: {why}"));
                Ok(())
            }
        }
    }

    /// Looks and acts until there is an end.
    async fn follow(&self, moving: &Move, disk: &DomainDisk) -> (End, Option<DiskShown>) {
        let mut between = Between::default();
        loop {
            let shown = match disk.look().await {
                Ok(shown) => shown,
                Err(why) => {
                    between.hinders(moving, why);
                    wait(moving, limits::AGAIN).await;
                    continue;
                }
            };
            let stage = see(moving, &shown);
            let Some(stage) = stage else {
                // It has ended, which only this says.
                return (End::Unknown("it is not known how far it was".into()), None);
            };
            let wishes = between.wishes(moving, stage, &shown);
            let step = next(stage, shown.seen, wishes);
            if let Step::End(end) = step {
                return (end, Some(shown));
            }
            match self.act(moving, disk, (stage, wishes), step).await {
                Ok(pause) => wait(moving, pause).await,
                Err(why) => {
                    between.hinders(moving, why);
                    wait(moving, limits::AGAIN).await;
                }
            }
        }
    }

    /// What to wait until the next look.
    async fn act(
        &self,
        moving: &Move,
        disk: &DomainDisk,
        (stage, wishes): (Stage, Wishes),
        step: Step,
    ) -> Result<Duration, String> {
        let told = |done: Result<(), Untold>| {
            done.map_err(|untold| match untold {
                Untold::Refused(why) | Untold::Unanswered(why) => why,
            })
        };
        match step {
            Step::Wait | Step::End(_) => {
                let is_soon = matches!(stage, Stage::Pivoting { .. }) && !wishes.late;
                return Ok(if is_soon {
                    limits::MOMENT
                } else {
                    limits::LOOK
                });
            }
            Step::Go(to) => return self.go(moving, to, wishes),
            Step::Suspend => {
                moving.record().paused_at = Some(Timestamp::now());
                told(disk.suspend().await)?;
            }
            Step::Complete => told(disk.complete().await)?,
            Step::Resume => {
                told(disk.resume().await)?;
                runs_again(&mut moving.record());
            }
            Step::GiveUp => told(disk.give_up().await)?,
        }
        Ok(limits::MOMENT)
    }

    /// Goes on to another stage, once that is written down.
    fn go(&self, moving: &Move, to: Stage, wishes: Wishes) -> Result<Duration, String> {
        let pivots = matches!(to, Stage::Pivoting { .. });
        let mut record = moving.record();
        if pivots && self.ends.load(Ordering::SeqCst) {
            // The next agent does.
            return Ok(limits::LOOK);
        }
        if record.cancelled != wishes.cancelled {
            return Ok(Duration::ZERO);
        }
        let before = record.clone();
        record.go(to);
        if pivots {
            record.paused_at = Some(Timestamp::now());
        }
        if let Err(error) = self.write(&record) {
            *record = before;
            return Err(format!("it cannot be written down: {error}"));
        }
        Ok(Duration::ZERO)
    }

    /// Has all know how it ended.
    fn conclude(&self, moving: &Move, end: End, shown: Option<&DiskShown>) {
        let mut record = moving.record();
        let to = record.view.to.display().to_string();
        match end {
            End::Moved => {
                record.end(StorageMovePhase::Moved);
                record.view.copied = record.view.total;
                record.tell(format!("the disk is {to}"));
                let otherwise = shown.and_then(|shown| defined_otherwise(&record, shown));
                if record.old.is_some() && otherwise.is_none() {
                    record.owes = Owes::Old;
                }
                record.view.next = otherwise.or_else(|| files::next(&record));
            }
            End::Kept(why) => {
                let phase = match record.cancelled {
                    true => StorageMovePhase::Cancelled,
                    false => StorageMovePhase::Failed,
                };
                record.end(phase);
                record.owes = Owes::New;
                if !record.cancelled {
                    let room = files::room(&record.view.to);
                    record.view.cause = Some(format!("{why}{room}"));
                }
                let from = record.view.from.display().to_string();
                record.tell(format!("the disk is {from}, as before: {why}"));
            }
            End::Unknown(why) => {
                record.end(StorageMovePhase::Unknown);
                record.tell(why.to_string());
                record.view.cause = Some(why.to_string());
                record.view.next = files::next(&record);
            }
        }
        if let Err(error) = self.write(&record) {
            let id = record.view.id;
            tracing::error!(%id, %error, "its end is not written down: the next agent looks for it again");
        }
    }
}

impl Between {
    /// Tells once of what hinders it.
    fn hinders(&mut self, moving: &Move, why: String) {
        if self.hindered.as_ref() != Some(&why) {
            moving.record().tell(format!("{why}: it is tried again"));
            self.hindered = Some(why);
        }
    }

    fn wishes(&mut self, moving: &Move, stage: Stage, shown: &DiskShown) -> Wishes {
        let is_moment = stage != Stage::Copying || shown.seen.disk == FileSeen::New;
        let now = Instant::now();
        self.moment = is_moment.then(|| self.moment.unwrap_or(now));
        Wishes {
            cancelled: moving.record().cancelled,
            late: self.moment.is_some_and(|since| now - since > limits::LATE),
        }
    }
}

/// Has all know what was seen; the stage that it was seen at.
fn see(moving: &Move, shown: &DiskShown) -> Option<Stage> {
    let mut record = moving.record();
    if let Some((copied, total)) = shown.copied {
        record.view.copied = copied;
        record.view.total = total;
    }
    record.stage
}

fn runs_again(record: &mut Record) {
    if let Some(since) = record.paused_at.take() {
        let paused = Timestamp::now().duration_since(since).as_millis();
        let paused = u64::try_from(paused).unwrap_or_default();
        record.view.paused_ms = Some(record.view.paused_ms.unwrap_or_default() + paused);
        record.tell(format!("the guest stood still for {paused} ms"));
    }
}

/// What to do where the definition does not name what the disk is.
fn defined_otherwise(record: &Record, shown: &DiskShown) -> Option<String> {
    let (disk, to) = (&record.view.disk, record.view.to.display());
    let named = match (shown.seen.defined, &shown.defined) {
        (None | Some(FileSeen::New), _) => return None,
        (Some(FileSeen::Other), Some(named)) => named.clone(),
        (Some(FileSeen::Old | FileSeen::Other), _) => record.view.from.display().to_string(),
    };
    Some(format!(
        "the domain's definition names {named} for {disk}, and is left so: have it name {to} with `virsh edit` before the domain is \
         started again, or it starts with what is there"
    ))
}

/// Until then, or until somebody wants something.
async fn wait(moving: &Move, pause: Duration) {
    // Either way it is looked again.
    let _ = timeout(pause, moving.wanted.notified()).await;
}
