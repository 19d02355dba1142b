//! What becomes of the files of a move that has ended.

use std::path::Path;

use drover_api::StorageMovePhase;
use drover_migrate::storage_move::{CopySeen, FileSeen};

use super::record::{Owes, Record, files_of};
use super::{Move, StorageMoves, limits};
use crate::disks;

impl StorageMoves {
    /// Has what is to go go, however long a process has it open.
    pub(super) async fn settle(&self, moving: &Move) {
        let record = moving.record().clone();
        let (state, id) = (&self.context.config.state, files_of(record.view.id));
        if record.owes != Owes::New {
            tokio::task::block_in_place(|| {
                // An agent before may have done so.
                if !disks::paths(state, id).contains(&record.view.to) {
                    return;
                }
                // What was made is the disk, or may be; and what was is not written to any more.
                disks::give(state, id);
                if record.view.phase == StorageMovePhase::Moved {
                    disks::take(state, &[&record.view.from]);
                }
            });
        }
        let mut told = false;
        while moving.record().owes != Owes::Nothing {
            match self.remove(&record).await {
                Ok(what) => self.is_settled(moving, what),
                Err(why) => {
                    if !std::mem::replace(&mut told, true) {
                        moving.record().tell(why);
                    }
                    if record.owes == Owes::New {
                        self.end_copy(&record).await;
                    }
                    tokio::time::sleep(limits::OWED).await;
                }
            }
        }
    }

    /// libvirt may have begun to copy when nobody waited for that any more, as for an agent that was killed.
    async fn end_copy(&self, record: &Record) {
        let disk = self.disk_of(record);
        let Ok(shown) = disk.look().await else {
            return;
        };
        let seen = shown.seen;
        if seen.disk == FileSeen::Old && matches!(seen.copy, CopySeen::Copies | CopySeen::Same) {
            // It is looked at again.
            let _ = disk.give_up().await;
        }
    }

    fn is_settled(&self, moving: &Move, what: String) {
        let mut record = moving.record();
        record.owes = Owes::Nothing;
        record.tell(what);
        if let Err(error) = self.write(&record) {
            let id = record.view.id;
            tracing::warn!(%id, %error, "what was removed is not written down, and is looked for again");
        }
    }

    /// What was done; or why it is not.
    async fn remove(&self, record: &Record) -> Result<String, String> {
        let (works, state) = (&self.context.disk_works, &self.context.config.state);
        let id = files_of(record.view.id);
        let from = record.view.from.display();
        match (record.owes, &record.old) {
            (Owes::Old, Some(old)) => {
                let removed = old.remove(works, state, id).await?;
                Ok(match removed.is_gone() {
                    true => format!("{from} is removed"),
                    false => format!("{from} is not what the disk was any more, and is left"),
                })
            }
            _ => {
                let removed = disks::remove(works, state, id).await?;
                Ok(removed.told())
            }
        }
    }
}

/// What to do about the files, once it has ended so.
pub fn next(record: &Record) -> Option<String> {
    let (from, to) = (record.view.from.display(), record.view.to.display());
    match record.view.phase {
        StorageMovePhase::Moved if record.owes == Owes::Old => None,
        StorageMovePhase::Moved => Some(format!(
            "{from} is as the disk was when it moved, and is not written to any more: nothing is to be started with it; remove it once \
             nobody needs it"
        )),
        StorageMovePhase::Unknown => Some(format!(
            "{from} and {to} are both left: see which of them the guest has (`virsh domblklist`), and remove the other one"
        )),
        _ => None,
    }
}

/// How much room there is where the new file is, for who wonders why a copy failed.
pub fn room(to: &Path) -> String {
    let found = to.parent().and_then(|folder| {
        let folder = folder.to_owned();
        let found = tokio::task::block_in_place(|| rustix::fs::statvfs(&folder)).ok()?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        Some((folder, drover_types::Bytes(free)))
    });
    found.map_or_else(String::new, |(folder, free)| {
        format!(" ({free} are free in {})", folder.display())
    })
}
