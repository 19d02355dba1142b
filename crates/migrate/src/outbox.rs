//! What a machine wants done, in order, with nothing done before the record ahead of it is safe.

use std::collections::VecDeque;

use crate::Time;
use crate::limits::{JOURNAL_RETRY, OUTBOX};

/// What the shell is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<A, R> {
    /// Write this to disk, flushed, then hand in `Journaled` or `JournalFailed`. Nothing else
    /// comes out until then.
    Journal(R),
    /// Do this. Actions of one machine are begun in the order in which they come.
    Do(A),
    /// Nothing to do until the next input, or until this time: then poll again. `None`: only an
    /// input can change anything.
    Wait(Option<Time>),
}

/// The record that was handed out and is not yet safe.
#[derive(Debug, Clone)]
struct Unsafe<R> {
    record: R,
    again_at: Option<Time>,
    since: Time,
}

#[derive(Debug, Clone)]
enum Entry<A, R> {
    Record(R),
    Action(A),
}

/// A queue of actions and records.
///
/// # Invariant
///
/// An action leaves only after every record queued before it was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Outbox<A, R> {
    entries: VecDeque<Entry<A, R>>,
    unsafe_record: Option<Unsafe<R>>,
}

impl<A: PartialEq, R: Clone> Outbox<A, R> {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            unsafe_record: None,
        }
    }

    pub(crate) fn record(&mut self, record: R) {
        self.entries.push_back(Entry::Record(record));
    }

    /// Queues `action` unless it is queued already: a repeat of it would do nothing new.
    pub(crate) fn act(&mut self, action: A) {
        let queued = self.entries.iter().any(|entry| match entry {
            Entry::Action(queued) => *queued == action,
            Entry::Record(_) => false,
        });
        if !queued {
            self.entries.push_back(Entry::Action(action));
        }
        debug_assert!(self.entries.len() <= OUTBOX);
    }

    /// Takes back every action that has not come out yet; records stay. Tells whether one that is
    /// `sought` was among them, and so will never be answered.
    pub(crate) fn withdraw_actions_and_find(&mut self, sought: impl Fn(&A) -> bool) -> bool {
        let found = self.entries.iter().any(|entry| match entry {
            Entry::Action(queued) => sought(queued),
            Entry::Record(_) => false,
        });
        self.withdraw_actions();
        found
    }

    /// Takes back every action that has not come out yet; records stay.
    pub(crate) fn withdraw_actions(&mut self) {
        self.entries
            .retain(|entry| matches!(entry, Entry::Record(_)));
    }

    /// Hands out the next output, if there is one.
    pub(crate) fn next(&mut self, now: Time) -> Option<Output<A, R>> {
        if let Some(waiting) = &mut self.unsafe_record {
            if waiting.again_at.is_none_or(|at| now < at) {
                return None;
            }
            waiting.again_at = None;
            return Some(Output::Journal(waiting.record.clone()));
        }
        match self.entries.pop_front()? {
            Entry::Action(action) => Some(Output::Do(action)),
            Entry::Record(record) => {
                self.unsafe_record = Some(Unsafe {
                    record: record.clone(),
                    again_at: None,
                    since: now,
                });
                Some(Output::Journal(record))
            }
        }
    }

    /// The record handed out is on disk; `None` when none was handed out.
    pub(crate) fn journaled(&mut self) -> Option<R> {
        self.unsafe_record.take().map(|waiting| waiting.record)
    }

    /// The record handed out could not be written; false when none was handed out.
    pub(crate) fn journal_failed(&mut self, now: Time) -> bool {
        match &mut self.unsafe_record {
            Some(waiting) => {
                waiting.again_at = Some(now + JOURNAL_RETRY);
                true
            }
            None => false,
        }
    }

    /// When a record has to be written again.
    pub(crate) fn again_at(&self) -> Option<Time> {
        self.unsafe_record
            .as_ref()
            .and_then(|waiting| waiting.again_at)
    }

    /// Since when a record is waited for.
    pub(crate) fn unsafe_since(&self) -> Option<Time> {
        self.unsafe_record.as_ref().map(|waiting| waiting.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_before_the_record_ahead_of_it_is_safe() {
        let now = Time::ZERO;
        let mut outbox: Outbox<&str, u8> = Outbox::new();
        outbox.act("first");
        outbox.record(1);
        outbox.act("second");
        assert_eq!(outbox.next(now), Some(Output::Do("first")));
        assert_eq!(outbox.next(now), Some(Output::Journal(1)));
        assert_eq!(outbox.next(now), None);
        assert_eq!(outbox.journaled(), Some(1));
        assert_eq!(outbox.next(now), Some(Output::Do("second")));
    }

    #[test]
    fn a_record_that_could_not_be_written_is_written_again_after_a_pause() {
        let now = Time::ZERO;
        let mut outbox: Outbox<&str, u8> = Outbox::new();
        outbox.record(1);
        assert_eq!(outbox.next(now), Some(Output::Journal(1)));
        assert!(outbox.journal_failed(now));
        assert_eq!(outbox.next(now), None);
        assert_eq!(outbox.again_at(), Some(JOURNAL_RETRY));
        assert_eq!(outbox.next(JOURNAL_RETRY), Some(Output::Journal(1)));
    }

    #[test]
    fn an_action_is_queued_once() {
        let mut outbox: Outbox<&str, u8> = Outbox::new();
        outbox.act("tell");
        outbox.act("tell");
        assert_eq!(outbox.next(Time::ZERO), Some(Output::Do("tell")));
        assert_eq!(outbox.next(Time::ZERO), None);
    }
}
