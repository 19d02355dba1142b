//! A run as the API shows it.

use std::collections::BTreeSet;

use drover_api::{
    LeftView, LiveView, MoveState as Shown, MoveView, RunPhase, RunResult as ShownResult, RunView,
};
use drover_execute::journal::{Left, Outcome, RunResult, UnixMillis};
use drover_execute::{MoveState, Record, Run, Stage};
use drover_plan::Request;
use drover_plan::plan::Then;
use drover_types::HostName;
use jiff::Timestamp;

use super::parked;

/// All that its journal and what was seen of it tell.
pub fn view(run: &Run, coordinator: &HostName) -> RunView {
    let began = run.began();
    let (result, cause, ended_at) = match run.result() {
        Some((result, why, at)) => (Some(shown(result)), why, Some(timestamp(at))),
        None => (None, None, None),
    };
    RunView {
        id: began.run,
        request: began.request.clone(),
        by: began.by.to_string(),
        coordinator: coordinator.clone(),
        phase: phase(run),
        result,
        cause: cause.map(ToString::to_string),
        next: next(run),
        began_at: timestamp(began.at),
        ended_at,
        round: run.round(),
        moves: run
            .moves()
            .iter()
            .map(|record| of_move(run, record))
            .collect(),
        left: run.left().iter().filter_map(|one| left(run, one)).collect(),
        parked: parked::all(run),
        cordoned: run.cordoned().cloned().collect(),
        notes: Vec::new(),
        expected: run.expected(),
        plan: None,
    }
}

fn phase(run: &Run) -> RunPhase {
    match run.stage() {
        Stage::Ended => RunPhase::Ended,
        _ if run.cancel().is_some() => RunPhase::Cancelling,
        Stage::Preparing | Stage::Lifting => RunPhase::Cordoning,
        Stage::Planning => RunPhase::Planning,
        Stage::Unparking => RunPhase::Starting,
        Stage::Moving => RunPhase::Moving,
        Stage::Parking => RunPhase::Stopping,
        Stage::Verifying => RunPhase::Verifying,
    }
}

fn shown(result: RunResult) -> ShownResult {
    match result {
        RunResult::Completed => ShownResult::Completed,
        RunResult::Partial => ShownResult::Partial,
        RunResult::Refused => ShownResult::Refused,
        RunResult::Cancelled => ShownResult::Cancelled,
    }
}

