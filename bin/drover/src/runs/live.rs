//! The lines of a run that change: how far it is, and each guest that moves.

use drover_api::{LiveView, MoveState, MoveView, ParkedState, ParkedView, RunPhase, RunView};
use drover_plan::text;
use drover_types::ByteRate;
use jiff::Timestamp;

use crate::limits::MOVE_LINES;
use crate::show::{milliseconds, row, runs, table, word};

/// Characters of a bar: with names of some ten characters a line fits in 80 columns.
const BAR: usize = 20;

/// What there is to see `now`.
pub fn lines(view: &RunView, now: Timestamp) -> Vec<String> {
    let mut lines = vec![summary(view, now)];
    let under_way: Vec<_> = view.moves.iter().filter(|one| is_under_way(one)).collect();
    let rows: Vec<_> = under_way
        .iter()
        .take(MOVE_LINES)
        .map(|one| one_line(one))
        .collect();
    lines.extend(table(&rows).lines().map(|line| format!("  {line}")));
    let parked = view.parked.iter().filter(|one| is_being_parked(one));
    lines.extend(parked.take(MOVE_LINES).map(|one| {
        let (vm, host, state) = (&one.vm, &one.host, word(&one.state));
        format!("  {vm} on {host} {state}")
    }));
    let more = under_way.len().saturating_sub(MOVE_LINES);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}

fn is_under_way(one: &MoveView) -> bool {
    matches!(one.state, MoveState::Moving | MoveState::Confirming)
}

fn is_being_parked(one: &ParkedView) -> bool {
    matches!(
        one.state,
        ParkedState::Stopping | ParkedState::Suspending | ParkedState::Starting
    )
}

fn summary(view: &RunView, now: Timestamp) -> String {
    let mut line = format!("{}: ", text::request(&view.request));
    if view.phase != RunPhase::Moving {
        line.push_str(&word(&view.phase));
        line.push_str(", ");
    }
    let guests = runs::last_moves(view);
    if !guests.is_empty() {
        let count = |state| guests.iter().filter(|one| one.state == state).count();
        line.push_str(&format!(
            "{} of {} moved, ",
            count(MoveState::Moved),
            guests.len()
        ));
        let failed = count(MoveState::Failed);
        if failed > 0 {
            line.push_str(&format!("{failed} failed, "));
        }
    }
    line.push_str(&milliseconds(runs::elapsed(view.began_at, now)));
    if let Some(expected) = view.expected.filter(|_| view.round == 1) {
        line.push_str(&format!(" of about {}", milliseconds(expected.ms.expected)));
    }
    line
}

fn one_line(one: &MoveView) -> Vec<String> {
    let way = format!("{} -> {}", one.from, one.to);
    let start = [one.vm.as_str(), &way];
    let (done, rate) = match (one.state, &one.live) {
        (MoveState::Confirming, _) => {
            return row(&[start[0], start[1], "arrived, being looked at"]);
        }
        (_, None) => (0, ByteRate(0)),
        (_, Some(live)) => (percent(live), live.rate),
    };
    let rate = match rate {
        ByteRate(0) => String::new(),
        rate => rate.to_string(),
    };
    let bar = format!("[{}] {done:>3} %", bar(done));
    row(&[start[0], start[1], &bar, &rate])
}

/// What of the memory is there.
pub fn percent(live: &LiveView) -> usize {
    if live.transferred.0 == 0 || live.total.0 == 0 {
        return 0;
    }
    let there = live.total.0.saturating_sub(live.remaining.0);
    let percent = u128::from(there) * 100 / u128::from(live.total.0);
    usize::try_from(percent).unwrap_or(0)
}

fn bar(percent: usize) -> String {
    let full = percent.min(100) * BAR / 100;
    let head = if (1..BAR).contains(&full) { ">" } else { "" };
    let tail = "=".repeat(full - head.len()) + head;
    format!("{tail:BAR$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::tests::{one_move, view};
    use serde_json::{Value, json};

    fn shown(more: Value) -> String {
        let now = "2026-11-22T16:00:41.5Z".parse().unwrap();
        lines(&view(more), now).join("\n")
    }

    #[test]
    fn each_moving_guest_has_a_line_with_its_part_and_rate() {
        let live = |transferred: u64, remaining: u64, rate: u64| {
            json!({"live": {"transferred": transferred << 20, "remaining": remaining << 20,
                            "total": 1024 << 20, "rate": rate << 20}})
        };
        let took = |ms: u64| json!({"least": ms, "expected": ms, "most": ms});
        insta::assert_snapshot!(shown(json!({"phase": "moving", "round": 1,
            "expected": {"bytes": took(0), "ms": took(125_000), "bound_ms": 0,
                         "longest_downtime_ms": took(0)},
            "moves": [
                one_move(1, "web", "moved", json!({})),
                one_move(2, "database", "moving", live(600, 491, 118)),
                one_move(3, "db", "moving", json!({})),
                one_move(4, "cache", "moving", live(2048, 4, 0)),
                one_move(5, "mail", "confirming", json!({"to": "c"})),
                one_move(6, "ci", "failed", json!({})),
                one_move(7, "dns", "waiting", json!({})),
            ]})), @r"
        Drain a: 1 of 7 moved, 1 failed, 41.5 s of about 2 min 5 s
          database  a -> b  [=========>          ]  52 %  118 MiB/s
          db        a -> b  [                    ]   0 %
          cache     a -> b  [==================> ]  99 %
          mail      a -> c  arrived, being looked at
        ");
    }

    #[test]
    fn a_run_without_moves_shows_what_it_is_about() {
        assert_eq!(
            shown(json!({"phase": "planning"})),
            "Drain a: planning, 41.5 s"
        );
    }

    #[test]
    fn more_guests_than_fit_are_counted() {
        let number = |n: usize| u32::try_from(n).unwrap();
        let moves: Vec<_> = (1..=MOVE_LINES + 3)
            .map(|n| one_move(number(n), &format!("web{n}"), "moving", json!({})))
            .collect();
        let shown = shown(json!({"phase": "moving", "moves": moves}));
        assert_eq!(shown.lines().count(), MOVE_LINES + 2);
        assert!(shown.ends_with("\n  and 3 more"), "{shown}");
    }

    #[test]
    fn a_bar_is_full_only_at_the_end_and_empty_only_at_the_beginning() {
        assert_eq!(bar(0).trim(), "");
        assert_eq!(bar(5), format!("{:20}", ">"));
        assert_eq!(bar(99).len(), BAR);
        assert!(bar(99).contains('>'));
        assert_eq!(bar(100), "=".repeat(BAR));
        assert_eq!(bar(250), "=".repeat(BAR));
    }
}
