//! Runs of random clusters in which moves fail, messages are lost and coordinators die.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod call_backs;
mod dice;
mod disks;
mod driver;
mod parking;
mod resumes;
mod rounds;
mod world;

use std::collections::BTreeSet;

use drover_execute::journal::{Began, Cancel, Entry, ParkOutcome, RunResult, Running, UnixMillis};
use drover_execute::{MoveState, Outcome, limits};
use drover_plan::{Request, Text};
use drover_types::{HostName, RunId, VmName};
use uuid::Uuid;

use crate::dice::Dice;
use crate::driver::Driver;
use crate::world::{Weather, World};

/// Ticks until a run must have ended: rounds, attempts and bounds of silence together.
const LONG: u64 = 200_000;

const CALM: Weather = Weather {
    fails: 0,
    keeps_back: 0,
    refuses: 0,
    loses: 0,
    dies: 0,
    no_plan: 0,
    stands_still: 0,
    hangs: 0,
    bound: 100,
    disobeys: 0,
    stays: 0,
};

const STORM: Weather = Weather {
    fails: 100,
    keeps_back: 60,
    refuses: 80,
    loses: 150,
    dies: 15,
    no_plan: 20,
    stands_still: 30,
    hangs: 0,
    bound: 100,
    disobeys: 100,
    stays: 10,
};

fn text(words: &str) -> Text {
    Text::from(words.to_owned())
}

fn seeds() -> u64 {
    let wanted = std::env::var("DROVER_EXECUTE_SEEDS").ok();
    wanted.and_then(|seeds| seeds.parse().ok()).unwrap_or(600)
}

/// A drain of one or two of some hosts.
fn drain(seed: u64, weather: Weather) -> Driver {
    drain_of(seed, weather, 12)
}

/// The same with fewer guests than that.
fn drain_of(seed: u64, weather: Weather, below: u64) -> Driver {
    let mut dice = Dice::new(seed);
    let (hosts, guests) = (3 + dice.below(4), dice.below(below));
    let mut world = World::new(dice, weather, hosts, guests);
    let mut drained: BTreeSet<HostName> = [world.hosts[0].clone()].into();
    if seed.is_multiple_of(3) {
        drained.insert(world.hosts[1].clone());
    }
    if seed.is_multiple_of(4) {
        // Somebody had cordoned it before.
        world.cordoned.insert(world.hosts[0].clone(), false);
    }
    let began = Began {
        run: RunId(Uuid::from_u128(u128::from(seed))),
        request: Request::Drain {
            hosts: drained,
            avoid: [].into(),
            with_disks: false,
        },
        exactly: None,
        parked: Vec::new(),
        by: text("an operator"),
        at: UnixMillis(0),
    };
    Driver::new(world, weather, began)
}

