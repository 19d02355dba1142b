//! The controller in a world in which everything is known: lines, processors, codecs and a QEMU.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::time::Duration;

use drover_reduce::decide::{CODECS, Controller, Seen, Slowest, Times, Tried, Way};
use drover_reduce::limits::{DECIDED_EVERY, SAMPLE_BYTES, SAMPLED_EVERY};
use drover_reduce::{Class, Codec, Counts, Level, Section};
use proptest::prelude::*;

/// What a codec makes of a byte, and in which time a thread does it.
#[derive(Debug, Clone, Copy)]
struct Made {
    ratio: f64,
    seconds: f64,
}

/// Bytes in seconds, everywhere.
#[derive(Debug, Clone)]
struct World {
    line: f64,
    qemu: f64,
    /// What the destination gets done, in QEMU's bytes.
    destination: f64,
    /// The same where they are passed as they are.
    destination_passed: f64,
    threads: f64,
    /// How much longer everything takes, as others need the processors.
    slowed: f64,
    ordinary: f64,
    dense: f64,
    /// For [`CODECS`].
    of_ordinary: [Made; 7],
    of_dense: [Made; 7],
    describing: f64,
    reading: f64,
    sending: f64,
}

/// Of what is passed in a look.
const LOOKED_INTO: f64 = 131_072.0;

const MIB: f64 = 1_048_576.0;
const GIGABIT: f64 = 125e6;

/// `docs/measurements/reduction.md`.
fn world() -> World {
    let made = |ratio, mib: f64| Made {
        ratio,
        seconds: 1.0 / (mib * MIB),
    };
    let none = Made {
        ratio: 1.0,
        seconds: 0.0,
    };
    World {
        line: 2.0 * GIGABIT,
        qemu: 3e9,
        destination: 3e9,
        destination_passed: 3e9,
        threads: 2.0,
        slowed: 1.0,
        ordinary: 0.8,
        dense: 0.1,
        of_ordinary: [
            none,
            made(0.63, 592.0),
            made(0.68, 661.0),
            made(0.50, 499.0),
            made(0.46, 438.0),
            made(0.43, 314.0),
            made(0.40, 150.0),
        ],
        of_dense: [
            none,
            made(1.0, 2000.0),
            made(1.0, 1000.0),
            made(0.99, 600.0),
            made(0.99, 500.0),
            made(0.98, 300.0),
            made(0.98, 120.0),
        ],
        describing: 0.17 / 1024.0 / MIB,
        reading: 0.2 / 1024.0 / MIB,
        sending: 0.3 / 1024.0 / MIB,
    }
}

impl World {
    /// Bytes on the lines for one of QEMU, and the seconds of describing, packing and carrying it.
    fn of(&self, way: Way) -> (f64, [f64; 3]) {
        let (mut ratio, mut packing, mut describing) = (1.0, 0.0, 0.0);
        if let Way::On { codec, dense } = way {
            let at = CODECS.iter().position(|known| *known == codec).unwrap();
            let (ordinary, through) = (
                self.of_ordinary[at],
                self.of_dense[if dense { at } else { 0 }],
            );
            ratio = self.ordinary * ordinary.ratio + self.dense * through.ratio;
            packing = self.ordinary * ordinary.seconds + self.dense * through.seconds;
            describing = self.describing;
        }
        let carrying = self.reading + self.sending * ratio;
        (
            ratio,
            [describing, packing, carrying].map(|seconds| seconds * self.slowed),
        )
    }

    fn at_destination(&self, way: Way) -> f64 {
        match way {
            Way::Off => self.destination_passed,
            Way::On { .. } => self.destination,
        }
    }

    /// QEMU's bytes that cross in a second.
    fn goodput(&self, way: Way) -> f64 {
        let (ratio, costs) = self.of(way);
        let processed = self.threads / costs.iter().sum::<f64>();
        (self.line / ratio)
            .min(self.at_destination(way))
            .min(processed)
            .min(self.qemu)
    }

    fn best(&self) -> f64 {
        let ways = CODECS
            .into_iter()
            .flat_map(|codec| [true, false].map(|dense| Way::On { codec, dense }));
        let goodputs = ways.chain([Way::Off]).map(|way| self.goodput(way));
        goodputs.fold(0.0, f64::max)
    }

