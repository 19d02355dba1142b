//! What happened, kept for an agent that was not there, or did not read.

use std::collections::VecDeque;

use crate::limits::EVENTS_KEPT;
use crate::protocol::Told;

/// The last events, numbered.
#[derive(Debug, Default)]
pub(crate) struct History {
    last: u64,
    kept: VecDeque<Told>,
}

impl History {
    /// Takes an event in.
    pub(crate) fn push(&mut self, told: Told) {
        if self.kept.len() == EVENTS_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(told);
        self.last += 1;
    }

    /// Those after `after` that are still known, oldest first.
    pub(crate) fn after(&self, after: u64) -> impl Iterator<Item = (u64, &Told)> {
        let first = self.last + 1 - self.kept.len() as u64;
        let numbered = (first..).zip(&self.kept);
        numbered.filter(move |(sequence, _)| *sequence > after)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn numbers(history: &History, after: u64) -> Vec<u64> {
        history.after(after).map(|(number, _)| number).collect()
    }

    #[test]
    fn what_an_agent_missed_is_told_and_nothing_else() {
        let mut history = History::default();
        assert_eq!(numbers(&history, 0), Vec::<u64>::new());
        for _ in 0..5 {
            history.push(Told::Alone {
                lasted: Duration::ZERO,
            });
        }
        assert_eq!(numbers(&history, 3), [4, 5]);
        assert_eq!(numbers(&history, 5), Vec::<u64>::new());
    }

    #[test]
    fn of_many_events_the_newest_are_kept_under_their_numbers() {
        let mut history = History::default();
        for number in 0..EVENTS_KEPT as u64 + 10 {
            let lasted = Duration::from_secs(number);
            history.push(Told::Alone { lasted });
        }
        let numbers = numbers(&history, 0);
        assert_eq!(numbers.len(), EVENTS_KEPT);
        assert_eq!(numbers[0], 11);
        assert_eq!(numbers.last(), Some(&(EVENTS_KEPT as u64 + 10)));
    }
}
