//! What is new in a run since it was looked at last, as lines.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::{MoveState, MoveView, ParkedState, ParkedView, RunPhase, RunView};
use drover_plan::text;
use drover_types::VmName;

use crate::show::runs::took;

/// What has been told already.
#[derive(Debug, Default)]
pub struct Told {
    begun: bool,
    planned: bool,
    phase: Option<RunPhase>,
    round: u32,
    moves: BTreeMap<u32, MoveState>,
    parked: BTreeMap<VmName, ParkedState>,
    notes: BTreeSet<String>,
}

/// What is to be told.
#[derive(Debug, Default)]
pub struct News {
    /// The plan, when it is seen first.
    pub plan: Option<String>,
    /// One line for each thing that happened.
    pub lines: Vec<String>,
}

impl Told {
    /// What was not told yet.
    pub fn news(&mut self, view: &RunView) -> News {
        let mut news = News::default();
        if !std::mem::replace(&mut self.begun, true) {
            let (id, coordinator) = (view.id, &view.coordinator);
            news.lines
                .push(format!("run {id}, carried out by {coordinator}"));
        }
        self.phase(view, &mut news.lines);
        if let Some(plan) = view.plan.as_ref().filter(|_| !self.planned) {
            self.planned = true;
            news.plan = Some(text::plan(plan) + "\n");
        }
        for note in &view.notes {
            if self.notes.insert(note.clone()) {
                news.lines.push(format!("note: {note}"));
            }
        }
        self.moves(view, &mut news.lines);
        for one in &view.parked {
            let before = self.parked.insert(one.vm.clone(), one.state);
            news.lines
                .extend(parked(one).filter(|_| before != Some(one.state)));
        }
        news
    }

    fn phase(&mut self, view: &RunView, lines: &mut Vec<String>) {
        if self.phase.replace(view.phase) == Some(view.phase) {
            return;
        }
        let line = match view.phase {
            RunPhase::Planning => "planning",
            RunPhase::Verifying => "looking where the guests are",
            RunPhase::Cancelling => "cancelling: no further move begins",
            // Shown by what comes of it.
            RunPhase::Cordoning
            | RunPhase::Moving
            | RunPhase::Starting
            | RunPhase::Stopping
            | RunPhase::Ended
            | RunPhase::Unknown => return,
        };
        lines.push(line.to_owned());
    }

    fn moves(&mut self, view: &RunView, lines: &mut Vec<String>) {
        let digits = view.moves.len().to_string().len();
        for one in &view.moves {
            if one.round > self.round {
                self.round = one.round;
                lines.extend(new_round(view, one.round));
            }
            if self.moves.insert(one.number, one.state) != Some(one.state) {
                let number = one.number;
                let said = said(one).map(|said| format!("{number:>digits$} {said}"));
                lines.extend(said);
            }
        }
    }
}

/// What became of a guest that a run stops or runs again.
fn parked(one: &ParkedView) -> Option<String> {
    let what = match one.state {
        ParkedState::Stopping => "is being stopped, since it cannot move",
        ParkedState::Stopped => "is stopped",
        ParkedState::Suspending => "is being suspended, since it cannot move",
        ParkedState::Suspended => "is suspended",
        ParkedState::Kept => "runs on",
        ParkedState::Cancelled => "was not touched",
        ParkedState::InDoubt => "is in doubt",
        ParkedState::Starting => "is being started again",
        ParkedState::Started => "runs again",
        ParkedState::NotStarted => "does not run again",
        ParkedState::Settled => "is left as it is",
        ParkedState::Waiting | ParkedState::Unknown => return None,
    };
    let cause = one.cause.as_ref();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    Some(format!("{} on {} {what}{cause}", one.vm, one.host))
}

/// The first round's plan says it all.
fn new_round(view: &RunView, round: u32) -> Option<String> {
    let of_it = view.moves.iter().filter(|one| one.round == round);
    let count = of_it.count();
    let s = if count == 1 { "" } else { "s" };
    (round > 1).then(|| format!("round {round}, planned anew: {count} move{s}"))
}

fn said(one: &MoveView) -> Option<String> {
    let MoveView { vm, from, to, .. } = one;
    let time = |word: &str| took(one).map_or_else(String::new, |took| format!(" {word} {took}"));
    let what = match one.state {
        MoveState::Moving if one.attempt > 1 => format!("moving, try {}", one.attempt),
        MoveState::Moving => "moving".to_owned(),
        MoveState::Moved => format!("moved{}", time("in")),
        MoveState::Failed => format!("failed{}", time("after")),
        MoveState::Cancelled => format!("cancelled, stays on {from}"),
        MoveState::Dropped => "not begun".to_owned(),
        // The lines below show it.
        MoveState::Waiting | MoveState::Confirming | MoveState::Unknown => return None,
    };
    let cause = one
        .cause
        .as_deref()
        .filter(|_| one.state != MoveState::Moving);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    Some(format!("{vm} {from} -> {to} {what}{cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::{one_move, view};
    use serde_json::json;

    #[test]
    fn what_happened_is_told_once_and_in_words() {
        let mut told = Told::default();
        let mut all = Vec::new();
        let db = |state: &str, more| one_move(2, "db", state, more);
        let web = |state: &str, more| one_move(1, "web", state, more);
        let looks = [
            view(json!({"phase": "cordoning"})),
            view(json!({"phase": "planning"})),
            view(json!({"phase": "moving", "notes": ["eth1 tells no rate"],
                "moves": [web("moving", json!({})), db("waiting", json!({}))]})),
            view(json!({"phase": "moving", "notes": ["eth1 tells no rate"],
                "moves": [web("confirming", json!({})), db("moving", json!({}))]})),
            view(json!({"phase": "moving", "moves": [
                web("moved", json!({"ended_at": "2026-11-22T16:00:04.1Z"})),
                db("failed", json!({"ended_at": "2026-11-22T16:00:05Z", "cause": "no path is left"})),
                one_move(3, "db", "moving", json!({"round": 2, "attempt": 2, "to": "c"}))]})),
            view(json!({"phase": "cancelling", "moves": [
                one_move(3, "db", "cancelled", json!({"round": 2, "attempt": 2, "to": "c"})),
                one_move(4, "mail", "dropped", json!({"round": 2}))]})),
        ];
        for view in looks {
            let lines = told.news(&view).lines;
            assert!(told.news(&view).lines.is_empty(), "told once");
            all.extend(lines);
        }
        insta::assert_snapshot!(all.join("\n"), @r"
        run 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a, carried out by c
        planning
        note: eth1 tells no rate
        1 web a -> b moving
        2 db a -> b moving
        1 web a -> b moved in 4.1 s
        2 db a -> b failed after 5.0 s: no path is left
        round 2, planned anew: 1 move
        3 db a -> c moving, try 2
        cancelling: no further move begins
        3 db a -> c cancelled, stays on a
        4 mail a -> b not begun
        ");
    }

    #[test]
    fn a_run_that_is_seen_late_is_told_from_its_end() {
        let view = view(json!({"phase": "ended", "result": "completed", "moves": [
            one_move(1, "web", "moved", json!({"cause": "its history is not kept"}))]}));
        let lines = Told::default().news(&view).lines;
        assert_eq!(lines[1..], ["1 web a -> b moved: its history is not kept"]);
    }
}