    fn seen(&self, way: Way, lasted: Duration) -> Seen {
        let seconds = lasted.as_secs_f64();
        let (ratio, [describing, packing, carrying]) = self.of(way);
        let goodput = self.goodput(way);
        let raw = goodput * seconds;
        let idle = (self.threads * seconds - raw * (describing + packing + carrying)).max(0.0);
        let time = |seconds: f64| Duration::from_secs_f64(seconds);
        let waiting = |limit: f64| time(if goodput >= limit { idle } else { 0.0 });
        let [for_qemu, for_destination] = [self.qemu, self.at_destination(way)].map(waiting);
        let work = |seconds: f64| time(raw * seconds / self.slowed);
        let working = raw * (describing + packing + carrying);
        let times = Times {
            for_lines: time(idle).saturating_sub(for_qemu + for_destination),
            for_destination,
            for_qemu,
            for_processors: time(working * (self.slowed - 1.0) / self.slowed),
            describing: work(describing),
            packing: work(packing),
            carrying: work(carrying),
            trying: Duration::ZERO,
        };
        let mut counts = Counts {
            raw: raw as u64,
            wire: (raw * ratio) as u64,
            ..Counts::default()
        };
        match way {
            // A chunk now and then is described.
            Way::Off => {
                let described = raw.min(LOOKED_INTO);
                let section = |part: f64| Section {
                    bytes: (described * part) as u64,
                    packed: (described * part) as u64,
                };
                counts.passed = (raw - described) as u64;
                counts.ordinary_section = section(self.ordinary);
                counts.dense_section = section(self.dense);
            }
            Way::On { codec, dense } => {
                let at = CODECS.iter().position(|known| *known == codec).unwrap();
                let section = |bytes: f64, made: Made| Section {
                    bytes: bytes as u64,
                    packed: (bytes * made.ratio) as u64,
                };
                counts.ordinary_section = section(raw * self.ordinary, self.of_ordinary[at]);
                let dense_at = if dense { at } else { 0 };
                counts.dense_section = section(raw * self.dense, self.of_dense[dense_at]);
            }
        }
        Seen {
            lasted,
            counts,
            times,
        }
    }

    fn sample(&self, controller: &mut Controller) {
        for (class, made) in [
            (Class::Ordinary, self.of_ordinary),
            (Class::Dense, self.of_dense),
        ] {
            for (codec, made) in CODECS
                .into_iter()
                .zip(made)
                .filter(|(codec, _)| *codec != Codec::None)
            {
                let bytes = SAMPLE_BYTES as f64;
                controller.tried(&Tried {
                    class,
                    codec,
                    bytes: bytes as u64,
                    packed: (bytes * made.ratio) as u64,
                    took: Duration::from_secs_f64(bytes * made.seconds),
                });
            }
        }
    }

    /// Lets so much time go by; what crossed of what could have crossed.
    fn run(&self, controller: &mut Controller, lasts: Duration) -> f64 {
        let (mut crossed, mut at) = (0.0, Duration::ZERO);
        while at < lasts {
            if at.as_millis().is_multiple_of(SAMPLED_EVERY.as_millis()) {
                self.sample(controller);
            }
            let seen = self.seen(controller.way(), DECIDED_EVERY);
            crossed += seen.counts.raw as f64;
            controller.seen(&seen);
            at += DECIDED_EVERY;
        }
        crossed / lasts.as_secs_f64() / self.best()
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

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

/// A guest that comes back: nearly all of it is there, and the destination reads it slower than it is described.
fn homecoming() -> World {
    World {
        line: 0.4 * GIGABIT,
        destination: 0.8 * GIGABIT,
        destination_passed: 0.8 * GIGABIT,
        ordinary: 0.02,
        dense: 0.0,
        // With a digest of each page.
        describing: 0.8 / 1024.0 / MIB,
        ..world()
    }
}

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

/// Whether a codec is in use.
fn packs(controller: &Controller) -> bool {
    matches!(controller.way(), Way::On { codec, .. } if codec != Codec::None)
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
