//! Which lane carries what: by what each of them was seen to do, and the main channel first.

use std::time::Duration;

use drover_session::{End, LaneId};
use drover_sim::streams::{CALM, Faults, Handed, Line, Report, Shape, run_shaped};

const MEGABYTE: u64 = 1 << 20;

/// Four channels of pages over lines of these rates, in Mbit/s.
fn run(seed: u64, rates: &[u64], window: u16, bytes: u64, faults: Faults) -> Report {
    let lines: Vec<Line> = rates.iter().map(|&rate| Line::megabits(rate)).collect();
    let shape = Shape {
        channels: 5,
        main_bytes: MEGABYTE..=MEGABYTE,
        bulk_bytes: bytes / 4..=bytes / 4,
        chunk_bytes: 128 << 10,
        window,
        lanes: lines.len() as u64,
        lines,
        stall: Duration::ZERO,
    };
    let report = run_shaped(seed, shape, faults);
    assert_eq!(report.source, Some(End::Finished), "seed {seed}");
    report
}

/// Bytes that a lane was given in this time.
fn given(report: &Report, lane: LaneId, from: Duration, to: Duration) -> u64 {
    let of_it = |handed: &&Handed| handed.lane == lane && (from..to).contains(&handed.at);
    report
        .handed
        .iter()
        .filter(of_it)
        .map(|handed| u64::from(handed.bytes))
        .sum()
}

#[test]
fn a_lane_that_slows_down_is_given_less_within_a_fifth_of_a_second() {
    let slow = Faults {
        lanes_slow: 1,
        ..CALM
    };
    for seed in 0..5 {
        let report = run(seed, &[1000, 1000], 24, 96 * MEGABYTE, slow);
        let (at, lane) = report.slowed[0];
        let since = at + Duration::from_millis(200);
        let given = given(&report, lane, since, since + Duration::from_millis(100));
        // A tenth of 1 Gbit/s, for a tenth of a second.
        let carries = 1_250_000;
        assert!(given < carries * 3 / 2, "seed {seed}: {given} bytes");
        assert!(given > carries / 2, "seed {seed}: {given} bytes");
    }
}

#[test]
fn the_main_channel_overtakes_what_waits_of_the_others() {
    for seed in 0..5 {
        let report = run(seed, &[1000, 500], 24, 32 * MEGABYTE, CALM);
        // 256 KiB in the slower line's socket are 4 ms, a chunk there is 2 ms: what waits of the others,
        // 20 ms of the lines and more, is passed by.
        let took = report.main_delay;
        assert!(took < Duration::from_millis(12), "seed {seed}: {took:?}");
    }
}

#[test]
fn a_lane_stays_with_a_channel_for_a_while_where_chunks_wait() {
    for seed in 0..5 {
        let report = run(seed, &[1000; 4], 96, 32 * MEGABYTE, CALM);
        let (mut stayed, mut all) = (0, 0);
        for lane in 0..4 {
            let of_it: Vec<_> = report
                .handed
                .iter()
                .filter(|h| h.lane == lane && h.channel > 0)
                .collect();
            stayed += of_it
                .windows(2)
                .filter(|two| two[0].channel == two[1].channel)
                .count();
            all += of_it.len() - 1;
        }
        assert!(stayed * 10 > all * 6, "seed {seed}: {stayed} of {all}");
    }
}
