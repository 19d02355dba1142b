//! The folders of changes, one each.

use std::fs;
use std::path::PathBuf;

use drover_api::{ErrorCode, Refusal};
use drover_change::{Account, JournalError};
use drover_types::ChangeId;

use crate::limits::{CHANGES_KEPT, CHANGES_LISTED};

/// Where they are.
#[derive(Debug)]
pub struct Folders {
    directory: PathBuf,
}

impl Folders {
    /// Those below this directory.
    pub fn below(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The folder of one, whether it is there or not.
    pub fn of(&self, id: ChangeId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The folder of one that is there.
    ///
    /// # Errors
    /// It is not.
    pub fn existing(&self, id: ChangeId) -> Result<PathBuf, Refusal> {
        let folder = self.of(id);
        if folder.is_dir() {
            return Ok(folder);
        }
        let message = format!("there is no change {id} of this host");
        let next = "`drover doctor changes` lists those that are remembered";
        Err(Refusal::new(ErrorCode::NoSuchChange, message).next(next))
    }

    /// All that there are, the oldest first. What has another name than an id, such as the lock, is none.
    pub fn ids(&self) -> Vec<ChangeId> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let named = entries.flatten().take(CHANGES_LISTED);
        let mut ids: Vec<ChangeId> = named
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The same, with what each tells.
    pub fn all(&self) -> Vec<(ChangeId, Result<Account, JournalError>)> {
        let ids = self.ids().into_iter();
        ids.map(|id| (id, Account::read(&self.of(id)))).collect()
    }

    /// Forgets the oldest ones, as far as nothing of them can be undone, so that there is room for one more.
    ///
    /// # Errors
    /// There are too many that can be.
    pub fn make_room(&self, boot: &str) -> Result<(), Refusal> {
        let all = self.all();
        let mut too_many = (all.len() + 1).saturating_sub(CHANGES_KEPT);
        for (id, read) in all {
            if too_many == 0 {
                break;
            }
            let standing = read.as_ref().map(|account| &account.standing);
            let is_over = standing.is_ok_and(|standing| {
                let is_there = standing.can_be_undone() && standing.boot.as_deref() == Some(boot);
                standing.has_ended() && !is_there
            });
            if is_over && fs::remove_dir_all(self.of(id)).is_ok() {
                too_many -= 1;
            }
        }
        if too_many == 0 {
            return Ok(());
        }
        let message = format!(
            "{CHANGES_KEPT} changes of this host are remembered, and can be undone: there is no room for more"
        );
        let next = "undo some with `drover doctor undo ID`; a restart of the host ends all";
        Err(Refusal::new(ErrorCode::ChangeUnderWay, message).next(next))
    }
}
