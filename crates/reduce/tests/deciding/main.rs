//! The controller in a world in which everything is known: lines, processors, codecs and a QEMU.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod changes;
mod returns;
mod world;

use std::time::Duration;

use drover_reduce::decide::{CODECS, Controller, Seen, Slowest, Times, Tried, Way};
use drover_reduce::limits::DECIDED_EVERY;
use drover_reduce::{Choice, Class, Codec, Counts, Level, OfCodecs, PackingTook, Section};
use proptest::prelude::*;

use world::{GIGABIT, Made, World, packs, seconds, world};

#[test]
fn slow_lines_get_the_fewest_bytes_and_quick_ones_all_of_them() {
    let codec_for = |line: f64| {
        let world = World { line, ..world() };
        let mut controller = Controller::default();
        world.run(&mut controller, seconds(1));
        let way = controller.way();
        let before = controller.changes();
        world.run(&mut controller, seconds(5));
        assert!(controller.changes() - before <= 4, "{controller:#?}");
        assert!(
            world.goodput(controller.way()) >= 0.9 * world.best(),
            "{controller:#?}"
        );
        way
    };
    let slowest = Codec::Zstd(Level::SLOWEST);
    assert!(matches!(codec_for(0.2 * GIGABIT), Way::On { codec, .. } if codec == slowest));
    assert!(matches!(codec_for(4.0 * GIGABIT), Way::On { codec, .. } if codec != Codec::None));
    assert_eq!(codec_for(100.0 * GIGABIT), Way::Off);
}

#[test]
fn within_half_a_second_another_line_and_another_processor_have_another_way() {
    let mut world = world();
    let mut controller = Controller::default();
    let half = Duration::from_millis(500);
    world.run(&mut controller, seconds(2));
    for (line, slowed) in [
        (0.2, 1.0),
        (2.0, 1.0),
        (2.0, 4.0),
        (2.0, 1.0),
        (0.05, 1.0),
        (1.0, 2.0),
    ] {
        (world.line, world.slowed) = (line * GIGABIT, slowed);
        world.run(&mut controller, half);
        let reached = world.goodput(controller.way()) / world.best();
        assert!(reached > 0.85, "{line} {slowed}: {reached} {controller:#?}");
        world.run(&mut controller, seconds(3));
    }
}

#[test]
fn lines_that_carry_more_while_a_processor_holds_everything_up_are_found_in_some_seconds() {
    // Whenever they become others: now and then the controller finds out whether they did.
    for moment in 0..100 {
        let mut world = world();
        let mut controller = Controller::default();
        world.run(&mut controller, seconds(20) + DECIDED_EVERY * moment);
        world.line *= 20.0;
        world.run(&mut controller, Duration::from_millis(2500));
        let reached = world.goodput(controller.way()) / world.best();
        assert!(reached > 0.9, "{moment}: {reached} {controller:#?}");
    }
}

#[test]
fn to_find_out_whether_lines_carry_more_costs_little_where_they_do_not() {
    let world = world();
    let mut controller = Controller::default();
    world.run(&mut controller, seconds(20));
    assert_eq!(controller.slowest(), Some(Slowest::Processors));
    let reached = world.run(&mut controller, seconds(60));
    assert!(reached > 0.98, "{reached}");
}

#[test]
fn who_holds_everything_up_behind_the_lines_is_not_packed_for() {
    let world = World {
        destination: 1.5 * GIGABIT,
        destination_passed: 1.5 * GIGABIT,
        ..world()
    };
    let mut controller = Controller::default();
    let reached = world.run(&mut controller, seconds(10));
    assert!(reached > 0.95, "{reached}");
    assert_eq!(controller.slowest(), Some(Slowest::Destination));
    let (_, [_, packing, _]) = world.of(controller.way());
    assert!(packing <= 0.0, "{controller:#?}");
}

#[test]
fn nothing_is_packed_for_lines_that_are_waited_for_in_single_looks() {
    let takes = World {
        line: 100.0 * GIGABIT,
        destination: 3.0 * GIGABIT,
        destination_passed: 3.0 * GIGABIT,
        ..world()
    };
    // The receiver does not get its turn, and what it does not read holds up the lines.
    let held_up = World {
        line: 3.0 * GIGABIT,
        destination: 3e9,
        destination_passed: 3e9,
        ..takes.clone()
    };
    let mut controller = Controller::default();
    takes.run(&mut controller, seconds(2));
    let settled = controller.changes();
    for _ in 0..40 {
        held_up.run(&mut controller, DECIDED_EVERY);
        takes.run(&mut controller, DECIDED_EVERY * 9);
        assert!(!packs(&controller), "{controller:#?}");
    }
    assert_eq!(controller.changes(), settled, "{controller:#?}");
    // Two in a row are believed.
    held_up.run(&mut controller, DECIDED_EVERY * 3);
    assert!(packs(&controller), "{controller:#?}");
}

#[test]
fn a_little_time_is_not_bought_with_several_times_the_processors() {
    // Where a codec would have a few percent more cross than describing alone.
    for percent in 90..=110 {
        let world = World {
            line: 8.16 * GIGABIT * f64::from(percent) / 100.0,
            ..world()
        };
        let described = world.goodput(Way::with(Codec::None));
        let mut controller = Controller::default();
        world.run(&mut controller, seconds(5));
        let mut bought = 0;
        for _ in 0..400 {
            world.run(&mut controller, DECIDED_EVERY);
            let little = world.goodput(controller.way()) < described * 1.06;
            bought += i32::from(packs(&controller) && little);
        }
        // A trial now and then.
        assert!(bought <= 20, "{percent}: {bought} of 400 {controller:#?}");
    }
}

