//! What the end of a run means for the operator.

use std::fmt::Write as _;

use drover_api::{LeftView, ParkedState, ParkedView, RunResult, RunView};
use drover_plan::{Request, text};
use serde_json::json;

use crate::command::Outcome;
use crate::failure::{Failure, exit};
use crate::show::runs;

/// What a run's last view says, with its exit code.
pub fn conclude(view: &RunView) -> Result<Outcome, Failure> {
    let cause = view.cause.as_deref();
    let moved = moved(view);
    let failure = match view.result {
        Some(RunResult::Completed) => return completed(view),
        Some(RunResult::Partial) => {
            let message = format!("not all is done: {moved}{}", after_colon(cause));
            Failure::new(exit::PARTIAL, "run-partial", message)
        }
        Some(RunResult::Refused) => {
            let message = cause.unwrap_or("there is no plan, and the agent tells no cause");
            Failure::new(exit::REFUSED, "run-refused", message.trim_end())
        }
        Some(RunResult::Cancelled) => {
            let message = format!("cancelled: {moved}{}", after_colon(cause));
            Failure::new(exit::CANCELLED, "cancelled", message)
        }
        Some(RunResult::Unknown) | None => {
            let message = format!(
                "the run has ended in a way that this version does not know: {moved}{}",
                after_colon(cause)
            );
            Failure::error(message).next("ask with a `drover` of the coordinator's version")
        }
    };
    let failure = match &view.next {
        Some(next) => failure.next(next.clone()),
        None => failure,
    };
    let said = moves(view) + &runs::parked(view) + &runs::left(view) + &runs::cordoned(view);
    Err(failure.said(said).with("run", view))
}

fn completed(view: &RunView) -> Result<Outcome, Failure> {
    let warnings = warnings(view);
    let mut said = moves(view) + &runs::parked(view);
    if warnings.is_empty() {
        said += &runs::left(view);
    }
    said += &runs::cordoned(view);
    let _ = writeln!(
        said,
        "{}: done, {}",
        text::request(&view.request),
        moved(view)
    );
    for warning in &warnings {
        let _ = writeln!(said, "warning: {warning}");
    }
    if let Some(next) = &view.next {
        let _ = writeln!(said, "next: {next}");
    }
    Outcome::of_parts(said, &[("run", json!(view)), ("warnings", json!(warnings))])
}

/// Guests that were to come home and did not are no failure.
fn warnings(view: &RunView) -> Vec<String> {
    if !matches!(view.request, Request::Resume { .. }) {
        return Vec::new();
    }
    let away = |left: &LeftView| {
        let why = runs::on_one_line(&left.why);
        format!(
            "guest {} is not home, it is on {}: {why}",
            left.vm, left.host
        )
    };
    let not_started = |one: &ParkedView| {
        let cause = one.cause.as_deref().unwrap_or("its agent tells no cause");
        format!(
            "guest {} does not run again on {}: {cause}",
            one.vm, one.host
        )
    };
    let failed = view.parked.iter();
    let failed = failed.filter(|one| one.state == ParkedState::NotStarted);
    let away = view.left.iter().map(away);
    failed.map(not_started).chain(away).collect()
}

/// Every guest with what became of it.
fn moves(view: &RunView) -> String {
    let guests = runs::last_moves(view);
    if guests.is_empty() {
        String::new()
    } else {
        runs::moves(&guests)
    }
}

/// `2 of 3 guests moved, 1 stopped, in 12.3 s`
fn moved(view: &RunView) -> String {
    let guests = runs::last_moves(view);
    let took = view.ended_at.map_or_else(String::new, |end| {
        format!(" in {}", runs::span(view.began_at, end))
    });
    let parked = parked(view);
    match guests.len() {
        0 if parked.is_empty() => "nothing was moved".to_owned(),
        0 => format!("{}{took}", parked.join(", ")),
        all => {
            let s = if all == 1 { "" } else { "s" };
            let moved = format!("{} of {all} guest{s} moved", runs::moved(&guests));
            let all: Vec<String> = std::iter::once(moved).chain(parked).collect();
            format!("{}{took}", all.join(", "))
        }
    }
}

/// Guests that were stopped, suspended or started again, counted.
fn parked(view: &RunView) -> Vec<String> {
    let words = [
        (ParkedState::Stopped, "stopped"),
        (ParkedState::Suspended, "suspended"),
        (ParkedState::Started, "started again"),
    ];
    let count = |state| view.parked.iter().filter(|one| one.state == state).count();
    let counted = words.map(|(state, word)| (count(state), word)).into_iter();
    let counted = counted.filter(|(count, _)| *count > 0);
    counted
        .map(|(count, word)| format!("{count} {word}"))
        .collect()
}

fn after_colon(cause: Option<&str>) -> String {
    cause.map_or_else(String::new, |cause| format!("; {}", cause.trim_end()))
}
