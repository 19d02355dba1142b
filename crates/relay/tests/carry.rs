//! Two relays with real sockets: UNIX sockets where QEMU would be, TCP on loopback between them.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use drover_relay::{BrokenBy, End, Event, LaneHealth, Order, open_lane};
use drover_types::{Path, PathId};
use drover_wire::ByeCode;
use pair::{BOTH, PATIENCE, Pair, Protected, SETTINGS, content, ended, exchange};
use pair::{loopback_path, order, pair};

#[test]
fn channels_arrive_whole_in_both_directions_over_all_lanes() {
    for pair in BOTH.map(pair) {
        pair.connect();
        let streams: Vec<_> = (0..3u8)
            .map(|channel| {
                let near = UnixStream::connect(&pair.near).unwrap();
                (channel, near, pair.far.accept().unwrap().0)
            })
            .collect();
        thread::scope(|scope| {
            for (channel, near, far) in &streams {
                scope.spawn(move || {
                    let (up, down) = (content(*channel, 3_000_000), content(!channel, 70_000));
                    let (at_far, at_near) = exchange(near, far, &up, &down);
                    assert!(at_far == up && at_near == down, "channel {channel} differs");
                });
            }
        });
        assert_eq!(ended(&pair.source_events).0, End::Finished);
        assert_eq!(ended(&pair.destination_events).0, End::Finished);
        let report = pair.source.report();
        assert_eq!(report.session.confirmed_bytes(), 9_000_000);
        let carried: u64 = report.lanes.iter().map(|lane| lane.stats.sent_bytes).sum();
        assert_eq!(carried, 9_000_000);
        assert!(
            report.lanes.iter().all(|lane| lane.stats.sent_bytes > 0),
            "{report:?}"
        );
    }
}

/// Forwards TCP connections, and can cut them without a farewell.
struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Proxy {
    fn start(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections: Arc<Mutex<Vec<[TcpStream; 2]>>> = Arc::default();
        let held = connections.clone();
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                held.lock().unwrap().push(both);
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut &near, &mut &far));
                thread::spawn(move || std::io::copy(&mut &back.0, &mut &back.1));
            }
        });
        Self { port, connections }
    }

    /// Cuts one more connection, but never the last one.
    fn cut_another(&self) {
        let mut connections = self.connections.lock().unwrap();
        if connections.len() > 1 {
            for end in connections.remove(0) {
                end.shutdown(Shutdown::Both).unwrap();
            }
        }
    }
}

#[test]
fn bytes_are_intact_though_lanes_are_cut_while_one_lives() {
    for pair in BOTH.map(pair) {
        let proxy = Proxy::start(pair.listener.port());
        pair.connect_to(proxy.port);
        let near = UnixStream::connect(&pair.near).unwrap();
        let mut far = pair.far.accept().unwrap().0;
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let up = content(1, 40_000_000);
        let at_far = thread::scope(|scope| {
            scope.spawn(|| {
                (&near).write_all(&up).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
            });
            let mut at_far = Vec::new();
            for part in up.chunks(up.len() / 4) {
                let seen = at_far.len();
                at_far.resize(seen + part.len(), 0);
                far.read_exact(&mut at_far[seen..]).unwrap();
                proxy.cut_another();
            }
            at_far
        });
        assert!(at_far == up, "bytes differ");
        let lanes = pair.source.report().lanes;
        assert_eq!(
            lanes
                .iter()
                .filter(|lane| lane.stats.health == LaneHealth::Up)
                .count(),
            1,
            "{lanes:?}"
        );
        assert!(lanes.iter().any(|lane| lane.ended.is_some()), "{lanes:?}");
    }
}

#[test]
fn when_every_lane_is_lost_qemu_sees_its_sockets_close_and_the_cause_is_told() {
    let pair = pair(Protected::ByTls);
    pair.connect();
    let mut near = UnixStream::connect(&pair.near).unwrap();
    let mut far = pair.far.accept().unwrap().0;
    near.write_all(b"first bytes").unwrap();
    let mut seen = [0; 11];
    far.read_exact(&mut seen).unwrap();
    drop(pair.listener);
    let Pair {
        source,
        destination,
        source_events,
        ..
    } = pair;
    // The far agent dies: its sockets close without a farewell.
    destination.close(ByeCode::Aborted);
    let (end, reason) = ended(&source_events);
    assert!(
        matches!(end, End::PeerClosed(_) | End::LanesLost),
        "{end:?} {reason}"
    );
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    drop(source);
}

#[test]
fn a_qemu_that_dies_at_the_destination_closes_the_sources_socket() {
    let pair = pair(Protected::ByTls);
    pair.connect();
    let mut near = UnixStream::connect(&pair.near).unwrap();
    let far = pair.far.accept().unwrap().0;
    drop(far);
    near.set_write_timeout(Some(PATIENCE)).unwrap();
    let broken = (0..10_000).find_map(|_| near.write_all(&[1; 4096]).err());
    assert_eq!(
        broken.map(|e| e.kind()),
        Some(std::io::ErrorKind::BrokenPipe)
    );
}

