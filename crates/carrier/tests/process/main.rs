//! Processes of relays, each on a thread of its own here, with agents that come and go, and UNIX
//! sockets where QEMU would be.

#![allow(clippy::unwrap_used, clippy::panic)] // a panic is how a test fails

mod awake;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use drover_carrier::{
    Control, ControlError, Counters, Heard, HeldLimit, Keys, Open, PROTOCOL, Place, Request, Side,
    Start, State, TlsKeys, Told,
};
use drover_relay::limits::PATHS_KEPT;
use drover_relay::{Identity, PREAMBLE_BYTES};
use drover_types::{ByteRate, MigrationId, NicPlacement, Path, PathEnd, PathId, Placement};

const PATIENCE: Duration = Duration::from_secs(20);

/// A process, and where its QEMU is.
struct Process {
    place: Place,
    qemu: PathBuf,
    running: Option<JoinHandle<std::io::Result<()>>>,
    /// With the host's root directory.
    directory: tempfile::TempDir,
}

/// An agent's side of a connection.
struct Agent {
    control: Control,
    heard: Receiver<Heard>,
    state: State,
}

fn process() -> Process {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::at(directory.path().join("relay"));
    let listener = place.make().unwrap();
    let (own, root) = (place.clone(), directory.path().to_owned());
    let running = thread::spawn(move || drover_carrier::run(&own, &listener, "0.0.0", &root));
    Process {
        place,
        qemu: directory.path().join("qemu.sock"),
        running: Some(running),
        directory,
    }
}

impl Process {
    fn agent(&self, after: u64) -> Agent {
        let (tell, heard) = channel();
        let hear = move |what| drop(tell.send(what));
        let (control, greeting) = Control::connect(&self.place.socket(), hear).unwrap();
        let record = self.place.record().unwrap().unwrap();
        assert_eq!(
            (greeting.pid, greeting.start_time),
            (record.pid, record.start_time)
        );
        let state = control.attach(after).unwrap();
        Agent {
            control,
            heard,
            state,
        }
    }

    fn start(&self, side: Side, patience: Duration) -> Start {
        Start {
            migration: MigrationId::from_bytes([3; 16]),
            side,
            socket: self.qemu.clone(),
            control: None,
            disks: None,
            chunk_bytes: 16 << 10,
            window: 6,
            channels_max: 4,
            outage_limit: PATIENCE,
            pass_through: false,
            verify: false,
            reduction: None,
            patience,
            nics: vec![nic("127.0.0.1")],
            cpu_latency_us: None,
            memo: "for the next agent".into(),
        }
    }

    /// Waits for its end.
    fn ends(&mut self) {
        let running = self.running.take().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !running.is_finished() {
            assert!(Instant::now() < deadline, "the process does not end");
            thread::yield_now();
        }
        running.join().unwrap().unwrap();
        assert!(!self.place.directory().exists(), "its files stayed");
    }
}

impl Agent {
    fn ask(&self, request: &Request) -> Result<(), ControlError> {
        self.control.request(request, None)
    }

    fn next(&self) -> Heard {
        self.heard.recv_timeout(PATIENCE).unwrap()
    }

    fn next_event(&self) -> (u64, Told) {
        loop {
            match self.next() {
                Heard::Event(number, told) => return (number, told),
                Heard::Report(_) => {}
                Heard::Gone => panic!("the process is gone"),
            }
        }
    }

    fn counters(&self, accept: impl Fn(&Counters) -> bool) -> Counters {
        loop {
            match self.next() {
                Heard::Report(counters) if accept(&counters) => return *counters,
                Heard::Gone => panic!("the process is gone"),
                _ => {}
            }
        }
    }

    fn is_left(&self) {
        while !matches!(self.next(), Heard::Gone) {}
    }
}

fn refused(result: Result<(), ControlError>) -> String {
    match result.unwrap_err() {
        ControlError::Refused { reason } => reason,
        other => panic!("{other:?}"),
    }
}

fn nic(address: &str) -> NicPlacement {
    NicPlacement {
        addresses: vec![address.parse().unwrap()],
        placement: Placement::anywhere("the host has one NUMA node"),
    }
}

fn paths() -> Vec<Path> {
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
    vec![path(0), path(1)]
}

/// The source's and the destination's.
fn keys() -> [Keys; 2] {
    let ends = [(); 2].map(|()| Identity::generate().unwrap());
    let of = |own: &Identity, peer: &Identity| {
        let (certificate, key) = own.parts();
        let peer = peer.fingerprint().to_string();
        let tls = TlsKeys {
            certificate,
            key,
            peer,
        };
        Keys {
            token: [7; 32],
            tls: Some(tls),
        }
    };
    [of(&ends[0], &ends[1]), of(&ends[1], &ends[0])]
}

