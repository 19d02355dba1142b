//! Migrations simulated from a seed, with everything that can die dying at every step, or
//! hanging.
//!
//! After every single event: never two running guests; never a running source after the
//! decision for the destination. At the end: every agent has ended, or waits for something that
//! has a name and that an operator can act on; and where nothing was killed the guest runs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

mod event;
mod faults;
mod operator;
mod postcopy;
mod postcopy_faults;
mod qemu;
mod questions;
mod requests;
mod resuming;
mod shells;
mod transfer;
mod world;

use std::time::Duration;

use drover_migrate::{DestinationStep, KeptGuest, MigrationSeen, Outcome, Resolution, SourceStep};
use proptest::prelude::*;

use event::{Event, Fault};
use world::World;

/// Longer than every deadline and every retry that ends by itself: five times 15 s for an
/// abandon, 90 s for a prepared destination, and what led there.
const LONG: Duration = Duration::from_secs(300);

/// When a person ends what nothing else brought to an end, and no sooner.
const BY_HAND: Duration = Duration::from_secs(250);

/// Faults that something heals, and those that nothing needs to.
const FAULTS: [Fault; 16] = [
    Fault::KillSourceAgent,
    Fault::KillDestinationAgent,
    Fault::KillSourceRelay,
    Fault::KillDestinationRelay,
    Fault::KillSourceQemu,
    Fault::KillDestinationQemu,
    Fault::HangSourceQemu,
    Fault::HangDestinationQemu,
    Fault::PauseDestinationGuest,
    Fault::LoseSourceHost,
    Fault::LoseDestinationHost,
    Fault::CutPaths,
    Fault::FillSourceDisk,
    Fault::FillDestinationDisk,
    Fault::FailMigration,
    Fault::Cancel,
];

/// What heals whatever went wrong, with the start of agents that died.
const HEALING: [Fault; 4] = [
    Fault::JoinPaths,
    Fault::FreeDisks,
    Fault::ReleaseQemus,
    Fault::UnpauseDestinationGuest,
];

fn check_always(world: &World) {
    let source = world.source_qemu.runs_its_guest();
    let destination = world
        .destination_qemu
        .as_ref()
        .is_some_and(qemu::Qemu::runs_its_guest);
    assert!(
        !(source && destination),
        "two running guests\n{}",
        world.story()
    );
    assert!(
        !(source && world.decided_for_destination()),
        "the source runs after the hand-off\n{}",
        world.story()
    );
    let by_operator = world.may_run_by_operator();
    let was_wrong = world.had_heard == Some(true);
    assert!(
        !destination || world.decided_for_destination() || by_operator || was_wrong,
        "the destination runs before the hand-off\n{}",
        world.story()
    );
}

/// Where the guest runs at the end.
#[derive(Debug, PartialEq, Eq)]
enum Runs {
    Source,
    Destination,
    Nowhere,
}

fn runs(world: &World) -> Runs {
    let destination = world.destination_qemu.as_ref();
    let record = world.destination_disk.as_ref();
    let cut_off = record.is_some_and(|record| record.step == DestinationStep::CutOff);
    if world.source_qemu.runs_its_guest() {
        Runs::Source
    } else if cut_off {
        // Until it needs a page that is lost.
        Runs::Nowhere
    } else if destination.is_some_and(qemu::Qemu::runs_its_guest) {
        Runs::Destination
    } else {
        Runs::Nowhere
    }
}

/// Every machine has ended or says what it waits for.
fn check_end(world: &World, healed: bool) {
    let log = || world.story();
    let waiting = [
        world
            .source
            .as_ref()
            .and_then(drover_migrate::source::Source::waiting),
        world
            .destination
            .as_ref()
            .and_then(drover_migrate::destination::Destination::waiting),
    ];
    for waiting in waiting.into_iter().flatten() {
        assert!(!healed, "still waits for {:?}\n{}", waiting.on, log());
        assert!(
            waiting.on.what_to_do().is_some(),
            "waits for {:?}\n{}",
            waiting.on,
            log()
        );
    }
    if world.source.is_some() {
        check_ended_source(world);
    }
    if healed {
        let both = world.source_definition && world.destination_definition;
        assert!(!both, "both hosts could start the guest\n{}", log());
    }
    if healed {
        check_cut_off(world);
    }
    if let Some(record) = &world.destination_disk
        && matches!(record.step, DestinationStep::Abandoned { .. })
    {
        let left = world
            .destination_qemu
            .as_ref()
            .is_some_and(|qemu| qemu.alive);
        assert!(!left, "something is left\n{}", log());
    }
}

