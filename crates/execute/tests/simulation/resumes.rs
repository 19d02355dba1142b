//! Hosts that take guests again, with guests that an earlier run parked there.

use drover_execute::journal::{
    Began, Cancel, Entry, ParkHow, ParkedGuest, RunResult, Running, UnixMillis, UnparkOutcome,
};
use drover_execute::{UnparkState, limits};
use drover_plan::Request;
use drover_types::{ParkId, RunId, VmName};
use uuid::Uuid;

use crate::dice::Dice;
use crate::driver::Driver;
use crate::world::{Weather, World};
use crate::{CALM, LONG, STORM, seeds, text};

const PARKED: u128 = 5;

fn name(number: u128) -> VmName {
    format!("p{number}").parse().unwrap()
}

/// A host on which some guests are parked, the first of them without its disk where `broken`.
fn resume(seed: u64, weather: Weather, broken: bool) -> Driver {
    let mut world = World::new(Dice::new(seed), weather, 3, 3);
    let host = world.hosts[0].clone();
    let parked = (0..PARKED).map(|number| {
        world.parking.down.insert(name(number), host.clone());
        ParkedGuest {
            park: ParkId(Uuid::from_u128(number)),
            vm: name(number),
            how: ParkHow::Stop,
        }
    });
    let parked = parked.collect();
    if broken {
        world.parking.broken.insert(name(0));
    }
    let began = Began {
        run: RunId(Uuid::from_u128(u128::from(seed))),
        request: Request::Resume {
            host,
            homes: Vec::new(),
            avoid: [].into(),
            with_disks: false,
        },
        exactly: None,
        parked,
        by: text("an operator"),
        at: UnixMillis(0),
    };
    Driver::new(world, weather, began)
}

/// What counts as running runs, and what does not is told.
fn check(driver: &Driver) {
    let (result, why, _) = driver.run.result().unwrap();
    for unpark in driver.run.unparks() {
        let runs = driver.world.guests.contains_key(&unpark.guest.vm);
        match &unpark.state {
            UnparkState::Ended {
                outcome: UnparkOutcome::Runs,
                ..
            } => assert!(runs, "{unpark:?}"),
            UnparkState::Ended {
                outcome: UnparkOutcome::Failed { .. },
                ..
            } => assert!(why.is_some(), "{unpark:?}"),
            _ => assert!(
                matches!(result, RunResult::Cancelled | RunResult::Refused),
                "{unpark:?}"
            ),
        }
    }
}

#[test]
fn guests_that_were_parked_run_again_before_anything_is_planned() {
    for seed in 0..50 {
        let mut driver = resume(seed, CALM, false);
        driver.drive(LONG);
        check(&driver);
        let (result, why, _) = driver.run.result().unwrap();
        assert_eq!((result, why), (RunResult::Completed, None));
        assert!(driver.world.parking.down.is_empty());
        let entries = &driver.journal;
        let at = |is: &dyn Fn(&Entry) -> bool| entries.iter().position(is).unwrap();
        let opened = at(&|entry| matches!(entry, Entry::Uncordoned { .. }));
        let first = at(&|entry| matches!(entry, Entry::Unparking { .. }));
        let planned = at(&|entry| matches!(entry, Entry::Round { .. }));
        let runs = |entry: &Entry| matches!(entry, Entry::Unparked { .. });
        let last = entries.iter().rposition(runs).unwrap();
        assert!(opened < first && last < planned, "{entries:?}");
    }
}

#[test]
fn a_guest_that_does_not_run_again_is_a_warning_with_its_reason_and_keeps_nobody_waiting() {
    let mut driver = resume(1, CALM, true);
    driver.drive(LONG);
    check(&driver);
    let (result, why, _) = driver.run.result().unwrap();
    assert_eq!(result, RunResult::Completed);
    let why = why.unwrap().as_str();
    assert_eq!(why, "not started again: p0 (its disk is gone)");
    assert_eq!(driver.world.parking.down.len(), 1);
}

#[test]
fn a_coordinator_that_dies_at_any_entry_is_followed_by_one_that_runs_them_all() {
    let mut whole = resume(7, CALM, false);
    whole.drive(LONG);
    for entry in 1..whole.journal.len() {
        for after in [false, true] {
            let mut driver = resume(7, CALM, false);
            driver.dies_at = Some((entry, after));
            driver.drive(LONG);
            check(&driver);
            assert!(driver.world.parking.down.is_empty(), "{entry} {after}");
        }
    }
}

#[test]
fn in_a_storm_and_after_a_cancel_what_is_said_of_parked_guests_is_so() {
    for seed in 0..seeds() {
        let mut driver = resume(seed, STORM, seed.is_multiple_of(3));
        if seed.is_multiple_of(2) {
            let cancel = Cancel {
                running: Running::Cancel,
                uncordon: false,
                by: text("an operator"),
                at: UnixMillis(0),
            };
            driver.cancel = Some((seed % 60, cancel));
        }
        driver.drive(LONG);
        check(&driver);
    }
}

#[test]
fn an_agent_that_stays_silent_keeps_the_guests_parked_and_the_run_ends() {
    let mut driver = resume(3, CALM, false);
    driver.blackout = 10..u64::MAX;
    driver.drive(LONG);
    let seconds = limits::SILENCE_AT_ENDS.as_secs();
    assert!(driver.now_seconds() < 10 * seconds, "{:?}", driver.run);
    let (result, why, _) = driver.run.result().unwrap();
    assert_ne!(result, RunResult::Completed);
    assert!(why.is_some());
}
