//! Lanes that are lost in the middle of a session and come back, over real sockets on loopback.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod network;
mod pair;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::ops::RangeInclusive;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{
    End, Event, Expected, LaneHealth, LaneListener, Order, PathState, Relay, Settings, Sizes,
    open_lanes,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};
use network::Network;
use pair::{Protected, TOKEN};

const PATIENCE: Duration = Duration::from_secs(20);
const LANES_PER_PATH: u16 = 2;

fn id() -> MigrationId {
    MigrationId::from_bytes([3; 16])
}

fn end() -> PathEnd {
    PathEnd {
        interface: "lo".into(),
        address: Ipv4Addr::LOCALHOST.into(),
    }
}

fn path(number: u16) -> Path {
    Path {
        id: PathId(number),
        source: end(),
        destination: end(),
        rate: None,
        mtu: 65536,
    }
}

struct Pair {
    source: Arc<Relay>,
    source_events: Receiver<Event>,
    destination_events: Receiver<Event>,
    near: UnixStream,
    far: UnixStream,
    network: Network,
    _destination: Arc<Relay>,
    _listener: LaneListener,
    _expected: Expected,
    _directory: tempfile::TempDir,
}

/// Two relays with one channel, and lanes that are kept on two paths.
fn pair(outage_limit: Duration) -> Pair {
    pair_with(outage_limit, LANES_PER_PATH..=LANES_PER_PATH, false)
}

/// As [`pair`]; each path gets so many lanes, and chunks may be given checksums.
fn pair_with(outage_limit: Duration, lanes: RangeInclusive<u16>, verify: bool) -> Pair {
    let settings = Settings {
        sizes: Sizes {
            chunk_bytes: 16 << 10,
            window: 6,
        },
        channels_max: 4,
        outage_limit,
        pass_through: false,
        verify,
        reduction: None,
    };
    let directory = tempfile::tempdir().unwrap();
    let (near_path, far_path) = (directory.path().join("near"), directory.path().join("far"));
    let (tell_source, source_events) = channel();
    let (tell_destination, destination_events) = channel();
    let source = Relay::source(settings, &near_path, move |e| drop(tell_source.send(e)));
    let destination =
        Relay::destination(settings, &far_path, move |e| drop(tell_destination.send(e)));
    let (source, destination) = (Arc::new(source.unwrap()), Arc::new(destination.unwrap()));
    let listener = LaneListener::hold(0).unwrap();
    // Within TLS no checksum would be the first to see damage.
    let protected = if verify {
        Protected::Plain
    } else {
        Protected::ByTls
    };
    let (security, theirs) = pair::securities(protected);
    let expected = listener.expect(id(), TOKEN, theirs, &destination);
    assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
    let far = UnixListener::bind(&far_path).unwrap();
    let network = Network::to(listener.port());
    let order = Order {
        migration: id(),
        token: TOKEN,
        security,
        port: network.port,
        paths: vec![path(0), path(1)],
        lanes_per_path: *lanes.start(),
        lanes_most: *lanes.end(),
    };
    let opened = open_lanes(&order);
    assert_eq!(opened.failures, vec![]);
    source.keep_lanes(order, opened).unwrap();
    let near = UnixStream::connect(&near_path).unwrap();
    let far = far.accept().unwrap().0;
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    near.set_write_timeout(Some(PATIENCE)).unwrap();
    Pair {
        source,
        source_events,
        destination_events,
        near,
        far,
        network,
        _destination: destination,
        _listener: listener,
        _expected: expected,
        _directory: directory,
    }
}