/// A session between two processes, with two lanes.
struct Pair {
    source: Process,
    destination: Process,
    at_source: Option<Agent>,
    at_destination: Option<Agent>,
    far: UnixListener,
}

fn pair(patience: Duration) -> Pair {
    let (source, destination) = (process(), process());
    let (at_source, at_destination) = (source.agent(0), destination.agent(0));
    assert!(!at_source.state.lives());
    let far = UnixListener::bind(&destination.qemu).unwrap();
    let start = source.start(Side::Source, patience);
    at_source.ask(&Request::Start(start)).unwrap();
    let start = destination.start(Side::Destination, patience);
    at_destination.ask(&Request::Start(start)).unwrap();
    let [keys, theirs] = keys();
    at_destination.ask(&Request::Expect(theirs)).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let open = Open {
        keys,
        port: listener.local_addr().unwrap().port(),
        paths: paths(),
        lanes_per_path: 1,
        lanes_most: 1,
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| hand_over(&listener, &at_destination.control));
        }
        assert_eq!(at_source.control.open(open).unwrap().failures, []);
    });
    Pair {
        source,
        destination,
        at_source: Some(at_source),
        at_destination: Some(at_destination),
        far,
    }
}

/// Accepts a connection as an agent does, and gives it to the process.
fn hand_over(listener: &TcpListener, control: &Control) {
    let (mut connection, _) = listener.accept().unwrap();
    let mut preamble = [0; PREAMBLE_BYTES];
    connection.read_exact(&mut preamble).unwrap();
    let until = Instant::now() + PATIENCE;
    control
        .hand_over(&preamble, connection.as_fd(), until)
        .unwrap();
}

impl Pair {
    /// A channel of QEMU, at both ends.
    fn channel(&self) -> (UnixStream, UnixStream) {
        let near = UnixStream::connect(&self.source.qemu).unwrap();
        let (far, _) = self.far.accept().unwrap();
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (near, far)
    }
}

/// Bytes that differ at every position.
fn content(count: u32) -> Vec<u8> {
    let byte = |n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8;
    (0..count).map(byte).collect()
}

fn carries(near: &UnixStream, far: &UnixStream, count: u32) {
    let bytes = content(count);
    let mut arrived = vec![0; bytes.len()];
    let (mut from, mut to) = (near, far);
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(&bytes).unwrap());
        to.read_exact(&mut arrived).unwrap();
    });
    assert!(arrived == bytes, "what arrived is something else");
}

#[test]
fn bytes_arrive_whole_between_two_processes_and_nothing_of_them_stays() {
    let mut pair = pair(PATIENCE);
    let (near, far) = pair.channel();
    carries(&near, &far, 3_000_000);
    carries(&far, &near, 100_000);
    near.shutdown(Shutdown::Write).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    let at_source = pair.at_source.take().unwrap();
    let (_, told) = at_source.next_event();
    assert!(format!("{told:?}").contains("Finished"), "{told:?}");
    for agent in [&at_source, pair.at_destination.as_ref().unwrap()] {
        agent.ask(&Request::Close { finished: true }).unwrap();
        agent.is_left();
    }
    pair.source.ends();
    pair.destination.ends();
}

#[test]
fn an_agent_that_comes_back_finds_the_session_carrying_and_hears_what_it_missed() {
    let mut pair = pair(PATIENCE);
    let (near, far) = pair.channel();
    carries(&near, &far, 100_000);
    // Both agents die; what they would have been told happens meanwhile.
    pair.at_source = None;
    pair.at_destination = None;
    let (second, _) = pair.channel();
    second.shutdown(Shutdown::Both).unwrap();
    carries(&near, &far, 2_000_000);
    let at_source = pair.source.agent(0);
    assert!(at_source.state.lives(), "{:?}", at_source.state);
    let start = at_source.state.start.as_ref().unwrap();
    assert_eq!(
        (start.side, start.memo.as_str()),
        (Side::Source, "for the next agent")
    );
    assert_eq!(at_source.state.paths, paths());
    let counters = at_source.counters(|c| c.relay.session.confirmed_bytes() >= 2_100_000);
    assert_eq!(counters.relay.lanes.len(), 2);
    // What it was told is known to it, and the next agent adds to it.
    let nics = vec![nic("127.0.0.1"), nic("10.0.3.1")];
    at_source
        .ask(&Request::Place { nics: nics.clone() })
        .unwrap();
    at_source.counters(|c| c.relay.nics == nics);
    assert!(counters.usage.resident_bytes > 0);
    carries(&near, &far, 500_000);
    // Its end was missed by the destination's agent, too, and is told to the next one.
    at_source.ask(&Request::Close { finished: false }).unwrap();
    pair.source.ends();
    let at_destination = pair.destination.agent(0);
    let (number, told) = at_destination.next_event();
    assert!(number >= 1);
    assert!(
        format!("{told:?}").contains("the other agent ended"),
        "{told:?}"
    );
    drop(at_destination);
    // One that knows it is not told again.
    let again = pair.destination.agent(number);
    assert!(!again.state.lives());
    again.ask(&Request::Close { finished: false }).unwrap();
    again.is_left();
    assert!(
        again
            .heard
            .try_iter()
            .all(|heard| !matches!(heard, Heard::Event(..)))
    );
    pair.destination.ends();
}

