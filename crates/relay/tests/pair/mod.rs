//! Two relays and a listener, with what their agents would have agreed on.

#![allow(dead_code)] // each of the tests' programs uses its part

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use drover_relay::{
    End, Event, Expected, Identity, LaneListener, Order, Relay, Security, Settings, Sizes, Tls,
    open_lanes,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};
use drover_wire::Token;

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const SETTINGS: Settings = Settings {
    sizes: Sizes {
        chunk_bytes: 16 << 10,
        window: 6,
    },
    channels_max: 4,
    outage_limit: Duration::ZERO,
    pass_through: false,
    verify: false,
    reduction: None,
};
pub const TOKEN: Token = Token([7; 32]);

/// The two ways in which lanes are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protected {
    ByTls,
    Plain,
}

pub const BOTH: [Protected; 2] = [Protected::ByTls, Protected::Plain];

pub struct Pair {
    pub source: Arc<Relay>,
    pub destination: Arc<Relay>,
    pub source_events: Receiver<Event>,
    pub destination_events: Receiver<Event>,
    pub near: PathBuf,
    pub far: UnixListener,
    pub listener: LaneListener,
    pub expected: Expected,
    pub security: Security,
    _directory: tempfile::TempDir,
}

pub fn id() -> MigrationId {
    MigrationId::from_bytes([3; 16])
}

pub fn loopback_path(number: u16) -> Path {
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

pub fn order(port: u16, security: Security) -> Order {
    let paths = vec![loopback_path(0), loopback_path(1)];
    Order {
        migration: id(),
        token: TOKEN,
        security,
        port,
        paths,
        lanes_per_path: 2,
        lanes_most: 0,
    }
}

/// The source's and the destination's.
pub fn securities(protected: Protected) -> (Security, Security) {
    if protected == Protected::Plain {
        return (Security::Plain, Security::Plain);
    }
    let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let source = Tls::new(&near, far.fingerprint()).unwrap();
    let destination = Tls::new(&far, near.fingerprint()).unwrap();
    (Security::Tls(source), Security::Tls(destination))
}

pub fn pair(protected: Protected) -> Pair {
    pair_with(protected, protected == Protected::Plain)
}

/// As [`pair`]; bytes may stay in the kernel or not.
pub fn pair_with(protected: Protected, pass_through: bool) -> Pair {
    pair_of(
        protected,
        Settings {
            pass_through,
            ..SETTINGS
        },
    )
}

/// As [`pair`], with these settings.
pub fn pair_of(protected: Protected, settings: Settings) -> Pair {
    let directory = tempfile::tempdir().unwrap();
    let (near, far_path) = (directory.path().join("near"), directory.path().join("far"));
    let (tell_source, source_events) = channel();
    let (tell_destination, destination_events) = channel();
    let source = Relay::source(settings, &near, move |e| drop(tell_source.send(e))).unwrap();
    let destination =
        Relay::destination(settings, &far_path, move |e| drop(tell_destination.send(e))).unwrap();
    let (source, destination) = (Arc::new(source), Arc::new(destination));
    let listener = LaneListener::hold(0).unwrap();
    let (security, theirs) = securities(protected);
    let expected = listener.expect(id(), TOKEN, theirs, &destination);
    assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
    let far = UnixListener::bind(&far_path).unwrap();
    Pair {
        source,
        destination,
        source_events,
        destination_events,
        near,
        far,
        listener,
        expected,
        security,
        _directory: directory,
    }
}

impl Pair {
    /// Has lanes come to another destination.
    pub fn replace_destination(&mut self, destination: Relay) {
        self.destination = Arc::new(destination);
        let (security, theirs) = securities(Protected::ByTls);
        self.security = security;
        self.listener = LaneListener::hold(0).unwrap();
        self.expected = self.listener.expect(id(), TOKEN, theirs, &self.destination);
        assert!(
            self.expected
                .offer(&[Ipv4Addr::LOCALHOST.into()])
                .is_empty()
        );
    }

    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    pub fn order(&self) -> Order {
        order(self.port(), self.security.clone())
    }

    pub fn connect(&self) {
        self.connect_to(self.port());
    }

    pub fn connect_to(&self, port: u16) {
        let mut opened = open_lanes(&order(port, self.security.clone()));
        assert_eq!(opened.failures, vec![]);
        for (plan, lane) in opened.lanes.drain(..) {
            self.source.add_lane(plan.lane, plan.path, lane).unwrap();
        }
    }

    /// Opens a channel and carries a little over it.
    pub fn carries(&self) {
        let near = UnixStream::connect(&self.near).unwrap();
        let far = self.far.accept().unwrap().0;
        assert_eq!(
            exchange(&near, &far, b"up", b"down"),
            (b"up".to_vec(), b"down".to_vec())
        );
    }
}

/// Bytes that differ at every position of every channel.
pub fn content(channel: u8, count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ channel)
        .collect()
}

pub fn ended(events: &Receiver<Event>) -> (End, String) {
    loop {
        if let Event::Ended { end, reason } = events.recv_timeout(PATIENCE).unwrap() {
            return (end, reason);
        }
    }
}

/// Opens a channel, writes `up` and closes; the far end answers with `down`. Returns what arrived
/// at the far end and at the near end.
pub fn exchange(near: &UnixStream, far: &UnixStream, up: &[u8], down: &[u8]) -> (Vec<u8>, Vec<u8>) {
    for stream in [near, far] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    let write_all = |mut stream: &UnixStream, bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    };
    let read_all = |mut stream: &UnixStream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    };
    thread::scope(|scope| {
        scope.spawn(|| write_all(near, up));
        scope.spawn(|| write_all(far, down));
        let at_far = scope.spawn(|| read_all(far));
        (at_far.join().unwrap(), read_all(near))
    })
}
