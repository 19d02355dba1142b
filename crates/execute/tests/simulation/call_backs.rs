//! Orders that had ended in doubt when their run was cancelled.

use std::time::Duration;

use drover_execute::journal::{
    Began, Cancel, Entry, ParkHow, ParkOutcome, ParkedGuest, Parking, RunResult, Running,
    UnixMillis, UnparkOutcome,
};
use drover_execute::{Answer, Ask, Now, ParkSeen, Run, limits};
use drover_plan::Request;
use drover_types::{HostName, MigrationId, ParkId, RunId};
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

fn cancelled(entries: &[Entry]) -> Run {
    let mut run = Run::replay(entries).unwrap();
    let is_of_order = |ask: &Ask| matches!(ask, Ask::Park { .. } | Ask::Unpark { .. });
    assert!(!run.asks().iter().any(is_of_order), "{:?}", run.asks());
    run.apply(&Entry::CancelAsked(Cancel {
        running: Running::Cancel,
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
    cancelled(&[
        began(Request::Resume {
            host: host(),
            homes: Vec::new(),
            avoid: [].into(),
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
    ])
}

/// Of a guest of which nobody knows whether it was told to shut down.
fn drained() -> Run {
    let why = text("not heard of");
    cancelled(&[
        began(Request::Drain {
            hosts: [host()].into(),
            avoid: [].into(),
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
    ])
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
