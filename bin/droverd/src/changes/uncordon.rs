//! A host whose links may go takes no guests until they have come back.

use drover_api::{ErrorCode, Refusal};
use drover_change::{Alone, JournalError};
use tokio::sync::RwLockWriteGuard;
use tokio::time::{Instant, sleep};

use super::{Changes, check, refused};
use crate::limits;

/// Who may be about a change just now, where no journal tells that links may go.
enum Holder {
    /// Nobody, and nobody begins while this is there.
    Nobody { _until_dropped: Alone },
    /// Somebody who takes no link away.
    Harmless,
    /// A process of which no journal tells: it has just come to its end, or is to undo a change by which links go.
    Unknown,
}

impl Changes {
    /// Has nobody uncordon this host, and no other change begin that `bounces` links, until what this gives is dropped: by then its journal
    /// is there. To be asked before any journal is opened.
    ///
    /// # Errors
    /// Somebody is at one of both.
    pub(super) fn begins(
        &self,
        bounces: bool,
    ) -> Result<Option<RwLockWriteGuard<'_, ()>>, Refusal> {
        if !bounces {
            return Ok(None);
        }
        self.bouncing.try_write().map(Some).map_err(|_| {
            let host = self.host();
            let message = format!(
                "host {host} is being uncordoned, or another change by which links of it go is begun or undone"
            );
            self.look_again(message)
        })
    }

    /// Whether a change may begin that `bounces` links.
    ///
    /// # Errors
    /// The host is not drained.
    pub(super) async fn may_bounce(&self, bounces: bool, force: bool) -> Result<(), Refusal> {
        if bounces && !force {
            check::drained(&self.context, &self.migrations).await?;
        }
        Ok(())
    }

    /// Has this host take guests again.
    ///
    /// # Errors
    /// Links of it may go just now, or the word cannot be kept; nothing has changed then.
    pub async fn uncordon(&self) -> Result<(), Refusal> {
        let cordon = &self.context.cordon;
        if cordon.view().is_none() {
            return Ok(());
        }
        let Ok(_nobody_begins) = self.bouncing.try_read() else {
            return Err(self.links_may_go("a change is being begun or undone by which they do"));
        };
        let deadline = Instant::now() + limits::LOCK_LET_GO;
        loop {
            match tokio::task::block_in_place(|| self.holder())? {
                Holder::Unknown if Instant::now() < deadline => sleep(limits::LOCK_LOOK).await,
                Holder::Unknown => {
                    let why = "a process is about a change, and one by which they go may be undone";
                    return Err(self.links_may_go(why));
                }
                Holder::Nobody { .. } | Holder::Harmless => {
                    return tokio::task::block_in_place(|| cordon.lift());
                }
            }
        }
    }

    /// Also of processes that this agent has not started: they outlive theirs, and what one is to undo is not in the journal until it has
    /// looked whether it can be.
    ///
    /// # Errors
    /// A change is not at its end that may bounce links, or it is not known whether somebody is about any.
    fn holder(&self) -> Result<Holder, Refusal> {
        let alone = match self.folders.alone() {
            Ok(alone) => Some(alone),
            Err(JournalError::Busy { .. }) => None,
            Err(error) => return Err(refused(self.host(), &error)),
        };
        let mut all_ended = true;
        let mut may_be_undone = false;
        for (id, read) in self.folders.all() {
            let Ok(account) = read else {
                // It may be one by which links go.
                may_be_undone = true;
                continue;
            };
            let bounces = account.order.plan.bounces();
            if !account.standing.has_ended() {
                if bounces {
                    let why = format!("change {id} is not at its end");
                    return Err(self.links_may_go(&why));
                }
                all_ended = false;
            }
            may_be_undone |= bounces && account.standing.can_be_undone();
        }
        Ok(match alone {
            Some(alone) => Holder::Nobody {
                _until_dropped: alone,
            },
            // Nothing is undone while another one is not at its end.
            None if all_ended && may_be_undone => Holder::Unknown,
            None => Holder::Harmless,
        })
    }

    fn links_may_go(&self, why: &str) -> Refusal {
        let host = self.host();
        self.look_again(format!(
            "links of {host} may go for some seconds just now, and guests with them: {why}"
        ))
    }

    fn look_again(&self, message: String) -> Refusal {
        let host = self.host();
        Refusal::new(ErrorCode::ChangeUnderWay, message).next(format!(
            "try again when it is over: `drover doctor changes` on {host} shows it"
        ))
    }
}
