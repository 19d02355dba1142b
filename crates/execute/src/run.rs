//! A run as its journal tells it, and what was seen since.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_plan::plan::Expected;
use drover_plan::{Account, Request, Text};
use drover_types::{HostName, MigrationId, VmName};

use crate::answers::Guest;
use crate::asks::Ask;
use crate::journal::{
    Began, Blame, Cancel, HostPace, Left, Move, Outcome, Part, RunResult, Running, UnixMillis,
    drained,
};
use crate::limits;
use crate::measured::{Measured, Seen};
use crate::park::Park;
use crate::unpark::{Unpark, UnparkState};

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    pub(crate) began: Began,
    pub(crate) cordons: BTreeMap<HostName, Cordon>,
    /// Hosts that are to take guests before a plan is made, and whether they do.
    pub(crate) opened: BTreeMap<HostName, bool>,
    pub(crate) parts: Vec<Part>,
    pub(crate) round: u32,
    pub(crate) round_ended: bool,
    pub(crate) at_once: u32,
    pub(crate) hosts: BTreeMap<HostName, HostPace>,
    pub(crate) expected: Option<Expected>,
    pub(crate) records: Vec<Record>,
    pub(crate) left: Vec<Left>,
    pub(crate) parks: Vec<Park>,
    pub(crate) unparks: Vec<Unpark>,
    pub(crate) no_plan: Option<NoPlan>,
    pub(crate) cancel: Option<Cancel>,
    pub(crate) finished: Option<Finished>,
    // From here on nothing is in the journal: it is seen again.
    pub(crate) seen: BTreeMap<u32, Seen>,
    pub(crate) measured: Measured,
    pub(crate) census: Option<Vec<Guest>>,
    /// Since when hosts could not be looked at in the end.
    pub(crate) uncounted_since: Option<Duration>,
    /// Why the run ends without having looked.
    pub(crate) uncounted: Option<Text>,
    /// Since when guests that somebody else moves keep it from ending, and whether it no longer waits.
    pub(crate) unsettled_since: Option<Duration>,
    pub(crate) is_settled: bool,
    /// Since when there is no answer whether there is a plan.
    pub(crate) unplanned_since: Option<Duration>,
    /// Since when a host has not answered at the run's beginning or end.
    pub(crate) silent: BTreeMap<HostName, Duration>,
    /// Hosts that are given up at the end.
    pub(crate) given_up: BTreeSet<HostName>,
    /// Since when nothing is heard of a guest that is to be parked, or to run again.
    pub(crate) unheard: BTreeMap<u32, Duration>,
    /// Since when its agent is seen to be at it.
    pub(crate) at_work: BTreeMap<u32, Duration>,
    /// Orders that had ended in doubt before a cancel, and that were called back or are given up.
    pub(crate) called_back: BTreeSet<Ask>,
    /// Since when nothing is heard of one of them.
    pub(crate) call_back_unheard: BTreeMap<Ask, Duration>,
}

/// What a run does with a host that is to take no guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cordon {
    /// It is to take none.
    Wanted,
    /// It takes none.
    Set {
        /// It took none before the run either.
        before: bool,
    },
    /// The run had it take guests again.
    Lifted,
}

/// That there is no plan for a round.
#[derive(Debug, Clone)]
pub(crate) struct NoPlan {
    pub round: u32,
    pub why: Account,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub result: RunResult,
    pub why: Option<Account>,
    pub at: UnixMillis,
}

/// A move, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the run, from 1.
    pub number: u32,
    /// The round that it belongs to, from 1.
    pub round: u32,
    /// The move.
    pub planned: Move,
    /// Which try of its guest it is, from 1.
    pub attempt: u32,
    /// How far it is.
    pub state: MoveState,
}

impl Record {
    fn failed_at_its_destination(&self) -> bool {
        let MoveState::Ended { outcome, .. } = &self.state else {
            return false;
        };
        let blame = match outcome {
            Outcome::Failed { blame, .. } => Some(*blame),
            _ => None,
        };
        blame == Some(Blame::Destination)
    }
}

