use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const RATE: u64 = 100;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// `carried` and `remaining` in MiB; every page was carried whole.
fn sample(millis: u64, carried: u64, remaining: u64) -> Sample {
    Sample {
        at: Duration::from_millis(millis),
        copied_for: Duration::from_millis(millis),
        transferred: Bytes(carried * MIB),
        whole: Bytes(carried * MIB),
        remaining: Bytes(remaining * MIB),
        round: 1,
        ..Sample::default()
    }
}

fn known(dirtied: &[(u64, u64)]) -> Vec<(Duration, Bytes)> {
    let point = |(time, bytes): &(u64, u64)| (seconds(*time), Bytes(bytes * MIB));
    dirtied.iter().map(point).collect()
}

fn after(known: Vec<(Duration, Bytes)>, samples: &[Sample]) -> Estimate {
    let mut estimator = Estimator::new(&Convergence::defaults(), known);
    samples.iter().for_each(|sample| estimator.add(*sample));
    estimator.estimate()
}

fn expected(estimate: Estimate) -> Duration {
    match estimate.time_left {
        TimeLeft::About { expected, .. } => expected - HAND_OFF,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_quiet_guest_ends_when_the_rest_is_carried() {
    let seen = after(known(&[]), &[sample(0, 0, 1000), sample(1000, RATE, 900)]);
    assert_eq!(seen.rate, ByteRate(RATE * MIB));
    assert_eq!(expected(seen), seconds(9));
}

#[test]
fn one_look_is_enough_in_the_first_round_since_nothing_was_carried_before_it() {
    let first = Sample {
        at: seconds(5),
        ..sample(1000, RATE, 900)
    };
    let seen = after(known(&[]), &[first]);
    assert_eq!(seen.rate, ByteRate(RATE * MIB));
    assert_eq!(expected(seen), seconds(9));
    let second = Sample { round: 2, ..first };
    assert_eq!(after(known(&[]), &[second]).time_left, TimeLeft::Unknown);
}

#[test]
fn the_beginning_of_the_first_round_is_no_round_that_the_guest_dirtied() {
    let before = Sample {
        round: 0,
        ..sample(900, 0, 0)
    };
    let seen = after(known(&[]), &[before, sample(1000, RATE, 900)]);
    assert_eq!(expected(seen), seconds(9));
}

#[test]
fn an_agent_that_is_started_again_reckons_with_what_it_sees_itself() {
    let at = |millis: u64, sample: Sample| Sample {
        at: Duration::from_millis(millis),
        ..sample
    };
    let first = at(500, sample(100_000, 100 * RATE, 900));
    let next = at(1_500, sample(101_000, 101 * RATE, 800));
    let seen = after(known(&[]), &[first]);
    assert_eq!(
        (seen.rate, seen.time_left),
        (ByteRate(0), TimeLeft::Unknown)
    );
    let seen = after(known(&[]), &[first, next]);
    assert_eq!(seen.rate, ByteRate(RATE * MIB));
    assert_eq!(expected(seen), seconds(8));
    // How long a round took whose beginning was not seen is not known.
    let second = |sample: Sample| Sample { round: 2, ..sample };
    let third = at(2_000, sample(101_500, 101 * RATE + RATE / 2, 400));
    let mut estimator = Estimator::new(&Convergence::defaults(), known(&[(10, 0)]));
    let looks = [second(first), second(next), Sample { round: 3, ..third }];
    looks.into_iter().for_each(|look| estimator.add(look));
    assert_eq!(expected(estimator.estimate()), seconds(4));
}

/// Just now.
fn sampled(estimator: &mut Estimator, point: (u64, u64)) {
    for (time, dirtied) in known(&[point]) {
        estimator.sampled(time, dirtied);
    }
}

#[test]
fn a_guest_that_may_stand_still_for_the_rest_ends_with_it() {
    let off = Convergence {
        throttle: Some(drover_types::Throttle::Off),
        ..Convergence::defaults()
    };
    let mut estimator = Estimator::new(&off, known(&[]));
    estimator.add(sample(0, 0, 1000));
    sampled(&mut estimator, (1, 200));
    estimator.add(sample(1000, RATE, 900));
    assert_eq!(estimator.estimate().time_left, TimeLeft::Never);
    estimator.may_stop_for(seconds(2000));
    assert_eq!(expected(estimator.estimate()), seconds(9));
}

#[test]
fn a_guest_that_goes_on_by_postcopy_ends_with_the_rest_of_its_deadline() {
    let off = Convergence {
        throttle: Some(drover_types::Throttle::Off),
        ..Convergence::defaults()
    };
    let mut estimator = Estimator::new(&off, known(&[]));
    estimator.add(sample(0, 0, 1000));
    sampled(&mut estimator, (1, 200));
    sampled(&mut estimator, (4, 800));
    estimator.add(sample(1000, RATE, 900));
    assert_eq!(estimator.estimate().time_left, TimeLeft::Never);
    // In four more seconds 400 are carried; 500 are left, and 5 x 200 written since the round began.
    estimator.goes_on_by_postcopy(seconds(5));
    assert_eq!(expected(estimator.estimate()), seconds(4 + 15));
    estimator.follows();
    let following = expected(estimator.estimate()) + HAND_OFF;
    assert_eq!(
        following,
        seconds(9),
        "nothing is written again, nor handed off"
    );
}

#[test]
fn a_guest_that_ends_before_its_deadline_does_so_whatever_is_done_then() {
    let mut estimator = Estimator::new(&Convergence::defaults(), known(&[]));
    estimator.goes_on_by_postcopy(seconds(11));
    estimator.add(sample(0, 0, 1000));
    estimator.add(sample(1000, RATE, 900));
    assert_eq!(expected(estimator.estimate()), seconds(9));
}

#[test]
fn what_the_guest_dirties_until_the_end_of_the_round_is_carried_after_it() {
    // In ten seconds 100 MiB, in their second 10.
    let seen = after(
        known(&[(1, 10), (4, 40)]),
        &[sample(0, 0, 1000), sample(1000, RATE, 900)],
    );
    assert_eq!(expected(seen), Duration::from_millis(10_100));
    // From a second alone it is not known whether these are always the same pages.
    let seen = after(
        known(&[(1, 10)]),
        &[sample(0, 0, 1000), sample(1000, RATE, 900)],
    );
    assert_eq!(expected(seen), Duration::from_millis(9_605));
    // No more than its working set.
    let seen = after(
        known(&[(1, 10), (4, 10)]),
        &[sample(0, 0, 1000), sample(1000, RATE, 900)],
    );
    assert_eq!(expected(seen), Duration::from_millis(9_100));
}

#[test]
fn what_is_known_to_be_zero_costs_next_to_nothing() {
    let mut estimator = Estimator::new(&Convergence::defaults(), known(&[]));
    estimator.memory_holds(Bytes(500 * MIB));
    estimator.add(sample(0, 0, 1000));
    estimator.add(sample(1000, RATE, 900));
    let left = expected(estimator.estimate());
    assert!(
        left > seconds(4) && left < Duration::from_millis(4_600),
        "{left:?}"
    );
}

#[test]
fn time_that_went_to_zero_pages_is_not_taken_for_a_slow_line() {
    let zero = |sample: Sample, zero: u64| Sample {
        zero: Bytes(zero * MIB),
        ..sample
    };
    let looked_at = ZERO_PAGES.0 / MIB;
    let seen = after(
        known(&[]),
        &[
            zero(sample(0, 0, 1000 + looked_at), 0),
            zero(sample(2000, RATE, 900), looked_at),
        ],
    );
    assert_eq!(seen.rate, ByteRate(RATE * MIB / 2));
    assert_eq!(expected(seen), seconds(9));
}

#[test]
fn what_is_sampled_in_the_first_round_counts_for_more_than_what_was_known_before() {
    let mut estimator = Estimator::new(&Convergence::defaults(), known(&[(1, 90), (4, 300)]));
    let first = [sample(0, 0, 1000), sample(1000, RATE, 900)];
    first.iter().for_each(|sample| estimator.add(*sample));
    estimator.sampled(seconds(1), Bytes(10 * MIB));
    estimator.sampled(seconds(4), Bytes(10 * MIB));
    assert_eq!(expected(estimator.estimate()), Duration::from_millis(9_100));
    estimator.add(Sample {
        round: 2,
        ..sample(10_000, 1000, 50)
    });
    estimator.sampled(seconds(10), Bytes(900 * MIB));
    assert_eq!(
        expected(estimator.estimate()),
        Duration::from_millis(500 + 50)
    );
}

#[test]
fn a_round_that_was_seen_counts_for_more_than_what_was_known_before() {
    let second = Sample {
        round: 2,
        ..sample(10_000, 1000, 50)
    };
    let mut rounds: Vec<Sample> = (0..10)
        .map(|second| sample(second * 1000, second * RATE, 1000 - second * RATE))
        .collect();
    rounds.push(second);
    let seen = after(known(&[(10, 900)]), &rounds);
    // 50 MiB now; in that half second 2.5, which fit.
    assert_eq!(expected(seen), Duration::from_millis(525));
}

#[test]
fn a_guest_that_dirties_as_fast_never_ends_unless_it_is_slowed_down() {
    let samples = [sample(0, 0, 1000), sample(1000, RATE, 900)];
    let busy = known(&[(1, 120)]);
    assert!(matches!(
        after(busy.clone(), &samples).time_left,
        TimeLeft::About { .. }
    ));
    let off = Convergence {
        throttle: Some(drover_types::Throttle::Off),
        ..Convergence::defaults()
    };
    let mut estimator = Estimator::new(&off, busy);
    samples.iter().for_each(|sample| estimator.add(*sample));
    let before = estimator.estimate().time_left;
    assert_eq!(before, TimeLeft::Unknown, "it may have done that no longer");
    sampled(&mut estimator, (1, 120));
    assert_eq!(estimator.estimate().time_left, TimeLeft::Never);
}

#[test]
fn the_range_has_what_is_expected_in_it_and_no_end_where_there_may_be_none() {
    let samples = [sample(0, 0, 1000), sample(1000, RATE, 900)];
    let off = Convergence {
        throttle: Some(drover_types::Throttle::Off),
        ..Convergence::defaults()
    };
    let mut estimator = Estimator::new(&off, known(&[(1, 60)]));
    samples.iter().for_each(|sample| estimator.add(*sample));
    let TimeLeft::About {
        expected,
        least,
        most,
    } = estimator.estimate().time_left
    else {
        panic!("{estimator:?}");
    };
    assert!(least < expected, "{least:?} {expected:?}");
    assert_eq!(most, None, "twice as much is never carried");
}

#[test]
fn nothing_is_predicted_from_one_look_or_from_standstill() {
    let one = after(known(&[]), &[sample(0, 0, 1000)]);
    assert_eq!(one.time_left, TimeLeft::Unknown);
    let stalled = [sample(0, 5, 1000), sample(9000, 5, 1000)];
    assert_eq!(after(known(&[]), &stalled).time_left, TimeLeft::Unknown);
}

#[test]
fn the_rate_follows_a_lost_path_within_the_window() {
    let mut estimator = Estimator::new(&Convergence::defaults(), known(&[]));
    for second in 0..20 {
        estimator.add(sample(second * 1000, second * 200, 9000));
    }
    for second in 20..26 {
        estimator.add(sample(second * 1000, 3800 + (second - 19) * 100, 9000));
    }
    assert_eq!(estimator.estimate().rate, ByteRate(100 * MIB));
}

proptest! {
    #[test]
    fn any_samples_are_estimated_without_panic_and_within_bounds(
        samples in prop::collection::vec(any::<(u32, [u64; 4], u8, u64, (u8, u32))>(), 0..60),
        dirtied in prop::collection::vec(any::<(u32, u64)>(), 0..4),
        whole in any::<Option<u64>>(),
    ) {
        let point = |(millis, bytes): (u32, u64)| (Duration::from_millis(millis.into()), Bytes(bytes));
        let dirtied = dirtied.into_iter().map(point).collect();
        let mut estimator = Estimator::new(&Convergence::defaults(), dirtied);
        whole.into_iter().for_each(|whole| estimator.memory_holds(Bytes(whole)));
        for (at, [transferred, remaining, whole, zero], round, dirty_rate, (throttle, copied)) in samples {
            estimator.add(Sample {
                at: Duration::from_millis(u64::from(at)),
                copied_for: Duration::from_millis(u64::from(copied)),
                transferred: Bytes(transferred),
                remaining: Bytes(remaining),
                whole: Bytes(whole),
                zero: Bytes(zero),
                round: round.into(),
                dirty_rate: ByteRate(dirty_rate),
                throttle,
            });
            prop_assert!(estimator.samples.len() <= SAMPLES);
            if let TimeLeft::About { expected, least, most } = estimator.estimate().time_left {
                prop_assert!(least <= expected && expected <= FARTHEST);
                prop_assert!(most.is_none_or(|most| most >= expected));
            }
        }
    }
}
