//! What a run that has ended came to, from its journal alone.
//!
//! It is the same whoever carried the run out, and in how many pieces; whether it is counted is the driver's to say.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_execute::journal::{Outcome, ParkOutcome, RunResult, UnixMillis, UnparkOutcome};
use drover_execute::{MoveState, Park, Run, UnparkState};
use drover_plan::Request;

use crate::metrics::RunEnd;

const PREPARING: &str = "preparing";
const STARTING: &str = "starting";
const MOVING: &str = "moving";
const STOPPING: &str = "stopping";
const VERIFYING: &str = "verifying";

/// Something done to a guest: in which phase, from when, until when.
type Span = (&'static str, UnixMillis, UnixMillis);

/// What it came to; none while it is under way.
pub fn ended(run: &Run) -> Option<RunEnd> {
    let (result, _, at) = run.result()?;
    let began = run.began();
    Some(RunEnd {
        kind: kind(&began.request),
        result: word(result),
        guests: guests(run),
        phases: phases(began.at, spans(run), at),
    })
}

/// The word for what is asked for.
pub fn kind(request: &Request) -> &'static str {
    match request {
        Request::Drain { .. } => "drain",
        Request::Resume { .. } => "resume",
        Request::Rebalance { .. } => "rebalance",
    }
}

fn word(result: RunResult) -> &'static str {
    match result {
        RunResult::Completed => "completed",
        RunResult::Partial => "partial",
        RunResult::Refused => "refused",
        RunResult::Cancelled => "cancelled",
    }
}

/// Each guest once, however often it was tried.
fn guests(run: &Run) -> BTreeMap<&'static str, u64> {
    let mut last = BTreeMap::new();
    for record in run.moves() {
        let vm = &record.planned.vm;
        match &record.state {
            MoveState::Ended { outcome, .. } => {
                last.insert(vm, moved(outcome));
            }
            // An earlier try says more of it.
            MoveState::Waiting | MoveState::UnderWay { .. } | MoveState::Dropped => {
                last.entry(vm).or_insert("not-begun");
            }
        }
    }
    for left in run.left() {
        last.entry(&left.vm).or_insert("left");
    }
    for park in run.parks() {
        last.insert(&park.order.vm, parked(park));
    }
    for unpark in run.unparks() {
        last.insert(&unpark.guest.vm, started(&unpark.state));
    }
    let mut counts = BTreeMap::new();
    for outcome in last.into_values() {
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}

fn moved(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Moved { .. } => "moved",
        Outcome::Failed { .. } => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Unknown { .. } => "unknown",
    }
}

fn parked(park: &Park) -> &'static str {
    match park.ended.as_ref().map(|(outcome, _)| outcome) {
        Some(ParkOutcome::Parked) => "parked",
        Some(ParkOutcome::Kept { .. }) => "left",
        Some(ParkOutcome::Cancelled) => "cancelled",
        Some(ParkOutcome::Unknown { .. }) | None => "unknown",
    }
}

fn started(state: &UnparkState) -> &'static str {
    match state {
        UnparkState::Waiting => "not-begun",
        UnparkState::UnderWay { .. } => "unknown",
        UnparkState::Ended { outcome, .. } => match outcome {
            UnparkOutcome::Runs => "started",
            UnparkOutcome::Failed { .. } => "not-started",
            UnparkOutcome::Settled { .. } => "settled",
        },
    }
}

fn spans(run: &Run) -> Vec<Span> {
    let moves = run.moves().iter().filter_map(|record| match record.state {
        MoveState::Ended { since, at, .. } => Some((MOVING, since, at)),
        _ => None,
    });
    let parks = run.parks().iter().filter_map(|park| {
        let (_, at) = park.ended.as_ref()?;
        Some((STOPPING, park.order.at, *at))
    });
    let unparks = run
        .unparks()
        .iter()
        .filter_map(|unpark| match unpark.state {
            UnparkState::Ended { since, at, .. } => Some((STARTING, since, at)),
            _ => None,
        });
    let mut spans: Vec<Span> = moves.chain(parks).chain(unparks).collect();
    spans.sort_by_key(|(_, since, _)| *since);
    spans
}

/// Each moment from `began` to `ended` belongs to one phase. Clocks of several coordinators may differ; no phase is shorter than nothing for that.
fn phases(
    began: UnixMillis,
    spans: Vec<Span>,
    ended: UnixMillis,
) -> BTreeMap<&'static str, Duration> {
    let mut millis = BTreeMap::from([PREPARING, STARTING, MOVING, STOPPING, VERIFYING].map(zero));
    let mut until = began.0;
    let mut belongs = |phase: &'static str, to: u64| {
        *millis.entry(phase).or_default() += to.saturating_sub(until);
        until = until.max(to);
    };
    // Where nothing is done to a guest: plans are made for moves, and hosts are looked at otherwise.
    let mut idle = PREPARING;
    for (phase, since, at) in spans {
        let before = if phase == STOPPING { idle } else { PREPARING };
        belongs(before, since.0);
        belongs(phase, at.0);
        idle = VERIFYING;
    }
    belongs(idle, ended.0);
    let lasted = |(phase, millis)| (phase, Duration::from_millis(millis));
    millis.into_iter().map(lasted).collect()
}

fn zero(phase: &'static str) -> (&'static str, u64) {
    (phase, 0)
}

#[cfg(test)]
mod tests;
