//! The same faults while a guest goes on by postcopy.

use std::time::Duration;

use drover_migrate::{DestinationStep, Outcome, Resolution, SourceStep, Verdict};
use proptest::prelude::*;

use crate::event::{Event, Fault};
use crate::world::World;
use crate::{
    FAULTS, LONG, Runs, any_fault, cases, check_always, check_end, decide, heal,
    kills_a_hypervisor, runs, strike, struck_in, undisturbed_in,
};

fn undisturbed(seed: u64) -> World {
    undisturbed_in(World::with_postcopy(seed))
}

fn struck(seed: u64, step: usize, fault: Fault, heals: Option<Duration>) -> World {
    struck_in(World::with_postcopy(seed), step, fault, heals)
}

fn outcome(world: &World) -> Option<&Outcome> {
    match &world.source_disk.as_ref()?.step {
        SourceStep::Finished { outcome } => Some(outcome),
        _ => None,
    }
}

/// Whether the source had to go on after the guest ran at the destination.
fn served(seed: u64) -> bool {
    let mut world = World::with_postcopy(seed);
    let mut served = false;
    world.run(LONG, |world| {
        let record = world.source_disk.as_ref();
        served |= record.is_some_and(|record| record.step == SourceStep::Serving);
    });
    served
}

#[test]
fn without_faults_its_guest_goes_on_at_the_destination_before_its_pages_do() {
    let moved = (0..300).filter(|seed| match runs(&undisturbed(*seed)) {
        Runs::Destination => true,
        Runs::Source => false,
        Runs::Nowhere => panic!("seed {seed} lost the guest"),
    });
    assert!((270..300).contains(&moved.count()));
    let served = (0..300).filter(|seed| served(*seed)).count();
    assert!(served > 100, "{served} of 300 served");
}

#[test]
fn each_fault_at_every_step_of_postcopy_ends_well_when_it_heals() {
    let mut resumed = 0;
    for fault in FAULTS {
        for seed in 0..25 {
            for step in 1..=undisturbed(seed).steps {
                for heals in [1, 40] {
                    let world = struck(seed, step, fault, Some(Duration::from_secs(heals)));
                    check_end(&world, true);
                    resumed += world.resumed;
                    let lost = runs(&world) == Runs::Nowhere;
                    assert!(
                        !lost
                            || kills_a_hypervisor(fault)
                            || world.devices_lost
                            || world.source_qemu.ended_in_vain()
                            || world.ended_by_hand,
                        "{fault:?} at {step} of seed {seed} lost the guest\n{}",
                        world.story()
                    );
                }
            }
        }
    }
    assert!(resumed > 500, "a broken postcopy went on {resumed} times");
}

#[test]
fn each_fault_at_every_step_of_postcopy_that_never_heals_ends_or_waits_for_something_named() {
    for fault in FAULTS {
        for seed in 100..112 {
            for step in 1..=undisturbed(seed).steps {
                let world = struck(seed, step, fault, None);
                check_end(&world, false);
            }
        }
    }
}

#[test]
fn a_session_that_breaks_after_the_guest_has_left_is_opened_anew_and_every_page_follows() {
    let mut broken = 0;
    for fault in [
        Fault::KillSourceRelay,
        Fault::KillDestinationRelay,
        Fault::CutPaths,
    ] {
        for seed in 0..60 {
            for step in 1..=undisturbed(seed).steps {
                let world = struck(seed, step, fault, Some(Duration::from_secs(20)));
                assert_eq!(world.replaced_in_vain, 0, "{}", world.story());
                if world.resumed > 0 {
                    broken += 1;
                    assert_eq!(runs(&world), Runs::Destination, "{}", world.story());
                    assert_eq!(
                        outcome(&world),
                        Some(&Outcome::Completed),
                        "{}",
                        world.story()
                    );
                }
            }
        }
    }
    assert!(broken > 300, "{broken} times");
}