#[test]
fn a_qemu_that_does_not_listen_at_the_destination_closes_the_sources_socket() {
    let pair = pair(Protected::ByTls);
    let Pair { far, near, .. } = &pair;
    let path = far.local_addr().unwrap().as_pathname().unwrap().to_owned();
    std::fs::remove_file(path).unwrap();
    pair.connect();
    let mut near = UnixStream::connect(near).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    let broke = pair.destination_events.recv_timeout(PATIENCE).unwrap();
    let Event::ChannelBroke { by, reason, .. } = broke else {
        panic!("{broke:?}");
    };
    assert!(by == BrokenBy::Socket && reason.contains("far"), "{reason}");
}

#[test]
fn when_the_session_ends_qemus_other_channels_are_read_until_it_closes_them() {
    let pair = pair(Protected::ByTls);
    pair.connect();
    let streams: Vec<_> = (0..2)
        .map(|_| {
            (
                UnixStream::connect(&pair.near).unwrap(),
                pair.far.accept().unwrap().0,
            )
        })
        .collect();
    pair.destination.close(ByeCode::Aborted);
    for (near, _) in &streams {
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        near.set_write_timeout(Some(PATIENCE)).unwrap();
        assert_eq!((&mut &*near).read(&mut [0; 1]).unwrap(), 0);
    }
    // More than the sockets between them hold: somebody reads it.
    let more = vec![0; 4 << 20];
    assert!((&streams[0].0).write_all(&more).is_err());
    (&streams[1].0).write_all(&more).unwrap();
}

#[test]
fn more_channels_than_agreed_are_turned_away() {
    let pair = pair(Protected::ByTls);
    pair.connect();
    let agreed: Vec<_> = (0..SETTINGS.channels_max)
        .map(|_| {
            (
                UnixStream::connect(&pair.near).unwrap(),
                pair.far.accept().unwrap().0,
            )
        })
        .collect();
    let mut surplus = UnixStream::connect(&pair.near).unwrap();
    surplus.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(surplus.read(&mut [0; 1]).unwrap(), 0);
    let (near, far) = &agreed[0];
    assert_eq!(
        exchange(near, far, b"still", b"works"),
        (b"still".to_vec(), b"works".to_vec())
    );
}

#[test]
fn a_peer_that_speaks_garbage_after_the_handshake_loses_its_lane_only() {
    for pair in BOTH.map(pair) {
        pair.connect();
        let order = pair.order();
        let lane = open_lane(&order, &order.plan(40, &loopback_path(0))).unwrap();
        lane.send(&[0xff; 4096], b"").unwrap();
        let lost = pair.destination_events.recv_timeout(PATIENCE).unwrap();
        assert!(
            matches!(&lost, Event::LaneLost { lane: 40, reason, .. } if reason.contains("no frame")),
            "{lost:?}"
        );
        let near = UnixStream::connect(&pair.near).unwrap();
        let far = pair.far.accept().unwrap().0;
        assert_eq!(
            exchange(&near, &far, b"up", b"down"),
            (b"up".to_vec(), b"down".to_vec())
        );
    }
}

#[test]
fn a_farewell_closes_lanes_without_losing_them() {
    for pair in BOTH.map(pair) {
        pair.connect();
        let near = UnixStream::connect(&pair.near).unwrap();
        let far = pair.far.accept().unwrap().0;
        assert_eq!(
            exchange(&near, &far, b"up", b"down"),
            (b"up".to_vec(), b"down".to_vec())
        );
        pair.destination.close(ByeCode::Finished);
        let told: Vec<Event> =
            std::iter::from_fn(|| pair.source_events.recv_timeout(Duration::from_secs(1)).ok())
                .collect();
        assert!(
            told.iter()
                .all(|event| !matches!(event, Event::LaneLost { .. })),
            "{told:?}"
        );
        let lanes = pair.source.report().lanes;
        assert!(
            lanes
                .iter()
                .all(|lane| lane.ended == Some(drover_relay::LaneEnd::Closed)),
            "{lanes:?}"
        );
    }
}

#[test]
fn more_lanes_than_a_session_takes_are_not_planned_and_every_path_keeps_one() {
    let paths: Vec<Path> = (0..32).map(loopback_path).collect();
    let many = Order {
        lanes_per_path: 16,
        lanes_most: 0,
        paths,
        ..order(1, drover_relay::Security::Plain)
    };
    let lanes = many.lanes();
    assert_eq!(lanes.len(), usize::from(drover_wire::limits::LANES_MAX));
    for path in 0..32 {
        assert!(lanes.iter().any(|lane| lane.path == PathId(path)));
    }
}