fn content(count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

impl Pair {
    /// Sends all of `bytes`; what happens before each part is received is up to `before`.
    fn carry(&self, bytes: &[u8], parts: usize, mut before: impl FnMut(usize)) -> Vec<u8> {
        let near = &self.near;
        thread::scope(|scope| {
            scope.spawn(move || {
                (&*near).write_all(bytes).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            for (part, expected) in bytes.chunks(bytes.len().div_ceil(parts)).enumerate() {
                before(part);
                let seen = received.len();
                received.resize(seen + expected.len(), 0);
                (&self.far).read_exact(&mut received[seen..]).unwrap();
            }
            received
        })
    }

    fn lanes_up(&self, path: u16) -> usize {
        let lanes = self.source.report().lanes;
        let up = |lane: &&drover_relay::LaneReport| {
            matches!(lane.stats.health, LaneHealth::Up | LaneHealth::Suspect)
                && lane.path == PathId(path)
        };
        lanes.iter().filter(up).count()
    }

    /// Payload that a path carried.
    fn sent(&self, path: u16) -> u64 {
        let lanes = self.source.report().lanes;
        let there = lanes.iter().filter(|lane| lane.path == PathId(path));
        there.map(|lane| lane.stats.sent_bytes).sum()
    }

    fn state(&self, path: u16) -> PathState {
        self.source.report().paths[usize::from(path)].state
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for<T>(events: &Receiver<Event>, wanted: impl Fn(Event) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(events.recv_timeout(PATIENCE).unwrap()) {
            return found;
        }
    }
}

#[test]
fn lanes_that_are_killed_come_back_and_carry_and_every_byte_arrives_once() {
    let pair = pair(PATIENCE);
    let up = content(8_000_000);
    let received = pair.carry(&up, 4, |part| {
        if part == 1 {
            pair.network.cut_all();
            until("the lanes are back", || {
                (0..2).all(|path| pair.lanes_up(path) == usize::from(LANES_PER_PATH))
            });
        }
    });
    assert!(received == up, "bytes differ");
    let lanes = pair.source.report().lanes;
    let again = lanes.iter().filter(|lane| lane.stats.lane >= 4);
    assert!(again.clone().count() >= 4, "{lanes:?}");
    assert!(
        again.map(|lane| lane.stats.sent_bytes).sum::<u64>() > 0,
        "{lanes:?}"
    );
}

#[test]
fn a_lane_that_does_not_help_is_tried_and_closed_again_without_a_loss() {
    let pair = pair_with(PATIENCE, LANES_PER_PATH..=8, false);
    let lanes = |health: LaneHealth| {
        let lanes = pair.source.report().lanes;
        lanes.iter().filter(|l| l.stats.health == health).count()
    };
    let block = content(1 << 20);
    let begun = Instant::now();
    let (mut received, mut sent) = (vec![0; block.len()], 0);
    // The reader holds the rate, so that more lanes cannot raise it.
    while lanes(LaneHealth::Retired) == 0 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", pair.source.report());
        (&pair.near).write_all(&block[..64 << 10]).unwrap();
        (&pair.far).read_exact(&mut received[..64 << 10]).unwrap();
        assert!(received[..64 << 10] == block[..64 << 10], "bytes differ");
        sent += 64 << 10;
    }
    assert!(sent > 0);
    let lost = |event: &Event| matches!(event, Event::LaneLost { .. });
    let events = pair
        .source_events
        .try_iter()
        .chain(pair.destination_events.try_iter());
    assert_eq!(events.filter(lost).count(), 0);
}

#[test]
fn a_chunk_that_comes_damaged_is_never_delivered() {
    let pair = pair_with(PATIENCE, LANES_PER_PATH..=LANES_PER_PATH, true);
    let up = content(4_000_000);
    let received = pair.carry(&up, 10, |part| {
        pair.network.damage.store(part > 1, Ordering::Release);
    });
    assert!(received == up, "bytes differ");
    let damaged = |event: Event| match event {
        Event::LaneLost { reason, .. } => reason.contains("came damaged").then_some(()),
        _ => None,
    };
    wait_for(&pair.destination_events, damaged);
}

#[test]
fn lanes_may_be_killed_all_the_time() {
    let pair = pair(PATIENCE);
    let up = content(6_000_000);
    let received = pair.carry(&up, 60, |part| pair.network.cut_one(part * 7));
    assert!(received == up, "bytes differ");
}

#[test]
fn without_any_lane_for_two_seconds_the_session_goes_on_where_it_was() {
    let pair = pair(PATIENCE);
    let up = content(4_000_000);
    let down = Duration::from_secs(2);
    let received = pair.carry(&up, 4, |part| {
        if part == 2 {
            let begun = Instant::now();
            pair.network.down.store(true, Ordering::Release);
            pair.network.cut_all();
            for events in [&pair.source_events, &pair.destination_events] {
                let began = |e| matches!(e, Event::OutageBegan { .. }).then_some(());
                wait_for(events, began);
            }
            until("the network's time is over", || begun.elapsed() >= down);
            assert_eq!(pair.state(0), PathState::Dialling);
            pair.network.down.store(false, Ordering::Release);
        }
    });
    assert!(received == up, "bytes differ");
    let ended = |e| match e {
        Event::OutageEnded { lasted } => Some(lasted),
        _ => None,
    };
    let lasted = wait_for(&pair.source_events, ended);
    assert!(lasted + Duration::from_millis(100) > down, "{lasted:?}");
    wait_for(&pair.destination_events, ended);
}

#[test]
fn an_outage_beyond_the_limit_ends_both_sides_with_the_limit_and_the_reasons() {
    let pair = pair(Duration::from_secs(1));
    pair.network.down.store(true, Ordering::Release);
    pair.network.cut_all();
    for events in [&pair.source_events, &pair.destination_events] {
        let ended = |e| match e {
            Event::Ended { end, reason } => Some((end, reason)),
            _ => None,
        };
        let (end, reason) = wait_for(events, ended);
        assert_eq!(end, End::LanesLost);
        assert!(
            reason.contains("for 1 s") && reason.contains("on path 1"),
            "{reason}"
        );
    }
    pair.near.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!((&pair.near).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_path_whose_link_is_lost_is_left_at_once_and_used_again_when_the_link_is_back() {
    let pair = pair(PATIENCE);
    let up = content(8_000_000);
    let mut when_back = 0;
    let received = pair.carry(&up, 8, |part| match part {
        2 => {
            pair.source.link_lost(PathId(1), "lo lost its carrier");
            until("the path is left", || pair.lanes_up(1) == 0);
            assert_eq!(pair.lanes_up(0), usize::from(LANES_PER_PATH));
            when_back = pair.sent(1);
        }
        4 => {
            let report = &pair.source.report().paths[1];
            assert_eq!(report.state, PathState::NoLink);
            assert_eq!(report.cause.as_deref(), Some("lo lost its carrier"));
            assert_eq!(pair.sent(1), when_back, "it was left");
            pair.source.link_back(PathId(1), end());
            until("the path is back", || {
                pair.lanes_up(1) == usize::from(LANES_PER_PATH)
            });
        }
        _ => {}
    });
    assert!(received == up, "bytes differ");
    assert!(pair.sent(1) > when_back, "it carries again");
    let told: Vec<_> = pair.source_events.try_iter().collect();
    let lost = |e: &Event| matches!(e, Event::PathLost { path: PathId(1), reason } if reason.contains("carrier"));
    let back = |e: &Event| {
        matches!(
            e,
            Event::PathBack {
                path: PathId(1),
                ..
            }
        )
    };
    assert!(told.iter().any(lost) && told.iter().any(back), "{told:?}");
}

#[test]
fn a_path_that_joins_in_the_middle_carries_its_part() {
    let pair = pair(PATIENCE);
    let up = content(8_000_000);
    let received = pair.carry(&up, 4, |part| {
        if part == 1 {
            pair.source.add_path(path(2));
            until("the path has joined", || {
                pair.lanes_up(2) == usize::from(LANES_PER_PATH)
            });
        }
    });
    assert!(received == up, "bytes differ");
    assert!(pair.sent(2) > 0, "{:?}", pair.source.report().lanes);
}

#[test]
fn a_path_that_joins_a_session_with_all_its_lanes_gets_its_part_of_them() {
    let pair = pair_with(PATIENCE, 32..=32, true);
    let up = content(2_000_000);
    let received = pair.carry(&up, 4, |part| {
        if part == 1 {
            assert_eq!((pair.lanes_up(0), pair.lanes_up(1)), (32, 32));
            pair.source.add_path(path(2));
            until("each path has its third", || {
                (0..3).all(|path| pair.lanes_up(path) == 64 / 3)
            });
        }
    });
    assert!(received == up, "bytes differ");
    // A new one may come before the destination has seen an old one go: then it is dialled again.
    let lost = |event: &Event| matches!(event, Event::LaneLost { lane: 0..64, .. });
    let lost: Vec<_> = pair.source_events.try_iter().filter(lost).collect();
    assert!(lost.is_empty(), "those that left were lost: {lost:?}");
}
