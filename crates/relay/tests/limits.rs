//! Limits hold over any second of a real transfer, and follow when they are changed.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{LaneListener, Order, Relay, Security, Settings, Sizes, open_lanes};
use drover_types::{ByteRate, MigrationId, Path, PathEnd, PathId};
use drover_wire::{ByeCode, Token};

/// As sessions over two links of 1 Gbit/s have them.
const SETTINGS: Settings = Settings {
    sizes: Sizes {
        chunk_bytes: 256 << 10,
        window: 16,
    },
    channels_max: 2,
    outage_limit: Duration::ZERO,
    pass_through: true,
    verify: false,
    reduction: None,
};
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks at what has arrived.
const TICK: Duration = Duration::from_millis(20);
/// Until a change of a limit shows at the far end: what is on its way arrives first.
const SETTLE: Duration = Duration::from_millis(300);

fn path(number: u16) -> Path {
    let end = || PathEnd {
        interface: "lo".into(),
        address: Ipv4Addr::LOCALHOST.into(),
    };
    Path {
        id: PathId(number),
        source: end(),
        destination: end(),
        rate: None,
        mtu: 65536,
    }
}

/// The least and most that arrived in any second of `time`.
fn seconds(arrived: &AtomicU64, time: Duration) -> (u64, u64) {
    let begun = Instant::now();
    let mut looks: Vec<(Instant, u64)> = Vec::new();
    while begun.elapsed() < time {
        looks.push((Instant::now(), arrived.load(Ordering::Acquire)));
        thread::sleep(TICK); // a rate is measured over time
    }
    let mut sums = Vec::new();
    for (at, (from, before)) in looks.iter().enumerate() {
        let second = looks[at..].iter().find(|(to, _)| *to - *from >= SECOND);
        if let Some((to, after)) = second {
            let nanos = (*to - *from).as_nanos();
            let sum = u128::from(after - before) * 1_000_000_000 / nanos;
            sums.push(u64::try_from(sum).unwrap());
        }
    }
    (*sums.iter().min().unwrap(), *sums.iter().max().unwrap())
}

#[test]
fn limits_of_a_session_and_of_paths_hold_over_any_second_and_follow_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (near, far) = (directory.path().join("near"), directory.path().join("far"));
    let source = Relay::source(SETTINGS, &near, |_| {}).unwrap();
    let destination = Arc::new(Relay::destination(SETTINGS, &far, |_| {}).unwrap());
    let (id, token) = (MigrationId::from_bytes([3; 16]), Token([7; 32]));
    let listener = LaneListener::hold(0).unwrap();
    let expected = listener.expect(id, token.clone(), Security::Plain, &destination);
    assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
    let far = UnixListener::bind(&far).unwrap();
    let opened = open_lanes(&Order {
        migration: id,
        token,
        security: Security::Plain,
        port: listener.port(),
        paths: vec![path(0), path(1)],
        lanes_per_path: 2,
        lanes_most: 0,
    });
    for (plan, lane) in opened.lanes {
        source.add_lane(plan.lane, plan.path, lane).unwrap();
    }
    // The main channel is never held up; pages go over the other one.
    let _main = (UnixStream::connect(&near).unwrap(), far.accept().unwrap());
    let mut pages = UnixStream::connect(&near).unwrap();
    let mut there = far.accept().unwrap().0;
    let arrived = Arc::new(AtomicU64::new(0));
    let counted = arrived.clone();
    thread::spawn(move || while pages.write_all(&[7; 64 << 10]).is_ok() {});
    thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(read @ 1..) = there.read(&mut buffer) {
            counted.fetch_add(read as u64, Ordering::AcqRel);
        }
    });
    let holds = |what: &str, rate: u64| {
        thread::sleep(SETTLE);
        let (least, most) = seconds(&arrived, SECOND * 5 / 2);
        let share = |bytes: u64| bytes as f64 / rate as f64;
        eprintln!(
            "{what}: {:.3} to {:.3} of {rate}",
            share(least),
            share(most)
        );
        assert!(
            share(most) <= 1.05,
            "{what}: {most} in a second, limit {rate}"
        );
        // A busy machine may not give the relays what they need for all of it.
        assert!(
            share(least) >= 0.85,
            "{what}: {least} in a second, limit {rate}"
        );
    };
    source.limit(None, Some(ByteRate(25_000_000)));
    holds("the session", 25_000_000);
    source.limit(None, Some(ByteRate(12_500_000)));
    holds("the session, halved", 12_500_000);
    source.limit(None, None);
    source.limit(Some(PathId(0)), Some(ByteRate(10_000_000)));
    source.limit(Some(PathId(1)), Some(ByteRate(5_000_000)));
    let by_path = || {
        let report = source.report();
        [0, 1].map(|number| {
            let on_it = report.lanes.iter().filter(|l| l.path == PathId(number));
            on_it.map(|lane| lane.stats.receipted_bytes).sum::<u64>()
        })
    };
    let before = by_path();
    holds("two paths", 15_000_000);
    let after = by_path();
    let [first, second] = [0, 1].map(|at| after[at] - before[at]);
    assert!(
        first * 10 / second >= 15,
        "{first} and {second}, limits 2 to 1"
    );
    source.close(ByeCode::Aborted);
}