#[test]
fn an_agent_that_comes_back_hears_which_limits_are_held() {
    let mut pair = pair(PATIENCE);
    let at_source = pair.at_source.take();
    let agent = at_source.unwrap();
    let path = |path| Some(PathId(path));
    for (path, rate) in [
        (None, Some(1_000_000)),
        (path(0), Some(700_000)),
        (path(1), Some(300_000)),
        (path(0), Some(600_000)),
        (path(1), None),
    ] {
        let rate = rate.map(ByteRate);
        agent.ask(&Request::Limit { path, rate }).unwrap();
    }
    drop(agent);
    let limits = pair.source.agent(0).state.limits;
    let held = |path, rate| HeldLimit {
        path,
        rate: ByteRate(rate),
    };
    assert_eq!(limits, [held(None, 1_000_000), held(path(0), 600_000)]);
    // What a confused agent makes up takes no memory without end.
    let agent = pair.source.agent(0);
    let ask = |path| {
        let (path, rate) = (Some(PathId(path)), Some(ByteRate(1_000_000)));
        agent.ask(&Request::Limit { path, rate })
    };
    let taken = (100..300).take_while(|path| ask(*path).is_ok()).count();
    assert!(taken < 100, "{taken}");
    for (agent, process) in [
        (agent, &mut pair.source),
        (pair.at_destination.take().unwrap(), &mut pair.destination),
    ] {
        agent.ask(&Request::Close { finished: false }).unwrap();
        process.ends();
    }
}

#[test]
fn a_process_that_no_agent_comes_to_closes_its_session_and_ends() {
    let mut pair = pair(Duration::from_millis(300));
    let (mut near, mut far) = pair.channel();
    carries(&near, &far, 1_000_000);
    pair.at_source = None;
    pair.at_destination = None;
    pair.source.ends();
    pair.destination.ends();
    assert_eq!(
        near.read(&mut [0; 1]).unwrap(),
        0,
        "QEMU sees its channel close"
    );
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0, "so does the other one");
}

#[test]
fn after_a_cut_nothing_more_reaches_qemu() {
    let mut pair = pair(PATIENCE);
    let (near, far) = pair.channel();
    let writing = thread::spawn(move || {
        // Until it is closed.
        while (&near).write_all(&content(100_000)).is_ok() {}
    });
    let agent = pair.at_destination.take().unwrap();
    (&far).read_exact(&mut vec![0; 1_000_000]).unwrap();
    agent.ask(&Request::Cut).unwrap();
    // What is in QEMU's socket is all that there will ever be.
    let mut rest = Vec::new();
    (&far).read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 1_000_000, "{} bytes", rest.len());
    agent.ask(&Request::Close { finished: false }).unwrap();
    pair.destination.ends();
    // The other end was not told, and waits for a lane.
    let at_source = pair.at_source.take().unwrap();
    at_source.ask(&Request::Close { finished: false }).unwrap();
    pair.source.ends();
    writing.join().unwrap();
}

#[test]
fn a_new_agent_replaces_the_old_one() {
    let mut process = process();
    let old = process.agent(0);
    let new = process.agent(0);
    old.is_left();
    assert!(matches!(
        old.ask(&Request::Close { finished: false }),
        Err(ControlError::Gone(_))
    ));
    new.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}

/// A connection to who greets as a process does, hears the beginning of a line, and then does this.
fn connected(
    directory: &tempfile::TempDir,
    then: impl FnOnce(UnixStream) + Send + 'static,
) -> (Control, Receiver<Heard>) {
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let (mut agent, _) = listener.accept().unwrap();
        let greeting = format!(
            r#"{{"is":"greeting","protocol":{PROTOCOL},"version":"0.0.0","pid":0,"start_time":0}}"#
        );
        writeln!(agent, "{greeting}").unwrap();
        agent.read_exact(&mut [0]).unwrap();
        then(agent);
    });
    let (tell, heard) = channel();
    let hear = move |what| drop(tell.send(what));
    let (control, _) = Control::connect(&socket, hear).unwrap();
    (control, heard)
}

