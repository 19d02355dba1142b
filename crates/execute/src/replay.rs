//! A run from its journal.

use std::collections::BTreeMap;

use drover_plan::Request;
use drover_types::HostName;

use crate::journal::{Began, Blame, Entry, Outcome, ParkedGuest, Part, drained};
use crate::measured::{Measured, Seen};
use crate::run::{Cordon, Finished, MoveState, NoPlan, Record, Run};
use crate::unpark::{Unpark, UnparkState};

/// An entry that cannot follow on those before it: the journal is damaged, or of another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistent {
    /// A journal begins with what was asked for, and has that once.
    #[error("the journal of a run does not begin with what was asked for")]
    Beginning,
    /// The move is not there, or not in a state in which that can happen.
    #[error("move {number} {what}, which cannot be by the entries before")]
    Move {
        /// The move.
        number: u32,
        /// What is said of it.
        what: &'static str,
    },
    /// A round out of order, or without all of its parts.
    #[error("round {round} {what}, which cannot be by the entries before")]
    Round {
        /// The round.
        round: u32,
        /// What is said of it.
        what: &'static str,
    },
    /// A host that the run does not change.
    #[error("host {host} was changed, which this run is not about")]
    Host {
        /// The host.
        host: HostName,
    },
    /// A guest that is to be parked or to run again, in a state in which that cannot happen.
    #[error("the parked guest {number} {what}, which cannot be by the entries before")]
    Park {
        /// Its number.
        number: u32,
        /// What is said of it.
        what: &'static str,
    },
    /// Something after the end.
    #[error("an entry after the end of the run")]
    AfterTheEnd,
}

impl Run {
    /// The run that these entries tell, all that were written.
    ///
    /// # Errors
    /// They do not fit together.
    pub fn replay<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Result<Self, Inconsistent> {
        let mut entries = entries.into_iter();
        let Some(Entry::Began(began)) = entries.next() else {
            return Err(Inconsistent::Beginning);
        };
        let mut run = Self::new(began.clone());
        for entry in entries {
            run.apply(entry)?;
        }
        Ok(run)
    }

    /// A run of which nothing but its beginning was written.
    #[must_use]
    pub fn new(began: Began) -> Self {
        let wanted = |host: HostName| (host, Cordon::Wanted);
        let opened = match &began.request {
            Request::Resume { host, .. } => [(host.clone(), false)].into(),
            Request::Drain { .. } | Request::Rebalance { .. } => BTreeMap::new(),
        };
        Self {
            cordons: drained(&began.request).into_iter().map(wanted).collect(),
            opened,
            unparks: unparks(&began),
            parks: Vec::new(),
            began,
            parts: Vec::new(),
            round: 0,
            round_ended: false,
            at_once: 0,
            hosts: BTreeMap::new(),
            expected: None,
            records: Vec::new(),
            left: Vec::new(),
            no_plan: None,
            cancel: None,
            finished: None,
            seen: BTreeMap::new(),
            measured: Measured::default(),
            census: None,
            uncounted_since: None,
            uncounted: None,
            unsettled_since: None,
            is_settled: false,
            unplanned_since: None,
            silent: BTreeMap::new(),
            given_up: [].into(),
            unheard: BTreeMap::new(),
            at_work: BTreeMap::new(),
            called_back: [].into(),
            call_back_unheard: BTreeMap::new(),
        }
    }

