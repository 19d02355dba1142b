//! Every way through a relay carries the same bytes: in pipes or in memory at either end, in pieces
//! of any size, over lanes that die.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use drover_relay::{
    DataPath, Expected, LaneListener, Order, Relay, Security, Settings, Sizes, Token, open_lanes,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: Token = Token([7; 32]);
/// Whether the source and the destination keep bytes in pipes.
const WAYS: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

struct Pair {
    source: Relay,
    destination: Arc<Relay>,
    near: PathBuf,
    far: UnixListener,
    listener: LaneListener,
    _expected: Expected,
    _directory: tempfile::TempDir,
}

fn settings(pass_through: bool) -> Settings {
    Settings {
        sizes: Sizes {
            chunk_bytes: 16 << 10,
            window: 16,
        },
        channels_max: 4,
        outage_limit: Duration::ZERO,
        pass_through,
        verify: false,
        reduction: None,
    }
}

fn id() -> MigrationId {
    MigrationId::from_bytes([3; 16])
}

fn pair(ways: [bool; 2]) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let (near, far_path) = (directory.path().join("near"), directory.path().join("far"));
    let source = Relay::source(settings(ways[0]), &near, |_| {}).unwrap();
    let destination = Relay::destination(settings(ways[1]), &far_path, |_| {}).unwrap();
    let destination = Arc::new(destination);
    let listener = LaneListener::hold(0).unwrap();
    let expected = listener.expect(id(), TOKEN, Security::Plain, &destination);
    assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
    Pair {
        source,
        destination,
        near,
        far: UnixListener::bind(&far_path).unwrap(),
        listener,
        _expected: expected,
        _directory: directory,
    }
}

impl Pair {
    fn connect_to(&self, port: u16) {
        let end = || PathEnd {
            interface: "lo".into(),
            address: Ipv4Addr::LOCALHOST.into(),
        };
        let path = |number| Path {
            id: PathId(number),
            source: end(),
            destination: end(),
            rate: None,
            mtu: 65536,
        };
        let opened = open_lanes(&Order {
            migration: id(),
            token: TOKEN,
            security: Security::Plain,
            port,
            paths: vec![path(0), path(1)],
            lanes_per_path: 3,
            lanes_most: 3,
        });
        assert_eq!(opened.failures, vec![]);
        for (plan, lane) in opened.lanes {
            self.source.add_lane(plan.lane, plan.path, lane).unwrap();
        }
    }

    fn channel(&self) -> (UnixStream, UnixStream) {
        let near = UnixStream::connect(&self.near).unwrap();
        let far = self.far.accept().unwrap().0;
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (near, far)
    }
}

/// Forwards TCP connections, and cuts them without a farewell while `carrying`.
struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<[TcpStream; 2]>>>,
}