#[test]
fn what_was_only_said_is_answered_by_who_has_heard_it() {
    let mut process = process();
    let agent = process.agent(0);
    let close = Request::Close { finished: false };
    let mut said = agent.control.post(&close).unwrap();
    agent.is_left();
    assert!(said.is_answered());
    // It stays so.
    assert!(said.is_answered());
    process.ends();

    let directory = tempfile::tempdir().unwrap();
    let (control, heard) = connected(&directory, drop);
    let mut said = control.post(&close).unwrap();
    while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Heard::Gone) {}
    assert!(!said.is_answered());
}

#[test]
fn a_process_that_does_not_listen_is_told_from_one_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (end, hangs) = channel::<()>();
    let (control, _heard) = connected(&directory, move |_agent| {
        let _ = hangs.recv();
    });
    // Twice what a socket and what is on its way in it hold.
    let holds = std::fs::read_to_string("/proc/sys/net/core/wmem_default").unwrap();
    let holds: usize = holds.trim().parse().unwrap();
    let much = Request::LinkLost {
        path: PathId(0),
        reason: "x".repeat(4 * holds),
    };
    let silent = control.post(&much).unwrap_err();
    assert!(matches!(silent, ControlError::Silent { .. }), "{silent}");
    drop(end);
    let gone = control.request(&Request::Report, None).unwrap_err();
    assert!(matches!(gone, ControlError::Gone(_)), "{gone}");
}

#[test]
fn paths_are_kept_once_each_and_no_more_of_them_than_a_session_takes() {
    let mut process = process();
    let agent = process.agent(0);
    let start = process.start(Side::Destination, PATIENCE);
    agent.ask(&Request::Start(start)).unwrap();
    let add = |number: u16| {
        let id = PathId(number);
        let path = Path {
            id,
            ..paths().remove(0)
        };
        agent.ask(&Request::AddPath { path })
    };
    let most = PATHS_KEPT as u16;
    for number in (0..most).chain(0..most) {
        add(number).unwrap();
    }
    let reason = refused(add(most));
    assert!(reason.contains("65 paths, 64 are possible"), "{reason}");
    let again = process.agent(0);
    let kept: Vec<u16> = again.state.paths.iter().map(|path| path.id.0).collect();
    assert!(kept.iter().copied().eq(0..most), "{kept:?}");
    again.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}

#[test]
fn requests_that_make_no_sense_are_refused_with_a_reason() {
    let mut process = process();
    let agent = process.agent(0);
    let lane = Request::Lane {
        preamble: vec![0; PREAMBLE_BYTES],
        left: Duration::from_secs(5),
    };
    assert!(refused(agent.ask(&lane)).contains("carries nothing"));
    let mut start = process.start(Side::Source, PATIENCE);
    start.window = 60_000;
    let reason = refused(agent.ask(&Request::Start(start.clone())));
    assert!(reason.contains("windows of 60000 chunks"), "{reason}");
    start.window = 6;
    agent.ask(&Request::Start(start.clone())).unwrap();
    assert!(refused(agent.ask(&Request::Start(start))).contains("already"));
    assert!(refused(agent.ask(&lane)).contains("expects no lane"));
    let [keys, _] = keys();
    let mut bad = keys.clone();
    bad.tls.as_mut().unwrap().peer = "nobody".into();
    assert!(refused(agent.ask(&Request::Expect(bad))).contains("fingerprint"));
    agent.ask(&Request::Expect(keys.clone())).unwrap();
    assert!(refused(agent.ask(&Request::Expect(keys.clone()))).contains("already"));
    assert!(refused(agent.ask(&lane)).contains("no connection came"));
    let file = tempfile::tempfile().unwrap();
    let until = Instant::now() + PATIENCE;
    let taken = agent
        .control
        .hand_over(&[0; PREAMBLE_BYTES], file.as_fd(), until);
    assert!(!taken.unwrap_err().reason.is_empty());
    let open = Open {
        keys,
        port: 1,
        paths: paths(),
        lanes_per_path: 1,
        lanes_most: 1,
    };
    let reason = refused(agent.control.open(open).map(drop));
    assert!(
        reason.contains("no lane could be opened: lane 0 on path 0"),
        "{reason}"
    );
    agent.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}

#[test]
fn what_is_no_request_costs_the_connection_and_nothing_else() {
    let mut process = process();
    for bad in [
        "{}\n",
        "\n",
        "{\"number\":1,\"request\":{\"do\":\"dance\"}}\n",
        "\u{0}\n",
    ] {
        let mut stream = UnixStream::connect(process.place.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bad.as_bytes()).unwrap();
        let mut said = String::new();
        // It greets, and closes; with what was sent unread, that is a reset.
        let _ = stream.read_to_string(&mut said);
        assert!(!said.contains("answer"), "{said}");
    }
    let agent = process.agent(0);
    agent.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}