#[test]
fn contents_that_differ_from_one_moment_to_the_next_do_not_hide_which_way_is_the_best() {
    let usual = World {
        line: 0.4 * GIGABIT,
        destination: 1.2 * GIGABIT,
        destination_passed: 1.2 * GIGABIT,
        ..world()
    };
    let mut controller = Controller::default();
    let (mut crossed, mut could) = (0.0, 0.0);
    for moment in 0..200 {
        // Some 150 ms of each: half-empty pages, with which the destination is busy, then programs, with which the lines are.
        let less = [0.3, 1.0, 1.4, 0.4][moment / 3 % 4];
        let of = |less: f64| {
            let mut world = usual.clone();
            for made in world.of_ordinary.iter_mut().skip(1) {
                made.ratio *= less;
            }
            world
        };
        let world = of(less);
        // A sample is eight pages, and seldom like all the others.
        if moment % 2 == 0 {
            of([1.0, 0.7, 1.3][moment / 2 % 3]).sample(&mut controller);
        }
        let seen = world.seen(controller.way(), DECIDED_EVERY);
        controller.seen(&seen);
        if moment >= 20 {
            crossed += seen.counts.raw as f64;
            could += world.best() * DECIDED_EVERY.as_secs_f64();
        }
    }
    assert!(
        crossed > 0.96 * could,
        "{} {controller:#?}",
        crossed / could
    );
    assert!(controller.changes() < 20, "{controller:#?}");
}

#[test]
fn dense_pages_that_a_codec_makes_fewer_go_through_it() {
    let mut world = World {
        line: 0.2 * GIGABIT,
        ordinary: 0.2,
        dense: 0.8,
        ..world()
    };
    let mut controller = Controller::default();
    world.run(&mut controller, seconds(1));
    assert!(matches!(controller.way(), Way::On { dense: false, .. }));
    world.of_dense = world.of_ordinary;
    world.run(&mut controller, seconds(3));
    assert!(
        matches!(controller.way(), Way::On { dense: true, .. }),
        "{controller:#?}"
    );
}

#[test]
fn each_way_of_which_anything_is_known_has_a_verdict_and_one_is_used() {
    let world = world();
    let mut controller = Controller::default();
    assert_eq!(controller.verdicts().count(), 2);
    world.run(&mut controller, seconds(1));
    let verdicts: Vec<_> = controller.verdicts().collect();
    assert_eq!(verdicts.len(), 14);
    assert_eq!(verdicts.iter().filter(|verdict| verdict.used).count(), 1);
    let off = verdicts
        .iter()
        .find(|verdict| verdict.way == Way::Off)
        .unwrap();
    assert!((off.ratio - 1.0).abs() < 1e-9 && off.goodput < 1.1 * world.line);
}

fn any_world() -> impl Strategy<Value = World> {
    let rates = (-1.5..2.5, 0.0..2.0, 0.0..2.0).prop_map(|(line, qemu, destination)| {
        let power = |exponent: f64| GIGABIT * 10f64.powf(exponent);
        (power(line), power(qemu), power(destination))
    });
    let content = (0.05..0.95, 0.2..1.0, 1.0..8.0, 1u32..5);
    (rates, content).prop_map(
        |((line, qemu, destination), (part, better, slowed, threads))| {
            let usual = world();
            World {
                line,
                qemu,
                destination,
                destination_passed: destination,
                threads: f64::from(threads),
                slowed,
                ordinary: part,
                dense: 0.95 - part,
                of_ordinary: usual.of_ordinary.map(|made| Made {
                    ratio: 1.0 - (1.0 - made.ratio) * better,
                    ..made
                }),
                ..usual
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn in_any_world_nearly_as_much_crosses_as_can(world in any_world()) {
        let mut controller = Controller::default();
        let first = world.run(&mut controller, seconds(2));
        let then = world.run(&mut controller, seconds(10));
        let changes = controller.changes();
        prop_assert!(first > 0.75 && then > 0.9, "{first} {then} {changes} {controller:#?}");
        prop_assert!(controller.changes() < 60, "{controller:#?}");
    }

    #[test]
    fn nothing_that_is_seen_makes_it_fail(
        bytes: [u64; 6],
        nanoseconds: [u64; 8],
        lasted in 0u64..1 << 40,
    ) {
        let mut controller = Controller::default();
        let time = |at: usize| Duration::from_nanos(nanoseconds[at] >> 8);
        for codec in CODECS {
            controller.tried(&Tried {
                class: Class::Dense,
                codec,
                bytes: bytes[0],
                packed: bytes[1],
                took: time(0),
            });
        }
        let section = |bytes, packed| Section { bytes, packed };
        let mut codecs = OfCodecs::default();
        let given = Counts {
            ordinary_section: section(bytes[3] >> 1, bytes[4] >> 1),
            dense_section: section(bytes[0] >> 1, bytes[5] >> 1),
            ..Counts::default()
        };
        for codec in CODECS {
            let choice = Choice {
                ordinary: codec,
                dense: codec,
            };
            let took = PackingTook {
                ordinary: time(1),
                dense: time(2),
            };
            codecs.add(choice, &given, took);
        }
        let seen = Seen {
            lasted: Duration::from_nanos(lasted),
            counts: Counts {
                raw: bytes[2],
                wire: bytes[3],
                passed: bytes[4],
                ordinary_section: section(bytes[5], bytes[0]),
                dense_section: section(bytes[1], bytes[2]),
                ..Counts::default()
            },
            codecs,
            times: Times {
                for_lines: time(0),
                for_destination: time(7),
                for_qemu: time(1),
                for_processors: time(6),
                describing: time(2),
                packing: time(3),
                trying: time(4),
                carrying: time(5),
            },
        };
        for _ in 0..20 {
            controller.seen(&seen);
            controller.verdicts().for_each(drop);
        }
    }
}
