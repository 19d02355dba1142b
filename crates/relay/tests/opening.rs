//! Who gets a lane, and who does not: each refusal with its reason and its count, and none of them
//! with an effect on lanes that run.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod pair;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::limits::GREETED_PER_ADDRESS;
use drover_relay::{Cause, Encryption, NotOpened, Order, Security, open_lane, open_lanes, probe};
use drover_types::MigrationId;
use drover_wire::{
    ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Mode, Nonce, PREAMBLE_BYTES, Preamble, Token,
    Version, VersionRange, Welcome,
};
use pair::{
    BOTH, PATIENCE, Pair, Protected, TOKEN, id, loopback_path, pair, pair_with, securities,
};

/// Tries to open a lane; what the source is told when it cannot.
fn refused(order: &Order, lane: u32) -> String {
    match open_lane(order, &order.plan(lane, &loopback_path(0))) {
        Ok(_) => panic!("the lane was opened"),
        Err(NotOpened::TurnedAway(reason)) => reason,
        Err(other) => panic!("{other:?}"),
    }
}

impl Pair {
    fn count(&self, cause: Cause) -> u64 {
        let counts = self.listener.turned_away();
        counts.get(&cause).copied().unwrap_or(0)
    }

    /// Waits until so many were turned away for that.
    fn turns_away(&self, cause: Cause, count: u64) {
        let since = Instant::now();
        while self.count(cause) < count {
            let counts = self.listener.turned_away();
            assert!(since.elapsed() < PATIENCE, "{cause:?}: {counts:?}");
            thread::yield_now();
        }
        assert_eq!(self.count(cause), count, "{cause:?}");
    }

    fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

fn preamble(mode: Mode) -> Preamble {
    Preamble {
        versions: VersionRange::SUPPORTED,
        mode,
        migration: id(),
        nonce: Nonce([1; 32]),
    }
}

#[test]
fn both_ends_know_what_protects_their_lanes() {
    for protected in BOTH {
        let pair = pair(protected);
        assert_eq!(pair.expected.encryption(), None);
        let order = pair.order();
        let lane = open_lane(&order, &order.plan(0, &loopback_path(0))).unwrap();
        let encrypted = lane.encryption() != Encryption::Off;
        assert_eq!(encrypted, protected == Protected::ByTls);
        pair.source.add_lane(0, loopback_path(0).id, lane).unwrap();
        pair.carries();
        let there = pair.expected.encryption().unwrap();
        assert_eq!(there != Encryption::Off, encrypted);
    }
}

#[test]
fn a_wrong_token_is_refused_and_running_lanes_go_on() {
    for pair in BOTH.map(pair) {
        pair.connect();
        let order = Order {
            token: Token([8; 32]),
            ..pair.order()
        };
        let reason = refused(&order, 10);
        assert!(reason.contains("with this token"), "{reason}");
        pair.turns_away(Cause::Proof, 1);
        pair.carries();
    }
}

#[test]
fn another_migration_is_refused_before_any_cryptography() {
    for pair in BOTH.map(pair) {
        let order = Order {
            migration: MigrationId::from_bytes([4; 16]),
            ..pair.order()
        };
        let reason = refused(&order, 10);
        assert!(reason.contains("no such migration is expected"), "{reason}");
        pair.turns_away(Cause::Unexpected, 1);
    }
}

#[test]
fn a_lane_in_another_mode_than_agreed_on_is_refused() {
    for protected in BOTH {
        let pair = pair(protected);
        let other = match protected {
            Protected::ByTls => Protected::Plain,
            Protected::Plain => Protected::ByTls,
        };
        let order = Order {
            security: securities(other).0,
            ..pair.order()
        };
        let reason = refused(&order, 10);
        assert!(reason.contains("and encryption"), "{reason}");
        pair.turns_away(Cause::Mode, 1);
    }
}

#[test]
fn another_certificate_is_refused_at_either_end() {
    let pair = pair(Protected::ByTls);
    pair.connect();
    // The source expects another destination, and so does the destination.
    let order = Order {
        security: securities(Protected::ByTls).0,
        ..pair.order()
    };
    let reason = refused(&order, 10);
    assert!(reason.contains("invalid peer certificate"), "{reason}");
    pair.turns_away(Cause::Peer, 1);
    pair.carries();
}

#[test]
fn a_lane_whose_number_is_taken_is_closed_and_the_first_one_stays() {
    for pair in BOTH.map(pair) {
        pair.connect();
        // The destination welcomes a lane before it takes it: the second must not overtake the first.
        let deadline = Instant::now() + PATIENCE;
        while pair.destination.report().lanes.len() < pair.source.report().lanes.len() {
            assert!(Instant::now() < deadline, "lanes are missing");
            thread::yield_now();
        }
        let order = pair.order();
        let again = open_lane(&order, &order.plan(0, &loopback_path(0))).unwrap();
        pair.turns_away(Cause::Session, 1);
        assert!(again.receive(&mut [0; 1]).is_err());
        pair.carries();
    }
}

#[test]
fn another_version_is_refused_with_what_is_spoken() {
    let pair = pair(Protected::ByTls);
    let versions = VersionRange {
        min: Version(50),
        max: Version(60),
    };
    let mut bytes = Preamble {
        versions,
        ..preamble(Mode::Tls)
    }
    .encode();
    // And the first message of version 1, which is as long.
    for _ in 0..2 {
        let mut peer = pair.stranger();
        peer.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        let head = answer.try_into().unwrap();
        let (code, theirs) = Answer::decode_head(&head).unwrap().unwrap_err();
        assert_eq!(theirs, VersionRange::SUPPORTED, "{code}");
        bytes[8..12].copy_from_slice(&[0, 1, 0, 1]);
    }
    pair.turns_away(Cause::Version, 2);
}

#[test]
fn garbage_and_what_is_cut_off_are_refused_without_a_word() {
    let pair = pair(Protected::ByTls);
    let mut garbage = pair.stranger();
    garbage.write_all(&[b'x'; PREAMBLE_BYTES]).unwrap();
    let mut cut = pair.stranger();
    cut.write_all(&preamble(Mode::Tls).encode()[..40]).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    for mut peer in [garbage, cut] {
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    pair.turns_away(Cause::Garbage, 1);
    pair.turns_away(Cause::Cut, 1);
}

#[test]
fn a_connection_that_only_looks_whether_we_are_there_is_not_turned_away() {
    let pair = pair(Protected::ByTls);
    let order = pair.order();
    let targets = [order.plan(0, &loopback_path(0)).target];
    assert_eq!(probe(&targets), [true]);
    drop(pair.stranger());
    pair.connect();
    assert_eq!(pair.listener.turned_away().values().sum::<u64>(), 0);
}

#[test]
fn silent_and_slow_peers_lock_nobody_out_and_are_given_up() {
    let pair = pair(Protected::ByTls);
    let mut silent: Vec<_> = (0..GREETED_PER_ADDRESS).map(|_| pair.stranger()).collect();
    // Half of them say something first, half of that a whole preamble.
    for (number, stream) in silent.iter_mut().enumerate() {
        let bytes = preamble(Mode::Tls).encode();
        stream
            .write_all(&bytes[..(number % 4) * 32 / 3 * 2])
            .unwrap();
    }
    let mut one_more = pair.stranger();
    assert_eq!(one_more.read(&mut [0; 1]).unwrap_or(0), 0);
    pair.turns_away(Cause::Crowd, 1);
    // From another address there is room.
    let order = pair.order();
    let mut plan = order.plan(1, &loopback_path(0));
    plan.target.local = Ipv4Addr::new(127, 0, 0, 2).into();
    let lane = open_lane(&order, &plan).unwrap();
    pair.source.add_lane(1, plan.path, lane).unwrap();
    pair.carries();
    pair.turns_away(Cause::Slow, GREETED_PER_ADDRESS as u64);
    // And then from the first one again.
    open_lane(&order, &order.plan(2, &loopback_path(0))).unwrap();
}

/// Between a source and the listener: changes one byte on its way, and keeps what passes.
struct Between {
    port: u16,
    passed: Receiver<Vec<u8>>,
}

/// Which way, and which byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flip {
    Nothing,
    Up(usize),
    Down(usize),
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, flip: Option<usize>, keep: &Sender<Vec<u8>>) {
    let mut seen = 0;
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(at) = flip.filter(|at| (seen..seen + count).contains(at)) {
            bytes[at - seen] ^= 1;
        }
        seen += count;
        let _ = keep.send(bytes[..count].to_vec());
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Between {
    fn start(target: u16, flip: Flip) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (up, down) = match flip {
            Flip::Nothing => (None, None),
            Flip::Up(at) => (Some(at), None),
            Flip::Down(at) => (None, Some(at)),
        };
        let (keep, passed) = channel();
        thread::spawn(move || {
            let near = listener.accept().unwrap().0;
            let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| pass(&near, &far, up, &keep));
                pass(&far, &near, down, &channel().0);
            });
        });
        Self { port, passed }
    }
}

