//! Orders that had ended in doubt when their run was cancelled.

use std::time::Duration;

use drover_execute::journal::{
    Began, Cancel, Entry, Move, Outcome, ParkHow, ParkOutcome, ParkedGuest, Parking, Part,
    RunResult, Running, UnixMillis, UnparkOutcome,
};
use drover_execute::{Answer, Ask, Now, ParkSeen, Run, limits};
use drover_plan::Request;
use drover_types::{Bytes, HostName, MigrationId, ParkId, RunId};
use uuid::Uuid;

use crate::text;

const AT: UnixMillis = UnixMillis(0);

fn host() -> HostName {
    "h0".parse().unwrap()
}

fn id(number: u128) -> ParkId {
    ParkId(Uuid::from_u128(number))
}

fn began(request: Request) -> Entry {
    let parked = |number: u128| ParkedGuest {
        park: id(number),
        vm: format!("p{number}").parse().unwrap(),
        how: ParkHow::Stop,
    };
    let parked = match &request {
        Request::Resume { .. } => (1..3).map(parked).collect(),
        _ => Vec::new(),
    };
    Entry::Began(Began {
        run: RunId(Uuid::from_u128(1)),
        request,
        exactly: None,
        parked,
        by: text("an operator"),
        at: AT,
    })
}

fn cancelled(entries: &[Entry], running: Running) -> Run {
    let mut run = Run::replay(entries).unwrap();
    let is_of_order = |ask: &Ask| {
        matches!(
            ask,
            Ask::Park { .. } | Ask::Unpark { .. } | Ask::CallBack { .. }
        )
    };
    assert!(!run.asks().iter().any(is_of_order), "{:?}", run.asks());
    run.apply(&Entry::CancelAsked(Cancel {
        running,
        uncordon: false,
        by: text("an operator"),
        at: AT,
    }))
    .unwrap();
    run
}

/// Of a guest that did not start as far as was heard, while another one waits for its turn.
fn resumed() -> Run {
    let why = text("not heard of");
    let entries = [
        began(Request::Resume {
            host: host(),
            homes: Vec::new(),
            avoid: [].into(),
            with_disks: false,
        }),
        Entry::Uncordoned { host: host() },
        Entry::Unparking {
            number: 1,
            start: id(7),
            at: AT,
        },
        Entry::Unparked {
            number: 1,
            outcome: UnparkOutcome::Failed { why },
            at: AT,
        },
    ];
    cancelled(&entries, Running::Cancel)
}

/// Of a guest of which nobody knows whether it was told to shut down.
fn drained() -> Run {
    let why = text("not heard of");
    let entries = [
        began(Request::Drain {
            hosts: [host()].into(),
            avoid: [].into(),
            with_disks: false,
        }),
        Entry::Cordoned {
            host: host(),
            before: true,
        },
        Entry::Round {
            round: 1,
            parts: 0,
            at_once: 1,
            expected: None,
        },
        Entry::RoundEnded { round: 1 },
        Entry::Parking(Parking {
            number: 1,
            park: id(7),
            vm: "web".parse().unwrap(),
            host: host(),
            how: ParkHow::Stop,
            why: text("pinned"),
            at: AT,
        }),
        Entry::Parked {
            number: 1,
            outcome: ParkOutcome::Unknown { why },
            at: AT,
        },
    ];
    cancelled(&entries, Running::Cancel)
}

/// Of a guest that may move still.
fn moving(running: Running) -> Run {
    let planned = Move {
        wave: 1,
        vm: "web".parse().unwrap(),
        from: host(),
        to: "h1".parse().unwrap(),
        memory: Bytes(1 << 30),
        with_disks: false,
    };
    let entries = [
        began(Request::Drain {
            hosts: [host()].into(),
            avoid: [].into(),
            with_disks: false,
        }),
        Entry::Cordoned {
            host: host(),
            before: true,
        },
        Entry::Part(Part {
            round: 1,
            part: 1,
            moves: vec![planned],
            left: Vec::new(),
            hosts: Vec::new(),
        }),
        Entry::Round {
            round: 1,
            parts: 1,
            at_once: 1,
            expected: None,
        },
        Entry::Ordered {
            number: 1,
            migration: MigrationId(Uuid::from_u128(7)),
            at: AT,
        },
        Entry::Ended {
            number: 1,
            outcome: Outcome::Unknown {
                why: text("not heard of"),
            },
            at: AT,
        },
        Entry::RoundEnded { round: 1 },
    ];
    cancelled(&entries, running)
}

fn after(elapsed: Duration) -> Now {
    Now { wall: AT, elapsed }
}

fn end(run: &Run) -> Option<Entry> {
    run.decide(after(Duration::ZERO), MigrationId(Uuid::nil()))
}

#[test]
fn an_order_that_ended_in_doubt_is_called_back_before_a_cancelled_run_ends() {
    let mut run = drained();
    let asks = run.asks();
    assert!(
        matches!(&asks[..], [Ask::Park { park, begin: false, .. }] if *park == id(7)),
        "{asks:?}"
    );
    assert_eq!(end(&run), None, "it waits for the answer");
    let seen = Answer::Park(ParkSeen::CalledBack);
    assert_eq!(run.handle(&asks[0], seen, after(Duration::ZERO)), []);
    assert_eq!(run.asks(), [], "once");
    let Some(Entry::Finished { result, why, .. }) = end(&run) else {
        panic!("{run:#?}");
    };
    assert_eq!(result, RunResult::Cancelled);
    assert!(why.unwrap().as_str().contains("to be looked after: web"));
}

#[test]
fn an_agent_that_stays_silent_to_that_keeps_no_run_from_its_end_and_guests_that_wait_are_named() {
    let mut run = resumed();
    let asks = run.asks();
    assert!(
        matches!(&asks[..], [Ask::Unpark { start, begin: false, .. }] if *start == id(7)),
        "{asks:?}"
    );
    for elapsed in [Duration::ZERO, limits::SILENCE_AT_ENDS] {
        assert_eq!(end(&run), None, "it waits for the answer");
        let why = text("no answer");
        run.handle(&asks[0], Answer::Silence { why }, after(elapsed));
    }
    let Some(Entry::Finished { result, why, .. }) = end(&run) else {
        panic!("{run:#?}");
    };
    assert_eq!(result, RunResult::Cancelled);
    let named = "not started again: p1 (not heard of), p2";
    assert_eq!(why.unwrap().as_str(), named);
}

#[test]
fn a_move_that_ended_in_doubt_is_called_back_and_where_moves_are_finished_it_is_not() {
    let mut run = moving(Running::Cancel);
    let asks = run.asks();
    let [Ask::CallBack { number: 1, .. }] = &asks[..] else {
        panic!("{asks:?}");
    };
    assert_eq!(end(&run), None, "it waits for the answer");
    let silent = Answer::Silence {
        why: text("no answer"),
    };
    assert_eq!(run.handle(&asks[0], silent, after(Duration::ZERO)), []);
    assert_eq!(run.asks(), asks, "once more");
    assert_eq!(
        run.handle(&asks[0], Answer::CalledBack, after(Duration::ZERO)),
        []
    );
    assert_eq!(run.asks(), [], "once");
    assert!(matches!(end(&run), Some(Entry::Finished { .. })));
    let finishing = moving(Running::Finish);
    assert_eq!(finishing.asks(), []);
    assert!(matches!(end(&finishing), Some(Entry::Finished { .. })));
}
