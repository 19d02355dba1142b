//! What does not succeed, and who wants the guest to stay.

use drover_api::EventKind;
use drover_migrate::source::Input;
use drover_migrate::{CancelledBy, Refused};

use super::{Outgoing, show};
use crate::migration::trouble::About;

impl Outgoing {
    /// Something does not succeed.
    pub(super) fn trouble(&mut self, about: About, why: &str) {
        if self.troubles.hear(about, why) {
            let what = why.to_owned();
            self.record(EventKind::Fallback { what });
        }
        self.show();
    }

    /// Somebody wants the guest to stay.
    pub(super) fn cancel(&mut self, by: CancelledBy) -> Result<(), Refused> {
        let now = self.now();
        self.source.handle(now, Input::CancelRequested { by })?;
        if let (CancelledBy::Operator, Some(held)) = (by, &self.reservation) {
            held.given_up();
        }
        let by = show::who(by).to_owned();
        self.record(EventKind::CancelAsked { by });
        Ok(())
    }
}