/// Both hosts say the same of pages that were lost, and only where some were, or whether some were could not be seen.
fn check_cut_off(world: &World) {
    let by_operator = world.decided || world.had_heard.is_some();
    let here = world.source_disk.as_ref().is_some_and(|record| {
        let outcome = match &record.step {
            SourceStep::Finished { outcome } => Some(outcome),
            _ => None,
        };
        matches!(outcome, Some(Outcome::CutOff { .. }))
    });
    let record = world.destination_disk.as_ref();
    let there = record.is_some_and(|record| record.step == DestinationStep::CutOff);
    assert!(here == there || by_operator, "{}", world.story());
    let qemu = world.destination_qemu.as_ref();
    let all_here = qemu.is_some_and(|qemu| qemu.migration == MigrationSeen::Completed);
    let seen = !world.cut_off_unseen;
    assert!(!(there && all_here && seen), "{}", world.story());
}

/// What the source says of its guest is so.
fn check_ended_source(world: &World) {
    let Some(SourceStep::Finished { outcome }) =
        world.source_disk.as_ref().map(|record| record.step.clone())
    else {
        return;
    };
    let log = || world.story();
    let (alive, definition) = (world.source_qemu.alive, world.source_definition);
    match outcome {
        Outcome::Completed | Outcome::CutOff { .. } => {
            assert!(!alive && !definition, "{}", log());
        }
        Outcome::Lost { .. } => assert_eq!(runs(world), Runs::Nowhere, "{}", log()),
        Outcome::Refused { .. } => assert!(definition, "{}", log()),
        Outcome::GivenUp { .. } => {
            assert!(definition, "{}", log());
            let there = world.destination_qemu.as_ref();
            let runs_there = there.is_some_and(qemu::Qemu::runs_its_guest);
            assert!(!runs_there, "{}", log());
        }
        Outcome::Cancelled { guest, .. } | Outcome::Failed { guest, .. } => {
            assert!(definition, "{}", log());
            match guest {
                KeptGuest::Gone => assert!(!alive, "{}", log()),
                KeptGuest::Stopped => assert_eq!(runs(world), Runs::Nowhere, "{}", log()),
                // It may have been killed since; and one that hangs follows nothing yet.
                KeptGuest::Runs => {
                    let follows = alive && !world.source_hangs;
                    assert!(runs(world) == Runs::Source || !follows, "{}", log());
                }
            }
        }
    }
}

/// The number of events of a migration in which nothing goes wrong, and where its guest runs.
fn undisturbed(seed: u64) -> (usize, Runs) {
    let world = undisturbed_in(World::new(seed));
    (world.steps, runs(&world))
}

fn undisturbed_in(mut world: World) -> World {
    world.run(LONG, check_always);
    check_end(&world, true);
    world
}

#[test]
fn without_faults_the_guest_ends_up_on_the_destination_unless_its_hypervisor_refused() {
    let moved = (0..300).filter(|seed| match undisturbed(*seed).1 {
        Runs::Destination => true,
        Runs::Source => false,
        Runs::Nowhere => panic!("seed {seed} lost the guest"),
    });
    let moved = moved.count();
    assert!((270..300).contains(&moved), "{moved} of 300 moved");
}

/// Strikes at `step`, heals after `heals`, and looks at the end.
fn struck(seed: u64, step: usize, fault: Fault, heals: Option<Duration>) -> World {
    struck_in(World::new(seed), step, fault, heals)
}

fn struck_in(mut world: World, step: usize, fault: Fault, heals: Option<Duration>) -> World {
    world.fault_at = Some((step, fault, heals));
    if heals.is_some() {
        world.at(BY_HAND, Event::EndWhatHangs);
    }
    world.run(LONG, check_always);
    world
}

