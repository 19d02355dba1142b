//! Guests that earlier runs parked on a host, run again when it takes guests again.
//!
//! They come before those that come home: they run nowhere meanwhile and can run nowhere else, so that the room
//! on the host is theirs first. The last that was parked is the first, as with those that left.

use drover_plan::Text;
use drover_types::{HostName, ParkId};

use crate::Now;
use crate::asks::Ask;
use crate::journal::{Entry, ParkedGuest, UnixMillis, UnparkOutcome};
use crate::limits::{SILENCE_AT_ENDS, STOPS_AT_ONCE, UNPARKING};
use crate::replay::Inconsistent;
use crate::run::Run;

/// A guest that is to run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpark {
    /// Its number in the run, from 1.
    pub number: u32,
    /// The guest, and the order that parked it.
    pub guest: ParkedGuest,
    /// How far it is.
    pub state: UnparkState,
}

/// How far a guest is that is to run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnparkState {
    /// Its agent was not told yet.
    Waiting,
    /// Its agent is told.
    UnderWay {
        /// By which order.
        start: ParkId,
        /// Since when.
        since: UnixMillis,
    },
    /// It is over.
    Ended {
        /// By which order.
        start: ParkId,
        /// Since when its agent was told.
        since: UnixMillis,
        /// How.
        outcome: UnparkOutcome,
        /// When.
        at: UnixMillis,
    },
}

/// What its agent says of a guest that is to run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnparkSeen {
    /// It is being started.
    UnderWay,
    /// It is over.
    Over(UnparkOutcome),
}

impl Run {
    /// Guests that earlier runs parked and that this one has run again, in their order.
    #[must_use]
    pub fn unparks(&self) -> &[Unpark] {
        &self.unparks
    }

    /// The host that they are on.
    #[must_use]
    pub fn unparked_on(&self) -> Option<&HostName> {
        self.opened.keys().next()
    }

    pub(crate) fn unparks_under_way(&self) -> impl Iterator<Item = &Unpark> {
        let under_way = |unpark: &&Unpark| matches!(unpark.state, UnparkState::UnderWay { .. });
        self.unparks.iter().filter(under_way)
    }

    pub(crate) fn next_unpark(&self, now: Now, fresh: ParkId) -> Option<Entry> {
        if self.unparks_under_way().count() >= STOPS_AT_ONCE {
            return None;
        }
        Some(Entry::Unparking {
            number: self.to_unpark()?.number,
            start: fresh,
            at: now.wall,
        })
    }

    pub(crate) fn to_unpark(&self) -> Option<&Unpark> {
        let mut unparks = self.unparks.iter();
        unparks.find(|unpark| unpark.state == UnparkState::Waiting)
    }

    pub(crate) fn unpark_asks(&self) -> impl Iterator<Item = Ask> {
        self.unparks.iter().filter_map(|unpark| match unpark.state {
            UnparkState::UnderWay { start, .. } => self.unpark_ask(unpark, start),
            _ => None,
        })
    }

    /// Orders that came to nothing as far as was heard, and may yet begin: an agent that stood still has them in its
    /// queue.
    pub(crate) fn unparks_in_doubt(&self) -> impl Iterator<Item = Ask> {
        self.unparks.iter().filter_map(|unpark| match unpark.state {
            UnparkState::Ended {
                start,
                outcome: UnparkOutcome::Failed { .. },
                ..
            } => self.unpark_ask(unpark, start),
            _ => None,
        })
    }

    fn unpark_ask(&self, unpark: &Unpark, start: ParkId) -> Option<Ask> {
        Some(Ask::Unpark {
            number: unpark.number,
            park: unpark.guest.park,
            start,
            vm: unpark.guest.vm.clone(),
            host: self.unparked_on()?.clone(),
            // What has not begun does not begin after a cancel.
            begin: self.cancel.is_none(),
        })
    }

    pub(crate) fn unparked_or_not(
        &mut self,
        number: u32,
        seen: UnparkSeen,
        now: Now,
    ) -> Vec<Entry> {
        self.unheard.remove(&number);
        let outcome = match seen {
            UnparkSeen::UnderWay => {
                let since = *self.at_work.entry(number).or_insert(now.elapsed);
                if now.elapsed.saturating_sub(since) < UNPARKING {
                    return Vec::new();
                }
                let minutes = UNPARKING.as_secs() / 60;
                let why = Text::from(format!("it has been starting for {minutes} min"));
                UnparkOutcome::Failed { why }
            }
            UnparkSeen::Over(outcome) => outcome,
        };
        vec![unparked(number, outcome, now)]
    }

    pub(crate) fn unpark_not_heard(&mut self, number: u32, why: &Text, now: Now) -> Vec<Entry> {
        let since = *self.unheard.entry(number).or_insert(now.elapsed);
        if now.elapsed.saturating_sub(since) < SILENCE_AT_ENDS {
            return Vec::new();
        }
        let seconds = SILENCE_AT_ENDS.as_secs();
        let why = format!("not heard of for {seconds} s: {why}; look whether it runs");
        let why = Text::from(why);
        vec![unparked(number, UnparkOutcome::Failed { why }, now)]
    }

    pub(crate) fn set_unpark(
        &mut self,
        number: u32,
        step: impl FnOnce(&UnparkState) -> Option<UnparkState>,
    ) -> Result<(), Inconsistent> {
        let what = "was to run again";
        let wrong = Inconsistent::Park { number, what };
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let unpark = index.and_then(|index| self.unparks.get_mut(index));
        let unpark = unpark.ok_or(wrong.clone())?;
        unpark.state = step(&unpark.state).ok_or(wrong)?;
        self.unheard.remove(&number);
        Ok(())
    }
}

fn unparked(number: u32, outcome: UnparkOutcome, now: Now) -> Entry {
    Entry::Unparked {
        number,
        outcome,
        at: now.wall,
    }
}