impl Proxy {
    /// Forwards `piece` bytes at most at once, each at once.
    fn start(target: u16, piece: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections: Arc<Mutex<Vec<[TcpStream; 2]>>> = Arc::default();
        let held = connections.clone();
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                held.lock().unwrap().push(both);
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                thread::spawn(move || forward(&near, &far, piece));
                thread::spawn(move || forward(&back.0, &back.1, piece));
            }
        });
        Self { port, connections }
    }

    /// Cuts a connection, but never the last one.
    fn cut(&self, which: usize) {
        let mut connections = self.connections.lock().unwrap();
        if connections.len() > 1 {
            let which = which % connections.len();
            for end in connections.remove(which) {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, piece: usize) {
    to.set_nodelay(true).unwrap();
    let mut bytes = vec![0; piece];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// The same numbers each time for the same seed (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// A few bytes, some pages, or more than a chunk.
    fn size(&mut self) -> usize {
        let limit = [8, 200, 5_000, 100_000][self.below(4)];
        1 + self.below(limit)
    }
}

fn content(seed: u64, count: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed + 1);
    (0..count).map(|_| numbers.below(256) as u8).collect()
}

fn write_in_pieces(mut to: &UnixStream, mut bytes: &[u8], seed: u64) {
    let mut numbers = Numbers(seed + 2);
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(numbers.size().min(bytes.len()));
        to.write_all(piece).unwrap();
        bytes = rest;
    }
    to.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end; `seen` is told how much there is after each piece.
fn read_in_pieces(mut from: &UnixStream, seed: u64, mut seen: impl FnMut(usize)) -> Vec<u8> {
    let mut numbers = Numbers(seed + 3);
    let mut bytes = Vec::new();
    loop {
        let filled = bytes.len();
        bytes.resize(filled + numbers.size(), 0);
        let count = from.read(&mut bytes[filled..]).unwrap();
        bytes.truncate(filled + count);
        if count == 0 {
            return bytes;
        }
        seen(bytes.len());
    }
}

fn carry(pair: &Pair, seed: u64, seen: &(dyn Fn(usize) + Sync)) {
    let streams: Vec<_> = (0..3).map(|_| pair.channel()).collect();
    thread::scope(|scope| {
        for (channel, (near, far)) in (1u64..).zip(&streams) {
            let seed = seed * 100 + channel * 10;
            scope.spawn(move || {
                let up = content(seed, 1_000_000 + seed as usize);
                let down = content(seed + 1, 60_000);
                thread::scope(|scope| {
                    scope.spawn(|| write_in_pieces(near, &up, seed));
                    scope.spawn(|| write_in_pieces(far, &down, seed));
                    let at_near = scope.spawn(|| read_in_pieces(near, seed, |_| {}));
                    let at_far = read_in_pieces(far, seed, seen);
                    assert!(at_far == up, "seed {seed}: up differs");
                    assert!(at_near.join().unwrap() == down, "seed {seed}: down differs");
                });
            });
        }
    });
}

#[test]
fn pieces_of_any_size_arrive_whole_by_every_data_path() {
    for (ways, seed) in WAYS.into_iter().zip(1..) {
        let pair = pair(ways);
        pair.connect_to(pair.listener.port());
        carry(&pair, seed, &|_| {});
        let paths = [&pair.source, &*pair.destination].map(|relay| relay.report().data_path);
        for (path, in_pipes) in paths.iter().zip(ways) {
            let spliced = matches!(path, DataPath::Splice { except: None, .. });
            assert_eq!(spliced, in_pipes, "{path}");
        }
    }
}

#[test]
fn pieces_of_any_size_arrive_whole_by_every_data_path_though_lanes_die() {
    for (ways, seed) in WAYS.into_iter().cycle().take(12).zip(10..) {
        let pair = pair(ways);
        let proxy = Proxy::start(pair.listener.port(), 64 << 10);
        pair.connect_to(proxy.port);
        let numbers = Mutex::new(Numbers(seed));
        carry(&pair, seed, &|_| {
            let mut numbers = numbers.lock().unwrap();
            if numbers.below(60) == 0 {
                proxy.cut(numbers.below(6));
            }
        });
        let lanes = pair.source.report().lanes;
        assert!(lanes.iter().any(|lane| lane.ended.is_some()), "{lanes:?}");
    }
}

#[test]
fn a_reader_that_stops_holds_up_nobody_else() {
    for ways in WAYS {
        let pair = pair(ways);
        pair.connect_to(pair.listener.port());
        let (stopped, other) = (pair.channel(), pair.channel());
        let bytes = content(1, 4_000_000);
        thread::scope(|scope| {
            scope.spawn(|| write_in_pieces(&stopped.0, &bytes, 1));
            scope.spawn(|| write_in_pieces(&other.0, &bytes, 2));
            let at_other = read_in_pieces(&other.1, 2, |_| {});
            assert!(at_other == bytes, "bytes differ");
            let at_stopped = read_in_pieces(&stopped.1, 1, |_| {});
            assert!(at_stopped == bytes, "bytes differ");
        });
    }
}

#[test]
fn bytes_that_dribble_in_one_at_a_time_arrive_whole_though_they_fill_every_slot() {
    for ways in WAYS {
        let pair = pair(ways);
        let proxy = Proxy::start(pair.listener.port(), 1);
        pair.connect_to(proxy.port);
        let (near, far) = pair.channel();
        let bytes = content(1, 20_000);
        (&near).write_all(&bytes).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let at_far = read_in_pieces(&far, 1, |_| {});
        assert!(at_far == bytes, "bytes differ");
    }
}
