//! Runs, as text for a person.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drover_api::{MoveState, MoveView, RunView};
use drover_plan::text;
use jiff::Timestamp;

use super::{age, milliseconds, or_dash, row, table, word};

/// `drover run`
pub fn list(views: &[RunView]) -> String {
    if views.is_empty() {
        return "nothing was drained, resumed or rebalanced yet\n".to_owned();
    }
    let now = Timestamp::now();
    let mut rows = vec![row(&[
        "WHAT", "STATE", "MOVED", "BEGAN", "TOOK", "BY", "RUN",
    ])];
    for view in views {
        let guests = last_moves(view);
        rows.push(vec![
            text::request(&view.request),
            state(view),
            format!("{} of {}", moved(&guests), guests.len()),
            format!("{} ago", age(view.began_at, now)),
            or_dash(view.ended_at.map(|end| span(view.began_at, end))),
            view.by.clone(),
            view.id.to_string(),
        ]);
    }
    table(&rows)
}

/// `drover run ID`
pub fn one(view: &RunView) -> String {
    let now = Timestamp::now();
    let mut rows = vec![
        row(&["run", &view.id.to_string()]),
        row(&["what", &text::request(&view.request)]),
        row(&["state", &state(view)]),
        row(&["by", &view.by]),
        row(&["carried out by", view.coordinator.as_str()]),
    ];
    let began = format!("{:.0} ({} ago)", view.began_at, age(view.began_at, now));
    rows.push(row(&["began", &began]));
    if let Some(end) = view.ended_at {
        rows.push(row(&["took", &span(view.began_at, end)]));
    }
    if view.round > 1 {
        rows.push(row(&["round", &view.round.to_string()]));
    }
    for (name, words) in [("cause", &view.cause), ("next", &view.next)] {
        // The names stand once, beside the first line.
        let mut name = name;
        for line in words.iter().flat_map(|words| words.lines()) {
            rows.push(row(&[std::mem::take(&mut name), line]));
        }
    }
    let mut said = table(&rows);
    if let Some(plan) = &view.plan {
        let _ = write!(said, "\n{}", text::plan(plan));
    }
    if !view.moves.is_empty() {
        let all: Vec<_> = view.moves.iter().collect();
        let _ = write!(said, "\n{}", moves(&all));
    }
    if !view.parked.is_empty() {
        let _ = write!(said, "\n{}", parked(view));
    }
    said += &left(view);
    said += &cordoned(view);
    for note in &view.notes {
        let _ = writeln!(said, "note: {note}");
    }
    said
}

/// Where it is, or how it ended.
fn state(view: &RunView) -> String {
    match view.result {
        Some(result) if view.phase.has_ended() => word(&result),
        _ => word(&view.phase),
    }
}

/// Moves with what became of them.
pub fn moves(moves: &[&MoveView]) -> String {
    let mut rows = vec![row(&["NO", "GUEST", "FROM", "TO", "STATE", "TOOK", "WHY"])];
    for one in moves {
        let state = match one.attempt {
            0 | 1 => word(&one.state),
            tries => format!("{}, try {tries}", word(&one.state)),
        };
        let why = one.cause.as_deref().unwrap_or_default();
        rows.push(vec![
            one.number.to_string(),
            one.vm.to_string(),
            one.from.to_string(),
            one.to.to_string(),
            state,
            or_dash(took(one)),
            why.replace('\n', " "),
        ]);
    }
    table(&rows)
}

/// Guests that were stopped or suspended, or run again, with what became of them.
pub fn parked(view: &RunView) -> String {
    if view.parked.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(&["GUEST", "HOST", "STATE", "TOOK", "WHY"])];
    for one in &view.parked {
        let took = one.started_at.zip(one.ended_at);
        let took = took.map(|(from, to)| span(from, to));
        let why = one.cause.as_ref().or(one.why.as_ref());
        rows.push(vec![
            one.vm.to_string(),
            one.host.to_string(),
            word(&one.state),
            or_dash(took),
            why.map_or_else(String::new, |why| on_one_line(why)),
        ]);
    }
    table(&rows)
}

/// What is told in several lines elsewhere.
pub fn on_one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Guests that stay, each with the reason.
pub fn left(view: &RunView) -> String {
    let mut said = String::new();
    if !view.left.is_empty() {
        said.push_str("\nNot moved:\n");
    }
    for left in &view.left {
        let _ = writeln!(said, "  {} on {}: {}", left.vm, left.host, left.then);
        for line in left.why.lines() {
            let _ = writeln!(said, "    {}", line.trim());
        }
    }
    said
}

/// Hosts that take no guests because of it.
pub fn cordoned(view: &RunView) -> String {
    let mut said = String::new();
    for host in &view.cordoned {
        let _ = writeln!(
            said,
            "{host} takes no guests; `drover resume {host}` has it take them again"
        );
    }
    said
}

/// The last move of each guest, in the order of their numbers.
pub fn last_moves(view: &RunView) -> Vec<&MoveView> {
    let mut last = BTreeMap::new();
    for one in &view.moves {
        last.insert(&one.vm, one);
    }
    let mut last: Vec<_> = last.into_values().collect();
    last.sort_unstable_by_key(|one| one.number);
    last
}

/// How many of them have arrived.
pub fn moved(moves: &[&MoveView]) -> usize {
    let arrived = |one: &&&MoveView| one.state == MoveState::Moved;
    moves.iter().filter(arrived).count()
}

/// How long a move took, once it has ended.
pub fn took(one: &MoveView) -> Option<String> {
    Some(span(one.started_at?, one.ended_at?))
}

/// From one moment to a later one, in words.
pub fn span(from: Timestamp, to: Timestamp) -> String {
    milliseconds(elapsed(from, to))
}

/// Milliseconds from one moment to a later one; none where a clock was set back.
pub fn elapsed(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}
