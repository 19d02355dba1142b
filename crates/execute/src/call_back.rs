//! Orders to park a guest, or to run it again, that had ended in doubt when the run was cancelled.
//!
//! Each is called back once more, so that an agent that stood still does not begin it afterwards. What was said of its
//! guest stays as it is. A run has orders of one of the two kinds, so that their numbers are their own.

use crate::Now;
use crate::answers::Answer;
use crate::asks::Ask;
use crate::limits::SILENCE_AT_ENDS;
use crate::run::Run;

impl Run {
    /// What is to be called back, before a cancelled run ends.
    pub(crate) fn call_backs(&self) -> impl Iterator<Item = Ask> {
        let is_open = self.cancel.is_some() && self.finished.is_none();
        let in_doubt = self.parks_in_doubt().chain(self.unparks_in_doubt());
        in_doubt.filter(move |ask| {
            let (Ask::Park { number, .. } | Ask::Unpark { number, .. }) = ask else {
                return false;
            };
            is_open && !self.called_back.contains(number)
        })
    }

    /// Whether this order has ended, so that its answer is one to its being called back.
    pub(crate) fn is_call_back(&self, ask: &Ask) -> bool {
        self.call_backs().any(|one| one == *ask)
    }

    /// One that does not answer keeps no run from its end.
    pub(crate) fn called_back_or_not(&mut self, number: u32, answer: &Answer, now: Now) {
        if matches!(answer, Answer::Silence { .. }) {
            let since = *self.unheard.entry(number).or_insert(now.elapsed);
            if now.elapsed.saturating_sub(since) < SILENCE_AT_ENDS {
                return;
            }
        }
        self.called_back.insert(number);
    }
}
