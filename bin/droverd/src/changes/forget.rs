//! Changes that are forgotten: what they have set stays, and nobody takes it back any more.

use drover_api::{ErrorCode, ForgottenView, Refusal};
use drover_change::Journal;
use drover_types::ChangeId;

use super::{Changes, boot, refused, show};

impl Changes {
    /// Forgets one that is at its end; how it was, and what is held up by that.
    ///
    /// # Errors
    /// There is none of that id, it is not at its end, or the host is being changed; it is remembered then.
    pub async fn forget(&self, id: ChangeId) -> Result<ForgottenView, Refusal> {
        let folder = self.folders.existing(id)?;
        // With the lock nobody undoes it meanwhile.
        let journal = self.when_free(|| Journal::open(&folder)).await?;
        let account = journal.account();
        if !account.standing.has_ended() {
            let message = format!("change {id} is not at its end, and is taken back first");
            let next = "try again in some seconds; `drover doctor changes` shows it";
            return Err(Refusal::new(ErrorCode::ChangeUnderWay, message).next(next));
        }
        let boot = boot()?;
        let change = show::change(id, account, &boot);
        let look = || self.folders.held_up_by(id, account, &boot);
        let holds_up = tokio::task::block_in_place(look);
        let forgotten = tokio::task::block_in_place(|| journal.forget());
        forgotten.map_err(|error| refused(self.host(), &error))?;
        Ok(ForgottenView { change, holds_up })
    }
}
