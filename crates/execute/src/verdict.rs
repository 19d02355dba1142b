//! How a run ended, in words.

use std::collections::BTreeMap;

use drover_plan::{Account, Request};
use drover_types::{HostName, VmName};

use crate::Now;
use crate::answers::Guest;
use crate::journal::{Entry, Outcome, ParkOutcome, RunResult, UnparkOutcome};
use crate::run::{MoveState, Run};
use crate::unpark::UnparkState;

/// Guests that are named with their reasons before the rest is counted.
const NAMED: usize = 5;

impl Run {
    /// The last entry.
    pub(crate) fn verdict(&self, now: Now) -> Entry {
        let (result, why) = self.result_and_why();
        // What keeps a plan from being made is told in several lines.
        let between = if self.no_plan.is_some() { "\n" } else { "; " };
        Entry::Finished {
            result,
            why: (!why.is_empty()).then(|| Account::from(why.join(between))),
            at: now.wall,
        }
    }

    fn result_and_why(&self) -> (RunResult, Vec<String>) {
        let mut why = Vec::new();
        if let Some(no_plan) = &self.no_plan {
            let of_rest = if no_plan.round > 1 {
                "for the rest: "
            } else {
                ""
            };
            why.push(format!("{of_rest}{}", no_plan.why));
        }
        let unknown = self.unknown();
        let is_clear = self.no_plan.is_none() && unknown.is_none();
        why.extend(unknown);
        let refused = self.no_plan.is_some() && self.has_changed_nothing();
        if self.cancel.is_some() || refused {
            why.extend(self.not_unparked());
            why.extend(self.still_cordoned());
            let result = match self.cancel {
                Some(_) => RunResult::Cancelled,
                None => RunResult::Refused,
            };
            return (result, why);
        }
        let kept = match &self.began.request {
            Request::Drain { .. } => {
                let rest = self.rest();
                let kept = rest.is_empty();
                why.extend(rest);
                kept
            }
            Request::Resume { .. } => {
                why.extend(self.not_unparked());
                why.extend(self.not_moved("not home"));
                true
            }
            Request::Rebalance { .. } => {
                let failed = self.not_moved("not moved");
                let kept = failed.is_none();
                why.extend(failed);
                kept
            }
        };
        let result = if kept && is_clear {
            RunResult::Completed
        } else {
            RunResult::Partial
        };
        (result, why)
    }

    /// What keeps drained hosts from being empty.
    fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        if let Some(why) = &self.uncounted {
            rest.push(format!(
                "whether the hosts are empty could not be seen: {why}"
            ));
        }
        let mut by_host: BTreeMap<&HostName, Vec<&Guest>> = BTreeMap::new();
        for guest in self.census.iter().flatten() {
            by_host.entry(&guest.host).or_default().push(guest);
        }
        for (host, guests) in by_host {
            let named = self.named(guests.iter().map(|guest| &guest.vm));
            rest.push(format!("still on {host}: {named}"));
        }
        rest
    }

    /// Guests whose last move has not come about, and those that the plan left.
    fn not_moved(&self, words: &str) -> Option<String> {
        let mut last: BTreeMap<&VmName, bool> = BTreeMap::new();
        for record in &self.records {
            let moved = match &record.state {
                MoveState::Ended { outcome, .. } => matches!(outcome, Outcome::Moved { .. }),
                MoveState::Dropped => false,
                MoveState::Waiting | MoveState::UnderWay { .. } => continue,
            };
            last.insert(&record.planned.vm, moved);
        }
        for left in &self.left {
            last.entry(&left.vm).or_insert(false);
        }
        let failed: Vec<&VmName> = last
            .into_iter()
            .filter(|(_, m)| !m)
            .map(|(vm, _)| vm)
            .collect();
        (!failed.is_empty()).then(|| format!("{words}: {}", self.named(failed.into_iter())))
    }

    /// Guests of which somebody has to find out where they are.
    fn unknown(&self) -> Option<String> {
        let unknown = self.records.iter().filter(|record| {
            matches!(
                &record.state,
                MoveState::Ended {
                    outcome: Outcome::Unknown { .. },
                    ..
                }
            )
        });
        let parks = self.parks.iter().filter(|park| {
            let ended = park.ended.as_ref();
            ended.is_some_and(|(outcome, _)| matches!(outcome, ParkOutcome::Unknown { .. }))
        });
        let unknown = unknown.map(|record| &record.planned.vm);
        let unknown = unknown.chain(parks.map(|park| &park.order.vm));
        let names: Vec<&VmName> = unknown.collect();
        let named = || self.named(names.iter().copied());
        (!names.is_empty()).then(|| format!("to be looked after: {}", named()))
    }

    /// Guests that were parked and do not run again.
    fn not_unparked(&self) -> Option<String> {
        let failed = self
            .unparks
            .iter()
            .filter_map(|unpark| match &unpark.state {
                UnparkState::Ended {
                    outcome: UnparkOutcome::Failed { why },
                    ..
                } => Some(format!("{} ({why})", unpark.guest.vm)),
                UnparkState::Waiting => Some(unpark.guest.vm.to_string()),
                _ => None,
            });
        let failed: Vec<String> = failed.collect();
        let all = failed.len();
        let shown = failed.into_iter().take(NAMED).collect();
        (all > 0).then(|| format!("not started again: {}", in_words(shown, all)))
    }

    fn still_cordoned(&self) -> Option<String> {
        let names: Vec<&str> = self.own_cordons().map(HostName::as_str).collect();
        let names = names.join(", ");
        (!names.is_empty()).then(|| format!("cordoned still for this run: {names}"))
    }

    fn named<'v>(&self, guests: impl Iterator<Item = &'v VmName>) -> String {
        let all: Vec<&VmName> = guests.collect();
        let shown = all.iter().take(NAMED).map(|vm| match self.why(vm) {
            Some(why) => format!("{vm} ({why})"),
            None => vm.to_string(),
        });
        in_words(shown.collect(), all.len())
    }

    /// Why a guest is where it is, by the last that is known.
    fn why(&self, vm: &VmName) -> Option<String> {
        let of_left = || {
            let left = self.left.iter().find(|left| left.vm == *vm)?;
            let parked = self.why_not_parked(left);
            Some(parked.unwrap_or_else(|| left.why.to_string()))
        };
        let mut records = self.records.iter().rev();
        let of_move = records.find_map(|record| match &record.state {
            MoveState::Ended {
                outcome: Outcome::Failed { why, .. } | Outcome::Unknown { why },
                ..
            } if record.planned.vm == *vm => Some(why.to_string()),
            _ => None,
        });
        of_move.or_else(of_left)
    }
}

/// The first of them, and how many more there are.
fn in_words(shown: Vec<String>, all: usize) -> String {
    match all.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