fn kills_a_hypervisor(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::KillSourceQemu
            | Fault::KillDestinationQemu
            | Fault::LoseSourceHost
            | Fault::LoseDestinationHost
    )
}

#[test]
fn each_fault_at_every_step_ends_well_when_it_heals() {
    for fault in FAULTS {
        for seed in 0..25 {
            for step in 1..=undisturbed(seed).0 {
                for heals in [1, 40] {
                    let heals = Duration::from_secs(heals);
                    let world = struck(seed, step, fault, Some(heals));
                    check_end(&world, true);
                    let lost = runs(&world) == Runs::Nowhere;
                    assert!(
                        !lost || kills_a_hypervisor(fault),
                        "{fault:?} at {step} of seed {seed} lost the guest\n{}",
                        world.story()
                    );
                }
            }
        }
    }
}

#[test]
fn an_agent_that_is_back_in_time_completes_what_its_relay_carried_on() {
    for (fault, at_source) in [
        (Fault::KillSourceAgent, true),
        (Fault::KillDestinationAgent, false),
    ] {
        let mut taken_up = 0;
        for seed in 0..40 {
            for step in 1..=undisturbed(seed).0 {
                let mut world = World::new(seed);
                world.fault_at = Some((step, fault, Some(Duration::from_secs(1))));
                let mut carried = false;
                world.run(LONG, |world| {
                    check_always(world);
                    if world.steps == step {
                        let arriving = world.destination_qemu.as_ref();
                        carried = world.source_qemu.migrates()
                            && (at_source || arriving.is_some_and(qemu::Qemu::migrates));
                    }
                });
                check_end(&world, true);
                if carried {
                    taken_up += 1;
                    assert_eq!(runs(&world), Runs::Destination, "{}", world.story());
                }
            }
        }
        assert!(taken_up > 100, "{taken_up} times");
    }
}

#[test]
fn each_fault_at_every_step_that_never_heals_ends_or_waits_for_something_named() {
    for fault in FAULTS {
        for seed in 100..112 {
            for step in 1..=undisturbed(seed).0 {
                let world = struck(seed, step, fault, None);
                check_end(&world, false);
            }
        }
    }
}

#[test]
fn a_cancel_before_the_hand_off_keeps_the_guest_on_the_source() {
    for seed in 0..12 {
        for step in 1..=undisturbed(seed).0 {
            let world = struck(seed, step, Fault::Cancel, None);
            let cancelled = world.source_disk.as_ref().is_some_and(|record| {
                let outcome = match &record.step {
                    SourceStep::Finished { outcome } => Some(outcome),
                    _ => None,
                };
                matches!(outcome, Some(Outcome::Cancelled { .. }))
            });
            let expected = if cancelled {
                Runs::Source
            } else {
                runs(&world)
            };
            assert_eq!(runs(&world), expected, "{}", world.story());
            assert_ne!(runs(&world), Runs::Nowhere);
        }
    }
}

/// Struck at `step`; an operator decides as soon as it is known that it is safe.
fn resolved(seed: u64, step: usize, fault: Fault, wish: Resolution, heals: Option<u64>) -> World {
    let mut world = World::new(seed);
    world.fault_at = Some((step, fault, heals.map(Duration::from_secs)));
    world.at(Duration::from_secs(10), Event::Operator(wish));
    world.run(LONG, check_always);
    world
}

#[test]
fn an_operator_who_knows_that_the_other_host_is_off_gets_the_guest_to_run_and_it_runs_once() {
    for (fault, wish, runs_at) in [
        (
            Fault::LoseSourceHost,
            Resolution::RunHere,
            Runs::Destination,
        ),
        (Fault::LoseSourceHost, Resolution::Discard, Runs::Nowhere),
        (Fault::LoseDestinationHost, Resolution::GiveUp, Runs::Source),
    ] {
        for heals in [Some(70), None] {
            let mut decided = 0;
            for seed in 0..40 {
                for step in 1..=undisturbed(seed).0 {
                    let world = resolved(seed, step, fault, wish, heals);
                    check_end(&world, heals.is_some());
                    if world.decided {
                        decided += 1;
                        assert_eq!(runs(&world), runs_at, "{}", world.story());
                        let waits = world.source.as_ref().and_then(|machine| machine.waiting());
                        assert_eq!(waits, None, "{}", world.story());
                    }
                }
            }
            assert!(decided > 20, "{wish:?} {decided} times");
        }
    }
}