/// How far a move is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveState {
    /// It has not begun.
    Waiting,
    /// It was ordered, or is about to be.
    UnderWay {
        /// Its migration.
        migration: MigrationId,
        /// Since when.
        since: UnixMillis,
    },
    /// It has ended.
    Ended {
        /// Its migration; none of a move that was kept back.
        migration: Option<MigrationId>,
        /// When it was ordered, or kept back.
        since: UnixMillis,
        /// How it ended.
        outcome: Outcome,
        /// When.
        at: UnixMillis,
    },
    /// It will not begin.
    Dropped,
}

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Hosts are told to take no guests, or to take them again.
    Preparing,
    /// A plan is being made.
    Planning,
    /// Guests that were parked are run again.
    Unparking,
    /// Guests are moved, or what is under way is ended after a cancel.
    Moving,
    /// Guests that cannot move are parked.
    Parking,
    /// Hosts are looked at.
    Verifying,
    /// Hosts that were cordoned for the run take guests again.
    Lifting,
    /// It is over.
    Ended,
}

impl Run {
    /// What was asked for.
    #[must_use]
    pub fn began(&self) -> &Began {
        &self.began
    }

    /// The round of planning and moving that it is in, from 1; 0 before the first plan.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Every move of every round.
    #[must_use]
    pub fn moves(&self) -> &[Record] {
        &self.records
    }

