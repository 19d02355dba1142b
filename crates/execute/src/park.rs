//! Guests that cannot move, stopped or suspended as their policy wants.
//!
//! That is done last, and only on hosts that become empty by it: where another guest could not be moved, a
//! guest would be stopped for nothing.

use std::collections::BTreeMap;

use drover_plan::Text;
use drover_types::{HostName, ParkId, VmName};

use crate::Now;
use crate::answers::Guest;
use crate::asks::Ask;
use crate::journal::{Entry, Left, Outcome, ParkHow, ParkOutcome, Parking, UnixMillis};
use crate::limits::{PARKED, PARKING, SILENCE, STOPS_AT_ONCE, SUSPENDS_AT_ONCE};
use crate::planned::Planned;
use crate::replay::Inconsistent;
use crate::run::{MoveState, Run};

/// An order to park a guest, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// What was ordered.
    pub order: Parking,
    /// How it ended, and when; none while it is under way.
    pub ended: Option<(ParkOutcome, UnixMillis)>,
}

/// What its agent says of an order to park a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParkSeen {
    /// It is being carried out.
    UnderWay,
    /// The guest is parked.
    Parked,
    /// The guest was left as it was.
    Kept {
        /// Why.
        why: Text,
    },
    /// It was not heard before it was called back, and never begins.
    CalledBack,
}

impl Run {
    /// Orders to park guests, in their order.
    #[must_use]
    pub fn parks(&self) -> &[Park] {
        &self.parks
    }

    pub(crate) fn parks_under_way(&self) -> impl Iterator<Item = &Park> {
        self.parks.iter().filter(|park| park.ended.is_none())
    }

    /// Guests that are to be parked and were not ordered to be, on hosts that were seen to become empty by it.
    pub(crate) fn to_park(&self) -> impl Iterator<Item = (&Left, ParkHow)> {
        let seen = self.census.is_some() && self.census_wanted().is_none();
        let wanted = self.left.iter().filter(move |_| seen);
        let wanted = wanted.filter_map(|left| Some((left, ParkHow::of(left.then)?)));
        wanted.filter(|(left, _)| {
            let ordered = self.parks.iter().any(|park| park.order.vm == left.vm);
            !ordered && self.keeps_full(&left.host).is_none()
        })
    }

    /// Whether there are guests that may yet be parked.
    pub(crate) fn waits_to_park(&self) -> bool {
        let mut wanted = self
            .left
            .iter()
            .filter(|left| ParkHow::of(left.then).is_some());
        wanted.any(|left| !self.parks.iter().any(|park| park.order.vm == left.vm))
    }

    /// A guest that stays on a host, so that another one would be stopped there for nothing.
    fn keeps_full(&self, host: &HostName) -> Option<&VmName> {
        let mut here = self.census.iter().flatten();
        let stays = here.find(|guest| guest.host == *host && !self.goes_by_parking(guest));
        let stays = stays.map(|guest| &guest.vm);
        stays.or_else(|| self.not_moved_off(host))
    }

    /// Whether a guest is to be parked, or is on its way to be.
    fn goes_by_parking(&self, guest: &Guest) -> bool {
        let mut parks = self.parks.iter();
        match parks.find(|park| park.order.vm == guest.vm) {
            Some(park) => park.ended.is_none(),
            None => self.left.iter().any(|left| {
                let is_it = left.vm == guest.vm && left.host == guest.host;
                is_it && ParkHow::of(left.then).is_some() && !guest.moving
            }),
        }
    }

    /// A guest that was to be moved off a host and was not, also where nobody knows where it is now.
    fn not_moved_off(&self, host: &HostName) -> Option<&VmName> {
        let mut last: BTreeMap<&VmName, bool> = BTreeMap::new();
        for record in self.records.iter().filter(|r| r.planned.from == *host) {
            let moved = matches!(
                record.state,
                MoveState::Ended {
                    outcome: Outcome::Moved { .. },
                    ..
                }
            );
            last.insert(&record.planned.vm, moved);
        }
        last.into_iter().find(|(_, moved)| !moved).map(|(vm, _)| vm)
    }

    /// The next order to park a guest, if one may be given now.
    pub(crate) fn next_park(&self, now: Now, fresh: ParkId) -> Option<Entry> {
        let (left, how) = self.to_park().find(|(left, how)| {
            let here = self.parks_under_way();
            let here = here.filter(|park| park.order.host == left.host && park.order.how == *how);
            let most = match how {
                ParkHow::Stop => STOPS_AT_ONCE,
                ParkHow::Suspend => SUSPENDS_AT_ONCE,
            };
            here.count() < most
        })?;
        Some(Entry::Parking(Parking {
            number: u32::try_from(self.parks.len() + 1).unwrap_or(u32::MAX),
            park: fresh,
            vm: left.vm.clone(),
            host: left.host.clone(),
            how,
            why: left.why.clone(),
            at: now.wall,
        }))
    }

    pub(crate) fn park_asks(&self) -> impl Iterator<Item = Ask> {
        self.parks_under_way().map(|park| self.park_ask(park))
    }

