//! Guests that come back to a host that has most of them.

use std::time::Duration;

use drover_reduce::decide::{Controller, Way};
use drover_reduce::limits::DECIDED_EVERY;
use drover_reduce::{Codec, Level};

use crate::world::{GIGABIT, MIB, Made, World, homecoming, packs, seconds, world};

#[test]
fn lines_that_a_quicker_way_would_need_are_not_tried_again_and_again_to_spare_processors() {
    let world = homecoming();
    let mut controller = Controller::default();
    world.run(&mut controller, seconds(2));
    // To and from passing everything, and to a codec for what is left.
    assert!(controller.changes() <= 3, "{controller:#?}");
    let before = controller.changes();
    // For long enough that they are believed to carry anything.
    let reached = world.run(&mut controller, seconds(200));
    assert!(reached > 0.95, "{reached}");
    assert!(controller.changes() - before <= 2, "{controller:#?}");
    assert!(
        matches!(controller.way(), Way::On { .. }),
        "{controller:#?}"
    );
}

#[test]
fn what_the_destination_has_is_not_passed_at_the_beginning_though_it_tells_of_it_late() {
    let world = homecoming();
    let mut controller = Controller::default();
    // All that is on its way before the first answer is new to the source.
    let unknown = World {
        ordinary: 1.0,
        // And all the threads begin at once.
        slowed: 4.0,
        ..world.clone()
    };
    unknown.run(&mut controller, DECIDED_EVERY);
    for _ in 0..7 {
        world.run(&mut controller, DECIDED_EVERY);
        assert!(
            matches!(controller.way(), Way::On { .. }),
            "{controller:#?}"
        );
    }
    // What is passed then is a trial.
    let mut passed = Duration::ZERO;
    for _ in 0..60 {
        if controller.way() == Way::Off {
            passed += DECIDED_EVERY;
        }
        world.run(&mut controller, DECIDED_EVERY);
    }
    assert!(passed <= Duration::from_millis(200), "{passed:?}");
}

#[test]
fn the_little_that_is_left_goes_through_a_codec_also_where_nobody_waits_for_the_lines() {
    let world = homecoming();
    let mut controller = Controller::default();
    let reached = world.run(&mut controller, seconds(2));
    assert!(reached > 0.97 && packs(&controller), "{controller:#?}");
    let before = controller.changes();
    world.run(&mut controller, seconds(60));
    assert!(
        packs(&controller) && controller.changes() - before <= 2,
        "{controller:#?}"
    );
    // What is written over and over, at the end, is no longer little.
    let rest = World {
        ordinary: 1.0,
        destination: 40.0 * GIGABIT,
        destination_passed: 40.0 * GIGABIT,
        line: 40.0 * GIGABIT,
        ..world
    };
    rest.run(&mut controller, seconds(2));
    assert!(!packs(&controller), "{controller:#?}");
}

#[test]
fn a_guest_that_is_known_to_come_back_is_packed_from_the_beginning() {
    let mut controller = Controller::of_a_return();
    let mut packed = 0;
    for _ in 0..36 {
        packed += i32::from(packs(&controller));
        homecoming().run(&mut controller, DECIDED_EVERY);
    }
    assert_eq!(packed, 36, "{controller:#?}");
    // Unless it has become another one meanwhile.
    let world = World {
        line: 100.0 * GIGABIT,
        ..world()
    };
    let mut controller = Controller::of_a_return();
    world.run(&mut controller, seconds(2));
    assert!(!packs(&controller), "{controller:#?}");
    world.run(&mut controller, seconds(3));
    assert_eq!(controller.way(), Way::Off);
}

#[test]
fn what_is_left_of_a_guest_that_comes_back_stays_packed_where_processors_are_short() {
    // Codecs that take twice as long as usual for a byte, as they get little of it at a time.
    let dear = |made: Made| Made {
        seconds: made.seconds * 2.0,
        ..made
    };
    let of = |ordinary: f64| World {
        line: 20.0 * GIGABIT,
        destination: 3e9,
        destination_passed: 3e9,
        describing: 1.1 / 1024.0 / MIB,
        ordinary,
        of_ordinary: world().of_ordinary.map(dear),
        slowed: 2.0,
        ..homecoming()
    };
    let mut controller = Controller::of_a_return();
    let mut packed = 0;
    for (ordinary, looks) in [(1.0, 6), (0.02, 10), (0.1, 4), (0.02, 60)] {
        for _ in 0..looks {
            packed += i32::from(packs(&controller));
            of(ordinary).run(&mut controller, DECIDED_EVERY);
        }
    }
    assert!(packed >= 76, "{packed} of 80 {controller:#?}");
    // Nor is it passed when pages come at the end that are written over and over.
    for _ in 0..20 {
        of(1.0).run(&mut controller, DECIDED_EVERY);
        assert_ne!(controller.way(), Way::Off, "{controller:#?}");
    }
}