#[test]
fn pages_follow_when_the_hypervisors_handshake_breaks_unless_the_sources_does_not_see_that() {
    let mut ends = [0, 0];
    for seed in 0..120 {
        for step in 1..=undisturbed(seed).steps {
            let mut world = World::with_postcopy(seed);
            world.handshakes_break = true;
            let heals = Some(Duration::from_secs(1));
            let world = struck_in(world, step, Fault::KillSourceRelay, heals);
            check_end(&world, true);
            let left = world.source_disk.as_ref().map(|record| record.verdict());
            let expected = match left {
                Some(Verdict::HandedOff) => Runs::Destination,
                Some(Verdict::CutOff) => Runs::Nowhere,
                _ => continue,
            };
            assert_eq!(runs(&world), expected, "{}", world.story());
            let in_vain = world.source_qemu.ended_in_vain();
            assert!(
                expected == Runs::Destination || in_vain,
                "{}",
                world.story()
            );
            ends[usize::from(in_vain)] += u32::from(world.handshakes_broken > 0);
        }
    }
    assert!(ends.iter().all(|times| *times > 50), "{ends:?} times");
}

#[test]
fn a_session_that_was_opened_anew_by_an_agent_that_died_is_not_waited_for_for_ever() {
    for seed in 0..100 {
        for (broken, dies_after) in (0..40).flat_map(|broken| [(broken, 50), (broken, 400)]) {
            let mut world = World::with_postcopy(seed);
            world.handshakes_break = true;
            let breaks = Duration::from_millis(6000 + 150 * broken);
            world.at(breaks, Event::Fault(Fault::KillSourceRelay));
            let dies = breaks + Duration::from_millis(dies_after);
            world.at(dies, Event::Fault(Fault::KillSourceAgent));
            heal(&mut world, dies + Duration::from_secs(2));
            check_end(&world, true);
        }
    }
}

#[test]
fn a_source_that_lost_its_journal_does_not_end_what_pages_are_waited_for() {
    let mut served = 0;
    for seed in 0..60 {
        for step in 1..=undisturbed(seed).steps {
            let mut world = World::with_postcopy(seed);
            world.loses_journal = true;
            let heals = Some(Duration::from_secs(1));
            let world = struck_in(world, step, Fault::KillSourceAgent, heals);
            check_end(&world, true);
            if world.journals_lost > 0 {
                served += 1;
                let lost = runs(&world) == Runs::Nowhere;
                assert!(
                    !lost || world.source_qemu.ended_in_vain(),
                    "{}",
                    world.story()
                );
            }
        }
    }
    assert!(served > 100, "{served} times");
}

#[test]
fn a_session_that_lives_is_kept_however_long_the_sources_hypervisor_hangs() {
    for seed in 0..100 {
        for hangs in 0..40 {
            let mut world = World::with_postcopy(seed);
            let at = Duration::from_millis(6000 + 200 * hangs);
            world.at(at, Event::Fault(Fault::HangSourceQemu));
            let dies = at + Duration::from_millis(100);
            world.at(dies, Event::Fault(Fault::KillDestinationAgent));
            let starts = at + Duration::from_secs(2);
            world.at(starts, Event::Fault(Fault::StartDestinationAgent));
            heal(&mut world, at + Duration::from_secs(180));
            check_end(&world, true);
            let lost = runs(&world) == Runs::Nowhere;
            assert!(!lost, "seed {seed}\n{}", world.story());
        }
    }
}

#[test]
fn a_source_that_ends_before_every_page_has_followed_tells_the_destination() {
    let mut cut_off = 0;
    for fault in [Fault::KillSourceQemu, Fault::LoseSourceHost] {
        for seed in 0..60 {
            for step in 1..=undisturbed(seed).steps {
                let world = struck(seed, step, fault, Some(Duration::from_secs(20)));
                check_end(&world, true);
                if matches!(outcome(&world), Some(Outcome::CutOff { .. })) {
                    cut_off += 1;
                    let there = world.destination_disk.as_ref().map(|record| &record.step);
                    assert_eq!(there, Some(&DestinationStep::CutOff), "{}", world.story());
                }
            }
        }
    }
    assert!(cut_off > 200, "{cut_off} times");
}

