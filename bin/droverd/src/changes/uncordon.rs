//! A host whose links may go takes no guests until they have come back.

use drover_api::{ErrorCode, Refusal};
use drover_types::ChangeId;
use tokio::sync::MutexGuard;

use super::{Changes, check};

impl Changes {
    /// Whether a change may begin that `bounces` links. Nobody has guests come until what this gives is dropped: by then its journal is
    /// there.
    ///
    /// # Errors
    /// The host is not drained.
    pub(super) async fn may_bounce(
        &self,
        bounces: bool,
        force: bool,
    ) -> Result<Option<MutexGuard<'_, ()>>, Refusal> {
        if !bounces {
            return Ok(None);
        }
        let begins = self.bouncing.lock().await;
        if !force {
            check::drained(&self.context, &self.migrations).await?;
        }
        Ok(Some(begins))
    }

    /// Has this host take guests again.
    ///
    /// # Errors
    /// Links of it may go just now, or the word cannot be kept; nothing has changed then.
    pub fn uncordon(&self) -> Result<(), Refusal> {
        let cordon = &self.context.cordon;
        if cordon.view().is_none() {
            return cordon.lift();
        }
        let Ok(_nobody_begins) = self.bouncing.try_lock() else {
            return Err(self.links_may_go("a change is being begun or undone by which they do"));
        };
        if let Some(id) = self.bounces_now() {
            let why = format!("change {id} is not at its end");
            return Err(self.links_may_go(&why));
        }
        cordon.lift()
    }

    /// A change that is not at its end and may bounce links, whoever carries it out or goes back with it.
    fn bounces_now(&self) -> Option<ChangeId> {
        let mut all = self.folders.all();
        let found = all.find(|(_, read)| {
            read.as_ref().is_ok_and(|account| {
                !account.standing.has_ended() && account.order.plan.bounces()
            })
        });
        found.map(|(id, _)| id)
    }

    fn links_may_go(&self, why: &str) -> Refusal {
        let host = self.host();
        let message =
            format!("links of {host} may go for some seconds just now, and guests with them: {why}");
        Refusal::new(ErrorCode::ChangeUnderWay, message).next(format!(
            "try again when it is over: `drover doctor changes` on {host} shows it"
        ))
    }
}
