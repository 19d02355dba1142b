//! Sessions under random interleavings, delays, lane deaths and duplicate delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_session::End;
use drover_sim::streams::{CALM, Faults, Report, Side, run};

/// Runs per test; `DROVER_SIM_SEEDS` asks for more.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("DROVER_SIM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    0..count.unwrap_or(2000)
}

fn without_empty(map: &BTreeMap<(Side, u16), Vec<u8>>) -> BTreeMap<(Side, u16), Vec<u8>> {
    map.iter()
        .filter(|(_, bytes)| !bytes.is_empty())
        .map(|(k, v)| (*k, v.clone()))
        .collect()
}

fn assert_everything_arrived(seed: u64, report: &Report) {
    assert_eq!(report.source, Some(End::Finished), "seed {seed}");
    assert_eq!(report.destination, Some(End::Finished), "seed {seed}");
    let crossed: BTreeMap<_, _> = report
        .read
        .iter()
        .map(|((side, c), bytes)| ((side.peer(), *c), bytes.clone()))
        .collect();
    assert!(
        without_empty(&crossed) == without_empty(&report.written),
        "seed {seed}: bytes differ"
    );
    assert_eq!(
        report.buffers_held, 0,
        "seed {seed}: buffers were not given back"
    );
    let (used, allowed) = (report.buffers, report.buffers_allowed);
    assert!(used <= allowed, "seed {seed}: {used} buffers of {allowed}");
}

/// What was written is a prefix of what was read, whatever happened.
fn assert_nothing_was_made_up(seed: u64, report: &Report) {
    for ((side, channel), written) in &report.written {
        let read = report
            .read
            .get(&(side.peer(), *channel))
            .cloned()
            .unwrap_or_default();
        assert!(
            read.starts_with(written),
            "seed {seed}: channel {channel} at {side:?}"
        );
    }
}

#[test]
fn every_byte_arrives_in_order_over_lanes_of_any_speed() {
    let (mut resent, mut read) = (0, 0);
    for seed in seeds() {
        let report = run(seed, CALM);
        assert_everything_arrived(seed, &report);
        resent += report.resent;
        read += report
            .read
            .values()
            .map(|bytes| bytes.len() as u64)
            .sum::<u64>();
    }
    // Nothing was lost, so that only what was late on a slow lane is sent again.
    assert!(
        resent * 20 < read,
        "{resent} of {read} bytes were sent twice"
    );
}

#[test]
fn every_byte_arrives_once_though_lanes_die_and_return() {
    let faults = Faults {
        lane_deaths: 12,
        lanes_return: true,
        ..CALM
    };
    let (mut deaths, mut resent, mut duplicates) = (0, 0, 0);
    for seed in seeds() {
        let report = run(seed, faults);
        assert_everything_arrived(seed, &report);
        deaths += report.deaths;
        resent += report.resent;
        duplicates += report.duplicates;
    }
    assert!(
        deaths > 1000 && resent > 1000 && duplicates > 100,
        "{deaths} {resent} {duplicates}"
    );
}

#[test]
fn every_byte_arrives_once_though_lanes_fall_silent_slow_down_and_retire() {
    let faults = Faults {
        lanes_silent: 6,
        lanes_slow: 3,
        lanes_retire: 4,
        lane_deaths: 2,
        lanes_return: true,
        outage_limit: Duration::from_secs(60),
        ..CALM
    };
    let (mut deaths, mut dropped, mut hedged, mut retired) = (0, 0, 0, 0);
    for seed in seeds() {
        let report = run(seed, faults);
        assert_everything_arrived(seed, &report);
        deaths += report.deaths;
        dropped += report.dropped;
        hedged += report.hedged;
        retired += report.retired;
    }
    assert!(
        deaths > 1000 && dropped > 1000 && hedged > 250 && retired > 1000,
        "{deaths} {dropped} {hedged} {retired}"
    );
}

#[test]
fn a_session_whose_lanes_all_fall_silent_ends_at_the_outage_limit() {
    let faults = Faults {
        lanes_silent: 40,
        ..CALM
    };
    let mut lost = 0;
    for seed in seeds() {
        let report = run(seed, faults);
        assert_nothing_was_made_up(seed, &report);
        for end in [report.source, report.destination] {
            let ends = matches!(end, Some(End::Finished | End::LanesLost));
            assert!(ends, "seed {seed}: {end:?}");
            lost += u32::from(end == Some(End::LanesLost));
        }
    }
    assert!(lost > 500, "{lost}");
}

#[test]
fn when_no_lane_is_left_the_session_ends_and_nothing_is_made_up() {
    let faults = Faults {
        lane_deaths: 40,
        ..CALM
    };
    let mut lost = 0;
    for seed in seeds() {
        let report = run(seed, faults);
        assert_nothing_was_made_up(seed, &report);
        for end in [report.source, report.destination] {
            assert!(
                matches!(end, Some(End::Finished | End::LanesLost)),
                "seed {seed}: {end:?}"
            );
            lost += u32::from(end == Some(End::LanesLost));
        }
    }
    assert!(lost > 500, "{lost}");
}

#[test]
fn a_socket_that_breaks_is_broken_at_the_other_end_and_the_session_ends() {
    let faults = Faults {
        lane_deaths: 4,
        lanes_return: true,
        local_breaks: true,
        ..CALM
    };
    let mut broken = 0;
    for seed in seeds() {
        let report = run(seed, faults);
        assert_nothing_was_made_up(seed, &report);
        assert_eq!(report.source, Some(End::Finished), "seed {seed}");
        assert_eq!(report.destination, Some(End::Finished), "seed {seed}");
        assert_eq!(report.buffers_held, 0, "seed {seed}");
        for (side, channel) in &report.broken {
            assert!(
                report.broken.contains(&(side.peer(), *channel)),
                "seed {seed}: one end only"
            );
        }
        broken += report.broken.len();
    }
    assert!(broken > 100, "{broken}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let faults = Faults {
        lane_deaths: 12,
        lanes_return: true,
        local_breaks: true,
        ..CALM
    };
    for seed in 0..20 {
        assert_eq!(run(seed, faults), run(seed, faults));
    }
}
