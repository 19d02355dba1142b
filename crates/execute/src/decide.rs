//! What is to be written down next without anybody having answered.

use drover_types::{MigrationId, ParkId};

use crate::Now;
use crate::journal::{Entry, Outcome};
use crate::run::{MoveState, Run, Stage};

impl Run {
    /// The next entry, to be written down and applied before anything follows from it. `fresh` is the id
    /// that a migration, or an order to park or unpark a guest, gets if one is to begin.
    #[must_use]
    pub fn decide(&self, now: Now, fresh: MigrationId) -> Option<Entry> {
        match self.stage() {
            Stage::Moving => self.in_round(now, fresh),
            Stage::Parking if self.cancel.is_none() => self.next_park(now, ParkId(fresh.0)),
            Stage::Unparking if self.cancel.is_none() => self.next_unpark(now, ParkId(fresh.0)),
            Stage::Verifying if self.census_wanted().is_none() => Some(self.verdict(now)),
            Stage::Lifting
                if self.to_lift().next().is_none() && self.call_backs().next().is_none() =>
            {
                Some(self.verdict(now))
            }
            Stage::Preparing
            | Stage::Planning
            | Stage::Parking
            | Stage::Unparking
            | Stage::Verifying
            | Stage::Lifting
            | Stage::Ended => None,
        }
    }

    fn in_round(&self, now: Now, fresh: MigrationId) -> Option<Entry> {
        let round_ended = Entry::RoundEnded { round: self.round };
        let nothing_begins = self.cancel.is_some() || self.is_broken() || !self.may_begin_another();
        if nothing_begins {
            let rests = self.under_way().next().is_none();
            return (rests && !self.round_ended).then_some(round_ended);
        }
        let record = self.next_to_begin(now.elapsed)?;
        Some(Entry::Ordered {
            number: record.number,
            migration: fresh,
            at: now.wall,
        })
    }

    /// A guest is still to move from a host that was not given up on.
    fn may_begin_another(&self) -> bool {
        let Some(wave) = self.wave() else {
            return false;
        };
        let mut of_wave = self.of_round().filter(|r| r.planned.wave == wave);
        of_wave.any(|record| match &record.state {
            MoveState::Waiting => !self.is_given_up_on(&record.planned.from),
            MoveState::UnderWay { .. } => true,
            MoveState::Ended { .. } | MoveState::Dropped => false,
        })
    }

    /// A guest of an earlier wave has not arrived: what a later one builds on is not there.
    fn is_broken(&self) -> bool {
        let Some(wave) = self.wave() else {
            return false;
        };
        let mut earlier = self.of_round().filter(|r| r.planned.wave < wave);
        earlier.any(|record| match &record.state {
            MoveState::Ended { outcome, .. } => !matches!(outcome, Outcome::Moved { .. }),
            MoveState::Waiting | MoveState::UnderWay { .. } | MoveState::Dropped => false,
        })
    }
}
