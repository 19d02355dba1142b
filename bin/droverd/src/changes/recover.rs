//! Goes back with what a process left that has died, whether this agent has started it or an earlier one.

use std::sync::Arc;

use drover_change::{Account, Journal, JournalError};
use drover_types::{ChangeId, with_sources};

use super::{Changes, What};
use crate::limits;

impl Changes {
    /// Looks for as long as the agent lives.
    pub async fn keep_up(self: Arc<Self>) {
        loop {
            tokio::task::block_in_place(|| self.take_up());
            tokio::time::sleep(limits::CHANGES_LOOK).await;
        }
    }

    /// The newest first: what it has set is to be gone before what was set before it.
    fn take_up(&self) {
        for id in self.folders.ids().into_iter().rev() {
            if self.settled().contains(&id) {
                continue;
            }
            match Account::read(&self.folders.of(id)) {
                // Of one that can be undone the process that does so may die as well.
                Ok(account) if account.standing.can_be_undone() => {}
                Ok(account) if account.standing.has_ended() => {
                    self.settled().insert(id);
                }
                // One at a time: the next one at the next look.
                Ok(_) => return self.take_up_one(id),
                Err(JournalError::NotBegun { .. }) => self.remove(id),
                Err(error) => self.unreadable(id, &error),
            }
        }
    }

    /// What cannot be read now may be readable at the next look; what is no journal stays none.
    fn unreadable(&self, id: ChangeId, error: &JournalError) {
        let is_for_good = matches!(
            error,
            JournalError::Broken { .. } | JournalError::Records { .. }
        );
        let error = with_sources(error);
        tracing::error!(%id, error, is_for_good, "it is not known what is left of a change");
        if is_for_good {
            self.settled().insert(id);
        }
    }

    fn take_up_one(&self, id: ChangeId) {
        let folder = self.folders.of(id);
        match Journal::open(&folder) {
            // It was at its end meanwhile, which the next look sees.
            Ok(journal) if journal.account().standing.has_ended() => {}
            Ok(journal) => {
                tracing::warn!(%id, "a change is not at its end and its process has ended: going back");
                if let Err(refusal) = self.start(&folder, What::Recover, journal.into_lock()) {
                    tracing::error!(%id, %refusal, "tried again");
                }
            }
            Err(JournalError::Busy { .. }) => {}
            Err(error) => {
                let error = with_sources(&error);
                tracing::error!(%id, error, "a change is not at its end: tried again");
            }
        }
    }

    /// A folder whose agent died before its order was written. With the lock, for it may be one that is being made.
    fn remove(&self, id: ChangeId) {
        let folder = self.folders.of(id);
        let _ = Journal::clear_up(&folder).inspect_err(|error| {
            let error = with_sources(error);
            tracing::debug!(%id, error, "not cleared up");
        });
    }
}
