//! When a round of moves ends, and whether another one follows.

use std::time::Duration;

use drover_execute::journal::{Began, Blame, Entry, HostPace, Move, Outcome, Part, UnixMillis};
use drover_execute::{Answer, Ask, Now, Run, Stage, limits};
use drover_plan::{Digest, Request};
use drover_types::{BitRate, Bytes, HostName, MigrationId, RunId};
use uuid::Uuid;

use crate::text;

const AT: UnixMillis = UnixMillis(0);

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

/// A drain of `a` and `b`, of each three guests to move, one at a time.
fn draining(exactly: Option<Digest>) -> Run {
    let moves = (1_u32..7).map(|number| Move {
        wave: 1,
        vm: format!("g{number}").parse().unwrap(),
        from: name(if number < 4 { "a" } else { "b" }),
        to: name("c"),
        memory: Bytes(1 << 30),
        with_disks: false,
    });
    let pace = |host: &str| HostPace {
        host: name(host),
        inbound: 1,
        outbound: 1,
        line: BitRate(1_000_000_000),
    };
    let cordoned = |host: &str| Entry::Cordoned {
        host: name(host),
        before: true,
    };
    let entries = [
        Entry::Began(Began {
            run: RunId(Uuid::from_u128(1)),
            request: Request::Drain {
                hosts: [name("a"), name("b")].into(),
                avoid: [].into(),
                with_disks: false,
            },
            exactly,
            parked: Vec::new(),
            by: text("an operator"),
            at: AT,
        }),
        cordoned("a"),
        cordoned("b"),
        Entry::Part(Part {
            round: 1,
            part: 1,
            moves: moves.collect(),
            left: Vec::new(),
            hosts: vec![pace("a"), pace("b"), pace("c")],
        }),
        Entry::Round {
            round: 1,
            parts: 1,
            at_once: 1,
            expected: None,
        },
    ];
    Run::replay(&entries).unwrap()
}

fn after(elapsed: Duration) -> Now {
    Now { wall: AT, elapsed }
}

/// What is done next, which is written down.
fn next(run: &mut Run, elapsed: Duration) -> Option<Entry> {
    let entry = run.decide(after(elapsed), MigrationId(Uuid::from_u128(9)))?;
    run.apply(&entry).unwrap();
    Some(entry)
}

fn silence(run: &mut Run, elapsed: Duration) {
    for ask in run.asks() {
        if matches!(ask, Ask::Order { .. } | Ask::Look { .. }) {
            let why = text("no answer");
            for entry in run.handle(&ask, Answer::Silence { why }, after(elapsed)) {
                run.apply(&entry).unwrap();
            }
        }
    }
}

#[test]
fn a_host_that_does_not_answer_any_more_is_waited_for_once_and_not_for_each_of_its_guests() {
    let mut run = draining(None);
    let ordered = next(&mut run, Duration::ZERO);
    assert!(
        matches!(ordered, Some(Entry::Ordered { number: 1, .. })),
        "{ordered:?}"
    );
    for elapsed in [Duration::ZERO, limits::SILENCE] {
        silence(&mut run, elapsed);
    }
    // Those of the other host go on.
    for number in 4..7 {
        let entry = next(&mut run, limits::SILENCE);
        assert!(
            matches!(entry, Some(Entry::Ordered { number: of, .. }) if of == number),
            "{entry:?}"
        );
        run.apply(&Entry::Ended {
            number,
            outcome: Outcome::Moved { note: None },
            at: AT,
        })
        .unwrap();
    }
    let entry = next(&mut run, limits::SILENCE);
    assert_eq!(
        entry,
        Some(Entry::RoundEnded { round: 1 }),
        "the rest is planned anew"
    );
}

#[test]
fn what_fails_of_a_run_is_planned_anew_and_of_a_plan_that_was_given_it_is_not() {
    for (exactly, then) in [
        (None, Stage::Planning),
        (Some(Digest::default()), Stage::Verifying),
    ] {
        let mut run = draining(exactly);
        for number in 1..7 {
            let entry = next(&mut run, Duration::ZERO);
            assert!(matches!(entry, Some(Entry::Ordered { .. })), "{entry:?}");
            let outcome = if number == 1 {
                Outcome::Failed {
                    why: text("it is full"),
                    blame: Blame::Destination,
                }
            } else {
                Outcome::Moved { note: None }
            };
            run.apply(&Entry::Ended {
                number,
                outcome,
                at: AT,
            })
            .unwrap();
        }
        let entry = next(&mut run, Duration::ZERO);
        assert_eq!(entry, Some(Entry::RoundEnded { round: 1 }));
        assert_eq!(run.stage(), then);
    }
}