#[test]
fn half_of_a_guest_that_packs_well_is_not_passed_for_time_where_processors_are_short() {
    // Numbers and short texts, such as a heap of Python's.
    let well = |made: Made| Made {
        ratio: made.ratio * 0.45,
        ..made
    };
    let of = |ordinary: f64| World {
        line: 20.0 * GIGABIT,
        ordinary,
        dense: 0.0,
        of_ordinary: world().of_ordinary.map(well),
        slowed: 4.0,
        ..world()
    };
    let all_of_it = Way::with(Codec::Zstd(Level::USUAL));
    assert!(of(0.52).goodput(Way::Off) > 2.0 * of(0.52).goodput(all_of_it));
    let mut controller = Controller::of_a_return();
    for _ in 0..78 {
        of(0.52).run(&mut controller, DECIDED_EVERY);
        assert!(packs(&controller), "{controller:#?}");
    }
}

#[test]
fn a_guest_of_which_nothing_is_the_same_is_passed_for_time_however_well_it_packs() {
    // The last one to a tenth, which is less than what would cross of one that was half there.
    for as_well in [1.0, 0.45, 0.2] {
        let made = |made: Made| Made {
            ratio: made.ratio * as_well,
            ..made
        };
        let world = World {
            line: 20.0 * GIGABIT,
            ordinary: 1.0,
            dense: 0.0,
            of_ordinary: world().of_ordinary.map(made),
            slowed: 4.0,
            ..world()
        };
        let mut controller = Controller::of_a_return();
        world.run(&mut controller, seconds(5));
        assert_eq!(controller.way(), Way::Off, "{as_well} {controller:#?}");
    }
}

#[test]
fn what_the_destination_is_late_to_tell_of_is_not_passed_to_the_end() {
    let told = World {
        line: 40.0 * GIGABIT,
        qemu: 1e9,
        destination: 3e9,
        destination_passed: 3e9,
        ..homecoming()
    };
    let untold = World {
        ordinary: 0.95,
        ..told.clone()
    };
    for controller in [Controller::of_a_return(), Controller::default()] {
        let mut controller = controller;
        untold.run(&mut controller, seconds(3));
        assert_eq!(controller.way(), Way::Off, "{controller:#?}");
        let mut passed = 0;
        for look in 0..200 {
            told.run(&mut controller, DECIDED_EVERY);
            passed += i32::from(look > 20 && controller.way() == Way::Off);
        }
        // Trials, as it is no faster.
        assert!(passed <= 12, "{passed} {controller:#?}");
    }
}

#[test]
fn several_times_the_bytes_cross_where_that_is_faster_and_not_to_spare_processors() {
    let world = World {
        line: 20.0 * GIGABIT,
        ..homecoming()
    };
    let mut controller = Controller::default();
    let reached = world.run(&mut controller, seconds(20));
    assert!(reached > 0.98, "{reached}");
    assert!(
        matches!(controller.way(), Way::On { .. }),
        "{controller:#?}"
    );
    // To find what it has takes the destination longer than to take it.
    let world = World {
        destination_passed: 2.0 * GIGABIT,
        ..world
    };
    let mut controller = Controller::default();
    world.run(&mut controller, seconds(2));
    assert_eq!(controller.way(), Way::Off);
    // Of a guest that is known to come back, a trial of that would be most of what crosses: also where the line is seen to be another.
    let mut controller = Controller::of_a_return();
    for line in [20.0, 2.0, 20.0] {
        let world = World {
            line: line * GIGABIT,
            ..world
        };
        for _ in 0..60 {
            world.run(&mut controller, DECIDED_EVERY);
            assert_ne!(controller.way(), Way::Off, "{controller:#?}");
        }
    }
    let mut passed = 0;
    for _ in 0..100 {
        world.run(&mut controller, DECIDED_EVERY);
        passed += i32::from(controller.way() == Way::Off);
    }
    assert!(passed >= 60, "{passed} of 100 {controller:#?}");
}

#[test]
fn what_the_destination_has_is_not_passed_on_where_lines_became_others_before_that_was_judged() {
    let over = |line: f64| World {
        line: line * GIGABIT,
        destination_passed: 8.0 * GIGABIT,
        ..homecoming()
    };
    let mut controller = Controller::default();
    for look in 0.. {
        assert!(look < 100, "{controller:#?}");
        over(2.0).run(&mut controller, DECIDED_EVERY);
        if controller.way() == Way::Off {
            break;
        }
    }
    over(2.0).run(&mut controller, DECIDED_EVERY);
    assert_eq!(controller.way(), Way::Off);
    over(6.0).run(&mut controller, DECIDED_EVERY);
    assert_ne!(controller.way(), Way::Off, "{controller:#?}");
    // It is tried anew, and found to be faster.
    over(6.0).run(&mut controller, seconds(2));
    assert_eq!(controller.way(), Way::Off, "{controller:#?}");
}
