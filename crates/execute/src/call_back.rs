//! Orders that had ended in doubt when the run was cancelled: to move a guest, to park it, or to run it again.
//!
//! Each is called back once more, so that an agent that stood still does not begin it afterwards. What was said of its
//! guest stays as it is.

use crate::Now;
use crate::answers::Answer;
use crate::asks::Ask;
use crate::journal::Outcome;
use crate::limits::SILENCE_AT_ENDS;
use crate::run::{MoveState, Run};

impl Run {
    /// What is to be called back, before a cancelled run ends.
    pub(crate) fn call_backs(&self) -> impl Iterator<Item = Ask> {
        let is_open = self.cancel.is_some() && self.finished.is_none();
        let in_doubt = self.parks_in_doubt().chain(self.unparks_in_doubt());
        let in_doubt = in_doubt.chain(self.moves_in_doubt());
        in_doubt.filter(move |ask| is_open && !self.called_back.contains(ask))
    }

    /// One that goes on is cancelled by that, and so they are only where what is under way is to be.
    fn moves_in_doubt(&self) -> impl Iterator<Item = Ask> {
        let records = self.records.iter().filter(|_| self.calls_back());
        records.filter_map(|record| match &record.state {
            MoveState::Ended {
                migration: Some(migration),
                outcome: Outcome::Unknown { .. },
                ..
            } => Some(Ask::CallBack {
                number: record.number,
                migration: *migration,
                from: record.planned.from.clone(),
            }),
            _ => None,
        })
    }

    /// Whether this order has ended, so that its answer is one to its being called back.
    pub(crate) fn is_call_back(&self, ask: &Ask) -> bool {
        self.call_backs().any(|one| one == *ask)
    }

    /// One that does not answer keeps no run from its end.
    pub(crate) fn called_back_or_not(&mut self, ask: &Ask, answer: &Answer, now: Now) {
        if matches!(answer, Answer::Silence { .. }) {
            let since = *self
                .call_back_unheard
                .entry(ask.clone())
                .or_insert(now.elapsed);
            if now.elapsed.saturating_sub(since) < SILENCE_AT_ENDS {
                return;
            }
        }
        self.called_back.insert(ask.clone());
    }
}
