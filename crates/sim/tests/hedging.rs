//! What is sent a second time because it is late: little, unless a lane fails.

use std::time::Duration;

use drover_session::End;
use drover_session::limits::SUSPECT_AFTER_MIN;
use drover_sim::streams::{CALM, Faults, Line, Report, Shape, run_shaped};

const CHUNK: u32 = 128 << 10;
const MEGABYTE: u64 = 1 << 20;

/// Four channels of pages over these lines, with the windows that a relay would choose.
fn shape(lines: Vec<Line>, bytes: u64) -> Shape {
    let rates = lines.iter().map(|line| 1_000_000_000 / line.nanos_per_byte);
    let in_fifty_milliseconds = rates.sum::<u64>() / 20;
    let window = (in_fifty_milliseconds / 5 / u64::from(CHUNK)).max(4);
    Shape {
        channels: 5,
        main_bytes: MEGABYTE / 4..=MEGABYTE / 2,
        bulk_bytes: bytes / 4..=bytes / 4,
        chunk_bytes: CHUNK,
        window: window as u16,
        lanes: lines.len() as u64,
        lines,
        stall: Duration::ZERO,
    }
}

/// The part of what QEMU wrote that was sent twice, in per mille.
fn resent(shape: &Shape, faults: Faults) -> u64 {
    let (mut resent, mut read) = (0, 0);
    for seed in 0..2 {
        let report = run(seed, shape, faults);
        resent += report.resent;
        let bytes = report.read.values().map(|bytes| bytes.len() as u64);
        read += bytes.sum::<u64>();
    }
    resent * 1000 / read
}

fn run(seed: u64, shape: &Shape, faults: Faults) -> Report {
    let report = run_shaped(seed, shape.clone(), faults);
    assert_eq!(report.source, Some(End::Finished), "seed {seed}");
    assert_eq!(report.destination, Some(End::Finished), "seed {seed}");
    report
}

fn slow_lines(burst_bytes: u64) -> Vec<Line> {
    let line = Line::megabits(100);
    vec![
        Line {
            burst_bytes,
            ..line
        };
        32
    ]
}

#[test]
fn over_many_slow_lines_that_lose_nothing_next_to_nothing_is_sent_twice() {
    for burst_bytes in [0, MEGABYTE / 2] {
        let calm = shape(slow_lines(burst_bytes), 48 * MEGABYTE);
        let resent = resent(&calm, CALM);
        assert_eq!(resent, 0, "bursts of {burst_bytes} bytes");
    }
}

#[test]
fn hosts_that_do_not_run_their_threads_at_once_make_little_be_sent_twice() {
    let shape = shape(slow_lines(MEGABYTE / 2), 48 * MEGABYTE);
    let stall = Duration::from_millis(20);
    let resent = resent(&Shape { stall, ..shape }, CALM);
    assert!(resent < 10, "{resent} per mille");
}

#[test]
fn over_unequal_lines_that_lose_nothing_little_is_sent_twice() {
    let lines = [1000, 500, 200, 100].map(Line::megabits).to_vec();
    let resent = resent(&shape(lines, 32 * MEGABYTE), CALM);
    assert!(resent < 10, "{resent} per mille");
}

#[test]
fn a_lane_that_falls_silent_costs_less_than_the_time_until_it_is_suspected() {
    let lines = vec![Line::megabits(1000); 4];
    let left = run(0, &shape(lines[1..].to_vec(), 32 * MEGABYTE), CALM).elapsed;
    let shape = shape(lines, 32 * MEGABYTE);
    let silent = Faults {
        lanes_silent: 1,
        ..CALM
    };
    let mut hedged = 0;
    for seed in 0..10 {
        let report = run(seed, &shape, silent);
        let took = report.elapsed;
        assert!(
            took < left + SUSPECT_AFTER_MIN,
            "seed {seed}: {took:?}, {left:?} without it"
        );
        hedged += report.hedged;
    }
    assert!(hedged > 10, "{hedged}");
}
