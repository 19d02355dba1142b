//! Which move begins next, and how many at once.
//!
//! Moves begin in the plan's order. How many there may be at once on a host is the policy's; how many
//! of these are worth it is measured: one that fills the lines goes alone, and the next one begins when
//! it is nearly over, so that its preparations cost no time. Where one does not fill them another is
//! begun, and whether that carried more in all decides whether it is done again.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_types::{BitRate, HostName};

use crate::journal::Outcome;
use crate::limits::FULL_PERCENT;
use crate::measured::{End, Seen};
use crate::run::{MoveState, Record, Run};

impl Run {
    /// The wave whose moves may begin: the first one that has not ended.
    pub(crate) fn wave(&self) -> Option<u32> {
        let open = self.of_round().filter(|record| {
            matches!(
                record.state,
                MoveState::Waiting | MoveState::UnderWay { .. }
            )
        });
        open.map(|record| record.planned.wave).min()
    }

    pub(crate) fn of_round(&self) -> impl Iterator<Item = &Record> {
        let round = self.round;
        self.records
            .iter()
            .filter(move |record| record.round == round)
    }

    /// The move that is to begin now, if one is.
    pub(crate) fn next_to_begin(&self, elapsed: Duration) -> Option<&Record> {
        let wave = self.wave()?;
        let busy = Busy::of(self);
        if busy.in_all >= self.at_once as usize {
            return None;
        }
        let mut waiting = self
            .of_round()
            .filter(|record| record.state == MoveState::Waiting && record.planned.wave == wave)
            .filter(|record| !self.is_silent(&record.planned.from));
        waiting.find(|record| {
            let ways = [
                (&record.planned.from, End::Source),
                (&record.planned.to, End::Destination),
            ];
            ways.into_iter().all(|(host, end)| {
                let here = busy.at(host, end);
                here.len() < self.at_once_at(host, end) as usize
                    && self.is_worth_one_more(host, end, here, elapsed)
            })
        })
    }

    /// Whether a guest's host does not answer at the moment, or did not in this round until that was given up.
    fn is_silent(&self, host: &HostName) -> bool {
        let mut under_way = self.under_way();
        let now = under_way.any(|(record, _)| {
            let seen = self.seen.get(&record.number);
            record.planned.from == *host && seen.is_some_and(|seen| seen.silent_since.is_some())
        });
        now || self.is_given_up_on(host)
    }

    /// Whether nobody knows what became of a guest of that host in this round: before others are ordered from
    /// it, it has to answer.
    pub(crate) fn is_given_up_on(&self, host: &HostName) -> bool {
        self.of_round().any(|record| {
            let in_doubt = matches!(
                record.state,
                MoveState::Ended {
                    outcome: Outcome::Unknown { .. },
                    ..
                }
            );
            in_doubt && record.planned.from == *host
        })
    }

    fn at_once_at(&self, host: &HostName, end: End) -> u32 {
        self.hosts.get(host).map_or(1, |pace| match end {
            End::Source => pace.outbound,
            End::Destination => pace.inbound,
        })
    }

    /// What was seen of moves that begin or end at a host and are still copied.
    pub(crate) fn seen_at(&self, host: &HostName, end: End) -> impl Iterator<Item = &Seen> {
        let here = self.under_way().filter(move |(record, _)| match end {
            End::Source => record.planned.from == *host,
            End::Destination => record.planned.to == *host,
        });
        here.filter_map(|(record, _)| self.seen.get(&record.number))
            .filter(|seen| !seen.is_complete())
    }

    fn is_worth_one_more(
        &self,
        host: &HostName,
        end: End,
        here: &[Option<&Seen>],
        elapsed: Duration,
    ) -> bool {
        let copied = here.iter().flatten().filter(|seen| !seen.is_nearly_over());
        let copied: Vec<&&Seen> = copied.collect();
        if copied.is_empty() {
            return true;
        }
        if !copied.iter().all(|seen| seen.has_settled(elapsed)) {
            return false;
        }
        let bytes: u64 = copied.iter().map(|seen| seen.rate.0).sum();
        let line = self.hosts.get(host).map_or(BitRate(0), |pace| pace.line);
        let is_full = u128::from(bytes) * 8 * 100 >= u128::from(line.0) * u128::from(FULL_PERCENT);
        !is_full && !self.measured.is_one_more_in_vain(host, end, copied.len())
    }
}

/// Moves under way: at each end of each host what was seen of them, and how many in all. One whose guest has
/// arrived takes no part.
struct Busy<'r> {
    at: BTreeMap<(&'r HostName, End), Vec<Option<&'r Seen>>>,
    in_all: usize,
}

impl<'r> Busy<'r> {
    fn of(run: &'r Run) -> Self {
        let mut busy = Self {
            at: BTreeMap::new(),
            in_all: 0,
        };
        for (record, _) in run.under_way() {
            let seen = run.seen.get(&record.number);
            if seen.is_some_and(Seen::is_complete) {
                continue;
            }
            busy.in_all += 1;
            let ends = [
                (&record.planned.from, End::Source),
                (&record.planned.to, End::Destination),
            ];
            for end in ends {
                busy.at.entry(end).or_default().push(seen);
            }
        }
        busy
    }

    fn at(&self, host: &'r HostName, end: End) -> &[Option<&'r Seen>] {
        self.at.get(&(host, end)).map_or(&[], Vec::as_slice)
    }
}
