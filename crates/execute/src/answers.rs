//! What agents and the planner answer, and what follows from it.

use std::time::Duration;

use drover_plan::{Account, Text};
use drover_types::{ByteRate, Bytes, HostName, VmName};

use crate::Now;
use crate::asks::Ask;
use crate::journal::{Blame, Entry, Move, Outcome};
use crate::limits::{CONFIRM, SILENCE, SILENCE_AT_ENDS};
use crate::measured::{End, Seen};
use crate::park::{self, ParkSeen};
use crate::planned::Planned;
use crate::run::{Run, Stage};
use crate::unpark::UnparkSeen;

/// An answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The host takes no guests; whether it took none before.
    Cordoned {
        /// It took none before it was asked.
        before: bool,
    },
    /// The host takes guests.
    Uncordoned,
    /// A plan.
    Planned(Box<Planned>),
    /// There is no plan.
    NoPlan {
        /// Why.
        why: Account,
    },
    /// A migration as its source sees it.
    Look(Look),
    /// The source knows no such migration.
    NoSuchMigration,
    /// The order was refused, and nothing was begun.
    Refused {
        /// Why.
        why: Text,
        /// What that says of another try.
        blame: Blame,
    },
    /// The migration is being called back, or that is too late, or not needed any more: a look tells.
    GoesItsWay,
    /// The migration was called back, or will never begin.
    CalledBack,
    /// Where the guest is by the word of both ends.
    Place(Place),
    /// How far an order to park a guest is.
    Park(ParkSeen),
    /// How far a guest is that is to run again.
    Unpark(UnparkSeen),
    /// Guests in memory on the hosts that were asked about.
    Census(Vec<Guest>),
    /// No answer, or none that could be used.
    Silence {
        /// What was heard instead.
        why: Text,
    },
}

/// A migration as its source sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// How far it is.
    pub phase: Phase,
    /// Bytes sent so far, still to send, and in all.
    pub bytes: [Bytes; 3],
    /// What all lanes carry per second.
    pub rate: ByteRate,
    /// Its own estimate of the time until the guest runs on the destination.
    pub left_ms: Option<u64>,
}

/// How far a migration is, as far as that matters to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Before the first byte.
    Preparing,
    /// Memory is copied.
    Transferring,
    /// It cannot be called back any more, and is not confirmed yet.
    HandingOff,
    /// It is being called back.
    CallingBack,
    /// The guest runs on the destination, by the source's word.
    Completed,
    /// Somebody called it back, and the guest runs on the source.
    Cancelled,
    /// It has not come about.
    Failed {
        /// Why.
        why: Text,
        /// Where that left the guest.
        guest: GuestAt,
        /// What that says of another try.
        blame: Blame,
    },
}

/// Where a migration that failed left its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestAt {
    /// It runs on the source.
    Source,
    /// Anywhere else, or not known.
    Elsewhere,
}

/// What both ends have of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The source has a process of it.
    pub on_source: bool,
    /// The destination has a process of it, and whether that runs.
    pub on_destination: Option<bool>,
}

/// A guest in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// Where.
    pub host: HostName,
    /// Its name.
    pub vm: VmName,
    /// It is being moved.
    pub moving: bool,
}

impl Run {
    /// Takes an answer; the entries that follow from it, which are to be written down and applied in
    /// this order. One that is no longer waited for changes nothing.
    pub fn handle(&mut self, ask: &Ask, answer: Answer, now: Now) -> Vec<Entry> {
        if !self.asks().contains(ask) {
            return Vec::new();
        }
        if self.is_call_back(ask) {
            self.called_back_or_not(ask, &answer, now);
            return Vec::new();
        }
        match ask {
            Ask::Cordon { host } => self.cordoned_or_not(host, answer, now),
            Ask::Uncordon { host } | Ask::Lift { host } => {
                self.uncordoned_or_not(host, answer, now)
            }
            Ask::Plan { round } => self.planned_or_not(*round, answer, now),
            Ask::Order { number, .. } | Ask::Look { number, .. } => {
                self.looked(*number, answer, now)
            }
            Ask::CallBack { number, .. } => self.called_back(*number, answer, now),
            Ask::Place {
                number, from, to, ..
            } => self.placed(*number, from, to, answer, now),
            Ask::Park { number, .. } => match answer {
                Answer::Park(seen) => self.parked_or_not(*number, seen, now),
                Answer::Silence { why } => self.park_not_heard(*number, &why, now),
                _ => Vec::new(),
            },
            Ask::Unpark { number, .. } => match answer {
                Answer::Unpark(seen) => self.unparked_or_not(*number, seen, now),
                Answer::Silence { why } => self.unpark_not_heard(*number, &why, now),
                _ => Vec::new(),
            },
            Ask::Census { .. } => self.counted(answer, now),
        }
    }