#[test]
fn what_an_operator_decided_is_told_to_the_other_host_when_it_is_back() {
    for (fault, wish) in [
        (Fault::LoseSourceHost, Resolution::RunHere),
        (Fault::LoseDestinationHost, Resolution::GiveUp),
    ] {
        for seed in 0..40 {
            for step in 1..=undisturbed(seed).0 {
                let world = resolved(seed, step, fault, wish, Some(70));
                if world.decided {
                    assert!(
                        world.source_told || world.destination_told,
                        "{}",
                        world.story()
                    );
                }
            }
        }
    }
}

/// Runs of each test with random faults; `DROVER_SIM_SEEDS` asks for more.
fn cases() -> u32 {
    let count = std::env::var("DROVER_SIM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    count.unwrap_or(2000)
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop::sample::select(FAULTS.to_vec())
}

fn any_resolution() -> impl Strategy<Value = Resolution> {
    prop::sample::select(vec![
        Resolution::RunHere,
        Resolution::Discard,
        Resolution::GiveUp,
    ])
}

fn strike(world: &mut World, faults: Vec<(u64, Fault)>) {
    for (millis, fault) in faults {
        world.at(Duration::from_millis(millis), Event::Fault(fault));
    }
}

fn decide(world: &mut World, operators: Vec<(u64, Resolution)>) {
    for (millis, wish) in operators {
        world.at(Duration::from_millis(millis), Event::Operator(wish));
    }
}

/// Runs to the end; from `healed` on nothing is wrong any more.
fn heal(world: &mut World, healed: Duration) {
    for fault in HEALING {
        world.at(healed, Event::Fault(fault));
    }
    world.at(healed, Event::StartDeadAgents);
    world.at(healed + BY_HAND, Event::EndWhatHangs);
    world.run(healed + LONG, check_always);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn several_faults_at_any_time_never_make_two_running_guests_and_end_when_healed(
        seed: u64,
        faults in prop::collection::vec((0_u64..20_000, any_fault()), 1..5),
        healed_after in 1_u64..60_000,
    ) {
        let mut world = World::new(seed);
        strike(&mut world, faults);
        let healed = Duration::from_millis(20_000 + healed_after);
        heal(&mut world, healed);
        check_end(&world, true);
    }

    #[test]
    fn an_operator_among_several_faults_never_makes_two_running_guests(
        seed: u64,
        faults in prop::collection::vec((0_u64..4_000, any_fault()), 1..4),
        operators in prop::collection::vec((1_u64..60_000, any_resolution()), 1..3),
        healed_after in 1_u64..120_000,
    ) {
        let mut world = World::new(seed);
        strike(&mut world, faults);
        decide(&mut world, operators);
        let healed = Duration::from_millis(20_000 + healed_after);
        heal(&mut world, healed);
        check_end(&world, true);
    }

    #[test]
    fn a_destination_that_had_not_heard_when_the_guest_was_given_up_never_runs_it(
        seed: u64,
        faults in prop::collection::vec((0_u64..4_000, any_fault()), 0..3),
        cuts in prop::collection::vec((0_u64..60_000, 1_u64..90_000), 1..4),
        given_up in 1_u64..30_000,
    ) {
        let mut world = World::new(seed);
        world.careless = true;
        strike(&mut world, faults);
        for (millis, joined_after) in cuts {
            world.at(Duration::from_millis(millis), Event::Fault(Fault::CutPaths));
            let joined = Duration::from_millis(millis + joined_after);
            world.at(joined, Event::Fault(Fault::JoinPaths));
        }
        world.at(Duration::from_millis(given_up), Event::Operator(Resolution::GiveUp));
        let healed = Duration::from_millis(160_000);
        heal(&mut world, healed);
        if world.had_heard != Some(true) {
            check_end(&world, true);
        }
    }
}
