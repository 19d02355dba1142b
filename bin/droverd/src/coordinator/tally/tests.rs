use drover_execute::journal::{
    Began, Blame, Entry, Left, Move, ParkHow, ParkedGuest, Parking, Part,
};
use drover_plan::Text;
use drover_plan::plan::Then;
use drover_types::{Bytes, MigrationId, ParkId, RunId};
use uuid::Uuid;

use super::*;

fn text(words: &str) -> Text {
    Text::from(words.to_owned())
}

fn at(seconds: u64) -> UnixMillis {
    UnixMillis(1_800_000_000_000 + seconds * 1000)
}

/// A drain of host `a`, asked for at second 0.
fn began() -> Began {
    Began {
        run: RunId(Uuid::nil()),
        request: Request::Drain {
            hosts: ["a".parse().unwrap()].into(),
            avoid: [].into(),
            with_disks: false,
        },
        exactly: None,
        parked: Vec::new(),
        by: text("somebody"),
        at: at(0),
    }
}

/// The plan of a round: these guests move to `b`, and these are stopped.
fn planned(round: u32, moves: &[&str], stopped: &[&str]) -> [Entry; 2] {
    let moved = |vm: &&str| Move {
        wave: 1,
        vm: vm.parse().unwrap(),
        from: "a".parse().unwrap(),
        to: "b".parse().unwrap(),
        memory: Bytes(1),
        with_disks: false,
    };
    let left = |vm: &&str| Left {
        vm: vm.parse().unwrap(),
        host: "a".parse().unwrap(),
        why: text("pinned"),
        then: Then::Stopped,
    };
    let part = Part {
        round,
        part: 1,
        moves: moves.iter().map(moved).collect(),
        left: stopped.iter().map(left).collect(),
        hosts: Vec::new(),
    };
    let whole = Entry::Round {
        round,
        parts: 1,
        at_once: 1,
        expected: None,
    };
    [Entry::Part(part), whole]
}

fn moves(number: u32, from: u64, until: u64, outcome: Outcome) -> [Entry; 2] {
    let ordered = Entry::Ordered {
        number,
        migration: MigrationId(Uuid::from_u128(number.into())),
        at: at(from),
    };
    let ended = Entry::Ended {
        number,
        outcome,
        at: at(until),
    };
    [ordered, ended]
}

fn stops(vm: &str, from: u64, until: u64) -> [Entry; 2] {
    let order = Parking {
        number: 1,
        park: ParkId(Uuid::nil()),
        vm: vm.parse().unwrap(),
        host: "a".parse().unwrap(),
        how: ParkHow::Stop,
        why: text("pinned"),
        at: at(from),
    };
    let parked = Entry::Parked {
        number: 1,
        outcome: ParkOutcome::Parked,
        at: at(until),
    };
    [Entry::Parking(order), parked]
}

fn finished(result: RunResult, seconds: u64) -> Entry {
    Entry::Finished {
        result,
        why: None,
        at: at(seconds),
    }
}

fn replayed(began: Began, entries: impl IntoIterator<Item = Entry>) -> Run {
    let mut all = vec![Entry::Began(began)];
    all.extend(entries);
    Run::replay(&all).unwrap()
}

fn failed() -> Outcome {
    Outcome::Failed {
        why: text("no lane"),
        blame: Blame::Moment,
    }
}

fn seconds(end: &RunEnd) -> Vec<(&'static str, u64)> {
    let phases = end.phases.iter();
    phases.map(|(phase, d)| (*phase, d.as_secs())).collect()
}

#[test]
fn a_run_that_is_under_way_comes_to_nothing_yet() {
    let run = replayed(began(), planned(1, &["web"], &[]));
    assert_eq!(ended(&run), None);
}