/// What has to hold at the end of every run.
fn check(driver: &Driver, guests: usize) {
    let run = &driver.run;
    let (result, why, _) = run.result().unwrap();
    let down = &driver.world.parking.down;
    assert_eq!(
        driver.world.guests.len() + down.len(),
        guests,
        "no guest is lost"
    );
    for vm in down.keys() {
        let mut parks = run.parks().iter();
        let park = parks.find(|park| park.order.vm == *vm);
        let ended = park.and_then(|park| park.ended.as_ref());
        let told = matches!(
            ended,
            Some((ParkOutcome::Parked | ParkOutcome::Unknown { .. }, _))
        );
        assert!(told, "{vm} is down: {:#?}", run.parks());
    }
    for park in run.parks() {
        let ended = park.ended.as_ref().map(|(outcome, _)| outcome);
        let is_down = down.contains_key(&park.order.vm);
        assert!(ended != Some(&ParkOutcome::Parked) || is_down, "{park:?}");
    }
    let drained = match &run.began().request {
        Request::Drain { hosts, .. } => hosts.clone(),
        other => panic!("{other:?}"),
    };
    let rest = driver.world.guests_on(&drained);
    match result {
        RunResult::Completed => {
            assert_eq!(rest, [], "{why:?}");
            assert_eq!(why, None);
            for host in &drained {
                assert!(driver.world.cordoned.contains_key(host));
            }
        }
        RunResult::Partial | RunResult::Refused => assert!(why.is_some(), "{run:#?}"),
        RunResult::Cancelled => assert!(run.cancel().is_some()),
    }
    if result == RunResult::Refused {
        assert_eq!(driver.world.begun, 0);
    }
    let lifts = result == RunResult::Refused || run.cancel().is_some_and(|cancel| cancel.uncordon);
    for host in &drained {
        let cordoned = driver.world.cordoned.get(host);
        let told = why.is_some_and(|why| why.as_str().contains("cordoned still"));
        // An order of a coordinator that died may arrive after the one that takes it back.
        if lifts && driver.deaths == 0 && !told {
            assert_ne!(cordoned, Some(&true), "{run:#?}");
        }
    }
    let before = driver.cordoned_before.iter();
    for host in before {
        assert_eq!(
            driver.world.cordoned.get(host),
            Some(&false),
            "not the run's to lift"
        );
    }
    for record in run.moves() {
        assert!(
            record.attempt <= limits::ATTEMPTS && record.round <= limits::ROUNDS,
            "{record:?}"
        );
    }
    let unknown = |record: &drover_execute::Record| {
        matches!(
            record.state,
            MoveState::Ended {
                outcome: Outcome::Unknown { .. },
                ..
            }
        )
    };
    if run.moves().iter().any(unknown) {
        assert_ne!(result, RunResult::Completed, "{run:#?}");
    }
    for record in run.moves() {
        if let MoveState::Ended {
            outcome: Outcome::Moved { .. },
            ..
        } = &record.state
        {
            let (host, _) = &driver.world.guests[&record.planned.vm];
            assert_ne!(*host, record.planned.from, "{record:?}");
        }
    }
}

#[test]
fn in_fair_weather_every_guest_leaves_or_is_parked_and_the_hosts_are_seen_to_be_empty() {
    let mut parked = 0;
    for seed in 0..seeds() {
        let mut driver = drain(seed, CALM);
        let guests = driver.world.guests.len();
        driver.drive(LONG);
        check(&driver, guests);
        let (result, why, _) = driver.run.result().unwrap();
        assert_eq!(result, RunResult::Completed, "seed {seed}: {why:?}");
        parked += driver.run.parks().len();
    }
    assert!(parked > 0, "no guest was ever parked");
}

#[test]
fn where_a_guest_stays_none_is_stopped_and_the_run_names_what_keeps_the_host_from_being_empty() {
    let weather = Weather {
        stays: 200,
        bound: 400,
        ..CALM
    };
    let (mut parked, mut spared) = (0, 0);
    for seed in 0..seeds() / 4 {
        let mut driver = drain(seed, weather);
        let guests = driver.world.guests.len();
        driver.drive(LONG);
        check(&driver, guests);
        parked += driver.run.parks().len();
        let (_, why, _) = driver.run.result().unwrap();
        let names = why.is_some_and(|why| why.as_str().contains("from being empty"));
        spared += u64::from(names);
    }
    assert!(parked > 0 && spared > 0, "{parked} {spared}");
}

#[test]
fn more_guests_than_are_stopped_at_once_are_stopped_all_whatever_was_seen_before_the_last_ended() {
    let (bound, mut parked) = (1000, 0);
    for seed in 0..seeds() / 4 {
        let mut driver = drain_of(seed, Weather { bound, ..CALM }, 60);
        driver.looks_slowly = true;
        let guests = driver.world.guests.len();
        driver.drive(LONG);
        check(&driver, guests);
        let (result, why, _) = driver.run.result().unwrap();
        assert_eq!(result, RunResult::Completed, "seed {seed}: {why:?}");
        parked = parked.max(driver.run.parks().len());
    }
    assert!(parked > 2 * limits::STOPS_AT_ONCE, "{parked}");
}

