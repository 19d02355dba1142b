//! What the agents of sources are told that they may send: who is to be told what, and when again.
//!
//! What one may send more, others must send less before: as long as one that is to send less was asked
//! and has not answered, nobody is told to send more. An agent that does not answer at all holds nobody
//! up for longer than one call takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use drover_api::{PathLimit, PathLimits};
use drover_types::{ByteRate, MigrationId};

use crate::agent::Context;
use crate::limits::{TELL_AGAIN, TELL_LIMITS};
use crate::migration::Migrations;

/// What one agent is told of one migration.
#[derive(Debug, Default)]
struct Word {
    wanted: Vec<PathLimit>,
    /// The division that it is from.
    division: u64,
    /// What the agent has heard; none when that is not known.
    heard: Option<Vec<PathLimit>>,
    /// What it is being told.
    saying: Option<Vec<PathLimit>>,
    said_at: Option<Instant>,
    /// The first division since which it is to send less than it has heard.
    less_since: Option<u64>,
    /// It did not answer the last time.
    is_silent: bool,
}

impl Word {
    fn is_less(&self) -> bool {
        let heard = self.heard.as_deref().unwrap_or_default();
        self.wanted.iter().any(|limit| is_less(limit, heard))
    }

    fn holds_others_up(&self) -> bool {
        self.less_since.is_some() && !self.is_silent
    }

    /// Whether it is to be told now. It may have forgotten what it has heard, or was told by an agent
    /// of here that is no more: so it is told again and again, also that there is no limit.
    fn is_due(&self, now: Instant) -> bool {
        let late = |at: Instant| now.saturating_duration_since(at) >= TELL_AGAIN;
        let news = self.heard.as_ref() != Some(&self.wanted);
        self.saying.is_none() && (news || self.said_at.is_none_or(late))
    }
}

/// What all of them are told.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeMap<MigrationId, Word>);

impl Words {
    /// A division was made: what is to be told now.
    pub(super) fn due(
        &mut self,
        now: Instant,
        division: u64,
        mut wanted: BTreeMap<MigrationId, Vec<PathLimit>>,
    ) -> Vec<(MigrationId, Vec<PathLimit>)> {
        self.0.retain(|id, _| wanted.contains_key(id));
        while let Some((id, limits)) = wanted.pop_first() {
            let word = self.0.entry(id).or_default();
            (word.wanted, word.division) = (limits, division);
            let since = word.less_since.unwrap_or(division);
            word.less_since = word.is_less().then_some(since);
        }
        let held_up = self.0.values().any(Word::holds_others_up);
        let all = self.0.iter_mut();
        let due =
            all.filter(|(_, word)| word.is_due(now) && (!held_up || word.less_since.is_some()));
        due.map(|(id, word)| {
            word.said_at = Some(now);
            word.saying = Some(word.wanted.clone());
            (*id, word.wanted.clone())
        })
        .collect()
    }

    /// One has answered, or not.
    pub(super) fn answered(&mut self, id: MigrationId, heard: bool) {
        let Some(word) = self.0.get_mut(&id) else {
            return; // it has ended meanwhile
        };
        let said = word.saying.take();
        word.is_silent = !heard;
        if heard {
            word.heard = said;
            word.less_since = word.is_less().then_some(word.division);
        }
    }

    /// The last division of which all have heard that are to send less.
    pub(super) fn heard(&self, done: u64) -> u64 {
        let waiting = self.0.values().filter(|word| word.holds_others_up());
        let since = waiting.filter_map(|word| word.less_since).min();
        since.map_or(done, |since| since.saturating_sub(1).min(done))
    }
}

fn is_less(limit: &PathLimit, before: &[PathLimit]) -> bool {
    let known = before.iter().find(|known| known.path == limit.path);
    let most = |rate: Option<ByteRate>| rate.unwrap_or(ByteRate(u64::MAX));
    most(limit.rate) < most(known.and_then(|known| known.rate))
}