/// What an operator does after it, where something is left to do.
fn next(run: &Run) -> Option<String> {
    let (result, _, _) = run.result()?;
    let resumes = run.cordoned().map(|host| format!("`drover resume {host}`"));
    let resumes: Vec<String> = resumes.collect();
    let next = match result {
        RunResult::Completed => None,
        RunResult::Partial => {
            let again = match run.began().exactly {
                Some(_) => "make a plan anew, or drain without one",
                None => "run the same again",
            };
            Some(format!(
                "mend what keeps the guests there, then {again}: what has moved stays moved"
            ))
        }
        RunResult::Cancelled | RunResult::Refused if resumes.is_empty() => lifted(run),
        // `uncordon` would leave those off that the run has stopped or suspended.
        RunResult::Cancelled | RunResult::Refused => Some(format!(
            "{}: the host takes guests again, and those that were stopped or suspended there run again",
            resumes.join(", ")
        )),
    };
    let both: Vec<String> = next.into_iter().chain(disks_left(run)).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// What is to be known of disks that guests have left, and of how they come home to a host that was drained.
fn disks_left(run: &Run) -> Option<String> {
    let has_left = |record: &&Record| record.planned.with_disks && has_moved(&record.state);
    let left = run.moves().iter().filter(has_left);
    let from: BTreeSet<&HostName> = left.map(|record| &record.planned.from).collect();
    if from.is_empty() {
        return None;
    }
    let names: Vec<&str> = from.iter().map(|host| host.as_str()).collect();
    let stale = format!(
        "disks that guests left on {} are stale, and stay (`drover history` there names the files): start nothing with them",
        names.join(", ")
    );
    let Request::Drain { .. } = &run.began().request else {
        return Some(stale);
    };
    let home = from
        .iter()
        .map(|host| format!("`drover resume {host} --fail-back --with-disks`"));
    let home: Vec<String> = home.collect();
    Some(format!(
        "{stale}; {} copies the guests' own back over them",
        home.join(", ")
    ))
}

fn has_moved(state: &MoveState) -> bool {
    let MoveState::Ended { outcome, .. } = state else {
        return false;
    };
    matches!(outcome, Outcome::Moved { .. })
}

fn lifted(run: &Run) -> Option<String> {
    let hosts: Vec<&str> = run.lifted().map(HostName::as_str).collect();
    let hosts = hosts.join(" ");
    (!hosts.is_empty()).then(|| format!("what the run cordoned takes guests again: {hosts}"))
}

fn of_move(run: &Run, record: &Record) -> MoveView {
    let planned = &record.planned;
    let (state, migration, started, ended, cause) = match &record.state {
        MoveState::Waiting => (Shown::Waiting, None, None, None, None),
        MoveState::Dropped => (Shown::Dropped, None, None, None, None),
        MoveState::UnderWay { migration, since } => {
            let seen = run.seen(record.number);
            let state = match seen {
                Some(seen) if seen.is_complete() => Shown::Confirming,
                _ => Shown::Moving,
            };
            (state, Some(*migration), Some(*since), None, None)
        }
        MoveState::Ended {
            migration,
            since,
            outcome,
            at,
        } => {
            let (state, cause) = ended(outcome);
            (state, *migration, Some(*since), Some(*at), cause)
        }
    };
    MoveView {
        number: record.number,
        round: record.round,
        wave: planned.wave,
        vm: planned.vm.clone(),
        from: planned.from.clone(),
        to: planned.to.clone(),
        state,
        attempt: record.attempt,
        migration,
        memory: planned.memory,
        with_disks: planned.with_disks,
        started_at: started.map(timestamp),
        ended_at: ended.map(timestamp),
        cause,
        live: live(run, record),
    }
}

fn ended(outcome: &Outcome) -> (Shown, Option<String>) {
    match outcome {
        Outcome::Moved { note } => (Shown::Moved, note.as_ref().map(ToString::to_string)),
        Outcome::Failed { why, .. } => (Shown::Failed, Some(why.to_string())),
        Outcome::Cancelled => (Shown::Cancelled, None),
        Outcome::Unknown { why } => {
            let cause = format!("look where the guest is: {why}");
            (Shown::Failed, Some(cause))
        }
    }
}

fn live(run: &Run, record: &Record) -> Option<LiveView> {
    let seen = run.seen(record.number)?;
    let [transferred, remaining, total] = seen.bytes;
    Some(LiveView {
        transferred,
        remaining,
        total,
        rate: seen.rate,
    })
}

/// None of one that was told to be parked: that is shown by itself.
fn left(run: &Run, left: &Left) -> Option<LeftView> {
    if run.parks().iter().any(|park| park.order.vm == left.vm) {
        return None;
    }
    let is_over = run.result().is_some();
    let not_parked = run.why_not_parked(left).filter(|_| is_over);
    let then = match left.then {
        Then::Blocks => "must move, so that there is no plan",
        Then::RunsOn => "runs on there",
        Then::Suspended | Then::Stopped if not_parked.is_some() => "runs on there",
        Then::Suspended => "is to be suspended",
        Then::Stopped => "is to be stopped",
        Then::NotHome => "stays where it is",
    };
    Some(LeftView {
        vm: left.vm.clone(),
        host: left.host.clone(),
        why: not_parked.unwrap_or_else(|| left.why.to_string()),
        then: then.to_owned(),
    })
}

pub(super) fn timestamp(at: UnixMillis) -> Timestamp {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}