#[test]
fn a_guest_that_never_ran_for_want_of_a_page_is_cut_off_or_given_up_by_an_operator() {
    let mut ends = [0, 0];
    for (fault, heals, end) in [
        (Fault::KillSourceQemu, Some(20), 0),
        (Fault::LoseSourceHost, None, 1),
    ] {
        for seed in 0..60 {
            for step in 1..=undisturbed(seed).steps {
                let mut world = World::with_postcopy(seed);
                world.fault_at = Some((step, fault, heals.map(Duration::from_secs)));
                world.at(
                    Duration::from_secs(10),
                    Event::Operator(Resolution::Discard),
                );
                world.run(LONG, check_always);
                let there = world.destination_qemu.as_ref();
                if there.is_some_and(|qemu| qemu.hangs() && !qemu.has_run) {
                    ends[end] += 1;
                    let record = world.destination_disk.as_ref().map(|record| &record.step);
                    assert_eq!(record, Some(&DestinationStep::CutOff), "{}", world.story());
                }
            }
        }
    }
    assert!(ends.iter().all(|times| *times > 20), "{ends:?} times");
}

#[test]
fn postcopy_is_not_cancelled_once_it_was_begun() {
    for seed in 0..12 {
        for step in 1..=undisturbed(seed).steps {
            let world = struck(seed, step, Fault::Cancel, None);
            check_end(&world, true);
            assert_ne!(runs(&world), Runs::Nowhere, "{}", world.story());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn several_faults_in_postcopy_never_make_two_running_guests_and_end_when_healed(
        seed: u64,
        faults in prop::collection::vec((0_u64..20_000, any_fault()), 1..5),
        healed_after in 1_u64..60_000,
    ) {
        let mut world = World::with_postcopy(seed);
        world.handshakes_break = seed.is_multiple_of(3);
        strike(&mut world, faults);
        let healed = Duration::from_millis(20_000 + healed_after);
        heal(&mut world, healed);
        check_end(&world, true);
    }

    #[test]
    fn a_destination_that_had_not_heard_when_postcopy_was_given_up_never_runs_it(
        seed: u64,
        faults in prop::collection::vec((0_u64..20_000, any_fault()), 0..3),
        cuts in prop::collection::vec((0_u64..60_000, 1_u64..90_000), 1..4),
        given_up in 1_u64..30_000,
    ) {
        let mut world = World::with_postcopy(seed);
        world.careless = true;
        strike(&mut world, faults);
        for (millis, joined_after) in cuts {
            world.at(Duration::from_millis(millis), Event::Fault(Fault::CutPaths));
            let joined = Duration::from_millis(millis + joined_after);
            world.at(joined, Event::Fault(Fault::JoinPaths));
        }
        world.at(Duration::from_millis(given_up), Event::Operator(Resolution::GiveUp));
        heal(&mut world, Duration::from_millis(160_000));
        if world.had_heard != Some(true) {
            check_end(&world, true);
        }
    }

    #[test]
    fn an_operator_among_faults_in_postcopy_never_makes_two_running_guests(
        seed: u64,
        faults in prop::collection::vec((0_u64..4_000, any_fault()), 1..4),
        operators in prop::collection::vec((1_u64..60_000, crate::any_resolution()), 1..3),
        healed_after in 1_u64..120_000,
    ) {
        let mut world = World::with_postcopy(seed);
        world.handshakes_break = seed.is_multiple_of(3);
        strike(&mut world, faults);
        decide(&mut world, operators);
        let healed = Duration::from_millis(20_000 + healed_after);
        heal(&mut world, healed);
        check_end(&world, true);
    }
}