/// Tells the agent of a guest's source; whether it has heard.
pub(super) async fn tell(
    context: Arc<Context>,
    migrations: Arc<Migrations>,
    id: MigrationId,
    paths: Vec<PathLimit>,
) -> (MigrationId, bool) {
    let source = migrations.source_of(id);
    let Some(Ok(client)) = source.map(|source| context.peers.client(&source)) else {
        return (id, false);
    };
    let limits = PathLimits { paths };
    let told = client.limit_paths(id, &limits);
    match tokio::time::timeout(TELL_LIMITS, told).await {
        Ok(Ok(_)) => (id, true),
        Ok(Err(error)) => {
            tracing::debug!(%id, %error, "the source was not told its limits");
            (id, false)
        }
        Err(_) => (id, false),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_types::PathId;
    use uuid::Uuid;

    use super::*;

    const ONE: MigrationId = MigrationId(Uuid::from_bytes([1; 16]));
    const OTHER: MigrationId = MigrationId(Uuid::from_bytes([2; 16]));

    fn limits(rate: u64) -> Vec<PathLimit> {
        vec![PathLimit {
            path: PathId(0),
            rate: Some(ByteRate(rate)),
        }]
    }

    fn both(one: Vec<PathLimit>, other: Vec<PathLimit>) -> BTreeMap<MigrationId, Vec<PathLimit>> {
        BTreeMap::from([(ONE, one), (OTHER, other)])
    }

    #[test]
    fn what_did_not_change_is_told_again_and_that_there_is_no_limit_too() {
        let (mut words, begun) = (Words::default(), Instant::now());
        let wanted = both(limits(5), Vec::new());
        assert_eq!(words.due(begun, 1, wanted.clone()), [(ONE, limits(5))]);
        words.answered(ONE, true);
        let soon = begun + TELL_AGAIN - Duration::from_millis(1);
        assert_eq!(words.due(soon, 2, wanted.clone()), [(OTHER, Vec::new())]);
        words.answered(OTHER, true);
        assert_eq!(words.due(soon, 3, wanted.clone()), []);
        let later = soon + TELL_AGAIN;
        let again = words.due(later, 4, wanted);
        assert_eq!(again, [(ONE, limits(5)), (OTHER, Vec::new())]);
    }

    #[test]
    fn nobody_is_told_to_send_more_before_others_have_heard_that_they_send_less() {
        let (mut words, now) = (Words::default(), Instant::now());
        words.due(now, 1, both(limits(9), limits(1)));
        words.answered(ONE, true);
        words.answered(OTHER, true);
        assert_eq!(words.heard(1), 1);
        let wanted = both(limits(5), limits(5));
        assert_eq!(words.due(now, 2, wanted.clone()), [(ONE, limits(5))]);
        assert_eq!(words.heard(2), 1);
        assert_eq!(words.due(now, 3, wanted.clone()), []);
        words.answered(ONE, true);
        assert_eq!(words.heard(3), 3);
        assert_eq!(words.due(now, 4, wanted), [(OTHER, limits(5))]);
    }

    #[test]
    fn one_that_does_not_answer_holds_nobody_up_for_longer_than_a_call() {
        let (mut words, now) = (Words::default(), Instant::now());
        words.due(now, 1, both(limits(9), limits(1)));
        words.answered(ONE, true);
        words.answered(OTHER, true);
        let wanted = both(limits(5), limits(5));
        words.due(now, 2, wanted.clone());
        words.answered(ONE, false);
        assert_eq!(words.heard(2), 2);
        let due = words.due(now, 3, wanted);
        assert_eq!(due, [(ONE, limits(5)), (OTHER, limits(5))]);
    }

    #[test]
    fn what_became_less_while_it_was_told_is_not_taken_for_heard() {
        let (mut words, now) = (Words::default(), Instant::now());
        words.due(now, 1, both(limits(9), Vec::new()));
        words.due(now, 2, both(limits(4), Vec::new()));
        words.answered(ONE, true);
        assert_eq!(words.heard(2), 1);
        let due = words.due(now, 3, both(limits(4), Vec::new()));
        assert_eq!(due, [(ONE, limits(4))]);
        words.answered(ONE, true);
        assert_eq!(words.heard(3), 3);
    }
}