#[test]
fn whatever_is_changed_in_the_opening_of_a_lane_on_its_way_there_is_no_lane() {
    for pair in BOTH.map(pair) {
        let up = (0..PREAMBLE_BYTES + HELLO_BYTES).map(Flip::Up);
        // Reserved bytes of the welcome mean nothing yet.
        let down = (0..ANSWER_BYTES + 9).chain(ANSWER_BYTES + 16..ANSWER_BYTES + 48);
        for flip in up.chain(down.map(Flip::Down)) {
            let between = Between::start(pair.port(), flip);
            let order = Order {
                port: between.port,
                ..pair.order()
            };
            let opened = open_lane(&order, &order.plan(7, &loopback_path(0)));
            // What means nothing: without encryption the hello's reserved bytes, with it the
            // minor version in the header of TLS's first records (RFC 8446, 5.1).
            let same = match (&pair.security, flip) {
                (Security::Plain, Flip::Up(at)) => {
                    (PREAMBLE_BYTES + 14..PREAMBLE_BYTES + 16).contains(&at)
                }
                (Security::Tls(_), Flip::Up(at)) => at == PREAMBLE_BYTES + 2,
                (Security::Tls(_), Flip::Down(at)) => at == ANSWER_BYTES + 2,
                _ => false,
            };
            assert_eq!(opened.is_ok(), same, "{flip:?} {opened:?}");
        }
        assert_eq!(pair.count(Cause::Slow), 0);
    }
}

#[test]
fn what_another_source_said_cannot_be_said_again() {
    for (protected, cause) in [
        (Protected::Plain, Cause::Proof),
        (Protected::ByTls, Cause::Peer),
    ] {
        let pair = pair(protected);
        let between = Between::start(pair.port(), Flip::Nothing);
        let order = Order {
            port: between.port,
            ..pair.order()
        };
        let lane = open_lane(&order, &order.plan(0, &loopback_path(0))).unwrap();
        lane.shut_down();
        let recorded: Vec<u8> = between.passed.iter().flatten().collect();
        let mut again = pair.stranger();
        again.write_all(&recorded).unwrap();
        let mut answer = Vec::new();
        let _ = again.read_to_end(&mut answer);
        pair.turns_away(cause, 1);
    }
}

#[test]
fn the_token_is_never_on_the_wire() {
    let pair = pair(Protected::Plain);
    let between = Between::start(pair.port(), Flip::Nothing);
    let order = Order {
        port: between.port,
        ..pair.order()
    };
    open_lane(&order, &order.plan(0, &loopback_path(0))).unwrap();
    drop(pair);
    let recorded: Vec<u8> = between.passed.iter().flatten().collect();
    assert!(recorded.len() >= PREAMBLE_BYTES + HELLO_BYTES);
    assert!(!recorded.windows(8).any(|bytes| bytes == &TOKEN.0[..8]));
}

/// A destination that says `answer`, reads a hello and says what `welcome` makes of it.
fn false_destination(answer: Vec<u8>, welcome: fn(Hello) -> Welcome) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut preamble = [0; PREAMBLE_BYTES];
        stream.read_exact(&mut preamble).unwrap();
        stream.write_all(&answer).unwrap();
        let mut hello = [0; HELLO_BYTES];
        if stream.read_exact(&mut hello).is_ok() {
            let hello = Hello::decode(&hello).unwrap();
            let _ = stream.write_all(&welcome(hello).encode());
        }
    });
    port
}

#[test]
fn a_destination_that_does_not_know_the_token_gets_no_lane() {
    let answer = Answer::GoOn(VersionRange::SUPPORTED.max, Nonce([5; 32])).encode();
    // The best that it has is the source's own proof.
    let port = false_destination(answer, |hello| Welcome::Accepted(hello.proof));
    let reason = refused(&pair::order(port, Security::Plain), 0);
    assert!(reason.contains("could not prove"), "{reason}");
}

#[test]
fn what_is_no_relay_is_an_error_that_names_it() {
    for protected in BOTH {
        let words = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
        let port = false_destination(words, |hello| Welcome::Accepted(hello.proof));
        let reason = refused(&pair::order(port, securities(protected).0), 0);
        let name = format!("127.0.0.1:{port}");
        assert!(
            reason.contains("does not begin like a lane of Drover"),
            "{reason}"
        );
        assert!(reason.contains(&name), "{reason}");
    }
}

#[test]
fn a_destination_that_says_nothing_is_told_from_one_that_refuses() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let order = pair::order(port, Security::Plain);
    let began = Instant::now();
    let silent = open_lane(&order, &order.plan(0, &loopback_path(0)));
    assert!(matches!(silent, Err(NotOpened::Silent(_))), "{silent:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_encrypted_lane_is_refused_where_bytes_are_to_stay_in_the_kernel() {
    let copies = pair(Protected::ByTls);
    let splices = pair_with(Protected::ByTls, true);
    let mut opened = open_lanes(&copies.order());
    let (plan, lane) = opened.lanes.remove(0);
    let added = splices.source.add_lane(plan.lane, plan.path, lane);
    assert!(added.is_err() && splices.source.report().lanes.is_empty());
    let (plan, lane) = opened.lanes.remove(0);
    copies.source.add_lane(plan.lane, plan.path, lane).unwrap();
}
