//! What the relay itself costs: two relays in one process over loopback, with threads where the
//! QEMUs would be that only write and read.
//!
//! `cargo bench -p drover-relay -- [GIB] [CHANNELS] [LANES_PER_PATH]` prints throughput and CPU
//! seconds per GiB of both relays together, the endpoints' own threads not counted; for bytes that
//! stay in the kernel, that are copied, and that are encrypted, in turn.

#![allow(clippy::unwrap_used)] // a benchmark that cannot run says so by its panic

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{
    Event, Identity, LaneListener, Order, Relay, Security, Settings, Tls, new_token, open_lanes,
    sizes,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};
use rustix::time::{ClockId, clock_gettime};

const GIB: u64 = 1 << 30;
const REPEATS: usize = 5;

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `work` and returns the CPU time of the thread that did it.
fn timed(work: impl FnOnce()) -> Duration {
    let before = cpu(ClockId::ThreadCPUTime);
    work();
    cpu(ClockId::ThreadCPUTime) - before
}

fn write(mut to: UnixStream, mut left: u64) {
    // As QEMU's multifd: packets of 128 pages.
    let packet = vec![0x5a; 512 << 10];
    while left > 0 {
        let count = left.min(packet.len() as u64) as usize;
        to.write_all(&packet[..count]).unwrap();
        left -= count as u64;
    }
    to.shutdown(Shutdown::Write).unwrap();
}

fn read(mut from: UnixStream, expected: u64) {
    let mut packet = vec![0; 512 << 10];
    let mut seen = 0;
    loop {
        match from.read(&mut packet).unwrap() {
            0 => break,
            count => seen += count as u64,
        }
    }
    assert_eq!(seen, expected);
}

/// The source's and the destination's.
fn securities(encrypted: bool) -> (Security, Security) {
    if !encrypted {
        return (Security::Plain, Security::Plain);
    }
    let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    (
        Security::Tls(Tls::new(&near, far.fingerprint()).unwrap()),
        Security::Tls(Tls::new(&far, near.fingerprint()).unwrap()),
    )
}

/// A way through both relays.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Bytes stay in the kernel.
    Splice,
    /// They pass through the relays' memory as they are.
    Copy,
    /// They are encrypted there.
    Encrypt,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Splice, "splice"),
    (Way::Copy, "copy"),
    (Way::Encrypt, "encrypt"),
];

fn run(way: Way, bytes: u64, channels: u16, lanes_per_path: u16) -> (f64, f64) {
    let directory = tempfile::tempdir().unwrap();
    let (near, far) = (directory.path().join("near"), directory.path().join("far"));
    let id = MigrationId::from_bytes([1; 16]);
    let token = new_token().unwrap();
    let (security, theirs) = securities(matches!(way, Way::Encrypt));
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
    let paths = vec![path(0), path(1)];
    let settings = Settings {
        sizes: sizes(&[None, None], channels),
        channels_max: channels,
        outage_limit: Duration::ZERO,
        pass_through: matches!(way, Way::Splice),
        verify: false,
        reduction: None,
    };
    let (tell, events) = channel();
    let source = Relay::source(settings, &near, |_| {}).unwrap();
    let destination = Relay::destination(settings, &far, move |event| drop(tell.send(event)));
    let destination = Arc::new(destination.unwrap());
    let listener = LaneListener::hold(0).unwrap();
    let expected = listener.expect(id, token.clone(), theirs, &destination);
    assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
    let qemu = UnixListener::bind(&far).unwrap();
    let port = listener.port();
    for (plan, lane) in open_lanes(&Order {
        migration: id,
        token,
        security,
        port,
        paths,
        lanes_per_path,
        lanes_most: 0,
    })
    .lanes
    {
        source.add_lane(plan.lane, plan.path, lane).unwrap();
    }
    let each = bytes / u64::from(channels);
    let (began, cpu_before) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
    let endpoints: Vec<_> = (0..channels)
        .flat_map(|_| {
            let to = UnixStream::connect(&near).unwrap();
            let from = qemu.accept().unwrap().0;
            [
                thread::spawn(move || timed(|| write(to, each))),
                thread::spawn(move || timed(|| read(from, each))),
            ]
        })
        .collect();
    let endpoints: Duration = endpoints
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let elapsed = began.elapsed();
    let relays = cpu(ClockId::ProcessCPUTime) - cpu_before - endpoints;
    assert!(matches!(events.recv(), Ok(Event::Ended { .. })));
    let gib = bytes as f64 / GIB as f64;
    (gib / elapsed.as_secs_f64(), relays.as_secs_f64() / gib)
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (
        values[values.len() / 2],
        values[0],
        values[values.len() - 1],
    )
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<u64>().ok());
    let gib = numbers.next().unwrap_or(4);
    let channels = numbers.next().unwrap_or(2) as u16;
    let lanes = numbers.next().unwrap_or(2) as u16;
    println!("{gib} GiB, {channels} channels, 2 paths with {lanes} lanes each, {REPEATS} runs");
    // In turn, so that what else the machine does falls on all alike.
    let runs: Vec<_> = (0..REPEATS)
        .map(|_| WAYS.map(|(way, _)| run(way, gib * GIB, channels, lanes)))
        .collect();
    for (number, (_, name)) in WAYS.iter().enumerate() {
        let (rate, low, high) = median(runs.iter().map(|run| run[number].0).collect());
        println!("{name:8} throughput        {rate:.2} GiB/s (from {low:.2} to {high:.2})");
        let (cost, low, high) = median(runs.iter().map(|run| run[number].1).collect());
        println!("{name:8} CPU of the relays {cost:.3} s/GiB (from {low:.3} to {high:.3})");
    }
}