    /// Guests that the plan does not move.
    #[must_use]
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// What the last plan expected to take.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        self.expected
    }

    /// Hosts that take no guests because of the run.
    pub fn cordoned(&self) -> impl Iterator<Item = &HostName> {
        let set = self.cordons.iter();
        set.filter(|(_, cordon)| matches!(cordon, Cordon::Set { before: false }))
            .map(|(host, _)| host)
    }

    /// How an operator ended it, if one did.
    #[must_use]
    pub fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// How it ended, why not as wanted, and when; none while it is under way.
    #[must_use]
    pub fn result(&self) -> Option<(RunResult, Option<&Account>, UnixMillis)> {
        let finished = self.finished.as_ref()?;
        Some((finished.result, finished.why.as_ref(), finished.at))
    }

    /// What was seen of a move that is under way.
    #[must_use]
    pub fn seen(&self, number: u32) -> Option<&Seen> {
        self.seen.get(&number)
    }

    /// What it is about now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        if self.finished.is_some() {
            return Stage::Ended;
        }
        if self.is_moving() {
            return Stage::Moving;
        }
        if self.parks_under_way().next().is_some() {
            return Stage::Parking;
        }
        if self.unparks_under_way().next().is_some() {
            return Stage::Unparking;
        }
        match &self.no_plan {
            _ if self.cancel.is_some() => Stage::Lifting,
            Some(NoPlan { round: 1, .. }) => Stage::Lifting,
            Some(_) => Stage::Verifying,
            None if !self.is_prepared() => Stage::Preparing,
            None if self.to_unpark().is_some() => Stage::Unparking,
            None if self.is_round_due() => Stage::Planning,
            None if self.to_park().next().is_some() => Stage::Parking,
            None => Stage::Verifying,
        }
    }

    /// A round is open, or something of an earlier one still under way.
    fn is_moving(&self) -> bool {
        self.under_way().next().is_some() || (self.round > 0 && !self.round_ended)
    }

    fn is_prepared(&self) -> bool {
        let cordoned = |cordon: &Cordon| *cordon != Cordon::Wanted;
        self.cordons.values().all(cordoned) && self.opened.values().all(|open| *open)
    }

    /// Whether one more round of planning and moving is to be had.
    fn is_round_due(&self) -> bool {
        if self.round == 0 {
            return true;
        }
        // Who gave a plan wants nothing but that plan.
        if self.began.exactly.is_some() {
            return false;
        }
        self.round < limits::ROUNDS && (self.wants_another() || self.newcomers().next().is_some())
    }

    /// Whether a guest is to be tried again, or was not tried yet for another one's sake. What is evened out
    /// is not evened out anew: that would be more moves than were asked for.
    fn wants_another(&self) -> bool {
        if matches!(self.began.request, Request::Rebalance { .. }) {
            return false;
        }
        if self.left.iter().any(|left| self.has_no_other_way(&left.vm)) {
            return true;
        }
        let of_round = |record: &&Record| record.round == self.round;
        let mut records = self.records.iter().filter(of_round);
        records.any(|record| match &record.state {
            MoveState::Dropped => true,
            MoveState::Ended { outcome, .. } => {
                matches!(outcome, Outcome::Failed { .. }) && !self.is_given_up(&record.planned.vm)
            }
            MoveState::Waiting | MoveState::UnderWay { .. } => false,
        })
    }

    /// Whether the last plan left a guest where it is because it avoided the host that a move of it failed to
    /// reach. There may have been nothing wrong with that host but the moment: an agent that was started again.
    fn has_no_other_way(&self, vm: &VmName) -> bool {
        let left = self.left.iter().any(|left| left.vm == *vm);
        let mut of_it = self.records.iter().filter(|r| r.planned.vm == *vm);
        left && !self.is_given_up(vm)
            && of_it.any(|record| record.round < self.round && record.failed_at_its_destination())
    }

    /// Guests on drained hosts that the last plan did not know of.
    fn newcomers(&self) -> impl Iterator<Item = &Guest> {
        let guests = self.census.iter().flatten();
        guests.filter(|guest| {
            let left = self.left.iter().any(|left| left.vm == guest.vm);
            let tried = self.records.iter().any(|r| r.planned.vm == guest.vm);
            !left && !tried && !guest.moving
        })
    }

    /// Moves that were ordered and have not ended.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (&Record, MigrationId)> {
        self.records.iter().filter_map(|record| match record.state {
            MoveState::UnderWay { migration, .. } => Some((record, migration)),
            _ => None,
        })
    }

    /// Hosts that take guests again at the end: those that the run cordoned, or was about to, and that can be
    /// told.
    pub(crate) fn to_lift(&self) -> impl Iterator<Item = &HostName> {
        let wanted = match (&self.cancel, &self.no_plan) {
            (Some(cancel), _) => cancel.uncordon,
            (None, Some(no_plan)) => no_plan.round == 1,
            (None, None) => false,
        };
        self.own_cordons()
            .filter(move |host| wanted && !self.given_up.contains(*host))
    }

    /// Hosts that take guests again because the run has lifted its cordon.
    pub fn lifted(&self) -> impl Iterator<Item = &HostName> {
        let lifted = self.cordons.iter();
        lifted
            .filter(|(_, cordon)| **cordon == Cordon::Lifted)
            .map(|(host, _)| host)
    }

    /// Hosts that take no guests because of the run, or may: one whose answer was lost.
    pub(crate) fn own_cordons(&self) -> impl Iterator<Item = &HostName> {
        let own =
            |cordon: &Cordon| matches!(cordon, Cordon::Wanted | Cordon::Set { before: false });
        let cordons = self.cordons.iter().filter(move |(_, cordon)| own(cordon));
        cordons.map(|(host, _)| host)
    }

    /// Hosts that a guest failed to be moved to, as long as there is another one for it (none otherwise), and
    /// of one that is given up all that it was to be moved to: a plan stops no such guest, and is not refused
    /// for it.
    #[must_use]
    pub fn avoided(&self) -> BTreeMap<VmName, BTreeSet<HostName>> {
        let mut avoided: BTreeMap<VmName, BTreeSet<HostName>> = BTreeMap::new();
        for record in &self.records {
            let MoveState::Ended { outcome, .. } = &record.state else {
                continue;
            };
            let vm = &record.planned.vm;
            let there = record.failed_at_its_destination();
            let moved = matches!(outcome, Outcome::Moved { .. });
            let given_up = !moved && self.is_given_up(vm);
            if there || given_up {
                let of_it = avoided.entry(vm.clone()).or_default();
                if given_up || !self.has_no_other_way(vm) {
                    of_it.insert(record.planned.to.clone());
                }
            }
        }
        avoided
    }

    /// Whether no guest was touched.
    pub(crate) fn has_changed_nothing(&self) -> bool {
        let mut unparks = self.unparks.iter();
        self.round == 0 && unparks.all(|unpark| unpark.state == UnparkState::Waiting)
    }

    /// Whether a guest is not tried any more, and so not planned with.
    pub(crate) fn is_given_up(&self, vm: &VmName) -> bool {
        let of_it = self.records.iter().filter(|r| r.planned.vm == *vm);
        let mut failures = 0;
        for record in of_it {
            match &record.state {
                MoveState::Ended { outcome, .. } => match outcome {
                    Outcome::Failed { blame, .. } if *blame != Blame::Guest => failures += 1,
                    Outcome::Failed { .. } | Outcome::Unknown { .. } => return true,
                    Outcome::Moved { .. } | Outcome::Cancelled => {}
                },
                MoveState::Waiting | MoveState::UnderWay { .. } | MoveState::Dropped => {}
            }
        }
        failures >= limits::ATTEMPTS
    }

    /// Whether what is under way is to be called back.
    pub(crate) fn calls_back(&self) -> bool {
        let cancel = self.cancel.as_ref();
        cancel.is_some_and(|cancel| cancel.running == Running::Cancel)
    }

    pub(crate) fn drained(&self) -> BTreeSet<HostName> {
        drained(&self.began.request)
    }

    pub(crate) fn record(&self, number: u32) -> Option<&Record> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.records.get(index)
    }
}