#[test]
fn whatever_fails_no_guest_moves_twice_at_once_or_after_the_end_and_what_counts_as_moved_has() {
    let (mut completed, mut deaths) = (0, 0);
    for seed in 0..seeds() {
        let mut driver = drain(seed, STORM);
        let guests = driver.world.guests.len();
        driver.drive(LONG);
        check(&driver, guests);
        let (result, _, _) = driver.run.result().unwrap();
        completed += u64::from(result == RunResult::Completed);
        deaths += driver.deaths;
    }
    assert!(completed * 2 > seeds(), "{completed} of {}", seeds());
    assert!(deaths > seeds(), "{deaths}");
}

#[test]
fn what_never_ends_and_minutes_of_silence_keep_no_run_from_its_end() {
    let weather = Weather { hangs: 200, ..CALM };
    let (mut partial, mut completed) = (0, 0);
    for seed in 0..seeds() / 4 {
        let mut driver = drain(seed, weather);
        if seed.is_multiple_of(2) {
            let from = seed % 100;
            driver.blackout = from..from + 5000;
        }
        if seed.is_multiple_of(5) {
            let (running, by) = (Running::Cancel, text("an operator"));
            let uncordon = true;
            let at = UnixMillis(0);
            driver.cancel = Some((
                seed % 200,
                Cancel {
                    running,
                    uncordon,
                    by,
                    at,
                },
            ));
        }
        let guests = driver.world.guests.len();
        driver.drive(LONG);
        check(&driver, guests);
        let (result, _, _) = driver.run.result().unwrap();
        partial += u64::from(result == RunResult::Partial);
        completed += u64::from(result == RunResult::Completed);
    }
    assert!(partial > 0 && completed > 0, "{partial} {completed}");
}

#[test]
fn a_cancel_ends_the_queue_and_what_runs_as_it_was_asked_for() {
    for seed in 0..seeds() {
        let mut driver = drain(seed, STORM);
        let guests = driver.world.guests.len();
        let uncordon = seed.is_multiple_of(2);
        let running = match seed % 5 {
            0 | 1 => Running::Finish,
            _ => Running::Cancel,
        };
        let by = text("an operator");
        let at = UnixMillis(0);
        let cancel = Cancel {
            running,
            uncordon,
            by,
            at,
        };
        driver.cancel = Some((seed % 200, cancel));
        driver.drive(LONG);
        check(&driver, guests);
        let (result, _, _) = driver.run.result().unwrap();
        if driver.cancel.is_some() {
            continue;
        }
        assert_eq!(result, RunResult::Cancelled, "seed {seed}");
        let asked = driver
            .journal
            .iter()
            .position(|e| matches!(e, Entry::CancelAsked(_)));
        let after = &driver.journal[asked.unwrap()..];
        assert!(
            !after
                .iter()
                .any(|entry| matches!(entry, Entry::Ordered { .. } | Entry::Parking(_))),
            "seed {seed}: ordered after the cancel"
        );
    }
}

#[test]
fn a_coordinator_that_dies_at_any_entry_of_the_journal_is_followed_by_one_that_ends_the_run() {
    for seed in 0..20 {
        let mut whole = drain(seed, CALM);
        whole.drive(LONG);
        for entry in 1..whole.journal.len() {
            for after in [false, true] {
                let mut driver = drain(seed, CALM);
                let guests = driver.world.guests.len();
                driver.dies_at = Some((entry, after));
                driver.drive(LONG);
                check(&driver, guests);
                let (result, why, _) = driver.run.result().unwrap();
                let place = format!("seed {seed}, entry {entry}, after {after}: {why:?}");
                assert_eq!(result, RunResult::Completed, "{place}");
                assert!(driver.deaths <= 1, "{place}");
            }
        }
    }
}

#[test]
fn a_guest_that_was_started_on_the_host_meanwhile_is_moved_as_well() {
    for seed in 0..50 {
        let mut driver = drain(seed, CALM);
        let host = driver.world.hosts[0].clone();
        let late: VmName = "late".parse().unwrap();
        driver.newcomer = Some((late.clone(), host.clone()));
        let guests = driver.world.guests.len() + 1;
        driver.drive(LONG);
        check(&driver, guests);
        assert_eq!(driver.run.round(), 2, "seed {seed}");
        assert_ne!(driver.world.guests[&late].0, host);
    }
}