    /// Takes an entry that was written.
    ///
    /// # Errors
    /// It does not follow on those before it; nothing has changed then.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Inconsistent> {
        if self.finished.is_some() {
            return Err(Inconsistent::AfterTheEnd);
        }
        match entry {
            Entry::Began(_) => return Err(Inconsistent::Beginning),
            Entry::Cordoned { host, before } => {
                self.of_host(host, Cordon::Set { before: *before })?;
            }
            Entry::Uncordoned { host } => match self.opened.get_mut(host) {
                Some(open) => {
                    *open = true;
                    self.silent.remove(host);
                }
                None => self.of_host(host, Cordon::Lifted)?,
            },
            Entry::Part(part) => self.part(part)?,
            Entry::Round {
                round,
                parts,
                at_once,
                expected,
            } => {
                self.begin_round(*round, *parts)?;
                self.at_once = *at_once;
                self.expected = *expected;
            }
            Entry::NoPlan { round, why } => {
                self.no_plan = Some(NoPlan {
                    round: *round,
                    why: why.clone(),
                });
            }
            Entry::Ordered {
                number,
                migration,
                at,
            } => {
                let record = self.record_mut(*number, "was ordered")?;
                if record.state != MoveState::Waiting {
                    return Err(wrong(*number, "was ordered"));
                }
                record.state = MoveState::UnderWay {
                    migration: *migration,
                    since: *at,
                };
                self.seen.insert(*number, Seen::default());
            }
            Entry::KeptBack { number, why, at } => {
                let record = self.record_mut(*number, "was kept back")?;
                if record.state != MoveState::Waiting {
                    return Err(wrong(*number, "was kept back"));
                }
                // The next round's plan knows what has changed.
                let (why, blame) = (why.clone(), Blame::Moment);
                record.state = MoveState::Ended {
                    migration: None,
                    since: *at,
                    outcome: Outcome::Failed { why, blame },
                    at: *at,
                };
            }
            Entry::Ended {
                number,
                outcome,
                at,
            } => {
                let record = self.record_mut(*number, "ended")?;
                let MoveState::UnderWay { migration, since } = record.state else {
                    return Err(wrong(*number, "ended"));
                };
                record.state = MoveState::Ended {
                    migration: Some(migration),
                    since,
                    outcome: outcome.clone(),
                    at: *at,
                };
                self.seen.remove(number);
            }
            Entry::Parking(order) => self.order_park(order)?,
            Entry::Parked {
                number,
                outcome,
                at,
            } => self.end_park(*number, outcome, *at)?,
            Entry::Unparking { number, start, at } => self.set_unpark(*number, |state| {
                let waits = *state == UnparkState::Waiting;
                let (start, since) = (*start, *at);
                waits.then_some(UnparkState::UnderWay { start, since })
            })?,
            Entry::Unparked {
                number,
                outcome,
                at,
            } => self.set_unpark(*number, |state| match state {
                UnparkState::UnderWay { start, since } => Some(UnparkState::Ended {
                    start: *start,
                    since: *since,
                    outcome: outcome.clone(),
                    at: *at,
                }),
                _ => None,
            })?,
            Entry::RoundEnded { round } => self.end_round(*round)?,
            Entry::CancelAsked(cancel) => {
                // What was to be finished may be cancelled after all; a cordon that was to be lifted still is.
                let before = self.cancel.as_ref().is_some_and(|before| before.uncordon);
                let mut cancel = cancel.clone();
                cancel.uncordon |= before;
                self.cancel = Some(cancel);
            }
            Entry::Finished { result, why, at } => {
                self.finished = Some(Finished {
                    result: *result,
                    why: why.clone(),
                    at: *at,
                });
            }
        }
        Ok(())
    }

    fn of_host(&mut self, host: &HostName, now: Cordon) -> Result<(), Inconsistent> {
        let unknown = || Inconsistent::Host { host: host.clone() };
        *self.cordons.get_mut(host).ok_or_else(unknown)? = now;
        self.silent.remove(host);
        Ok(())
    }

    fn part(&mut self, part: &Part) -> Result<(), Inconsistent> {
        let round = part.round;
        let what = "got a part of a plan";
        self.is_next(round, what)?;
        if part.part == 1 {
            self.parts.clear();
        }
        if usize::try_from(part.part).ok() != Some(self.parts.len() + 1) {
            return Err(Inconsistent::Round { round, what });
        }
        self.parts.push(part.clone());
        Ok(())
    }

    fn is_next(&self, round: u32, what: &'static str) -> Result<(), Inconsistent> {
        let is_open = self.round > 0 && !self.round_ended;
        if is_open || self.round.checked_add(1) != Some(round) {
            return Err(Inconsistent::Round { round, what });
        }
        Ok(())
    }

    fn begin_round(&mut self, round: u32, parts: u32) -> Result<(), Inconsistent> {
        let what = "was planned";
        self.is_next(round, what)?;
        let mut found = std::mem::take(&mut self.parts);
        if parts == 0 {
            found.clear();
        }
        if usize::try_from(parts).ok() != Some(found.len()) {
            return Err(Inconsistent::Round { round, what });
        }
        self.left = found.iter().flat_map(|part| part.left.clone()).collect();
        let hosts = found.iter().flat_map(|part| part.hosts.clone());
        self.hosts = hosts.map(|pace| (pace.host.clone(), pace)).collect();
        let moves = found.into_iter().flat_map(|part| part.moves);
        for planned in moves {
            let failed = |record: &&Record| {
                let ended = matches!(
                    record.state,
                    MoveState::Ended {
                        outcome: Outcome::Failed { .. },
                        ..
                    }
                );
                record.planned.vm == planned.vm && ended
            };
            let before = self.records.iter().filter(failed).count();
            let number = u32::try_from(self.records.len() + 1).unwrap_or(u32::MAX);
            self.records.push(Record {
                number,
                round,
                attempt: u32::try_from(before + 1).unwrap_or(u32::MAX),
                planned,
                state: MoveState::Waiting,
            });
        }
        self.round = round;
        self.round_ended = false;
        self.census = None;
        self.unplanned_since = None;
        Ok(())
    }

    fn end_round(&mut self, round: u32) -> Result<(), Inconsistent> {
        let rests = self.under_way().next().is_none();
        if round != self.round || self.round_ended || !rests {
            let what = "ended";
            return Err(Inconsistent::Round { round, what });
        }
        for record in &mut self.records {
            if record.state == MoveState::Waiting {
                record.state = MoveState::Dropped;
            }
        }
        self.round_ended = true;
        Ok(())
    }

    fn record_mut(&mut self, number: u32, what: &'static str) -> Result<&mut Record, Inconsistent> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let record = index.and_then(|index| self.records.get_mut(index));
        record.ok_or(wrong(number, what))
    }
}

fn unparks(began: &Began) -> Vec<Unpark> {
    let guests = began.parked.iter().zip(1..);
    let unpark = |(guest, number): (&ParkedGuest, u32)| Unpark {
        number,
        guest: guest.clone(),
        state: UnparkState::Waiting,
    };
    guests.map(unpark).collect()
}

fn wrong(number: u32, what: &'static str) -> Inconsistent {
    Inconsistent::Move { number, what }
}