    fn cordoned_or_not(&mut self, host: &HostName, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::Cordoned { before } => vec![Entry::Cordoned {
                host: host.clone(),
                before,
            }],
            Answer::Silence { why } => self.not_prepared(host, &why, now),
            _ => Vec::new(),
        }
    }

    fn uncordoned_or_not(&mut self, host: &HostName, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::Uncordoned => vec![Entry::Uncordoned { host: host.clone() }],
            Answer::Silence { why } => {
                if self.stage() == Stage::Preparing {
                    return self.not_prepared(host, &why, now);
                }
                if self.is_silent_for(host, SILENCE_AT_ENDS, now) {
                    self.given_up.insert(host.clone());
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Nothing was moved yet, so that a host that does not answer ends the run.
    fn not_prepared(&mut self, host: &HostName, why: &Text, now: Now) -> Vec<Entry> {
        if !self.is_silent_for(host, SILENCE_AT_ENDS, now) {
            return Vec::new();
        }
        let seconds = SILENCE_AT_ENDS.as_secs();
        let why = Text::from(format!("{host} could not be told for {seconds} s: {why}"));
        vec![Entry::NoPlan {
            round: 1,
            why: why.into(),
        }]
    }

    fn is_silent_for(&mut self, host: &HostName, bound: Duration, now: Now) -> bool {
        let since = *self.silent.entry(host.clone()).or_insert(now.elapsed);
        now.elapsed.saturating_sub(since) >= bound
    }

    fn planned_or_not(&mut self, round: u32, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::Planned(mut planned) => {
                self.without_given_up(&mut planned);
                match park::problem(&planned) {
                    Some(why) => vec![Entry::NoPlan {
                        round,
                        why: why.into(),
                    }],
                    None => planned.entries(round),
                }
            }
            Answer::NoPlan { why } => vec![Entry::NoPlan { round, why }],
            Answer::Silence { why } => {
                let since = *self.unplanned_since.get_or_insert(now.elapsed);
                let waited = now.elapsed.saturating_sub(since) >= SILENCE_AT_ENDS;
                let why = why.into();
                waited
                    .then_some(Entry::NoPlan { round, why })
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// A plan still has a place for guests that are not tried any more. What it builds on their moves is left
    /// for another plan.
    fn without_given_up(&self, planned: &mut Planned) {
        let given_up = |step: &Move| self.is_given_up(&step.vm);
        let waves = planned.moves.iter().filter(|step| given_up(step));
        let last = waves.map(|step| step.wave).min().unwrap_or(u32::MAX);
        planned
            .moves
            .retain(|step| !given_up(step) && step.wave <= last);
    }

    fn looked(&mut self, number: u32, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::Look(look) => self.look(number, &look, now),
            Answer::Refused { why, blame } => {
                self.ended(number, Outcome::Failed { why, blame }, now)
            }
            Answer::NoSuchMigration => {
                let seen = self.seen.entry(number).or_default();
                if seen.known {
                    // Its agent has forgotten it, and so it is over: where the guest is tells how.
                    seen.complete_since.get_or_insert(now.elapsed);
                } else {
                    seen.unknown = true;
                }
                Vec::new()
            }
            Answer::Silence { why } => self.not_heard(number, &why, now),
            _ => Vec::new(),
        }
    }

    fn look(&mut self, number: u32, look: &Look, now: Now) -> Vec<Entry> {
        let called_back = self.calls_back();
        let seen = self.seen.entry(number).or_default();
        seen.look(look, now.elapsed);
        match &look.phase {
            Phase::Preparing | Phase::Transferring => {
                self.measure(number, now.elapsed);
                Vec::new()
            }
            Phase::HandingOff | Phase::CallingBack => self.is_ending(number, now),
            Phase::Completed => {
                seen.complete_since.get_or_insert(now.elapsed);
                Vec::new()
            }
            Phase::Cancelled if called_back => self.ended(number, Outcome::Cancelled, now),
            Phase::Cancelled => {
                let why = Text::from("its migration was cancelled, and not by this run".to_owned());
                let blame = Blame::Guest;
                self.ended(number, Outcome::Failed { why, blame }, now)
            }
            Phase::Failed { why, guest, blame } => {
                let (why, blame) = (why.clone(), *blame);
                let outcome = match guest {
                    GuestAt::Source => Outcome::Failed { why, blame },
                    GuestAt::Elsewhere => Outcome::Unknown { why },
                };
                self.ended(number, outcome, now)
            }
        }
    }

    /// One that does not come to its end waits for a person, and the run does not wait with it.
    fn is_ending(&self, number: u32, now: Now) -> Vec<Entry> {
        let since = self.seen.get(&number).and_then(|seen| seen.ending_since);
        let since = since.unwrap_or(now.elapsed);
        if now.elapsed.saturating_sub(since) < SILENCE {
            return Vec::new();
        }
        let seconds = SILENCE.as_secs();
        let why = format!(
            "its migration has been ending for {seconds} s: `drover status` on its source tells what it waits for"
        );
        let why = Text::from(why);
        self.ended(number, Outcome::Unknown { why }, now)
    }

    fn called_back(&mut self, number: u32, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::CalledBack => self.ended(number, Outcome::Cancelled, now),
            Answer::GoesItsWay => {
                let seen = self.seen.entry(number).or_default();
                seen.goes_its_way = true;
                seen.known = true;
                seen.silent_since = None;
                seen.ending_since.get_or_insert(now.elapsed);
                Vec::new()
            }
            Answer::Silence { why } => self.not_heard(number, &why, now),
            _ => Vec::new(),
        }
    }

    fn placed(
        &mut self,
        number: u32,
        from: &HostName,
        to: &HostName,
        answer: Answer,
        now: Now,
    ) -> Vec<Entry> {
        let place = match answer {
            Answer::Place(place) => place,
            Answer::Silence { why } => return self.not_heard(number, &why, now),
            _ => return Vec::new(),
        };
        let seen = self.seen.entry(number).or_default();
        seen.silent_since = None;
        let moved = |note: Option<&str>| Outcome::Moved {
            note: note.map(|note| Text::from(note.to_owned())),
        };
        match place {
            Place {
                on_source: false,
                on_destination: Some(true),
            } => return self.ended(number, moved(None), now),
            Place {
                on_source: false,
                on_destination: Some(false),
            } => {
                let note = "it is there and stands still";
                return self.ended(number, moved(Some(note)), now);
            }
            Place { .. } => {}
        }
        let since = seen.complete_since.unwrap_or(now.elapsed);
        if now.elapsed.saturating_sub(since) < CONFIRM {
            return Vec::new();
        }
        let is = |there: bool| if there { "has" } else { "has not" };
        let why = format!(
            "its migration is over, but {to} {} a process of it and {from} {} one",
            is(place.on_destination.is_some()),
            is(place.on_source)
        );
        let why = Text::from(why);
        self.ended(number, Outcome::Unknown { why }, now)
    }

    fn not_heard(&mut self, number: u32, why: &Text, now: Now) -> Vec<Entry> {
        let seen = self.seen.entry(number).or_default();
        let since = *seen.silent_since.get_or_insert(now.elapsed);
        if now.elapsed.saturating_sub(since) < SILENCE {
            return Vec::new();
        }
        let seconds = SILENCE.as_secs();
        let why = Text::from(format!("not heard of for {seconds} s: {why}"));
        self.ended(number, Outcome::Unknown { why }, now)
    }

    fn counted(&mut self, answer: Answer, now: Now) -> Vec<Entry> {
        match answer {
            Answer::Census(guests) => {
                self.uncounted_since = None;
                if guests.iter().any(|guest| guest.moving) {
                    let since = *self.unsettled_since.get_or_insert(now.elapsed);
                    self.is_settled = now.elapsed.saturating_sub(since) >= SILENCE;
                } else {
                    self.unsettled_since = None;
                }
                self.census = Some(guests);
            }
            Answer::Silence { why } => {
                let since = *self.uncounted_since.get_or_insert(now.elapsed);
                if now.elapsed.saturating_sub(since) >= SILENCE_AT_ENDS {
                    self.uncounted = Some(why);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn ended(&self, number: u32, outcome: Outcome, now: Now) -> Vec<Entry> {
        vec![Entry::Ended {
            number,
            outcome,
            at: now.wall,
        }]
    }

    /// What the hosts at both ends carry with as many moves as there are now.
    fn measure(&mut self, number: u32, elapsed: Duration) {
        let Some(record) = self.record(number) else {
            return;
        };
        let (from, to) = (record.planned.from.clone(), record.planned.to.clone());
        for (host, end) in [(from, End::Source), (to, End::Destination)] {
            let seen: Vec<_> = self.seen_at(&host, end).collect();
            // What has just begun, and what is about to end, says nothing of the lines.
            let steady = |seen: &&Seen| seen.has_settled(elapsed) && !seen.is_nearly_over();
            if !seen.is_empty() && seen.iter().all(steady) {
                let rate = ByteRate(seen.iter().map(|seen| seen.rate.0).sum());
                let count = seen.len();
                self.measured.note(&host, end, count, rate);
            }
        }
    }
}