#[test]
fn each_guest_counts_once_by_its_last_try_and_each_moment_belongs_to_one_phase() {
    let moved = || Outcome::Moved { note: None };
    let mut entries = planned(1, &["web", "db", "mail"], &["pinned"]).to_vec();
    entries.extend(moves(1, 3, 13, moved()));
    entries.extend(moves(2, 12, 22, failed()));
    entries.push(Entry::RoundEnded { round: 1 });
    entries.extend(planned(2, &["db", "mail"], &["pinned"]));
    entries.extend(moves(4, 28, 38, moved()));
    entries.extend(moves(5, 38, 40, failed()));
    entries.push(Entry::RoundEnded { round: 2 });
    entries.extend(stops("pinned", 42, 50));
    entries.push(finished(RunResult::Partial, 51));
    let end = ended(&replayed(began(), entries)).unwrap();
    assert_eq!((end.kind, end.result), ("drain", "partial"));
    let guests = [("moved", 2), ("failed", 1), ("parked", 1)];
    assert_eq!(end.guests, guests.into());
    // 3 s before the first move, 6 s for the second round's plan; moves overlapped for a second.
    let phases = [
        ("moving", 31),
        ("preparing", 9),
        ("starting", 0),
        ("stopping", 8),
        ("verifying", 3),
    ];
    assert_eq!(seconds(&end), phases);
}

#[test]
fn a_guest_that_failed_and_was_not_begun_again_counts_as_failed() {
    let mut entries = planned(1, &["web", "db"], &[]).to_vec();
    entries.extend(moves(1, 1, 2, failed()));
    entries.push(Entry::RoundEnded { round: 1 });
    entries.extend(planned(2, &["web"], &["pinned"]));
    entries.push(Entry::RoundEnded { round: 2 });
    entries.push(finished(RunResult::Cancelled, 3));
    let end = ended(&replayed(began(), entries)).unwrap();
    let guests = [("failed", 1), ("not-begun", 1), ("left", 1)];
    assert_eq!(end.guests, guests.into());
}

#[test]
fn guests_that_were_parked_count_by_whether_they_run_again() {
    let parked = |vm: &str| ParkedGuest {
        park: ParkId(Uuid::nil()),
        vm: vm.parse().unwrap(),
        how: ParkHow::Stop,
    };
    let began = Began {
        request: Request::Resume {
            host: "a".parse().unwrap(),
            homes: Vec::new(),
            avoid: [].into(),
            with_disks: false,
        },
        parked: vec![parked("web"), parked("db")],
        ..began()
    };
    let unparking = Entry::Unparking {
        number: 1,
        start: ParkId(Uuid::nil()),
        at: at(2),
    };
    let unparked = Entry::Unparked {
        number: 1,
        outcome: UnparkOutcome::Runs,
        at: at(6),
    };
    let entries = [unparking, unparked, finished(RunResult::Cancelled, 7)];
    let end = ended(&replayed(began, entries)).unwrap();
    assert_eq!(end.kind, "resume");
    assert_eq!(end.guests, [("started", 1), ("not-begun", 1)].into());
    assert_eq!(end.phases["starting"], Duration::from_secs(4));
}

#[test]
fn a_refused_run_was_all_preparation() {
    let no_plan = Entry::NoPlan {
        round: 1,
        why: text("no room").into(),
    };
    let run = replayed(began(), [no_plan, finished(RunResult::Refused, 4)]);
    let end = ended(&run).unwrap();
    assert_eq!((end.result, end.guests.len()), ("refused", 0));
    assert_eq!(end.phases["preparing"], Duration::from_secs(4));
    assert_eq!(end.phases["verifying"], Duration::ZERO);
}

#[test]
fn a_clock_that_was_set_back_shortens_phases_to_nothing_at_least() {
    let mut entries = planned(1, &["web"], &[]).to_vec();
    entries.extend(moves(1, 9, 5, Outcome::Moved { note: None }));
    entries.push(finished(RunResult::Completed, 1));
    let end = ended(&replayed(began(), entries)).unwrap();
    assert_eq!(end.phases["preparing"], Duration::from_secs(9));
    assert_eq!(end.phases["moving"], Duration::ZERO);
    assert_eq!(end.phases["verifying"], Duration::ZERO);
}
