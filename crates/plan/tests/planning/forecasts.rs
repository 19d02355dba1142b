//! What a migration is expected to carry and to take.

use drover_plan::inventory::{CopyDeadline, Vm, VmState};
use drover_plan::precopy::{Convergence, Forecast, forecast};
use drover_types::{AtDeadline, ByteRate, Bytes};
use proptest::prelude::*;

use crate::build::{GIB, vm};

const TEN_GBIT: u64 = 10_000_000_000;

fn guest(dirty_mib: u64) -> Vm {
    let mut vm = vm("a", "h", 8);
    vm.dirty_rate = Some(ByteRate(dirty_mib << 20));
    vm
}

fn expected(vm: &Vm) -> Forecast {
    forecast(vm, TEN_GBIT)
}

#[test]
fn a_guest_that_writes_nothing_is_carried_once_and_stops_for_what_fits_its_limit() {
    let quiet = expected(&guest(0));
    assert_eq!(quiet.bytes.least, 8 * GIB);
    assert_eq!(quiet.bytes.most, 8 * GIB);
    // 8 GiB over 95 % of 10 Gbit/s is 7.23 s; beside it half a second to prepare, and 60 ms to hand off.
    assert!((7_780..7_810).contains(&quiet.ms.expected), "{quiet:?}");
    assert_eq!(quiet.downtime_ms.expected, 60);
    assert_eq!(quiet.convergence, Convergence::ByItself);
}

#[test]
fn a_paused_guest_writes_nothing_whatever_was_sampled() {
    let mut paused = guest(5_000);
    paused.state = VmState::Paused;
    assert_eq!(expected(&paused).bytes.most, 8 * GIB);
}

#[test]
fn what_is_dirtied_meanwhile_is_carried_again_and_no_more_than_the_working_set_each_round() {
    // A quarter of the rate is dirtied: 8 GiB, 2, 0.5, then what is left fits 300 ms of the line.
    let mut busy = guest(1_133 / 4);
    let all = expected(&busy).bytes.expected;
    assert!((10 * GIB..11 * GIB).contains(&all), "{all}");
    busy.working_set = Some(Bytes(GIB));
    let less = expected(&busy).bytes.expected;
    assert!((9 * GIB..all - GIB / 2).contains(&less), "{less}");
}

#[test]
fn a_guest_that_writes_faster_than_the_line_is_slowed_down_and_says_so() {
    let fast = expected(&guest(3_000));
    assert_eq!(fast.convergence, Convergence::Throttled);
    assert!(fast.bytes.expected > 16 * GIB, "{fast:?}");
    assert!(fast.downtime_ms.most <= 360, "{fast:?}");
}

#[test]
fn a_guest_that_no_throttle_brings_below_its_limit_is_told_to_be_beyond_it() {
    let mut never = guest(200_000);
    never.downtime_limit_ms = 0;
    assert_eq!(expected(&never).convergence, Convergence::BeyondLimit);
}

#[test]
fn a_guest_whose_deadline_passes_before_is_told_to_be_given_up_or_stopped() {
    // It takes 8 GiB over 95 % of 10 Gbit/s: 7.23 s.
    let by = |seconds: i64, then| {
        let mut vm = guest(0);
        let seconds = seconds.try_into().unwrap();
        vm.deadline = Some(CopyDeadline { seconds, then });
        expected(&vm)
    };
    let in_time = by(8, AtDeadline::GiveUp);
    assert_eq!(in_time.convergence, Convergence::ByItself);
    let given_up = by(3, AtDeadline::GiveUp);
    assert_eq!(given_up.convergence, Convergence::GivenUp);
    assert!(given_up.bytes.expected < 4 * GIB, "{given_up:?}");
    assert!(given_up.ms.expected < 5_000, "{given_up:?}");
    let stopped = by(3, AtDeadline::StopAndCopy);
    assert_eq!(stopped.convergence, Convergence::StoppedForTheRest);
    // What is left at the deadline is carried while it stands still.
    let least = 7_230 - 3_000;
    assert!(
        (least..least + 100).contains(&stopped.downtime_ms.expected),
        "{stopped:?}"
    );
    assert!(stopped.ms.expected <= in_time.ms.expected + 100);
}

#[test]
fn a_guest_that_goes_on_by_postcopy_stops_for_the_hand_off_only_and_its_pages_follow() {
    let mut vm = guest(5_000);
    vm.throttle_most = None;
    vm.deadline = Some(CopyDeadline {
        seconds: 20.try_into().unwrap(),
        then: AtDeadline::Postcopy,
    });
    let never = expected(&vm);
    assert_eq!(never.convergence, Convergence::ByPostcopy);
    assert_eq!(never.downtime_ms.most, 60);
    // Until the deadline all of the line is used, and what then follows is no more than the guest's 8 GiB: 7.23 s.
    assert!((20_560..27_800).contains(&never.ms.expected), "{never:?}");
    let line = TEN_GBIT * 95 / 800 * 20;
    let bytes = never.bytes.expected;
    // A page more, since rounds are of whole microseconds.
    let most = line + 8 * GIB + 4096;
    assert!((line..=most).contains(&bytes), "{never:?}");

    let mut quiet = vm;
    quiet.dirty_rate = Some(ByteRate(0));
    let quiet = expected(&quiet);
    assert_eq!(quiet.convergence, Convergence::ByItself, "it ends before");
}

#[test]
fn a_guest_that_was_not_sampled_has_a_wider_range_than_one_that_was() {
    let width = |vm: &Vm| {
        let bytes = expected(vm).bytes;
        bytes.most - bytes.least
    };
    let mut unknown = guest(0);
    unknown.dirty_rate = None;
    assert!(width(&unknown) > 2 * width(&guest(100)));
}

proptest! {
    #[test]
    fn any_facts_have_a_forecast_with_its_ends_in_order(
        memory in 0..1_u64 << 60,
        used in any::<u64>(),
        dirty in any::<Option<u64>>(),
        set in any::<Option<u64>>(),
        limit in any::<u64>(),
        line in any::<u64>(),
    ) {
        let mut any = guest(0);
        any.memory = Bytes(memory);
        any.memory_used = Bytes(used.min(memory));
        any.dirty_rate = dirty.map(ByteRate);
        any.working_set = set.map(Bytes);
        any.downtime_limit_ms = limit;
        let forecast = forecast(&any, line);
        for range in [forecast.bytes, forecast.ms, forecast.downtime_ms] {
            prop_assert!(range.least <= range.expected && range.expected <= range.most);
        }
        prop_assert!(forecast.bytes.least >= any.memory_used.0);
        prop_assert!(forecast.ms.most <= 7 * 24 * 3600 * 1000);
    }
}