    /// Orders of which nothing was heard, and that may yet begin.
    pub(crate) fn parks_in_doubt(&self) -> impl Iterator<Item = Ask> {
        let in_doubt = self.parks.iter().filter(|park| {
            let ended = park.ended.as_ref();
            ended.is_some_and(|(outcome, _)| matches!(outcome, ParkOutcome::Unknown { .. }))
        });
        in_doubt.map(|park| self.park_ask(park))
    }

    fn park_ask(&self, park: &Park) -> Ask {
        Ask::Park {
            number: park.order.number,
            park: park.order.park,
            vm: park.order.vm.clone(),
            host: park.order.host.clone(),
            how: park.order.how,
            // What has not begun does not begin after a cancel, whatever becomes of moves.
            begin: self.cancel.is_none(),
        }
    }

    pub(crate) fn parked_or_not(&mut self, number: u32, seen: ParkSeen, now: Now) -> Vec<Entry> {
        self.unheard.remove(&number);
        let outcome = match seen {
            ParkSeen::UnderWay => {
                let since = *self.at_work.entry(number).or_insert(now.elapsed);
                if now.elapsed.saturating_sub(since) < PARKING {
                    return Vec::new();
                }
                let minutes = PARKING.as_secs() / 60;
                let why = format!("it has been under way for {minutes} min: look at the guest");
                ParkOutcome::Unknown {
                    why: Text::from(why),
                }
            }
            ParkSeen::Parked => ParkOutcome::Parked,
            ParkSeen::Kept { why } => ParkOutcome::Kept { why },
            ParkSeen::CalledBack => ParkOutcome::Cancelled,
        };
        vec![parked(number, outcome, now)]
    }

    pub(crate) fn park_not_heard(&mut self, number: u32, why: &Text, now: Now) -> Vec<Entry> {
        let since = *self.unheard.entry(number).or_insert(now.elapsed);
        if now.elapsed.saturating_sub(since) < SILENCE {
            return Vec::new();
        }
        let seconds = SILENCE.as_secs();
        let why = Text::from(format!("not heard of for {seconds} s: {why}"));
        vec![parked(number, ParkOutcome::Unknown { why }, now)]
    }

    pub(crate) fn order_park(&mut self, order: &Parking) -> Result<(), Inconsistent> {
        let expected = self.parks.len() + 1;
        let again = self.parks.iter().any(|park| park.order.vm == order.vm);
        if usize::try_from(order.number).ok() != Some(expected) || again {
            return Err(wrong(order.number, "was ordered"));
        }
        self.parks.push(Park {
            order: order.clone(),
            ended: None,
        });
        Ok(())
    }

    pub(crate) fn end_park(
        &mut self,
        number: u32,
        outcome: &ParkOutcome,
        at: UnixMillis,
    ) -> Result<(), Inconsistent> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let park = index.and_then(|index| self.parks.get_mut(index));
        let park = park.filter(|park| park.ended.is_none());
        let park = park.ok_or(wrong(number, "ended"))?;
        park.ended = Some((outcome.clone(), at));
        self.unheard.remove(&number);
        // What is on the host is looked at anew.
        self.census = None;
        Ok(())
    }

    /// Why a guest that was to be parked is in memory still.
    #[must_use]
    pub fn why_not_parked(&self, left: &Left) -> Option<String> {
        let how = match ParkHow::of(left.then)? {
            ParkHow::Stop => "stopped",
            ParkHow::Suspend => "suspended",
        };
        let mut parks = self.parks.iter();
        let Some(park) = parks.find(|park| park.order.vm == left.vm) else {
            let host = &left.host;
            let because = match (self.keeps_full(host), &self.uncounted) {
                (Some(vm), _) => format!(", since {vm} keeps {host} from being empty"),
                (None, Some(_)) => format!(", since it was not seen what else is on {host}"),
                (None, None) => String::new(),
            };
            return Some(format!("not {how}{because}; it cannot move: {}", left.why));
        };
        match &park.ended {
            Some((ParkOutcome::Kept { why } | ParkOutcome::Unknown { why }, _)) => {
                Some(format!("not {how}: {why}"))
            }
            _ => None,
        }
    }
}

/// Why a plan cannot be carried out for what it would park.
pub(crate) fn problem(planned: &Planned) -> Option<Text> {
    let parked = planned
        .left
        .iter()
        .filter(|left| ParkHow::of(left.then).is_some());
    let parked = parked.count();
    (parked > PARKED).then(|| {
        Text::from(format!(
            "{parked} guests would have to be stopped or suspended, and one run does that to {PARKED} at most: drain fewer \
             hosts at once"
        ))
    })
}

fn parked(number: u32, outcome: ParkOutcome, now: Now) -> Entry {
    Entry::Parked {
        number,
        outcome,
        at: now.wall,
    }
}

fn wrong(number: u32, what: &'static str) -> Inconsistent {
    Inconsistent::Park { number, what }
}
