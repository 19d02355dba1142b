//! Lanes that are gone: the last ones each with its counters, those before them summed up by path.
//!
//! # Invariant
//! What a path carried, by [`Gone::lanes`] and [`Gone::forgotten`] together, never becomes less.

use std::collections::{BTreeMap, VecDeque};

use drover_types::PathId;

use crate::limits::{FORGOTTEN_PATHS, LOST_LANES_KEPT};
use crate::{ForgottenStats, LaneHealth, LaneId, LaneStats};

#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// Oldest first.
    last: VecDeque<(PathId, LaneStats)>,
    forgotten: BTreeMap<PathId, ForgottenStats>,
}

impl Gone {
    pub(crate) fn knows(&self, lane: LaneId) -> bool {
        self.last.iter().any(|(_, stats)| stats.lane == lane)
    }

    /// One more; the one that is forgotten for it.
    pub(crate) fn add(&mut self, path: PathId, stats: LaneStats) -> Option<LaneId> {
        self.last.push_back((path, stats));
        if self.last.len() <= LOST_LANES_KEPT {
            return None;
        }
        let (path, oldest) = self.last.pop_front()?;
        self.sum_up(path, &oldest);
        Some(oldest.lane)
    }

    fn sum_up(&mut self, path: PathId, lane: &LaneStats) {
        let known = self.forgotten.contains_key(&path);
        if !known && self.forgotten.len() >= FORGOTTEN_PATHS {
            return;
        }
        let sum = self.forgotten.entry(path).or_insert(ForgottenStats {
            path,
            ..ForgottenStats::default()
        });
        sum.lost_lanes += u64::from(lane.health == LaneHealth::Lost);
        sum.sent_bytes += lane.sent_bytes;
        sum.resent_bytes += lane.resent_bytes;
        sum.protocol_bytes += lane.protocol_bytes;
        sum.received_bytes += lane.received_bytes;
        sum.receipted_bytes += lane.receipted_bytes;
        sum.suspicions += u64::from(lane.suspicions);
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneStats> + '_ {
        self.last.iter().map(|(_, stats)| *stats)
    }

    pub(crate) fn forgotten(&self) -> Vec<ForgottenStats> {
        self.forgotten.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Config, Input, Output, Role, Session};

    fn lane(number: LaneId) -> LaneStats {
        LaneStats {
            lane: number,
            health: LaneHealth::Lost,
            sent_bytes: 1000,
            receipted_bytes: 900,
            suspicions: 2,
            ..LaneStats::default()
        }
    }

    #[test]
    fn what_lanes_carried_is_counted_after_they_are_forgotten() {
        let mut gone = Gone::default();
        let kept = LOST_LANES_KEPT as LaneId;
        let more: LaneId = 3000;
        for number in 0..kept + more {
            let forgotten = gone.add(PathId((number % 2) as u16), lane(number));
            assert_eq!(forgotten, number.checked_sub(kept));
            let all = number as usize + 1;
            assert_eq!(gone.lanes().count(), all.min(LOST_LANES_KEPT));
            let last: u64 = gone.lanes().map(|lane| lane.sent_bytes).sum();
            let before: u64 = gone.forgotten().iter().map(|path| path.sent_bytes).sum();
            assert_eq!(last + before, 1000 * all as u64, "never less");
        }
        assert!(!gone.knows(more - 1) && gone.knows(more));
        let sums = gone.forgotten();
        assert_eq!(sums.len(), 2);
        for sum in sums {
            assert_eq!((sum.lost_lanes, sum.suspicions), (1500, 3000));
            assert_eq!(sum.receipted_bytes, 1500 * 900);
        }
    }

    #[test]
    fn numbers_of_paths_that_a_peer_makes_up_take_no_memory() {
        let mut gone = Gone::default();
        for number in 0..10_000 {
            gone.add(PathId(number as u16), lane(number));
        }
        assert_eq!(gone.forgotten().len(), FORGOTTEN_PATHS);
    }

    #[test]
    fn the_shell_is_told_of_each_lane_that_is_forgotten() {
        let mut session = Session::new(Config {
            role: Role::Accepter,
            chunk_bytes: 1 << 16,
            window: 4,
            channels_max: 1,
            urgent: 1,
            early_bulk: 0,
            outage_limit: Duration::from_secs(30),
        })
        .unwrap();
        let (now, path) = (Duration::ZERO, PathId(0));
        let mut forgotten = Vec::new();
        let (kept, more) = (LOST_LANES_KEPT as LaneId, 10);
        for lane in 0..kept + more {
            session.handle(now, Input::LaneUp { lane, path }).unwrap();
            session.handle(now, Input::LaneDown { lane }).unwrap();
            loop {
                match session.poll(now) {
                    Output::Wait(_) => break,
                    Output::ForgetLane { lane } => forgotten.push(lane),
                    _ => {}
                }
            }
        }
        assert_eq!(forgotten, (0..more).collect::<Vec<_>>());
        let stats = session.stats(now);
        assert_eq!(stats.lanes.len(), LOST_LANES_KEPT);
        assert_eq!(stats.forgotten[0].lost_lanes, more.into());
    }
}
